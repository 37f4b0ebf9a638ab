//! The router's facts about a request for logs, metrics and traces: the asked clusters and the policies. Also the
//! headers for members, by which their logs can be compared with ours.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_fleet::metrics::{Decision, RequestSource};
use tributary_policy::LogMode;

use crate::traced_stage::{TraceContext, TracedStage};

/// The header with a request's ID. The client may send it, members take it over as all kube-apiservers do, and the
/// answer has it.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The number of clusters that are named; further ones are counted.
const NAMED_MAX: usize = 50;

/// The number of stages that are kept for one request: a list may ask each of a thousand clusters. Further ones are
/// counted.
const STAGES_MAX: usize = 100;

/// The facts about one request. Clones are of the same request.
#[derive(Clone, Debug, Default)]
pub struct RequestTrace(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    audit_id: Option<HeaderValue>,
    context: OnceLock<TraceContext>,
    found: Mutex<TraceFacts>,
}

#[derive(Debug, Default)]
struct TraceFacts {
    /// The source of the answer, once the request is planned.
    source: Option<RequestSource>,
    /// The asked clusters, each once, in order. Mostly a single one.
    asked: SmallVec<[ClusterName; 1]>,
    policies: Vec<String>,
    log_mode: Option<LogMode>,
    not_let: bool,
    by_clusters: bool,
    /// The requested resource of a sampled request, if a member serves it.
    served_resource: Option<String>,
    decision: Option<Decision>,
    stages: Vec<TracedStage>,
    stages_left_out: u32,
}

impl TraceFacts {
    fn is_from_memory(&self) -> bool {
        self.source == Some(RequestSource::Memory)
    }
}

/// The clusters that were asked for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskedClusters {
    /// No cluster was asked.
    None,
    /// A single cluster was asked.
    One(ClusterName),
    /// More than one cluster was asked.
    Several,
}

impl RequestTrace {
    /// The trace of an audited request: members get its ID.
    pub fn audited(audit_id: HeaderValue) -> Self {
        Self(Arc::new(Inner { audit_id: Some(audit_id), ..Inner::default() }))
    }

    /// Samples the request as a part of this trace, of which members are told. Stages from now on are recorded. Only
    /// the first call counts.
    pub fn sample(&self, context: TraceContext) {
        let _is_first = self.0.context.set(context);
    }

    /// The trace of a sampled request.
    pub fn context(&self) -> Option<TraceContext> {
        self.0.context.get().copied()
    }

    /// The ended stages, and the number of dropped ones. Each stage is returned once.
    pub fn stages(&self) -> (Vec<TracedStage>, u32) {
        let mut found = self.0.found.lock();
        (std::mem::take(&mut found.stages), found.stages_left_out)
    }

    /// Begins a stage of the request. The stage ends when the returned guard is dropped. Costs nothing for a request
    /// that is not sampled.
    pub(crate) fn stage(&self, name: &'static str) -> BegunStage {
        BegunStage(self.context().map(|_| (self.clone(), TracedStage::begin(name, None))))
    }

    /// The audit ID, if the request is audited.
    pub fn audit_id(&self) -> Option<&HeaderValue> {
        self.0.audit_id.as_ref()
    }

    /// The access-log mode that the policy of the request's place sets, if it sets one.
    pub fn log_mode(&self) -> Option<LogMode> {
        self.0.found.lock().log_mode
    }

    /// Returns whether a cluster was asked for the request.
    pub fn is_forwarded(&self) -> bool {
        !self.0.found.lock().asked.is_empty()
    }

    /// The decision about the request; `None` if the request never came to the router, or was given up before its
    /// answer.
    pub fn decision(&self) -> Option<Decision> {
        self.0.found.lock().decision
    }

    /// The requested resource of a sampled request, as kubectl names it, if a member serves it. Requests for other
    /// resources must not create names.
    pub fn served_resource(&self) -> Option<String> {
        self.0.found.lock().served_resource.clone()
    }

    /// Notes the requested resource, if a member serves it. Costs nothing for a request that is not sampled.
    pub(crate) fn note_served(&self, resource: impl FnOnce() -> Option<String>) {
        if self.context().is_some() {
            self.0.found.lock().served_resource = resource();
        }
    }

