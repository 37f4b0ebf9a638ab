//! Facts that the router records about a request for logs, metrics and traces, such as target clusters and policies.
//! Also makes the headers that link members' logs with Tributary's logs.

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

/// Header with a request's audit ID. The client may send the header. Members use the ID as all kube-apiservers do, and
/// the answer contains the ID.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Maximum number of named clusters. The number of all other clusters is shown instead.
const NAMED_MAX: usize = 50;

/// Maximum number of recorded stages of one request: a list may go to each of a thousand clusters. Later stages are
/// only counted.
const STAGES_MAX: usize = 100;

/// Facts about one request. Clones share the facts.
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
    /// Source of the answer, once the request is planned.
    source: Option<RequestSource>,
    /// Clusters that got the request, without duplicates, in order. Usually only one.
    requested: SmallVec<[ClusterName; 1]>,
    policies: Vec<String>,
    log_mode: Option<LogMode>,
    impersonation_forbidden: bool,
    by_clusters: bool,
    /// Requested resource of a sampled request, if a member serves the resource.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestedClusters {
    None,
    One(ClusterName),
    Several,
}

impl RequestTrace {
    /// Creates the facts of an audited request. Members get the audit ID.
    pub fn audited(audit_id: HeaderValue) -> Self {
        Self(Arc::new(Inner { audit_id: Some(audit_id), ..Inner::default() }))
    }

    /// Samples the request: this trace continues in the members, and later stages are recorded. Only the first call has
    /// an effect.
    pub fn sample(&self, context: TraceContext) {
        let _is_first = self.0.context.set(context);
    }

    /// Returns the trace of a sampled request.
    pub fn context(&self) -> Option<TraceContext> {
        self.0.context.get().copied()
    }

    /// Removes and returns the ended stages. Also returns the number of stages that were not recorded.
    pub fn stages(&self) -> (Vec<TracedStage>, u32) {
        let mut found = self.0.found.lock();
        (std::mem::take(&mut found.stages), found.stages_left_out)
    }

    /// Begins a stage of the request. Dropping the returned guard ends the stage. Costs nothing for a request that is
    /// not sampled.
    pub(crate) fn stage(&self, name: &'static str) -> BegunStage {
        BegunStage(self.context().map(|_| (self.clone(), TracedStage::begin(name, None))))
    }

    /// Returns the audit ID, if the request is audited.
    pub fn audit_id(&self) -> Option<&HeaderValue> {
        self.0.audit_id.as_ref()
    }

    /// Returns the access-log mode that a policy of the entry point sets, if any.
    pub fn log_mode(&self) -> Option<LogMode> {
        self.0.found.lock().log_mode
    }

    /// Returns whether a cluster got the request.
    pub fn is_forwarded(&self) -> bool {
        !self.0.found.lock().requested.is_empty()
    }

    /// Returns the decision about the request; `None` if the request never reached the router, or was cancelled before
    /// its answer.
    pub fn decision(&self) -> Option<Decision> {
        self.0.found.lock().decision
    }

    /// Returns the requested resource of a sampled request, as kubectl names it. `None` if no member serves the
    /// resource: requests for invented resources must not create metric names.
    pub fn served_resource(&self) -> Option<String> {
        self.0.found.lock().served_resource.clone()
    }

    /// Records the requested resource, if a member serves the resource. Costs nothing for a request that is not
    /// sampled.
    pub(crate) fn record_served(&self, resource: impl FnOnce() -> Option<String>) {
        if self.context().is_some() {
            self.0.found.lock().served_resource = resource();
        }
    }

    pub(crate) fn record_log_mode(&self, mode: Option<LogMode>) {
        let mut found = self.0.found.lock();
        found.log_mode = found.log_mode.or(mode);
    }

    /// Returns whether the request was refused because no cluster allows the user to impersonate the requested user.
    pub fn is_impersonation_denied(&self) -> bool {
        self.0.found.lock().impersonation_forbidden
    }

    /// Records that no cluster allows the user to impersonate.
    pub(crate) fn record_impersonation_forbidden(&self) {
        self.0.found.lock().impersonation_forbidden = true;
    }

    /// Returns whether every user would get the same answer, because neither a cluster nor rights in clusters decided
    /// about the request.
    pub fn is_same_for_all_users(&self) -> bool {
        let found = self.0.found.lock();
        found.decision == Some(Decision::Own) && !found.by_clusters
    }

    /// Records that the rights in clusters decided about the request, although no cluster got the request.
    pub(crate) fn record_by_clusters(&self) {
        self.0.found.lock().by_clusters = true;
    }

    pub(crate) fn record_decision(&self, decision: Decision) {
        self.0.found.lock().decision = Some(decision);
    }

