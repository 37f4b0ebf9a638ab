//! The audit of one request, from its handler to the end of its answer.

use std::sync::Arc;

use futures::FutureExt;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tributary_apimachinery::body::{Body, empty, full};
use tributary_apimachinery::rewrite::Format;
use tributary_apimachinery::{Permit, RequestClass};
use tributary_audit::{Annotation, AuditBody, BODY_BYTES_MAX, Event, Stage};
use tributary_router::{Answer, ClientUpgrade, RequestTrace};

use super::auditor::Auditor;
use super::bodies::{AuditedBody, ObservedBytes, SharedObservedBytes, observe_request};
use super::emission::Emission;
use super::id::add_audit_id;
use crate::bodies::take_in_memory;

/// The body size above which a blocking thread parses the body and serializes the audit event, in bytes of JSON.
/// Parsing reads about 100 MB a second, so 64 KiB take about half a millisecond. Longer work on the reactor's thread
/// would delay other clients.
const LONG_BYTES: usize = 64 << 10;

/// Number of bytes of JSON that take as long to parse as one byte of YAML.
const YAML_COST: usize = 64;

/// The state of one request for the audit log.
pub struct Trail {
    auditor: Arc<Auditor>,
    id: HeaderValue,
    /// The request's audit event. `None` if the policy selects no event, and after the last event has been written.
    event: Option<Event>,
    trace: RequestTrace,
    is_long_running: bool,
    /// True if the head of the request's answer was sent.
    is_answered: bool,
    request: Option<ObservedRequest>,
    /// The content type and compression of the answer's body; the default until the answer arrives.
    response_form: BodyForm,
    /// The receiver that reports the end of the tunnel of an upgraded connection. At the end, the sender is dropped, so
    /// the receiver always returns an error.
    tunnel: Option<oneshot::Receiver<()>>,
}

#[derive(Debug, Default)]
struct BodyForm {
    content_type: String,
    is_compressed: bool,
}

impl BodyForm {
    /// Estimates the cost of parsing a body, in bytes of JSON with the same parsing time.
    fn parsing_cost(&self, bytes: usize) -> usize {
        match Format::from_content_type(&self.content_type) {
            Some(Format::Yaml | Format::ApplyYaml) => bytes.saturating_mul(YAML_COST),
            _ => bytes,
        }
    }

    /// Reads the content type of a request. Tributary never decompresses an audited request.
    fn for_request(headers: &HeaderMap) -> Self {
        let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Self { content_type: value.unwrap_or_default().to_owned(), is_compressed: false }
    }

    /// Reads the form of an answer. Every `Content-Encoding` counts as gzip, because members send no other encoding.
    fn for_response(headers: &HeaderMap) -> Self {
        Self { is_compressed: headers.contains_key(CONTENT_ENCODING), ..Self::for_request(headers) }
    }
}

struct ObservedRequest {
    form: BodyForm,
    observed: SharedObservedBytes,
}

/// Adds the router's annotations to an event.
fn add_trace_annotations(event: &mut Event, trace: &RequestTrace) {
    if trace.is_impersonation_denied() {
        event.set_impersonation_refused();
    } else if trace.is_same_for_all_users() {
        event.set_impersonation_undecided();
    }
    event.annotate(Annotation::AnsweredBy, trace.answered_by());
    if let Some(policies) = trace.dispatched_by() {
        event.annotate(Annotation::DispatchPolicy, policies);
    }
}

impl Trail {
    pub(crate) fn new(
        auditor: Arc<Auditor>,
        id: HeaderValue,
        trace: RequestTrace,
        event: Option<Event>,
        class: RequestClass,
    ) -> Self {
        let (is_long_running, response_form) = (class.is_long_running(), BodyForm::default());
        let (is_answered, request, tunnel) = (false, None, None);
        Self { auditor, id, event, trace, is_long_running, is_answered, request, response_form, tunnel }
    }

