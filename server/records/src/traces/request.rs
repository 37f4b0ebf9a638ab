//! Records the trace spans of a request.

use std::sync::Arc;
use std::time::SystemTime;

use http::{Method, Request, Response};
use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tokio::time::Instant;
use tributary_apimachinery::METHODS;
use tributary_router::{RequestArrival, RequestReading, RequestTrace, TraceContext, TracedStage, User};

use super::parent::Parent;
use super::trace_choice::may_choose_trace;
use super::tracer::Tracer;
use crate::text::Text;

/// The trace state of a request that is sampled, or may become sampled after authentication.
pub struct TracedRequest {
    tracer: Arc<Tracer>,
    /// The request's own span. The request's span starts a new trace, or continues the client's trace if the user may
    /// choose the trace.
    context: TraceContext,
    /// The client's span from the header `traceparent`.
    client: Option<Parent>,
    /// True if the request's span belongs to the client's trace.
    continues_client_trace: bool,
    /// True if the sampling rate selects the request. The rate decides for requests without a client's trace, and for
    /// users who may not choose the trace.
    is_sampled_by_rate: bool,
    received: SystemTime,
    started: Instant,
    /// The HTTP method, or `_OTHER` for an unknown method.
    method: &'static str,
    path: Text<'static>,
    reading: Option<RequestReading>,
    trace: RequestTrace,
    is_known: bool,
    /// The status of the answer. `None` if the client cancelled the request before the answer.
    status: Option<u16>,
}

impl Tracer {
    /// Creates the trace state of a new request. Returns `None` if the request is not sampled and its client sends no
    /// `traceparent`.
    pub fn begin<B>(self: &Arc<Self>, request: &Request<B>) -> Option<Box<TracedRequest>> {
        let (client, is_sampled_by_rate) = (Parent::from_headers(request.headers()), self.samples());
        (is_sampled_by_rate || client.is_some_and(|client| client.is_sampled)).then(|| {
            let (trace_id, span_id) = (rand::random::<u128>().max(1), rand::random::<u64>().max(1));
            Box::new(TracedRequest {
                tracer: Arc::clone(self),
                context: TraceContext { trace_id, span_id },
                client,
                continues_client_trace: false,
                is_sampled_by_rate,
                received: SystemTime::now(),
                started: Instant::now(),
                method: known_method(request.method()),
                path: Text::new(request.uri().path()).into_owned(),
                reading: None,
                trace: RequestTrace::default(),
                is_known: false,
                status: None,
            })
        })
    }
}

/// Returns the method by OpenTelemetry's convention. All unknown methods share one name, so that clients cannot create
/// an unbounded number of names.
fn known_method(method: &Method) -> &'static str {
    METHODS.into_iter().map(|(known, _)| known).find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}

impl TracedRequest {
    /// Stores the request's parsed target and its router trace.
    pub fn record_target(&mut self, arrival: &RequestArrival) {
        self.reading = Some(arrival.reading.clone());
        self.trace = arrival.trace.clone();
    }

    /// Decides, after authentication, whether the request is sampled. Returns `None` for a request that is not sampled.
    /// A user for whom `may_choose_trace` is true decides by the `traceparent` header. For all other users, the
    /// sampling rate decides. Requests that fail authentication have no trace, so that clients without credentials
    /// cannot fill the collector.
    pub fn set_user(mut self: Box<Self>, user: &User) -> Option<Box<Self>> {
        let trace_choice = self.client.filter(|_| may_choose_trace(user));
        if !trace_choice.map_or(self.is_sampled_by_rate, |client| client.is_sampled) {
            return None;
        }
        if let Some(client) = trace_choice {
            self.context.trace_id = client.trace_id;
            self.continues_client_trace = true;
        }
        self.is_known = true;
        self.trace.sample(self.context);
        Some(self)
    }

    /// Stores the status of the answer, and queues the spans.
    pub fn finish<B>(mut self, response: &Response<B>) {
        self.status = Some(response.status().as_u16());
    }

