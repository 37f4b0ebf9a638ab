//! Parses a Status in protobuf, as kube-apiserver sends it to a client that prefers protobuf.

use super::{all, fields, last, last_string, malformed, number, unknown};
use crate::wire;
use crate::{Status, StatusCause, StatusDetails, StatusReason};

mod field {
    //! The field numbers of `Status`, `StatusDetails` and `StatusCause` in apimachinery's `generated.proto`.

    pub(super) const STATUS: u64 = 2;
    pub(super) const MESSAGE: u64 = 3;
    pub(super) const REASON: u64 = 4;
    pub(super) const DETAILS: u64 = 5;
    pub(super) const CODE: u64 = 6;
    pub(super) const DETAILS_NAME: u64 = 1;
    pub(super) const DETAILS_GROUP: u64 = 2;
    pub(super) const DETAILS_KIND: u64 = 3;
    pub(super) const DETAILS_CAUSES: u64 = 4;
    pub(super) const DETAILS_RETRY_AFTER: u64 = 5;
    pub(super) const DETAILS_UID: u64 = 6;
    pub(super) const CAUSE_REASON: u64 = 1;
    pub(super) const CAUSE_MESSAGE: u64 = 2;
    pub(super) const CAUSE_FIELD: u64 = 3;
}

/// Parses a body that is a Status; `None` for any other or an unreadable object. The Status's list metadata is ignored.
pub(in crate::rewrite) fn status(body: &[u8]) -> Option<Status> {
    let unknown = unknown(body).ok()?;
    let kind = last_string(last(unknown, number::TYPE_META).ok()??, number::KIND).ok()??;
    let status = last(unknown, number::RAW).ok()?.filter(|_| kind == "Status")?;
    read(status).ok()
}

fn read(status: &[u8]) -> Result<Status, Status> {
    let details = last(status, field::DETAILS)?.map(read_details).transpose()?;
    Ok(Status {
        success: string(status, field::STATUS)? == "Success",
        code: integer(status, field::CODE)?,
        reason: StatusReason::from(&*string(status, field::REASON)?),
        message: string(status, field::MESSAGE)?,
        details: details.map(Box::new),
        metadata: None,
    })
}

fn read_details(details: &[u8]) -> Result<StatusDetails, Status> {
    let causes = all(details, field::DETAILS_CAUSES).map(|cause| read_cause(cause?));
    Ok(StatusDetails {
        name: string(details, field::DETAILS_NAME)?,
        group: string(details, field::DETAILS_GROUP)?,
        kind: string(details, field::DETAILS_KIND)?,
        uid: string(details, field::DETAILS_UID)?,
        causes: causes.collect::<Result<_, _>>()?,
        retry_after_seconds: integer(details, field::DETAILS_RETRY_AFTER)?,
    })
}

fn read_cause(cause: &[u8]) -> Result<StatusCause, Status> {
    Ok(StatusCause {
        reason: string(cause, field::CAUSE_REASON)?,
        message: string(cause, field::CAUSE_MESSAGE)?,
        field: string(cause, field::CAUSE_FIELD)?,
    })
}

/// Returns the last string of a field; empty for an absent field.
fn string(message: &[u8], number: u64) -> Result<String, Status> {
    last_string(message, number).map(Option::unwrap_or_default)
}

/// Returns the last integer of a field; 0 for an absent or too large integer.
fn integer<I: TryFrom<u64> + Default>(message: &[u8], number: u64) -> Result<I, Status> {
    let mut value = 0;
    for field in fields(message) {
        let field = field?;
        if field.number == number && field.contents.is_none() {
            value = wire::varint(&field.whole[field.tag.len()..]).map_err(|_| malformed())?.0;
        }
    }
    Ok(I::try_from(value).unwrap_or_default())
}

/// Encodes a protobuf body with an object of a kind.
#[cfg(test)]
pub(in crate::rewrite) fn encode_kind(kind: &str, raw: &[u8]) -> Vec<u8> {
    let (mut meta, mut unknown) = (Vec::new(), Vec::new());
    wire::put_field(&mut meta, 1, b"v1");
    wire::put_field(&mut meta, 2, kind.as_bytes());
    wire::put_field(&mut unknown, 1, &meta);
    wire::put_field(&mut unknown, 2, raw);
    [b"k8s\0", &*unknown].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{put_field, put_varint};

    fn put_integer(out: &mut Vec<u8>, number: usize, value: usize) {
        put_varint(out, number << 3);
        put_varint(out, value);
    }

    #[test]
    fn protobuf_status_decodes_with_all_fields() {
        let (mut cause, mut details, mut raw) = (Vec::new(), Vec::new(), Vec::new());
        put_field(&mut cause, 1, b"FieldValueRequired");
        put_field(&mut cause, 2, b"Required value");
        put_field(&mut cause, 3, b"spec");
        put_field(&mut details, 1, b"x");
        put_field(&mut details, 2, b"apps");
        put_field(&mut details, 3, b"Deployment");
        put_field(&mut details, 4, &cause);
        put_integer(&mut details, 5, 7);
        put_field(&mut details, 6, b"u");
        put_field(&mut raw, 1, b"");
        put_field(&mut raw, 2, b"Failure");
        put_field(&mut raw, 3, b"it is invalid");
        put_field(&mut raw, 4, b"Invalid");
        put_field(&mut raw, 5, &details);
        put_integer(&mut raw, 6, 422);
        let cause = StatusCause {
            reason: "FieldValueRequired".to_owned(),
            message: "Required value".to_owned(),
            field: "spec".to_owned(),
        };
        let details = StatusDetails {
            name: "x".to_owned(),
            group: "apps".to_owned(),
            kind: "Deployment".to_owned(),
            uid: "u".to_owned(),
            causes: vec![cause],
            retry_after_seconds: 7,
        };
        let expected = Status::new(422, StatusReason::Invalid, "it is invalid").with_details(details);
        assert_eq!(status(&encode_kind("Status", &raw)), Some(expected));
        assert_eq!(status(&encode_kind("Pod", &raw)), None);
        assert_eq!(status(&encode_kind("Status", b"\x32")), None, "cut off within a field");
        assert_eq!(status(b"{}"), None);
    }
}
