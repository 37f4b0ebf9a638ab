//! Detects requests that a browser sends for a page of another origin.
//!
//! A browser sends a client certificate with every request, whatever page caused the request. Without this check, any
//! page that a user opens could write to the user's clusters. A browser never adds a bearer token by itself, so
//! requests with a token are not checked.

use http::HeaderMap;
use http::header::{HOST, HeaderName, ORIGIN};
use http::request::Parts;

/// The header in which browsers describe the origin of the page (W3C Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns whether a page of another origin caused the request. Programs other than browsers send neither
/// `Sec-Fetch-Site` nor `Origin`.
///
/// If `Sec-Fetch-Site` is present, this header decides, because pages cannot set it. Otherwise `Origin` must match this
/// host. Browsers send `Origin` with each request that may change state, and with each WebSocket handshake.
pub(super) fn is_cross_origin(head: &Parts) -> bool {
    if let Some(site) = head.headers.get(FETCH_SITE) {
        return !matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    let Some(origin) = head.headers.get(ORIGIN) else { return false };
    let own = head.uri.authority().map(|authority| authority.as_str()).or_else(|| host(&head.headers));
    let same = origin.to_str().ok().and_then(|origin| origin.strip_prefix("https://")).zip(own);
    !same.is_some_and(|(origin, own)| without_port(origin).eq_ignore_ascii_case(without_port(own)))
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST)?.to_str().ok()
}

/// Removes the default port of https, which browsers omit in `Origin`.
fn without_port(authority: &str) -> &str {
    authority.strip_suffix(":443").unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_origin_requests_are_recognized() {
        let table: &[(&[(&str, &str)], bool)] = &[
            (&[], false),
            (&[("origin", "https://here:7443")], false),
            (&[("origin", "https://HERE:7443")], false),
            (&[("origin", "http://here:7443")], true),
            (&[("origin", "https://here")], true),
            (&[("origin", "https://evil.example")], true),
            (&[("origin", "null")], true),
            (&[("origin", "https://here:7443.evil.example")], true),
            (&[("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "cross-site"), ("origin", "https://here:7443")], true),
            (&[("sec-fetch-site", "same-origin"), ("origin", "https://evil.example")], false),
        ];
        for (headers, expected) in table {
            for absolute in [true, false] {
                let uri = if absolute { "https://here:7443/api" } else { "/api" };
                let mut request = http::Request::builder().uri(uri).header(HOST, "here:7443");
                for (name, value) in *headers {
                    request = request.header(*name, *value);
                }
                let (head, ()) = request.body(()).unwrap().into_parts();
                assert_eq!(is_cross_origin(&head), *expected, "{headers:?}");
            }
        }
        let request = http::Request::builder().uri("/").header(HOST, "here:443").header(ORIGIN, "https://here");
        assert!(!is_cross_origin(&request.body(()).unwrap().into_parts().0));
    }
}
