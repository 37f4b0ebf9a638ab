//! The fuzzed property of protobuf bodies: rewriting a body in place has the same result as decoding, modifying and
//! encoding it.

use bytes::Bytes;
use tributary_apimachinery::Status;
use tributary_apimachinery::object::{CLUSTER_ANNOTATION, KARMADA_ANNOTATION};
use tributary_apimachinery::rewrite::{BodyKind, Format, VersionOf, read, rewrite};

use crate::bodies::{SHAPES, translated};
use crate::choice;

const MAGIC: &[u8] = b"k8s\0";

#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldValue {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
}

type Message = Vec<(u64, FieldValue)>;

/// Decodes a message; `None` if the message is malformed. Groups are not supported, because Kubernetes has none.
fn decode(mut bytes: &[u8]) -> Option<Message> {
    let mut message = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => FieldValue::Varint(varint(&mut bytes)?),
            1 => FieldValue::Fixed64(*split_off_bytes(&mut bytes, 8)?.first_chunk()?),
            5 => FieldValue::Fixed32(*split_off_bytes(&mut bytes, 4)?.first_chunk()?),
            2 => {
                let length = varint(&mut bytes)?;
                FieldValue::Bytes(split_off_bytes(&mut bytes, usize::try_from(length).ok()?)?.to_vec())
            }
            _ => return None,
        };
        // Go decoders truncate larger field numbers to 32 bits, and so read another field (`fieldNum := int32(wire >>
        // 3)`).
        (1..1 << 29).contains(&(key >> 3)).then_some(())?;
        message.push((key >> 3, value));
    }
    Some(message)
}

fn split_off_bytes<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value: u128 = 0;
    for shift in 0..10 {
        let byte = split_off_bytes(bytes, 1)?[0];
        value |= u128::from(byte & 0x7f) << (7 * shift);
        if byte & 0x80 == 0 {
            return u64::try_from(value).ok();
        }
    }
    None
}

