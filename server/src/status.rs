//! The few answers that the server gives itself, as `metav1.Status` but for the plainest.

use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::handler::{Body, full};

/// 401: no credential, or one that is not ours. It does not say which of the two.
///
/// Source: kubernetes/apiserver `pkg/endpoints/filters/authentication.go`; `WWW-Authenticate` is RFC 9110's demand.
pub fn unauthorized() -> Response<Body> {
    let mut response = status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tributary\""));
    response
}

/// 500: the handler panicked. The message of the panic stays inside, because it may quote what the client may not see.
pub fn internal_error() -> Response<Body> {
    status(
        StatusCode::INTERNAL_SERVER_ERROR,
        "InternalError",
        "the request was not answered because of an internal error; the log says where",
    )
}

/// 405: this path knows other methods.
pub fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response =
        status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", &format!("only {allowed} is allowed here"));
    response.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// 429: of what its connection has been answered too much is not taken. Nothing was done for the request, or it is a
/// read.
pub fn too_many_unread() -> Response<Body> {
    let message = "this connection has left 16 MiB of its answers unread, or more than half of what other connections leave free \
                   (--max-unread-bytes); read the answers, or ask for fewer at once";
    too_many_requests(message)
}

/// To be tried again in a second.
fn too_many_requests(message: &str) -> Response<Body> {
    let mut response = status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
    response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// What a health check comes to, for who did not say who they are: neither clusters nor reasons.
pub fn one_word<B>(checked: &Response<B>) -> Response<Body> {
    let mut response = Response::new(full(if checked.status().is_success() { "ok" } else { "failed" }));
    *response.status_mut() = checked.status();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    let mut response = Response::new(full(status.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