    fn own_span(&self, dropped: u32) -> SpanData {
        let info = self.reading.as_ref().and_then(|reading| reading.info().ok());
        let verb = info.map_or("", |info| info.verb.as_str());
        let mut attributes = vec![
            KeyValue::new("http.request.method", self.method),
            KeyValue::new("url.path", self.path.as_str().to_owned()),
            KeyValue::new("tributary.verb", verb),
            KeyValue::new("tributary.answered_by", self.trace.answered_by().into_owned()),
        ];
        if let Some(status) = self.status {
            attributes.push(KeyValue::new("http.response.status_code", i64::from(status)));
        }
        if let Some(decision) = self.trace.decision() {
            attributes.push(KeyValue::new("tributary.decision", decision.as_str()));
        }
        if let Some(id) = self.trace.audit_id().and_then(|id| id.to_str().ok()) {
            attributes.push(KeyValue::new("audit-id", id.to_owned()));
        }
        if dropped > 0 {
            attributes.push(KeyValue::new("tributary.stages_left_out", i64::from(dropped)));
        }
        // A span's name contains the resource only if a cluster serves it, and never the name of an object, nor a path.
        // So the number of distinct names stays small.
        let name = match self.trace.served_resource() {
            Some(resource) => format!("{verb} {resource}"),
            None => self.method.to_owned(),
        };
        let (parent, linked) = match self.continues_client_trace {
            true => (self.client, None),
            false => (None, self.client),
        };
        let is_fault = self.status.is_some_and(|status| status >= 500);
        let ended = self.received + self.started.elapsed();
        let times = (self.received, ended);
        let parent_id = parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.span_id));
        let mut span = self.span(name, (self.context.span_id, parent_id), SpanKind::Server, times, attributes);
        span.parent_span_is_remote = parent.is_some();
        span.links.links.extend(linked.map(link));
        if is_fault {
            span.status = Status::error("");
        }
        span
    }

    fn span_of(&self, stage: &TracedStage) -> SpanData {
        let at = |instant: Instant| self.received + instant.saturating_duration_since(self.started);
        let mut attributes = Vec::new();
        if let Some(cluster) = &stage.cluster {
            attributes.push(KeyValue::new("tributary.cluster", cluster.to_string()));
        }
        if let Some(status) = stage.status {
            attributes.push(KeyValue::new("http.response.status_code", i64::from(status)));
        }
        let kind = if stage.cluster.is_some() { SpanKind::Client } else { SpanKind::Internal };
        let ids = (stage.span_id, SpanId::from(self.context.span_id));
        self.span(stage.name.to_owned(), ids, kind, (at(stage.began), at(stage.ended)), attributes)
    }

    fn span(
        &self,
        name: String,
        (id, parent): (u64, SpanId),
        kind: SpanKind,
        (start_time, end_time): (SystemTime, SystemTime),
        attributes: Vec<KeyValue>,
    ) -> SpanData {
        let (trace_id, id) = (TraceId::from(self.context.trace_id), SpanId::from(id));
        SpanData {
            span_context: SpanContext::new(trace_id, id, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: kind,
            name: name.into(),
            start_time,
            end_time,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("tributary").build(),
        }
    }
}

/// Links the request's span to a client's span that is not its parent.
fn link(client: Parent) -> Link {
    let flags = if client.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let (trace_id, span_id) = (TraceId::from(client.trace_id), SpanId::from(client.span_id));
    Link::with_context(SpanContext::new(trace_id, span_id, flags, true, TraceState::NONE))
}

