//! Constructors of answers with the headers that kube-apiserver sets on every answer.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use tributary_sharing::body::{self, Body};

/// Returns an answer whose body is this JSON text.
pub fn json(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_content_type(status, "application/json", body::full(text.into()))
}

/// Returns an answer whose body has this content type.
pub fn with_content_type(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
