//! A request on its way to its spans.

use std::sync::Arc;
use std::time::SystemTime;

use http::request::Parts;
use http::{Method, Request, Response};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tokio::time::Instant;
use tributary_apimachinery::METHODS;
use tributary_router::{RequestReading, RequestTrace, TraceContext, TracedStage};

use super::parent::Parent;
use super::tracer::Tracer;
use crate::records::text::Text;

/// What is known of a request that is sampled.
pub(crate) struct Traced {
    tracer: Arc<Tracer>,
    context: TraceContext,
    parent: Option<Parent>,
    received: SystemTime,
    started: Instant,
    /// One of HTTP's.
    method: &'static str,
    path: Text<'static>,
    reading: Option<RequestReading>,
    trace: RequestTrace,
    is_known: bool,
    /// Of its answer, whose head is known; `None` of what was given up before.
    status: Option<u16>,
}

impl Tracer {
    /// Follows a request that has just arrived, if it is sampled.
    pub(crate) fn begin<B>(self: &Arc<Self>, request: &Request<B>) -> Option<Box<Traced>> {
        let parent = Parent::of(request.headers());
        self.samples(parent).then(|| {
            let random = || rand::random::<u128>().max(1);
            let trace_id = parent.map_or_else(random, |parent| parent.trace_id);
            Box::new(Traced {
                tracer: Arc::clone(self),
                context: TraceContext { trace_id, span_id: rand::random::<u64>().max(1) },
                parent,
                received: SystemTime::now(),
                started: Instant::now(),
                method: known(request.method()),
                path: Text::of(request.uri().path()).into_owned(),
                reading: None,
                trace: RequestTrace::default(),
                is_known: false,
                status: None,
            })
        })
    }
}

/// A method as OpenTelemetry names it: those that nobody knows are one, or clients would make names without end.
fn known(method: &Method) -> &'static str {
    METHODS.into_iter().map(|(known, _)| known).find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}

impl Traced {
    /// The trace and the span that the request's own stages are parts of.
    pub(crate) fn context(&self) -> TraceContext {
        self.context
    }

    /// Its host has been looked at, and what becomes of it is told by what it carries from here on.
    pub(crate) fn placed(&mut self, head: &mut Parts, trace: &RequestTrace) {
        self.reading = Some(RequestReading::of_head(head));
        self.trace = trace.clone();
    }

    /// It is a known user's. Of a stranger's nothing is sent: nobody else is to fill the collector.
    pub(crate) fn known(&mut self) {
        self.is_known = true;
    }

    /// The head of its answer is known: its spans are sent.
    pub(crate) fn finish<B>(mut self, response: &Response<B>) {
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
        // Names of spans are few: no object's name, no path, and no resource that nobody serves.
        let name = match self.trace.served_resource() {
            Some(resource) => format!("{verb} {resource}"),
            None => self.method.to_owned(),
        };
        let parent = self.parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.span_id));
        let is_fault = self.status.is_some_and(|status| status >= 500);
        let ended = self.received + self.started.elapsed();
        let times = (self.received, ended);
        let mut span = self.span(name, (self.context.span_id, parent), SpanKind::Server, times, attributes);
        span.parent_span_is_remote = self.parent.is_some();
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

impl Drop for Traced {
    /// Sends its spans, of a request that was given up as well: clusters may have been told of its trace.
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
    use tributary_apimachinery::Mount;

    use super::*;
    use crate::traces::TracingConfiguration;

    fn traced(method: &str, path: &str, read: &str) -> Box<Traced> {
        let endpoint = "http://localhost:4317".to_owned();
        let tracer = Tracer::start(&TracingConfiguration { endpoint, sampling_rate_per_million: 1_000_000 }).unwrap();
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let mut traced = tracer.begin(&request).unwrap();
        let (mut head, ()) = request.into_parts();
        head.extensions.insert(RequestReading::of(&Mount::Merged, method, read, None));
        traced.placed(&mut head, &RequestTrace::default());
        traced
    }

    fn value(span: &SpanData, key: &'static str) -> String {
        let found = span.attributes.iter().find(|attribute| attribute.key == opentelemetry::Key::from_static_str(key));
        found.map(|attribute| attribute.value.to_string()).unwrap_or_default()
    }

    #[tokio::test]
    async fn a_span_goes_by_the_reading_that_the_request_carries() {
        assert_eq!(value(&traced("GET", "/version", "/api/v1/pods").own_span(0), "tributary.verb"), "list");
    }

    /// Thousands of them may wait for a collector that is slow, and one that is too long is lost with all that are sent
    /// with it.
    #[tokio::test]
    async fn a_client_makes_a_span_neither_long_nor_gives_it_a_name_of_its_own() {
        let long = format!("/api/v1/{}", "x".repeat(60 << 10));
        let span = traced("OWN", &long, &long).own_span(0);
        assert_eq!((&*span.name, value(&span, "http.request.method").as_str()), ("_OTHER", "_OTHER"));
        let bytes: usize = span.attributes.iter().map(|attribute| attribute.value.to_string().len()).sum();
        assert!(bytes < 1 << 10, "{bytes}");
    }
}