    /// Attaches a guard to an upgraded connection. Dropping the guard reports the end of the tunnel.
    pub(crate) fn follow_upgrade(&mut self, upgrade: Option<&ClientUpgrade>) {
        if let (Some(_), Some(upgrade)) = (&self.event, upgrade) {
            let (ended, tunnel) = oneshot::channel();
            upgrade.permits.push(Permit::from_guard(ended));
            self.tunnel = Some(tunnel);
        }
    }

    /// Wraps the request's body in an observer, if the event includes the body.
    pub(crate) fn follow_request(&mut self, headers: &HeaderMap, body: Body) -> Body {
        if self.is_long_running || !self.event.as_ref().is_some_and(Event::wants_request_body) {
            return body;
        }
        let (body, observed) = observe_request(body);
        self.request = Some(ObservedRequest { form: BodyForm::for_request(headers), observed });
        body
    }

    /// Audits the answer: writes the event of stage ResponseStarted, and observes the body until its end.
    pub async fn finish(self, answer: Answer) -> Answer {
        let Answer { response, has_panicked, class, is_forwarded_watch } = answer;
        let response = self.finish_response(response, has_panicked).await;
        Answer { response, has_panicked, class, is_forwarded_watch }
    }

    async fn finish_response(mut self, response: Response<Body>, has_panicked: bool) -> Response<Body> {
        let mut response = add_audit_id(response, self.id.clone());
        let code = response.status();
        let Some(event) = &mut self.event else { return response };
        self.is_answered = true;
        event.set_response_code(code.as_u16());
        let decision = if code == StatusCode::FORBIDDEN { "forbid" } else { "allow" };
        event.annotate(Annotation::Decision, decision);
        if has_panicked {
            event.set_panicked();
            self.end(Stage::Panic, None).await;
            return response;
        }
        if self.is_long_running {
            response = self.write_response_started(response).await;
        }
        if code == StatusCode::SWITCHING_PROTOCOLS {
            tokio::spawn(self.follow_tunnel());
            return response;
        }
        let wants_body = self.event.as_ref().is_some_and(|event| event.wants_response_body(code.as_u16()));
        let is_error = code.is_client_error() || code.is_server_error();
        let stores_body = wants_body && (is_error || !self.is_long_running);
        if !stores_body {
            let (head, body) = response.into_parts();
            return match take_in_memory(body) {
                Ok(body) => {
                    self.end(Stage::ResponseComplete, None).await;
                    Response::from_parts(head, body)
                }
                Err(body) => Response::from_parts(head, self.observe_response(body, false)),
            };
        }
        self.response_form = BodyForm::for_response(response.headers());
        if hyper::body::Body::is_end_stream(response.body()) {
            self.end(Stage::ResponseComplete, None).await;
            return response;
        }
        response.map(|body| self.observe_response(body, true))
    }

    /// Writes the event of stage ResponseStarted. As in kube-apiserver, the event of a refusal includes the body with
    /// the reason. The body of a refusal is in memory.
    async fn write_response_started(&mut self, response: Response<Body>) -> Response<Body> {
        let (head, body) = response.into_parts();
        let is_error = head.status.is_client_error() || head.status.is_server_error();
        let form = BodyForm::for_response(&head.headers);
        let body = match body {
            body if !is_error || form.is_compressed => body,
            body => match take_in_memory(body).map(BodyExt::collect).map(FutureExt::now_or_never) {
                Ok(Some(Ok(refusal))) => {
                    let refusal = refusal.to_bytes();
                    if let Some(event) = &mut self.event {
                        event
                            .set_response_body(&AuditBody::Whole { content_type: &form.content_type, bytes: &refusal });
                    }
                    full(refusal)
                }
                // `take_in_memory` returns only bodies in memory, so `collect` never waits.
                Ok(_) => empty(),
                Err(body) => body,
            },
        };
        self.write(Stage::ResponseStarted).await;
        Response::from_parts(head, body)
    }

