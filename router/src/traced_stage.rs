//! Times of the stages of a traced request.

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

/// W3C's header by which a member continues a trace (<https://www.w3.org/TR/trace-context/>).
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Trace of a sampled request, with the request's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// ID of the trace, which is not 0.
    pub trace_id: u128,
    /// ID of the request's span, which is not 0.
    pub span_id: u64,
}

/// One stage of a request, such as `plan` or `forward`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedStage {
    /// `plan`, `admit`, `authorize`, `memory`, or `forward`. A request has a `forward` stage for each cluster that gets
    /// it.
    pub name: &'static str,
    /// ID of the stage's span.
    pub span_id: u64,
    /// Start of the stage.
    pub began: Instant,
    /// End of the stage: for `forward` the head of the answer.
    pub ended: Instant,
    /// Cluster that got the request.
    pub cluster: Option<ClusterName>,
    /// HTTP status of the answer; `None` without an answer, and for stages other than `forward`.
    pub status: Option<u16>,
}

impl TracedStage {
    pub(crate) fn begin(name: &'static str, cluster: Option<ClusterName>) -> Self {
        let now = Instant::now();
        // 0 is no valid ID, and becomes 1. A random 0 is as unlikely as two equal IDs.
        Self { name, span_id: rand::random::<u64>().max(1), began: now, ended: now, cluster, status: None }
    }

    /// Adds the header by which the cluster continues the trace from this stage.
    pub(crate) fn add_trace_headers(&self, context: TraceContext, headers: &mut HeaderMap) {
        let parent = format!("00-{:032x}-{:016x}-01", context.trace_id, self.span_id);
        if let Ok(parent) = HeaderValue::from_maybe_shared(bytes::Bytes::from(parent)) {
            headers.insert(TRACEPARENT, parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_continues_the_trace_of_its_forward_stage() {
        let context = TraceContext { trace_id: 0xabc, span_id: 1 };
        let stage = TracedStage { span_id: 0x12, ..TracedStage::begin("forward", None) };
        let mut headers = HeaderMap::from_iter([(TRACEPARENT, HeaderValue::from_static("the client's"))]);
        stage.add_trace_headers(context, &mut headers);
        let trace_parents: Vec<_> = headers.get_all(TRACEPARENT).iter().collect();
        assert_eq!(trace_parents, ["00-00000000000000000000000000000abc-0000000000000012-01"]);
    }
}
