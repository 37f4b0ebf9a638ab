//! The ID by which a request is known in every log.

use http::{HeaderMap, HeaderValue, Response};
use tributary_apimachinery::body::Body;
use tributary_router::AUDIT_ID;

/// The digits of an ID.
const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";

/// Where in its text the digits of each byte are.
const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// A new ID: a random UUID (RFC 9562, version 4).
pub(crate) fn new_audit_id() -> HeaderValue {
    let bits = rand::random::<u128>() & !(0xf << 76 | 0b11 << 62) | 4 << 76 | 0b10 << 62;
    // By hand, because each request has one and `format!` takes ten times as long.
    let mut text = [b'-'; 36];
    for (place, byte) in PLACES.into_iter().zip(bits.to_be_bytes()) {
        text[place] = HEXADECIMAL[usize::from(byte >> 4)];
        text[place + 1] = HEXADECIMAL[usize::from(byte & 0xf)];
    }
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

/// The longest ID that a client may give, in bytes: as many as kube-apiserver writes into its own log of one
/// (`maxAuditIDLength` in apiserver's `pkg/audit/context.go`). It stands in each event, also of who is not known.
const GIVEN_BYTES_MAX: usize = 64;

/// The ID that a client gives, if it is one that may stand in a log.
pub(crate) fn given_audit_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_well = |given: &&HeaderValue| {
        !given.is_empty() && given.len() <= GIVEN_BYTES_MAX && given.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    // On its own: it is kept for as long as the request lasts, and as a part of its head would keep all of that.
    headers.get(AUDIT_ID).filter(is_well).and_then(|given| HeaderValue::from_bytes(given.as_bytes()).ok())
}

/// Tells the client a request's ID. HTTP/2 keeps headers that were sent, so that they are sent again by a number; an ID
/// is sent once, and would only push out those that come again. Values that are called sensitive are not kept.
pub(crate) fn marked(mut response: Response<Body>, mut id: HeaderValue) -> Response<Body> {
    id.set_sensitive(true);
    response.headers_mut().insert(AUDIT_ID, id);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_given_is_short_and_plain() {
        for (given, is_taken) in
            [("a-1", true), ("", false), ("a b", false), (&"a".repeat(64), true), (&"a".repeat(65), false)]
        {
            let headers = HeaderMap::from_iter([(AUDIT_ID, HeaderValue::try_from(given).unwrap())]);
            assert_eq!(given_audit_id(&headers).is_some(), is_taken, "{given}");
        }
    }

    /// Over HTTP/1.1 each header is a part of the whole head, which may have a megabyte.
    #[test]
    fn an_id_that_is_given_keeps_nothing_else_of_its_head() {
        let head = bytes::Bytes::from(b"one and much more".to_vec());
        let headers = HeaderMap::from_iter([(AUDIT_ID, HeaderValue::from_maybe_shared(head.slice(..3)).unwrap())]);
        let given = given_audit_id(&headers).unwrap();
        drop(headers);
        assert!(given == "one" && head.is_unique());
    }

    #[test]
    fn a_new_id_is_a_random_uuid() {
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
