//! Detects requests that a chain of Tributaries returns to a process that has forwarded them.
//!
//! Each process appends a random id to the header `Tributary-Via` of every request that it sends to a cluster. The
//! header is input of clients, and has no other use.

use std::sync::LazyLock;

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The header with the ids of the processes that have forwarded a request.
pub(crate) const TRIBUTARY_VIA: HeaderName = HeaderName::from_static("tributary-via");

/// Maximum number of processes that forward a request.
const PROCESSES_MAX: usize = 16;

/// The id of this process: 8 random bytes in hexadecimal form.
static OWN_ID: LazyLock<HeaderValue> = LazyLock::new(|| {
    let id = format!("{:016x}", rand::random::<u64>());
    // This cannot fail, because hexadecimal digits are valid in a header.
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("0"))
});

/// The reason why a request is refused: it has passed this process before, or too many processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestLoop {
    /// This process has forwarded the request before.
    #[error("the request returns to this server: an address of a cluster leads back here through other servers")]
    Returned,
    /// More processes have forwarded the request than a useful chain has.
    #[error("the request has passed {PROCESSES_MAX} servers: an address of a cluster leads back to one of them")]
    TooLong,
}

pub(crate) fn append_own_id(headers: &mut HeaderMap) {
    headers.append(TRIBUTARY_VIA, OWN_ID.clone());
}

/// Checks that a request has not passed this process before.
///
/// # Errors
/// [`RequestLoop`].
pub fn check_request_loop(headers: &HeaderMap) -> Result<(), RequestLoop> {
    let mut count = 0;
    for line in headers.get_all(TRIBUTARY_VIA) {
        for id in line.as_bytes().split(|byte| *byte == b',') {
            count += 1;
            if id.trim_ascii() == OWN_ID.as_bytes() {
                return Err(RequestLoop::Returned);
            }
        }
    }
    if count >= PROCESSES_MAX { Err(RequestLoop::TooLong) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_that_returns_to_the_same_process_is_refused_as_a_loop() {
        let mut headers = HeaderMap::new();
        assert_eq!(check_request_loop(&headers), Ok(()));
        headers.append(TRIBUTARY_VIA, HeaderValue::from_static("0123456789abcdef, x"));
        assert_eq!(check_request_loop(&headers), Ok(()), "other processes have forwarded the request");
        append_own_id(&mut headers);
        assert_eq!(check_request_loop(&headers), Err(RequestLoop::Returned));
        let joined = format!("a,{}", OWN_ID.to_str().unwrap());
        let headers = HeaderMap::from_iter([(TRIBUTARY_VIA, HeaderValue::try_from(joined).unwrap())]);
        assert_eq!(check_request_loop(&headers), Err(RequestLoop::Returned));
        let long = HeaderValue::try_from(vec!["a"; PROCESSES_MAX].join(",")).unwrap();
        let headers = HeaderMap::from_iter([(TRIBUTARY_VIA, long)]);
        assert_eq!(check_request_loop(&headers), Err(RequestLoop::TooLong));
    }
}