    /// Notes the access-log mode that the policy of the request's place sets.
    pub(crate) fn note_log_mode(&self, mode: Option<LogMode>) {
        let mut found = self.0.found.lock();
        found.log_mode = found.log_mode.or(mode);
    }

    /// Returns whether the request was refused because the user may impersonate the named user in no cluster.
    pub fn is_not_let(&self) -> bool {
        self.0.found.lock().not_let
    }

    /// Notes such a refusal.
    pub(crate) fn note_not_let(&self) {
        self.0.found.lock().not_let = true;
    }

    /// Returns whether every user gets the same answer, so that no cluster decided about the request.
    pub fn is_told_to_all(&self) -> bool {
        let found = self.0.found.lock();
        found.decision == Some(Decision::Own) && !found.by_clusters
    }

    /// Notes that clusters decide who may send the request, though none is asked.
    pub(crate) fn note_by_clusters(&self) {
        self.0.found.lock().by_clusters = true;
    }

    /// Notes the decision about the request.
    pub(crate) fn note_decision(&self, decision: Decision) {
        self.0.found.lock().decision = Some(decision);
    }

    /// The sources of the answer so far: `memory`, the names of the asked clusters, both, or `tributary` for answers of
    /// this process itself (discovery, health, refusals).
    pub fn answered_by(&self) -> Cow<'static, str> {
        let found = self.0.found.lock();
        if found.asked.is_empty() {
            return if found.is_from_memory() { "memory" } else { "tributary" }.into();
        }
        let memory = found.is_from_memory().then_some("memory");
        let names: Vec<&str> = memory.into_iter().chain(found.asked.iter().map(ClusterName::as_str)).collect();
        match names.len().saturating_sub(NAMED_MAX) {
            0 => names.join(",").into(),
            more => format!("{},and {more} more", names[..NAMED_MAX].join(",")).into(),
        }
    }

    /// The dispatch policies that took the request, each with its action; `None` without policies, or if the request is
    /// not audited.
    pub fn dispatched_by(&self) -> Option<String> {
        let found = self.0.found.lock();
        (!found.policies.is_empty()).then(|| found.policies.join("; "))
    }

    /// Returns whether the audit log needs the policies that took the request.
    pub(crate) fn tells_policies(&self) -> bool {
        self.0.audit_id.is_some()
    }

    /// Notes that a policy took the request.
    pub(crate) fn note_policy(&self, policy: String) {
        let mut found = self.0.found.lock();
        match found.policies.len().cmp(&NAMED_MAX) {
            Ordering::Less => found.policies.push(policy),
            Ordering::Equal => found.policies.push("and more".to_owned()),
            Ordering::Greater => {}
        }
    }

    /// Notes that a cluster is asked. Adds the ID of an audited request, and the trace of a sampled one, to the
    /// cluster's request. Returns the stage, which lasts until the cluster has answered.
    pub(crate) fn begin_question(&self, cluster: &ClusterName, headers: &mut HeaderMap) -> BegunStage {
        if let Some(id) = &self.0.audit_id {
            headers.insert(AUDIT_ID, id.clone());
        }
        self.note_asked(cluster);
        BegunStage(self.context().map(|context| {
            let stage = TracedStage::begin("forward", Some(cluster.clone()));
            stage.add_trace_headers(context, headers);
            (self.clone(), stage)
        }))
    }

    fn note_asked(&self, cluster: &ClusterName) {
        let mut found = self.0.found.lock();
        if let Err(place) = found.asked.binary_search(cluster) {
            found.asked.insert(place, cluster.clone());
        }
    }

    /// The asked clusters so far.
    pub(crate) fn asked_clusters(&self) -> AskedClusters {
        let found = self.0.found.lock();
        let mut asked = found.asked.iter();
        match (asked.next(), asked.next()) {
            (None, _) => AskedClusters::None,
            (Some(only), None) => AskedClusters::One(only.clone()),
            (Some(_), Some(_)) => AskedClusters::Several,
        }
    }

    /// Notes the source of the answer.
    pub(crate) fn note_source(&self, source: RequestSource) {
        self.0.found.lock().source = Some(source);
    }

    /// The source of the answer; [`RequestSource::Refused`] until the request is planned.
    pub(crate) fn source(&self) -> RequestSource {
        self.0.found.lock().source.unwrap_or(RequestSource::Refused)
    }
}