    /// Wraps the answer's body. The event of stage ResponseComplete is written at the end of the body.
    fn observe_response(self, body: Body, stores_body: bool) -> Body {
        AuditedBody::boxed(body, stores_body, move |observed| self.write_response_complete(observed))
    }

    /// Writes the event of stage ResponseComplete. The event includes the answer's body only if the whole body was
    /// observed.
    fn write_response_complete(mut self, observed: Option<ObservedBytes>) -> Emission {
        self.end(Stage::ResponseComplete, observed)
    }

    /// Writes the event of stage ResponseComplete when an upgraded connection closes.
    async fn follow_tunnel(mut self) {
        if let Some(tunnel) = self.tunnel.take() {
            // This wait ends when the permit's sender is dropped, so the result is always an error.
            let _ = tunnel.await;
        }
        self.end(Stage::ResponseComplete, None).await;
    }

    fn write(&mut self, stage: Stage) -> Emission {
        match &mut self.event {
            Some(event) if event.has(stage) => {
                add_trace_annotations(event, &self.trace);
                self.auditor.write(event, stage)
            }
            _ => Emission::Done(true),
        }
    }

    /// Writes the event of the request's last stage.
    fn end(&mut self, stage: Stage, answer: Option<ObservedBytes>) -> Emission {
        let Some(mut event) = self.event.take() else { return Emission::Done(true) };
        if !event.has(stage) {
            return Emission::Done(true);
        }
        add_trace_annotations(&mut event, &self.trace);
        let request = self.request.take();
        let response_form = std::mem::take(&mut self.response_form);
        let auditor = Arc::clone(&self.auditor);
        let for_request = |request: &ObservedRequest| {
            request.form.parsing_cost(request.observed.with_observed(ObservedBytes::stored_bytes))
        };
        let parsing_cost = request.as_ref().map_or(0, for_request)
            + answer.as_ref().map_or(0, |answer| response_form.parsing_cost(answer.stored_bytes()));
        let fill = move |event: &mut Event| {
            if let Some(ObservedRequest { form, observed }) = &request {
                observed.with_observed(|observed| with_body(observed, form, |body| event.set_request_body(body)));
            }
            if let Some(answer) = &answer {
                with_body(answer, &response_form, |body| event.set_response_body(body));
            }
        };
        if parsing_cost <= LONG_BYTES {
            fill(&mut event);
            return auditor.write(&event, stage);
        }
        Emission::waiting(async move {
            let filled = tokio::task::spawn_blocking(move || {
                fill(&mut event);
                event
            });
            match filled.await {
                Ok(event) => auditor.write(&event, stage).await,
                // `spawn_blocking` fails only after the shutdown of the runtime, so the event is lost and the answer
                // continues.
                Err(_) => true,
            }
        })
    }
}

impl Drop for Trail {
    /// Writes the last event if the client disconnected before its answer, or if the process ends during a tunnel.
    fn drop(&mut self) {
        let is_answered = self.is_answered;
        let Some(event) = &mut self.event else { return };
        if !is_answered {
            event.set_response_message("Connection closed early".to_owned());
            event.set_response_code(StatusCode::OK.as_u16());
            if self.is_long_running {
                self.write(Stage::ResponseStarted).detach();
            }
        }
        self.end(Stage::ResponseComplete, None).detach();
    }
}

