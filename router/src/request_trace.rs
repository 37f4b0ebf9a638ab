//! What logs, metrics and traces say of a request that the router alone knows: who was asked for it, and by which
//! policies. And what members are told, so that their logs can be laid beside ours.

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

/// The header by which a request's ID travels: from the client, to members, which as all kube-apiservers take it over,
/// and back to the client.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// How many clusters are named; of further ones the number is told.
const NAMED_MAX: usize = 50;

/// How many stages are kept of one request: a list may ask each of a thousand clusters. Of further ones the number is
/// told.
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
    /// Each once, in order: of most requests it is one.
    asked: SmallVec<[ClusterName; 1]>,
    policies: Vec<String>,
    log_mode: Option<LogMode>,
    not_let: bool,
    by_clusters: bool,
    /// Of a request that is sampled: what it asks for, if some member serves that.
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

/// Which clusters were asked for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskedClusters {
    /// None.
    None,
    /// This one alone.
    One(ClusterName),
    /// More than one.
    Several,
}

impl RequestTrace {
    /// Of a request that is audited: members are told its ID.
    pub fn audited(audit_id: HeaderValue) -> Self {
        Self(Arc::new(Inner { audit_id: Some(audit_id), ..Inner::default() }))
    }

    /// The request is sampled, in this trace, of which members are told: what begins from now on is one of its stages.
    /// The first word counts.
    pub fn sample(&self, context: TraceContext) {
        let _is_first = self.0.context.set(context);
    }

    /// The trace that it is in, if it is sampled.
    pub fn context(&self) -> Option<TraceContext> {
        self.0.context.get().copied()
    }

    /// The stages that are over, and of how many more nothing was kept. They are given once.
    pub fn stages(&self) -> (Vec<TracedStage>, u32) {
        let mut found = self.0.found.lock();
        (std::mem::take(&mut found.stages), found.stages_left_out)
    }

    /// A stage of it begins, which is over when what is given is dropped. Costs nothing of a request that is not
    /// sampled.
    pub(crate) fn stage(&self, name: &'static str) -> BegunStage {
        BegunStage(self.context().map(|_| (self.clone(), TracedStage::begin(name, None))))
    }

    /// Its audit ID, if it is audited.
    pub fn audit_id(&self) -> Option<&HeaderValue> {
        self.0.audit_id.as_ref()
    }

    /// Whether it is written into the access log, as far as the policy says that took it where it came in.
    pub fn log_mode(&self) -> Option<LogMode> {
        self.0.found.lock().log_mode
    }

    /// Whether a cluster was asked for it.
    pub fn is_forwarded(&self) -> bool {
        !self.0.found.lock().asked.is_empty()
    }

    /// What became of it; `None` of what never came to the router, and of what was given up before it was answered.
    pub fn decision(&self) -> Option<Decision> {
        self.0.found.lock().decision
    }

    /// The resource that a sampled request asks for, as kubectl names it, where some member serves it: clients that ask
    /// for others make no names.
    pub fn served_resource(&self) -> Option<String> {
        self.0.found.lock().served_resource.clone()
    }

    /// Notes the resource that a request asks for, which some member serves. Costs nothing of one that is not sampled.
    pub(crate) fn note_served(&self, resource: impl FnOnce() -> Option<String>) {
        if self.context().is_some() {
            self.0.found.lock().served_resource = resource();
        }
    }

    /// Notes what the policy says of the access log that took the request where it came in.
    pub(crate) fn note_log_mode(&self, mode: Option<LogMode>) {
        let mut found = self.0.found.lock();
        found.log_mode = found.log_mode.or(mode);
    }

    /// Whether it was refused because nobody lets the user act as whom they ask to be.
    pub fn is_not_let(&self) -> bool {
        self.0.found.lock().not_let
    }

    /// Notes that it is.
    pub(crate) fn note_not_let(&self) {
        self.0.found.lock().not_let = true;
    }

    /// Whether it was answered with what everybody is told, so that no cluster decided who may ask for it.
    pub fn is_told_to_all(&self) -> bool {
        let found = self.0.found.lock();
        found.decision == Some(Decision::Own) && !found.by_clusters
    }

    /// Notes that clusters decide who may ask for it, though none of them is asked.
    pub(crate) fn note_by_clusters(&self) {
        self.0.found.lock().by_clusters = true;
    }

    /// Notes what became of it.
    pub(crate) fn note_decision(&self, decision: Decision) {
        self.0.found.lock().decision = Some(decision);
    }

    /// Who answered, as far as is known by now: `memory`, the names of the clusters that were asked, both, or
    /// `tributary`, for what this process says by itself: discovery, health, refusals.
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

    /// Which dispatch policies took the request, each with what it did; `None` where none did, or nobody wants to know.
    pub fn dispatched_by(&self) -> Option<String> {
        let found = self.0.found.lock();
        (!found.policies.is_empty()).then(|| found.policies.join("; "))
    }

    /// Whether somebody wants to know which policies took the request.
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

    /// Notes that a cluster is asked, and tells it the ID of a request that is audited, and the trace of one that is
    /// sampled. Gives the stage, which lasts until the cluster has answered.
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

    /// Which clusters have been asked by now.
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

/// A stage that is under way; nothing of a request that is not sampled.
#[must_use = "the stage is over once this is dropped"]
#[derive(Debug, Default)]
pub(crate) struct BegunStage(Option<(RequestTrace, TracedStage)>);

impl BegunStage {
    /// Notes the HTTP status of its answer.
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
    fn who_was_asked_is_told_once_and_gets_the_id() {
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
    fn members_are_told_no_id_of_a_request_that_is_not_audited() {
        let (trace, mut headers) = (RequestTrace::default(), HeaderMap::new());
        let eu = ClusterName::new("eu").unwrap();
        drop(trace.begin_question(&eu, &mut headers));
        assert_eq!(trace.stages(), (Vec::new(), 0));
        assert_eq!((headers.len(), trace.asked_clusters()), (0, AskedClusters::One(eu)));
        assert!(!trace.tells_policies());
    }

    #[test]
    fn the_stages_of_a_request_that_is_sampled_are_kept_and_no_more_than_some() {
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
    fn the_policies_that_took_it_are_told_and_no_more_than_some() {
        let trace = RequestTrace::audited(HeaderValue::from_static("one"));
        assert_eq!(trace.dispatched_by(), None);
        for number in 0..100 {
            trace.note_policy(format!("p{number}"));
        }
        let text = trace.dispatched_by().unwrap();
        assert!(text.starts_with("p0; p1; ") && text.ends_with("p49; and more"), "{text}");
    }
}