    /// Returns the sources of the answer: `memory`, the names of clusters, a combination, or `tributary` for answers of
    /// Tributary itself (discovery, health, refusals).
    pub fn answered_by(&self) -> Cow<'static, str> {
        let found = self.0.found.lock();
        if found.requested.is_empty() {
            return if found.is_from_memory() { "memory" } else { "tributary" }.into();
        }
        let memory = found.is_from_memory().then_some("memory");
        let names: Vec<&str> = memory.into_iter().chain(found.requested.iter().map(ClusterName::as_str)).collect();
        match names.len().saturating_sub(NAMED_MAX) {
            0 => names.join(",").into(),
            more => format!("{},and {more} more", names[..NAMED_MAX].join(",")).into(),
        }
    }

    /// Returns the dispatch policies that matched the request, each with its action; `None` without policies, or if the
    /// request is not audited.
    pub fn dispatched_by(&self) -> Option<String> {
        let found = self.0.found.lock();
        (!found.policies.is_empty()).then(|| found.policies.join("; "))
    }

    /// Returns whether the audit log of this request needs the policies that matched.
    pub(crate) fn needs_policies(&self) -> bool {
        self.0.audit_id.is_some()
    }

    pub(crate) fn record_policy(&self, policy: String) {
        let mut found = self.0.found.lock();
        match found.policies.len().cmp(&NAMED_MAX) {
            Ordering::Less => found.policies.push(policy),
            Ordering::Equal => found.policies.push("and more".to_owned()),
            Ordering::Greater => {}
        }
    }

    /// Records that a cluster gets a request. Adds the ID of an audited request, and the trace of a sampled one, to the
    /// headers. Returns the stage, which lasts until the cluster has answered.
    pub(crate) fn begin_cluster_request(&self, cluster: &ClusterName, headers: &mut HeaderMap) -> BegunStage {
        if let Some(id) = &self.0.audit_id {
            headers.insert(AUDIT_ID, id.clone());
        }
        self.record_requested(cluster);
        BegunStage(self.context().map(|context| {
            let stage = TracedStage::begin("forward", Some(cluster.clone()));
            stage.add_trace_headers(context, headers);
            (self.clone(), stage)
        }))
    }

    fn record_requested(&self, cluster: &ClusterName) {
        let mut found = self.0.found.lock();
        if let Err(place) = found.requested.binary_search(cluster) {
            found.requested.insert(place, cluster.clone());
        }
    }

    pub(crate) fn requested_clusters(&self) -> RequestedClusters {
        let found = self.0.found.lock();
        let mut requested = found.requested.iter();
        match (requested.next(), requested.next()) {
            (None, _) => RequestedClusters::None,
            (Some(only), None) => RequestedClusters::One(only.clone()),
            (Some(_), Some(_)) => RequestedClusters::Several,
        }
    }

    pub(crate) fn record_source(&self, source: RequestSource) {
        self.0.found.lock().source = Some(source);
    }

    /// Returns the source of the answer; [`RequestSource::Refused`] until the request is planned.
    pub(crate) fn source(&self) -> RequestSource {
        self.0.found.lock().source.unwrap_or(RequestSource::Refused)
    }
}

/// Running stage; empty for a request that is not sampled.
#[must_use = "the stage is over once this is dropped"]
#[derive(Debug, Default)]
pub(crate) struct BegunStage(Option<(RequestTrace, TracedStage)>);

impl BegunStage {
    /// Records the HTTP status of the stage's answer.
    pub(crate) fn record_status(&mut self, status: u16) {
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
    fn target_clusters_are_listed_once_and_get_the_audit_id() {
        let trace = RequestTrace::audited(HeaderValue::from_static("one"));
        assert_eq!(trace.answered_by(), "tributary");
        assert_eq!(trace.requested_clusters(), RequestedClusters::None);
        trace.record_source(RequestSource::Memory);
        assert_eq!(trace.answered_by(), "memory");
        let mut headers = HeaderMap::new();
        for name in ["us", "eu", "us"] {
            drop(trace.clone().begin_cluster_request(&ClusterName::new(name).unwrap(), &mut headers));
        }
        assert_eq!(trace.answered_by(), "memory,eu,us");
        assert_eq!(trace.requested_clusters(), RequestedClusters::Several);
        trace.record_source(RequestSource::Member);
        assert_eq!(trace.answered_by(), "eu,us");
        assert_eq!(headers.get_all("audit-id").iter().collect::<Vec<_>>(), ["one"]);
        for number in 0..100 {
            drop(trace.begin_cluster_request(&ClusterName::new(&format!("c{number:03}")).unwrap(), &mut headers));
        }
        let text = trace.answered_by();
        assert!(text.starts_with("c000,c001,") && text.ends_with(",c049,and 52 more"), "{text}");
    }

    #[test]
    fn unaudited_request_sends_no_audit_id_to_members() {
        let (trace, mut headers) = (RequestTrace::default(), HeaderMap::new());
        let eu = ClusterName::new("eu").unwrap();
        drop(trace.begin_cluster_request(&eu, &mut headers));
        assert_eq!(trace.stages(), (Vec::new(), 0));
        assert_eq!((headers.len(), trace.requested_clusters()), (0, RequestedClusters::One(eu)));
        assert!(!trace.needs_policies());
    }

    #[test]
    fn stages_of_a_sampled_request_are_recorded_up_to_a_limit() {
        let context = TraceContext { trace_id: 1, span_id: 2 };
        let trace = RequestTrace::default();
        drop(trace.stage("before it is known whether it is sampled"));
        trace.sample(context);
        drop(trace.stage("plan"));
        let (eu, mut headers) = (ClusterName::new("eu").unwrap(), HeaderMap::new());
        let mut requested = trace.begin_cluster_request(&eu, &mut headers);
        requested.record_status(200);
        assert!(headers.contains_key("traceparent"));
        drop(requested);
        (0..200).for_each(|_| drop(trace.stage("memory")));
        let (stages, left_out) = trace.stages();
        let recorded: Vec<_> = stages[..2].iter().map(|it| (it.name, it.cluster.clone(), it.status)).collect();
        assert_eq!(recorded, [("plan", None, None), ("forward", Some(eu), Some(200))]);
        assert_eq!((stages.len(), left_out), (STAGES_MAX, 102));
    }

    #[test]
    fn matched_policies_of_a_request_are_listed_up_to_a_limit() {
        let trace = RequestTrace::audited(HeaderValue::from_static("one"));
        assert_eq!(trace.dispatched_by(), None);
        for number in 0..100 {
            trace.record_policy(format!("p{number}"));
        }
        let text = trace.dispatched_by().unwrap();
        assert!(text.starts_with("p0; p1; ") && text.ends_with("p49; and more"), "{text}");
    }
}