impl Drop for TracedRequest {
    /// Queues the spans. A cancelled request's spans are queued, too, because members may already have received the
    /// request's trace.
    fn drop(&mut self) {
        if !self.is_known {
            return;
        }
        let (stages, dropped) = self.trace.stages();
        let mut spans: Vec<_> = stages.iter().map(|stage| self.span_of(stage)).collect();
        spans.push(self.own_span(dropped));
        self.tracer.send(spans);
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{ClusterName, Mount};
    use tributary_authentication::Authority;

    use super::*;
    use crate::traces::TracingConfiguration;

    fn tracer(sampling_rate_per_million: u32) -> Arc<Tracer> {
        let endpoint = "http://localhost:4317".to_owned();
        Tracer::start(&TracingConfiguration { endpoint, sampling_rate_per_million }).unwrap()
    }

    fn traced(method: &str, path: &str, read: &str) -> Box<TracedRequest> {
        let tracer = tracer(1_000_000);
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let mut traced = tracer.begin(&request).unwrap();
        traced.record_target(&RequestArrival::new(Mount::Merged, request.method(), &read.parse().unwrap()));
        traced
    }

    fn value(span: &SpanData, key: &'static str) -> String {
        let found = span.attributes.iter().find(|attribute| attribute.key == opentelemetry::Key::from_static_str(key));
        found.map(|attribute| attribute.value.to_string()).unwrap_or_default()
    }

    #[tokio::test]
    async fn span_verb_comes_from_the_parsed_request() {
        assert_eq!(value(&traced("GET", "/version", "/api/v1/pods").own_span(0), "tributary.verb"), "list");
    }

    /// For users who may not choose the trace, the sampling rate decides, and a sampled request gets a new trace.
    #[tokio::test]
    async fn client_trace_context_is_obeyed_only_for_trusted_users() {
        const CLIENT: u128 = 0xabc;
        let eu = ClusterName::new("eu").unwrap();
        for (authority, group, may_choose_trace) in [
            (Authority::Personal, "", true),
            (Authority::ClientCertificates, "dev", false),
            (Authority::ClientCertificates, "system:masters", true),
            (Authority::ClientCertificates, "system:monitoring", true),
            (Authority::FrontProxy, "system:monitoring", true),
            (Authority::from("https://issuer"), "system:masters", false),
            (Authority::Member(eu.clone()), "system:masters", false),
            (Authority::ClientCertificatesOf(eu.clone()), "system:masters", false),
        ] {
            let mut user = User::named(authority.clone(), "ann");
            user.info.groups.push(group.to_owned());
            for (rate, flags, asks) in [(0, "01", true), (1_000_000, "00", false), (1_000_000, "01", true)] {
                let header = format!("00-{CLIENT:032x}-{:016x}-{flags}", 1);
                let request = Request::get("/version").header("traceparent", header).body(()).unwrap();
                let known = tracer(rate).begin(&request).unwrap().set_user(&user);
                let expected = if may_choose_trace { asks } else { rate > 0 };
                let told = format!("{authority:?} {group} {rate} {flags}");
                assert_eq!(known.is_some(), expected, "{told}");
                let Some(traced) = known else { continue };
                let span = traced.own_span(0);
                let is_clients = span.span_context.trace_id() == TraceId::from(CLIENT);
                let is_part = span.parent_span_id == SpanId::from(1_u64);
                let links: Vec<_> = span.links.iter().map(|link| link.span_context.trace_id()).collect();
                assert_eq!((is_clients, is_part), (may_choose_trace, may_choose_trace), "{told}");
                assert_eq!(links, if may_choose_trace { Vec::new() } else { vec![TraceId::from(CLIENT)] }, "{told}");
                assert_eq!(traced.trace.context(), Some(traced.context), "clusters are told of it: {told}");
            }
        }
    }

    /// Thousands of spans may wait for a slow collector. If a span is too long, the collector rejects the span's whole
    /// batch.
    #[tokio::test]
    async fn client_text_cannot_lengthen_a_span_or_choose_its_name() {
        let long = format!("/api/v1/{}", "x".repeat(60 << 10));
        let span = traced("OWN", &long, &long).own_span(0);
        assert_eq!((&*span.name, value(&span, "http.request.method").as_str()), ("_OTHER", "_OTHER"));
        let bytes: usize = span.attributes.iter().map(|attribute| attribute.value.to_string().len()).sum();
        assert!(bytes < 1 << 10, "{bytes}");
    }
}
