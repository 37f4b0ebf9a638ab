//! Sandboxing of answers in browsers, in shared mode.
//!
//! For a browser, all clusters of Tributary are one origin. A page that a workload of one cluster serves through
//! `proxy` could act in every other cluster with the reader's client certificate. So browsers show answers other than
//! API answers without scripts, under a unique origin, and by their declared type.

use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

/// Media types of API answers, without parameters. No browser executes such content.
const OF_APIS: [&str; 4] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];

/// Adds the headers of the sandbox, unless the answer is an API answer or a tunnel.
pub(crate) fn confine<T>(response: &mut Response<T>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS && !is_of_an_api(response.headers()) {
        let headers = response.headers_mut();
        // The header is added to an existing Content-Security-Policy of the answer: browsers apply every policy.
        headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
}

/// Returns whether the answer has exactly one media type, and it is in the list of API media types. If an answer has
/// several types, in one header line or in several lines, browsers use the last type (WHATWG Fetch, "extract a MIME
/// type"). Browsers read each type that ends in `+xml` as XML.
fn is_of_an_api(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(Ok(value)), None) = (types.next().map(HeaderValue::to_str), types.next()) else { return false };
    let media_type = value.split(';').next().unwrap_or_default().trim();
    !value.contains(',') && OF_APIS.iter().any(|known| media_type.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_without_an_api_media_type_get_a_browser_sandbox() {
        let cases = [
            (200, &["application/json"][..], false),
            (404, &["application/json; charset=utf-8"], false),
            (200, &["application/vnd.kubernetes.protobuf;stream=watch"], false),
            (200, &["application/yaml"], false),
            (101, &[], false),
            (200, &[], true),
            (204, &[], true),
            (200, &["text/html"], true),
            (200, &["image/svg+xml"], true),
            (200, &["text/plain"], true),
            (200, &["application/json", "text/html"], true),
            (200, &["application/json, text/html"], true),
            (200, &["application/json;a=b,text/html"], true),
            (200, &["application/json+xml"], true),
            (200, &["application/vnd.kubernetes.page+xml"], true),
        ];
        for (status, types, is_confined) in cases {
            let mut response = Response::builder().status(status);
            for media_type in types {
                response = response.header(CONTENT_TYPE, *media_type);
            }
            let mut response = response.header(CONTENT_SECURITY_POLICY, "default-src *").body(()).unwrap();
            confine(&mut response);
            let policies: Vec<_> = response.headers().get_all(CONTENT_SECURITY_POLICY).iter().collect();
            assert_eq!(policies.len(), if is_confined { 2 } else { 1 }, "{status} {types:?}");
            let sniffing = response.headers().get(X_CONTENT_TYPE_OPTIONS).map(HeaderValue::as_bytes);
            assert_eq!(sniffing, is_confined.then_some(&b"nosniff"[..]), "{status} {types:?}");
        }
    }
}