fn encode(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, value) in message {
        let kind = match value {
            FieldValue::Varint(_) => 0,
            FieldValue::Fixed64(_) => 1,
            FieldValue::Bytes(_) => 2,
            FieldValue::Fixed32(_) => 5,
        };
        put(&mut out, number << 3 | kind);
        match value {
            FieldValue::Varint(number) => put(&mut out, *number),
            FieldValue::Fixed64(bytes) => out.extend_from_slice(bytes),
            FieldValue::Fixed32(bytes) => out.extend_from_slice(bytes),
            FieldValue::Bytes(bytes) => {
                put(&mut out, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
        }
    }
    out
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reason why the reference implementation has no result for an input.
enum Refused {
    Malformed,
    Version(Status),
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self::Version(status)
    }
}

/// A function that rewrites a message or a text.
type MessageRewrite<'a> = &'a mut dyn FnMut(&[u8]) -> Result<Vec<u8>, Refused>;

/// Rewrites each message or text at a path of field numbers.
fn at(bytes: &[u8], path: &[u64], change: MessageRewrite<'_>) -> Result<Vec<u8>, Refused> {
    let [number, rest @ ..] = path else { return change(bytes) };
    let mut message = decode(bytes).ok_or(Refused::Malformed)?;
    for (own, value) in &mut message {
        if let FieldValue::Bytes(contents) = value
            && own == number
        {
            *contents = at(contents, rest, change)?;
        }
    }
    Ok(encode(&message))
}

/// Decodes an entry of a map of strings. Go decoders read the key and the value as strings, whatever their wire type.
fn map_entry(bytes: &[u8]) -> Result<Message, Refused> {
    let entry = decode(bytes).ok_or(Refused::Malformed)?;
    let is_text =
        |(number, value): &(u64, FieldValue)| !matches!(*number, 1 | 2) || matches!(value, FieldValue::Bytes(_));
    if entry.iter().all(is_text) { Ok(entry) } else { Err(Refused::Malformed) }
}

fn last_text(message: &Message, number: u64) -> Result<String, Refused> {
    let texts = message.iter().filter(|(own, _)| *own == number);
    let last = texts
        .filter_map(|(_, value)| if let FieldValue::Bytes(bytes) = value { Some(bytes) } else { None })
        .next_back();
    String::from_utf8(last.cloned().unwrap_or_default()).map_err(|_| Refused::Malformed)
}

/// Returns the expected body after the rewriting of resourceVersions.
fn expected(shape: BodyKind, unknown: &[u8]) -> Result<Vec<u8>, Refused> {
    use VersionOf::{Object, Reference};
    if !last_text(&decode(unknown).ok_or(Refused::Malformed)?, 3)?.is_empty() {
        return Err(Refused::Malformed);
    }
    const OWN: (VersionOf, &[u64]) = (Object, &[2, 1, 6]);
    let places: &[(VersionOf, &[u64])] = match shape {
        BodyKind::Object | BodyKind::Pod | BodyKind::Binding => &[OWN],
        BodyKind::CoreEvent => &[OWN, (Reference, &[2, 2, 6]), (Reference, &[2, 13, 6])],
        BodyKind::Event => &[OWN, (Reference, &[2, 8, 6]), (Reference, &[2, 9, 6])],
        BodyKind::Eviction => &[OWN, (Object, &[2, 2, 2, 2])],
        BodyKind::DeleteOptions => &[(Object, &[2, 2, 2])],
    };
    let mut out = unknown.to_vec();
    for (of, path) in places {
        out = at(&out, path, &mut |version| {
            let version = String::from_utf8(version.to_vec()).map_err(|_| Refused::Malformed)?;
            Ok(if version.is_empty() { version } else { translated(*of, &version)? }.into_bytes())
        })?;
    }
    if shape == BodyKind::DeleteOptions {
        return Ok(out);
    }
    at(&out, &[2, 1], &mut |metadata| {
        let mut kept = Vec::new();
        for (number, value) in decode(metadata).ok_or(Refused::Malformed)? {
            if let (12, FieldValue::Bytes(entry)) = (number, &value)
                && [CLUSTER_ANNOTATION, KARMADA_ANNOTATION].contains(&&*last_text(&map_entry(entry)?, 1)?)
            {
                continue;
            }
            kept.push((number, value));
        }
        Ok(encode(&kept))
    })
}

/// Encodes a message in its canonical form, down to the depth of resourceVersions. Comparisons need the canonical form,
/// because a length may have several encodings, and rewriting keeps the encoding of unchanged fields.
fn canonical(bytes: &[u8], depth: usize) -> Vec<u8> {
    let Some(mut message) = decode(bytes) else { return bytes.to_vec() };
    for (_, value) in &mut message {
        if let (FieldValue::Bytes(contents), 1..) = (value, depth) {
            *contents = canonical(contents, depth - 1);
        }
    }
    encode(&message)
}

/// The number of message levels around a resourceVersion: the envelope, the object, DeleteOptions, preconditions.
const DEPTH: usize = 4;

/// The input is a protobuf body. Rewriting the body in place has the same result as decoding, modifying and encoding
/// it.
pub fn protobuf_body(data: &[u8]) {
    let (kind, text) = choice(data);
    let shape = SHAPES[usize::from(kind) % 5];
    // Half of the inputs get the magic bytes of a protobuf body as a prefix.
    let body = if kind >= 128 { [MAGIC, text].concat() } else { text.to_vec() };
    let body = Bytes::from(body);
    let rewritten = rewrite(Format::Protobuf, shape, &body, false, &mut translated);
    let facts = read(Format::Protobuf, shape, &body);
    if body.is_empty() {
        return;
    }
    let Some(unknown) = body.strip_prefix(MAGIC) else {
        assert!(rewritten.is_err() && facts.is_err());
        return;
    };
    match (rewritten, expected(shape, unknown)) {
        (Ok(rewritten), Ok(expected)) => {
            let sent = rewritten.body.strip_prefix(MAGIC).expect("the result has the magic bytes");
            assert_eq!(canonical(sent, DEPTH), canonical(&expected, DEPTH));
            let again = rewrite(Format::Protobuf, shape, &rewritten.body, false, &mut translated)
                .expect("a rewritten body can be rewritten");
            assert_eq!(again.body, rewritten.body, "rewriting is idempotent");
        }
        (Err(_), Err(_)) => {}
        (Ok(_), Err(Refused::Version(status))) => panic!("{} should have been refused", status.message),
        (Ok(_), Err(Refused::Malformed)) => panic!("a malformed body was rewritten"),
        (Err(status), Ok(_)) => panic!("the body should have been rewritten: {}", status.message),
    }
}
