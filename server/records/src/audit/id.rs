//! The audit ID of a request, which identifies the request in every log.

use http::{HeaderMap, HeaderValue, Response};
use tributary_apimachinery::body::Body;
use tributary_router::AUDIT_ID;

const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";

/// The offset of each byte's two hexadecimal digits in the text of a UUID.
const DIGIT_OFFSETS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// Generates an audit ID: a random UUID (RFC 9562, version 4).
pub(crate) fn new_audit_id() -> HeaderValue {
    let bits = rand::random::<u128>() & !(0xf << 76 | 0b11 << 62) | 4 << 76 | 0b10 << 62;
    // Every request gets an ID. `format!` would take ten times as long as this loop.
    let mut text = [b'-'; 36];
    for (place, byte) in DIGIT_OFFSETS.into_iter().zip(bits.to_be_bytes()) {
        text[place] = HEXADECIMAL[usize::from(byte >> 4)];
        text[place + 1] = HEXADECIMAL[usize::from(byte & 0xf)];
    }
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

/// The longest accepted audit ID from a client, in bytes. kube-apiserver's log has the same limit (`maxAuditIDLength`
/// in apiserver's `pkg/audit/context.go`). Every event contains the ID, even for an unauthenticated request.
const CLIENT_ID_BYTES_MAX: usize = 64;

/// Returns the client's audit ID, if the ID is short enough and printable.
pub(crate) fn client_audit_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_well = |given: &&HeaderValue| {
        !given.is_empty() && given.len() <= CLIENT_ID_BYTES_MAX && given.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    // The ID is copied, because a slice would retain the memory of the whole request head until the answer ends.
    headers.get(AUDIT_ID).filter(is_well).and_then(|given| HeaderValue::from_bytes(given.as_bytes()).ok())
}

/// Adds the audit ID to an answer. The value is marked as sensitive, so that HPACK does not put it into HTTP/2's
/// dynamic table: an ID is sent only once, and would displace repeated headers from the table.
pub(crate) fn add_audit_id(mut response: Response<Body>, mut id: HeaderValue) -> Response<Body> {
    id.set_sensitive(true);
    response.headers_mut().insert(AUDIT_ID, id);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_audit_id_is_accepted_if_short_and_printable() {
        for (given, is_taken) in
            [("a-1", true), ("", false), ("a b", false), (&"a".repeat(64), true), (&"a".repeat(65), false)]
        {
            let headers = HeaderMap::from_iter([(AUDIT_ID, HeaderValue::try_from(given).unwrap())]);
            assert_eq!(client_audit_id(&headers).is_some(), is_taken, "{given}");
        }
    }

    /// In HTTP/1.1, all headers share the memory of the whole head, which may have a megabyte.
    #[test]
    fn audit_id_of_a_client_does_not_retain_the_request_head() {
        let head = bytes::Bytes::from(b"one and much more".to_vec());
        let headers = HeaderMap::from_iter([(AUDIT_ID, HeaderValue::from_maybe_shared(head.slice(..3)).unwrap())]);
        let given = client_audit_id(&headers).unwrap();
        drop(headers);
        assert!(given == "one" && head.is_unique());
    }

    #[test]
    fn new_audit_id_is_a_random_uuid() {
        let [one, two] = [(); 2].map(|()| new_audit_id().to_str().unwrap().to_owned());
        assert_ne!(one, two);
        for id in [one, two] {
            let parts: Vec<_> = id.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
            assert_eq!(&id[14..15], "4", "{id}: the version");
            assert!("89ab".contains(&id[19..20]), "{id}: the variant");
        }
    }
}
