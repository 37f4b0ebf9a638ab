//! The audit of a request until its handler runs.

use std::sync::Arc;
use std::time::SystemTime;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use tributary_apimachinery::body::{Body, full};
use tributary_apimachinery::{Query, RequestInfo, Status, StatusReason};
use tributary_audit::{Level, MicroTime, Stage};
use tributary_router::{AUDIT_ID, RequestArrival, RequestContext, RequestTrace};

use super::auditor::{AuditedArrival, Auditor};
use super::id::{add_audit_id, client_audit_id, new_audit_id};
use super::trail::Trail;

/// The presence of each kind of credentials in a request. Detected before authentication removes the credentials from
/// the head.
#[derive(Clone, Copy)]
struct PresentedCredentials([bool; 4]);

/// kube-apiserver's names of the kinds of credentials, in the order of [`PresentedCredentials`].
const METHODS: [&str; 4] = ["basic", "bearer", "access_token", "x509"];

impl PresentedCredentials {
    /// Detects the kinds of credentials in a request's head and on its connection (apiserver
    /// `pkg/endpoints/filters/authn_audit.go`, `getAuthMethods`).
    fn from_head(head: &Parts, has_certificate: bool) -> Self {
        let authorization = head.headers.get(http::header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let has = |name: &str| {
            authorization.map(<[u8]>::trim_ascii).is_some_and(|value| {
                value.get(name.len()) == Some(&b' ') && value[..name.len()].eq_ignore_ascii_case(name.as_bytes())
            })
        };
        // The name `access_token` may be percent-encoded. A query without `%` is searched without decoding.
        let query = head.uri.query().filter(|query| query.contains("access_token") || query.contains('%'));
        let token = query.is_some_and(|query| {
            Query::parse(Some(query)).get("access_token").is_some_and(|token| !token.trim().is_empty())
        });
        Self([has("basic"), has("bearer"), token, has_certificate])
    }

    /// Returns kube-apiserver's event message for a failed authentication.
    fn message(self) -> String {
        let methods: Vec<_> = METHODS.into_iter().zip(self.0).filter(|(_, has)| *has).map(|(name, _)| name).collect();
        match methods.as_slice() {
            [] => "Authentication failed, no credentials provided".to_owned(),
            methods => format!("Authentication failed, attempted: {}", methods.join(", ")),
        }
    }
}

/// A request with an audit ID, before its first event.
pub struct AuditedRequest {
    auditor: Arc<Auditor>,
    id: HeaderValue,
    trace: RequestTrace,
    presented_credentials: PresentedCredentials,
    at: MicroTime,
}

impl AuditedRequest {
    /// Assigns an audit ID to a request before authentication. `has_certificate` tells whether the client presented a
    /// certificate.
    pub fn assign_id(auditor: &Arc<Auditor>, head: &mut Parts, has_certificate: bool) -> Self {
        let id = client_audit_id(&head.headers).unwrap_or_else(new_audit_id);
        let trace = RequestTrace::audited(id.clone());
        head.headers.insert(AUDIT_ID, id.clone());
        let (presented_credentials, at) =
            (PresentedCredentials::from_head(head, has_certificate), MicroTime::from_system_time(SystemTime::now()));
        Self { auditor: Arc::clone(auditor), id, trace, presented_credentials, at }
    }

    /// The router's trace of the request. The trace passes the audit ID to the members.
    pub fn trace(&self) -> &RequestTrace {
        &self.trace
    }

    /// Writes the RequestReceived event, and observes the request's body. `level` is the audit level of a dispatch
    /// policy.
    ///
    /// # Errors
    /// 500 if the event cannot be written in a strict mode.
    pub async fn begin(
        self,
        head: &Parts,
        body: Body,
        context: &RequestContext,
        level: Option<Level>,
    ) -> Result<(Trail, Body), Box<Response<Body>>> {
        let RequestContext { arrival, sender } = context;
        let info = arrival.reading.info().ok();
        let event = self.auditor.event(self.arrival(arrival), head, info, Some(&sender.user), level);
        if let Some(event) = event.as_ref().filter(|event| event.has(Stage::RequestReceived))
            && !self.auditor.write(event, Stage::RequestReceived).await
        {
            self.auditor.metrics.requests_rejected.inc();
            return Err(Box::new(add_audit_id(not_audited(), self.id)));
        }
        let class = info.map(RequestInfo::class).unwrap_or_default();
        let mut trail = Trail::new(self.auditor, self.id, self.trace, event, class);
        trail.follow_upgrade(arrival.upgrade.as_ref());
        let body = trail.follow_request(&head.headers, body);
        Ok((trail, body))
    }

    fn arrival(&self, arrival: &RequestArrival) -> AuditedArrival<'_> {
        AuditedArrival { id: &self.id, at: self.at, peer: arrival.peer }
    }

    /// Writes the event of a request that failed authentication, and adds the audit ID to the answer. As in
    /// kube-apiserver, the request gets only one event, of stage ResponseStarted.
    pub async fn refuse(self, head: &Parts, arrival: &RequestArrival, answer: Response<Body>) -> Response<Body> {
        let event = self.auditor.event(self.arrival(arrival), head, arrival.reading.info().ok(), None, None);
        if let Some(mut event) = event.filter(|event| event.has(Stage::ResponseStarted)) {
            event.set_unauthorized(self.presented_credentials.message());
            self.auditor.write(&event, Stage::ResponseStarted).await;
        }
        add_audit_id(answer, self.id)
    }
}

/// The answer 500 of an unprocessed request whose first event could not be written. The message is kube-apiserver's
/// (apiserver `pkg/endpoints/filters/audit.go`).
fn not_audited() -> Response<Body> {
    let status = Status::new(500, StatusReason::InternalError, "failed to store audit event");
    let mut response = Response::new(full(status.to_json()));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_message_lists_attempted_credentials_as_in_kube_apiserver() {
        for (uri, authorization, has_certificate, expected) in [
            ("/x", "", false, "Authentication failed, no credentials provided"),
            ("/x", "", true, "Authentication failed, attempted: x509"),
            ("/x", "Bearer a", false, "Authentication failed, attempted: bearer"),
            ("/x", "Bearer a", true, "Authentication failed, attempted: bearer, x509"),
            ("/x", "basic a", false, "Authentication failed, attempted: basic"),
            ("/x?access_token=a", "bearer b", false, "Authentication failed, attempted: bearer, access_token"),
            ("/x?access_token=", "bearer", false, "Authentication failed, no credentials provided"),
        ] {
            let request = http::Request::get(uri).header("authorization", authorization).body(()).unwrap();
            assert_eq!(
                PresentedCredentials::from_head(&request.into_parts().0, has_certificate).message(),
                expected,
                "{uri} {authorization}"
            );
        }
    }
}
