//! The answers of the server itself, mostly a `metav1.Status`. The texts of the listener's refusals are in
//! `server/listener/src/refusal.rs`.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use tributary_apimachinery::{Door, Status, StatusReason};
use tributary_hosts::HostRefusal;

use crate::authentication::Unauthenticated;
use crate::handler::{Body, full};

/// The answer 401 to a request without a valid credential. The message contains a reason only for a certificate,
/// because only the certificate's owner can present it. The user-server of Open Cluster Management answers with plain
/// text.
///
/// Source: kubernetes/apiserver `pkg/endpoints/filters/authentication.go`; RFC 9110 requires `WWW-Authenticate`.
pub fn unauthorized(why: &Unauthenticated, door: Door) -> Response<Body> {
    let mut status = Status::unauthorized();
    if let Some(told) = why.message() {
        status.message = format!("{}: {told}", status.message);
    }
    let mut response = match door {
        Door::OpenClusterManagement => plain_text(StatusCode::UNAUTHORIZED, format!("{}\n", status.message)),
        _ => response(&status),
    };
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tributary\""));
    response
}

/// The answer 500 after a panic of the handler. The panic's message is not sent, because it may quote data that the
/// client may not read.
pub fn internal_error() -> Response<Body> {
    let message = "the request was not answered because of an internal error; the log of the server has the cause";
    response(&Status::new(500, StatusReason::InternalError, message))
}

/// The answer to a request whose host selects no API. The request is not authenticated, so the answer names no
/// configured host.
pub fn refused_host(refusal: HostRefusal) -> Response<Body> {
    response(&match refusal {
        HostRefusal::Contradicting => {
            let message = "the request names more than one host; give one, by Host or by :authority";
            Status::new(400, StatusReason::BadRequest, message)
        }
        HostRefusal::Misdirected => {
            let message = "this TLS connection is for a different host (SNI); send the request over a new connection";
            Status::new(421, StatusReason::Unknown, message)
        }
        HostRefusal::Unknown => {
            let message = "no cluster is served at the host of the request; an administrator can give the host to a \
                           cluster (spec.serverNames) or to the merged view (--merged-host)";
            Status::new(503, StatusReason::ServiceUnavailable, message).with_retry_after(UNKNOWN_HOST_RETRY_AFTER)
        }
    })
}

/// The answer 503 at the aggregated entry before the first configuration is in force.
pub fn not_configured() -> Response<Body> {
    let message = "this process has just started and knows no clusters yet; try again";
    response(&Status::service_unavailable(message).with_retry_after(1))
}

/// Replaces a redirect by a 502, for clients that reach this server through the aggregator of a kube-apiserver. 304 is
/// no redirect.
///
/// The aggregator answers such a response with a 502 that names no cause (`rejectForwardingRedirects` in apimachinery
/// `pkg/util/proxy/upgradeaware.go`).
pub fn replace_redirect(answer: Response<Body>) -> Response<Body> {
    if !answer.status().is_redirection() || answer.status() == StatusCode::NOT_MODIFIED {
        return answer;
    }
    let message = format!(
        "the answer is a redirect ({}), and the aggregated API passes on no redirects; send the request to Tributary \
         directly",
        answer.status().as_u16()
    );
    response(&Status::new(502, StatusReason::Unknown, message))
}

/// The `Retry-After` for an unknown host, in seconds. The configuration must change first. KubeGateway uses the same
/// delay.
const UNKNOWN_HOST_RETRY_AFTER: u32 = 60;

/// The answer 400 to an invalid described request for policies.
pub fn invalid_policy_test(message: &str) -> Response<Body> {
    response(&Status::new(400, StatusReason::BadRequest, message))
}

/// The answer 405 to a method that the path does not allow.
pub fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    let message = format!("only {allowed} is allowed here");
    let mut response = response(&Status::new(405, StatusReason::MethodNotAllowed, message));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// The answer to a health check of an unauthenticated sender: one word, without clusters or reasons.
pub fn one_word<B>(checked: &Response<B>) -> Response<Body> {
    plain_text(checked.status(), if checked.status().is_success() { "ok" } else { "failed" })
}

fn plain_text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Converts a Status to an HTTP response with JSON.
pub(crate) fn response(status: &Status) -> Response<Body> {
    let mut response = Response::new(full(status.to_json()));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = status.retry_after_seconds() {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}
