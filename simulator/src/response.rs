//! Builds responses from a status code, headers and a body.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use serde_json::Value;
use tributary_apimachinery::Status;

use crate::body::{self, Body};
use crate::openapi;

/// Returns a document with its hash as the ETag, or 304 if the client has this version.
pub(crate) fn cacheable(headers: &HeaderMap, content_type: &'static str, document: Vec<u8>) -> Response<Body> {
    let hash = openapi::hash(&document);
    tagged(headers, content_type, document, &hash)
}

/// Returns a document with this ETag, or 304 if the client has this version.
pub(crate) fn tagged(headers: &HeaderMap, content_type: &'static str, document: Vec<u8>, hash: &str) -> Response<Body> {
    let etag = format!("\"{hash}\"");
    let is_unchanged = headers.get(http::header::IF_NONE_MATCH).is_some_and(|value| value == etag.as_str());
    let mut response = Response::new(if is_unchanged { body::full(Bytes::new()) } else { body::full(document) });
    if is_unchanged {
        *response.status_mut() = http::StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(http::header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(http::header::ETAG, etag);
    }
    response
}

/// Returns a redirect to the document's current hash, for a request with a previous hash of the document.
pub(crate) fn moved(location: &str) -> Response<Body> {
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = http::StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(http::header::LOCATION, location);
    }
    response
}

pub(crate) fn text(text: &'static str) -> Response<Body> {
    let mut response = Response::new(body::full(text));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Returns the response of a failed health check.
pub(crate) fn not_ok() -> Response<Body> {
    let mut response = text("[-]poststarthook/crd-informer-synced failed: reason withheld\nreadyz check failed\n");
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    response
}

pub(crate) fn json(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

pub(crate) fn json_value(code: u16, value: &Value) -> Response<Body> {
    json(code, body::full(format!("{value}\n")))
}

pub(crate) fn failure(status: &Status) -> Response<Body> {
    let mut response = json(status.code, body::full(status.to_json()));
    if let Some(seconds) = status.retry_after_seconds() {
        response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