/// A stage in progress; empty for a request that is not sampled.
#[must_use = "the stage is over once this is dropped"]
#[derive(Debug, Default)]
pub(crate) struct BegunStage(Option<(RequestTrace, TracedStage)>);

impl BegunStage {
    /// Notes the HTTP status of the stage's answer.
    pub(crate) fn note_status(&mut self, status: u16) {
        if let Some((_, stage)) = &mut self.0 {
            stage.status = Some(status);
        }
    }
}

impl Drop for BegunStage {
    fn drop(&mut self) {
        let Some((trace, mut stage)) = self.0.take() else { return };
        stage.ended = Instant::now();
        let mut found = trace.0.found.lock();
        match found.stages.len() < STAGES_MAX {
            true => found.stages.push(stage),
            false => found.stages_left_out += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asked_clusters_are_listed_once_and_get_the_audit_id() {
        let trace = RequestTrace::audited(HeaderValue::from_static("one"));
        assert_eq!(trace.answered_by(), "tributary");
        assert_eq!(trace.asked_clusters(), AskedClusters::None);
        trace.note_source(RequestSource::Memory);
        assert_eq!(trace.answered_by(), "memory");
        let mut headers = HeaderMap::new();
        for name in ["us", "eu", "us"] {
            drop(trace.clone().begin_question(&ClusterName::new(name).unwrap(), &mut headers));
        }
        assert_eq!(trace.answered_by(), "memory,eu,us");
        assert_eq!(trace.asked_clusters(), AskedClusters::Several);
        trace.note_source(RequestSource::Member);
        assert_eq!(trace.answered_by(), "eu,us");
        assert_eq!(headers.get_all("audit-id").iter().collect::<Vec<_>>(), ["one"]);
        for number in 0..100 {
            drop(trace.begin_question(&ClusterName::new(&format!("c{number:03}")).unwrap(), &mut headers));
        }
        let text = trace.answered_by();
        assert!(text.starts_with("c000,c001,") && text.ends_with(",c049,and 52 more"), "{text}");
    }

    #[test]
    fn unaudited_request_sends_no_audit_id_to_members() {
        let (trace, mut headers) = (RequestTrace::default(), HeaderMap::new());
        let eu = ClusterName::new("eu").unwrap();
        drop(trace.begin_question(&eu, &mut headers));
        assert_eq!(trace.stages(), (Vec::new(), 0));
        assert_eq!((headers.len(), trace.asked_clusters()), (0, AskedClusters::One(eu)));
        assert!(!trace.tells_policies());
    }

    #[test]
    fn stages_of_a_sampled_request_are_kept_up_to_a_limit() {
        let context = TraceContext { trace_id: 1, span_id: 2 };
        let trace = RequestTrace::default();
        drop(trace.stage("before it is known whether it is sampled"));
        trace.sample(context);
        drop(trace.stage("plan"));
        let (eu, mut headers) = (ClusterName::new("eu").unwrap(), HeaderMap::new());
        let mut asked = trace.begin_question(&eu, &mut headers);
        asked.note_status(200);
        assert!(headers.contains_key("traceparent"));
        drop(asked);
        (0..200).for_each(|_| drop(trace.stage("memory")));
        let (stages, left_out) = trace.stages();
        let told: Vec<_> = stages[..2].iter().map(|it| (it.name, it.cluster.clone(), it.status)).collect();
        assert_eq!(told, [("plan", None, None), ("forward", Some(eu), Some(200))]);
        assert_eq!((stages.len(), left_out), (STAGES_MAX, 102));
    }

    #[test]
    fn policies_of_a_request_are_listed_up_to_a_limit() {
        let trace = RequestTrace::audited(HeaderValue::from_static("one"));
        assert_eq!(trace.dispatched_by(), None);
        for number in 0..100 {
            trace.note_policy(format!("p{number}"));
        }
        let text = trace.dispatched_by().unwrap();
        assert!(text.starts_with("p0; p1; ") && text.ends_with("p49; and more"), "{text}");
    }
}
