//! Protobuf's wire format: splits a message into its fields, without a schema.

/// The error for bytes that are not a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the bytes are not a valid protobuf message")
    }
}

impl std::error::Error for Malformed {}

/// The largest field number. Go decoders truncate a larger number to 32 bits, and see a different field.
///
/// Source: protobuf's language guide ("Assigning Field Numbers"); `fieldNum := int32(wire >> 3)` in `generated.pb.go`.
const NUMBER_MAX: u64 = (1 << 29) - 1;

/// A field of a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The field's number: at least 1, less than 2²⁹.
    pub number: u64,
    /// The raw bytes of the field's tag.
    pub tag: &'a [u8],
    /// The raw bytes of the whole field.
    pub whole: &'a [u8],
    /// The contents of a length-delimited field; `None` for numbers.
    pub contents: Option<&'a [u8]>,
}

/// Iterates over the fields of a message. The iterator allocates nothing; a vector would take fifty bytes for a field
/// of two bytes.
///
/// The last item is [`Malformed`] for a field that ends after the message, or has a number or wire type that protobuf 3
/// lacks.
pub fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

/// The iterator of [`fields`].
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<Field<'a>, Malformed> {
        let rest = self.rest;
        let (key, after_tag) = varint(rest)?;
        let tag = &rest[..rest.len() - after_tag.len()];
        let (contents, after) = match key & 7 {
            0 => (None, varint(after_tag)?.1),
            1 => (None, after_tag.get(8..).ok_or(Malformed)?),
            5 => (None, after_tag.get(4..).ok_or(Malformed)?),
            2 => {
                let (length, after) = varint(after_tag)?;
                let length = usize::try_from(length).map_err(|_| Malformed)?;
                let (contents, after) = after.split_at_checked(length).ok_or(Malformed)?;
                (Some(contents), after)
            }
            _ => return Err(Malformed),
        };
        let number = key >> 3;
        if !(1..=NUMBER_MAX).contains(&number) {
            return Err(Malformed);
        }
        self.rest = after;
        Ok(Field { number, tag, whole: &rest[..rest.len() - after.len()], contents })
    }
}

/// Reads a varint, and returns it with the remaining bytes.
///
/// # Errors
/// [`Malformed`] for a varint without an end, or above 64 bits.
pub fn varint(bytes: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            break;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Ok((value, &bytes[index + 1..]));
        }
    }
    Err(Malformed)
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length-delimited field.
pub fn put_field(out: &mut Vec<u8>, number: u64, contents: &[u8]) {
    put_varint(out, (number as usize) << 3 | 2);
    put_varint(out, contents.len());
    out.extend_from_slice(contents);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_protobuf_fields_decode_to_equal_fields() {
        let mut message = Vec::new();
        put_field(&mut message, 1, b"name");
        message.extend_from_slice(&[2 << 3, 0x96, 0x01]);
        put_field(&mut message, 300, &[7; 200]);
        let found: Vec<_> = fields(&message).collect::<Result<_, _>>().unwrap();
        let shown: Vec<_> = found.iter().map(|field| (field.number, field.contents.map(<[u8]>::len))).collect();
        assert_eq!(shown, [(1, Some(4)), (2, None), (300, Some(200))]);
        assert_eq!(found.iter().map(|field| field.whole).collect::<Vec<_>>().concat(), message);
    }

    #[test]
    fn truncated_or_unknown_protobuf_fields_are_malformed() {
        let mut too_large = Vec::new();
        put_field(&mut too_large, (1 << 32) + 12, b"a field 12 for who cuts its number to 32 bits");
        for bytes in [&*too_large, &[0x0a, 5, 1], &[0x80], &[0x00, 0], &[0x0b], &[0xff; 11], &[0x09, 1], &[0x0d, 1]] {
            assert_eq!(fields(bytes).collect::<Result<Vec<_>, _>>(), Err(Malformed), "{bytes:?}");
        }
    }
}