/// Passes an observed body to `add_body`: a complete body as its data, and a body above the size limit as
/// [`AuditBody::TooLong`]. An incomplete body is not passed.
fn with_body(observed: &ObservedBytes, form: &BodyForm, add_body: impl FnOnce(&AuditBody<'_>)) {
    if observed.is_too_long() {
        add_body(&AuditBody::TooLong);
        return;
    }
    if !observed.is_whole {
        return;
    }
    let text = observed.text();
    let BodyForm { content_type, is_compressed } = form;
    if !is_compressed {
        add_body(&AuditBody::Whole { content_type, bytes: &text });
        return;
    }
    let mut bytes = Vec::new();
    let decoder = flate2::read::MultiGzDecoder::new(text.as_slice());
    let limit = BODY_BYTES_MAX as u64 + 1;
    match std::io::Read::read_to_end(&mut std::io::Read::take(decoder, limit), &mut bytes) {
        Ok(read) if read > BODY_BYTES_MAX => add_body(&AuditBody::TooLong),
        Ok(_) => add_body(&AuditBody::Whole { content_type, bytes: &bytes }),
        // A body that is not gzip is omitted. Members normally send no other encoding.
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use serde_json::Value;
    use tributary_apimachinery::Mount;
    use tributary_router::{RequestArrival, RequestContext};

    use super::super::audited_request::AuditedRequest;
    use super::*;
    use crate::audit::settings::{AuditLogSettings, AuditMode, AuditSettings};
    use crate::line_log::Rotation;

    #[test]
    fn parsing_a_yaml_body_above_a_kilobyte_counts_as_long_work() {
        for (content_type, bytes, is_long) in [
            ("application/json", LONG_BYTES, false),
            ("application/yaml", LONG_BYTES / YAML_COST, false),
            ("application/yaml", LONG_BYTES / YAML_COST + 1, true),
            ("application/apply-patch+yaml; charset=utf-8", LONG_BYTES, true),
        ] {
            let form = BodyForm { content_type: content_type.to_owned(), is_compressed: false };
            assert_eq!(form.parsing_cost(bytes) > LONG_BYTES, is_long, "{content_type} {bytes}");
        }
    }

    /// The process ends without waiting for open `exec` sessions. This test drops its runtime instead.
    #[test]
    fn audit_event_of_an_upgraded_connection_is_written_at_process_end() {
        let folder = tempfile::tempdir().unwrap();
        let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
        std::fs::write(&policy, "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}").unwrap();
        let settings = AuditLogSettings {
            path: log.clone(),
            rotation: Rotation::default(),
            mode: AuditMode::Blocking,
            buffer_size: 1,
            event_bytes_max: None,
        };
        let settings = AuditSettings { policy_file: Some(policy), log: Some(settings), webhook: None };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        // The request's arrival owns the connection's permits. Dropping the permits ends the tunnel.
        let context = runtime.block_on(async {
            let auditor = Auditor::open(&settings).await.unwrap().unwrap();
            let request = Request::post("/api/v1/namespaces/n/pods/p/exec").body(()).unwrap();
            let (mut head, ()) = request.into_parts();
            // `arrival` has a different path than `head`, so that the test detects which path the audit event contains.
            // The event must contain the parsed path of `arrival`.
            let read = http::Uri::from_static("/api/v1/namespaces/n/pods/read/exec");
            let mut arrival = RequestArrival::new(Mount::Merged, &http::Method::POST, &read);
            arrival.upgrade = Some(ClientUpgrade::new(hyper::upgrade::on(Request::new(()))));
            let audited_request = AuditedRequest::assign_id(&auditor, &mut head, false);
            let sender = tributary_router::User::named("test", "ann").into();
            let context = RequestContext { arrival, sender };
            let begun = audited_request.begin(&head, empty(), &context, None).await;
            let (trail, _) = begun.unwrap_or_else(|_| panic!("it is written"));
            let answer = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS).body(empty()).unwrap();
            trail.finish(answer.into()).await;
            context
        });
        drop(runtime);
        drop(context);
        let text = std::fs::read_to_string(log).unwrap();
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<_> = events.iter().map(|event| (&event["stage"], &event["responseStatus"]["code"])).collect();
        let stages =
            [("RequestReceived", Value::Null), ("ResponseStarted", 101.into()), ("ResponseComplete", 101.into())];
        let stages = stages.map(|(stage, code)| (Value::from(stage), code));
        assert_eq!(told, stages.iter().map(|(stage, code)| (stage, code)).collect::<Vec<_>>());
        assert_eq!(events[2]["responseStatus"]["message"], Value::Null);
        assert!(events.iter().all(|event| event["objectRef"]["name"] == "read"), "{events:?}");
    }
}
