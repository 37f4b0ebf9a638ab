//! Counters of what the router does, under kube-apiserver's names where it has one.
//!
//! Source of names: kubernetes/apiserver `pkg/endpoints/metrics/metrics.go`. What is said of each stands in the
//! server's list of metrics, which a test compares with what is exposed here.

mod capped;
mod client_class;
mod decision;

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tributary_apimachinery::{GroupVersionResource, RequestInfo};

use crate::discovery::Union;
use crate::flow::fair_share::ShareMetrics;
use crate::flow::long_answers::{AnswerTurnMetrics, TurnMetrics};
use crate::limits::Limits;
use crate::topology::MemberShareMetrics;
use capped::{Capped, ChosenLabels};
pub use client_class::ClientClass;
pub use decision::Decision;

/// How many series there are of requests, of each kind: some 300 bytes each. Clusters, resources and answers of a large
/// fleet are fewer.
const REQUEST_SERIES_MAX: usize = 10_000;

/// How many resources have series of their own, of which a histogram has 17: a cluster has some 60 built-in ones, and
/// some hundreds of its own.
const RESOURCES_MAX: usize = 1_000;

/// The label of what is counted together, because there is no room for each.
const OTHER: &str = "other";

/// The labels of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    /// `GET`, `LIST`, `WATCH`, `POST`, …: kube-apiserver's upper-case verbs.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural resource; empty for other paths.
    pub resource: String,
    /// The subresource; empty for none.
    pub subresource: String,
    /// `cluster`, `namespace`, `resource`, or empty.
    pub scope: String,
    /// Who answered: `memory`, `member`, `self` for this process's own documents and checks, or empty where it was
    /// refused before.
    pub source: String,
    /// The HTTP status code.
    pub code: u16,
}

impl ChosenLabels for RequestLabels {
    fn without_choice(&self) -> Self {
        let empty = String::new;
        let (group, version, subresource, scope) = (empty(), empty(), empty(), empty());
        Self { group, version, subresource, scope, resource: OTHER.to_owned(), ..self.clone() }
    }
}

/// The labels of a request, by what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ClusterRequestLabels {
    /// The cluster that its path or host names, or the only one that was asked; `*` where several were; empty for none.
    pub(crate) cluster: String,
    /// The verb, as RBAC writes it.
    pub(crate) verb: &'static str,
    /// The resource as kubectl names it, with its subresource; empty for other paths.
    pub(crate) resource: String,
    /// What became of it.
    pub(crate) decision: &'static str,
    /// What kind of client it came from.
    pub(crate) client: &'static str,
}

impl ChosenLabels for ClusterRequestLabels {
    fn without_choice(&self) -> Self {
        Self { cluster: OTHER.to_owned(), resource: OTHER.to_owned(), ..*self }
    }
}

/// Who answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestSource {
    /// Nobody: it was refused before that was decided.
    Refused,
    /// The objects that are held here.
    Memory,
    /// One member or several.
    Member,
    /// This process: discovery, health, versions.
    Own,
}

impl RequestSource {
    fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "",
            Self::Memory => "memory",
            Self::Member => "member",
            Self::Own => "self",
        }
    }
}

impl RequestLabels {
    /// The labels of a request whose path cannot be read.
    pub(crate) fn unparsed() -> Self {
        let empty = String::new;
        Self {
            verb: empty(),
            group: empty(),
            version: empty(),
            resource: empty(),
            subresource: empty(),
            scope: empty(),
            source: empty(),
            code: StatusCode::BAD_REQUEST.as_u16(),
        }
    }

    /// The resource as kubectl names it, with its subresource; empty for other paths.
    fn named_resource(&self) -> String {
        let mut named = self.resource.clone();
        for (separator, part) in [('.', &self.group), ('/', &self.subresource)] {
            if !part.is_empty() {
                named.push(separator);
                named.push_str(part);
            }
        }
        named
    }

    /// The labels of a request. What no member serves is not named: a client could make series without end.
    pub(crate) fn of(info: &RequestInfo, union: &Union, source: RequestSource) -> Self {
        let mut labels = Self::unparsed();
        labels.verb = info.verb.in_metrics().into();
        labels.source = source.as_str().into();
        if let Some((request, served)) =
            info.resource().and_then(|request| Some((request, union.get(&request.resource)?)))
        {
            let subresources = &served.description.subresources;
            let known = |own: &&String| subresources.iter().any(|subresource| subresource.subresource == **own);
            labels.group = request.resource.group.to_string();
            labels.version = request.resource.version.to_string();
            labels.resource = request.resource.resource.to_string();
            labels.subresource = request.subresource.as_ref().filter(known).cloned().unwrap_or_default();
            labels.scope = match (&request.name, &request.namespace) {
                (Some(_), _) => "resource",
                (None, Some(_)) => "namespace",
                (None, None) => "cluster",
            }
            .into();
        }
        labels
    }
}

/// The labels of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub struct ResourceLabels {
    /// The API group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural resource.
    pub resource: String,
}

impl ChosenLabels for ResourceLabels {
    fn without_choice(&self) -> Self {
        Self { group: String::new(), version: String::new(), resource: OTHER.to_owned() }
    }
}

/// The labels of answers that say that a version is too old.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ExpiredLabels {
    /// `LIST` or `WATCH`, as in [`RequestLabels`].
    verb: String,
    group: String,
    version: String,
    resource: String,
}

impl ChosenLabels for ExpiredLabels {
    fn without_choice(&self) -> Self {
        let (group, version) = (String::new(), String::new());
        Self { verb: self.verb.clone(), group, version, resource: OTHER.to_owned() }
    }
}

/// The labels of a bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LimitLabels {
    /// The bound's name.
    pub limit: String,
}

/// The labels of questions to members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct QuestionLabels {
    /// What is asked about.
    pub about: String,
}

/// What members are asked about, in clients' names, before a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuestionAbout {
    /// Whether they have an object of a name.
    Name,
    /// Whether they have records of a Helm release.
    Release,
    /// Whether the client may write what it may not get there.
    Right,
}

/// The labels of the turns for answers of one length.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AnswerLengthLabels {
    /// How long its answers are.
    pub length: String,
}

/// The router's metrics.
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Capped<RequestLabels, Counter>,
    cluster_requests: Capped<ClusterRequestLabels, Counter>,
    durations: Capped<ResourceLabels, Histogram>,
    watches: Capped<ResourceLabels, Gauge>,
    watch_events: Capped<ResourceLabels, Counter>,
    terminated_watchers: Capped<ResourceLabels, Counter>,
    expired: Capped<ExpiredLabels, Counter>,
    limits: Family<LimitLabels, Gauge>,
    limits_used: Family<LimitLabels, Gauge>,
    limits_refused: Family<LimitLabels, Counter>,
    questions: Family<QuestionLabels, Counter>,
    /// Long answers and their turns.
    pub answer_turns: AnswerTurnMetrics,
}

/// Buckets from a quarter of a millisecond, since an answer from memory takes less than one.
const DURATION_BUCKETS_SECONDS: [f64; 14] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let metrics = Self {
            requests: Capped::new(REQUEST_SERIES_MAX, Counter::default),
            cluster_requests: Capped::new(REQUEST_SERIES_MAX, Counter::default),
            durations: Capped::new(RESOURCES_MAX, || Histogram::new(DURATION_BUCKETS_SECONDS)),
            watches: Capped::new(RESOURCES_MAX, Gauge::default),
            watch_events: Capped::new(RESOURCES_MAX, Counter::default),
            terminated_watchers: Capped::new(RESOURCES_MAX, Counter::default),
            expired: Capped::new(RESOURCES_MAX, Counter::default),
            limits: Family::default(),
            limits_used: Family::default(),
            limits_refused: Family::default(),
            questions: Family::default(),
            answer_turns: answer_turns(&mut registry),
            registry: Mutex::new(Registry::default()),
        };
        metrics.register_requests(&mut registry);
        metrics.register_limits(&mut registry);
        *metrics.registry.lock() = registry;
        metrics.begin_at_zero();
        metrics
    }
}

/// The metrics of the turns of both lengths. A name is registered once, for all its labels: a second HELP line is an
/// error to who reads it.
fn answer_turns(registry: &mut Registry) -> AnswerTurnMetrics {
    let (active, waiting) =
        (Family::<AnswerLengthLabels, Gauge>::default(), Family::<AnswerLengthLabels, Gauge>::default());
    let refused = Family::<AnswerLengthLabels, Counter>::default();
    registry.register("tributary_answers_active", "Answers of more than a frame being written", active.clone());
    registry.register("tributary_answers_waiting", "Answers that wait for their turn", waiting.clone());
    registry.register("tributary_answers_refused", "Answers refused with 429: no turn in time", refused.clone());
    let of = |length: &str| {
        let labels = AnswerLengthLabels { length: length.into() };
        TurnMetrics {
            active: active.get_or_create_owned(&labels),
            waiting: waiting.get_or_create_owned(&labels),
            refused: refused.get_or_create_owned(&labels),
        }
    };
    AnswerTurnMetrics { medium: of("medium"), long: of("long") }
}

/// What became of one request.
pub(crate) struct FollowedRequest {
    /// As [`ClusterRequestLabels::cluster`].
    pub(crate) cluster: String,
    /// The verb, as RBAC writes it.
    pub(crate) verb: &'static str,
    /// What became of it.
    pub(crate) decision: Decision,
    /// What kind of client it came from.
    pub(crate) client: ClientClass,
}

/// The counters of one resource's watches.
pub struct WatchCounters {
    /// Watches open now.
    pub watches: Gauge,
    /// Watch events written to clients.
    pub events: Counter,
    /// Watches that were ended because their client read too slowly.
    pub terminated: Counter,
    /// Watches that were ended with 410: what they were to go on from is too old.
    pub expired: Counter,
}

impl ResourceLabels {
    /// The labels of a resource.
    pub fn of(resource: &GroupVersionResource) -> Self {
        Self {
            group: resource.group.to_string(),
            version: resource.version.to_string(),
            resource: resource.resource.to_string(),
        }
    }

    fn expired(&self, verb: &str) -> ExpiredLabels {
        let Self { group, version, resource } = self.clone();
        ExpiredLabels { verb: verb.to_owned(), group, version, resource }
    }
}

impl Metrics {
    /// The counters of one resource's watches, to be kept with it.
    pub fn watch_counters(&self, labels: &ResourceLabels) -> WatchCounters {
        WatchCounters {
            watches: self.watches.with(labels, Gauge::clone),
            events: self.watch_events.with(labels, Counter::clone),
            terminated: self.terminated_watchers.with(labels, Counter::clone),
            expired: self.expired.with(&labels.expired("WATCH"), Counter::clone),
        }
    }

    /// Counts one request when the head of its answer is known: what became of it, and at which cluster.
    pub(crate) fn observe(&self, labels: RequestLabels, of_request: FollowedRequest, took: Duration) {
        let FollowedRequest { cluster, verb, decision, client } = of_request;
        let resource = ResourceLabels {
            group: labels.group.clone(),
            version: labels.version.clone(),
            resource: labels.resource.clone(),
        };
        if labels.code == StatusCode::GONE.as_u16() {
            self.expired.with(&resource.expired(&labels.verb), |counter| counter.inc());
        }
        if labels.verb != "WATCH" {
            self.durations.with(&resource, |histogram| histogram.observe(took.as_secs_f64()));
        }
        let (decision, client) = (decision.as_str(), client.as_str());
        let of_cluster = ClusterRequestLabels { cluster, verb, resource: labels.named_resource(), decision, client };
        self.cluster_requests.with(&of_cluster, |counter| counter.inc());
        self.requests.with(&labels, |counter| counter.inc());
    }

    /// Shows what may be held at most.
    pub fn set_limits(&self, limits: &Limits) {
        for (name, limit) in limits.named() {
            let labels = LimitLabels { limit: name.to_owned() };
            self.limits.get_or_create(&labels).set(i64::try_from(limit).unwrap_or(i64::MAX));
        }
    }

    /// What is counted of the bound of this name.
    pub(crate) fn share(&self, limit: &str) -> ShareMetrics {
        let labels = LimitLabels { limit: limit.to_owned() };
        ShareMetrics {
            used: self.limits_used.get_or_create_owned(&labels),
            refused: self.limits_refused.get_or_create_owned(&labels),
        }
    }

    /// How often members were asked, each counted, about something.
    pub(crate) fn questions(&self, about: QuestionAbout) -> Counter {
        let about = match about {
            QuestionAbout::Name => "name",
            QuestionAbout::Release => "helm_release",
            QuestionAbout::Right => "right",
        };
        self.questions.get_or_create_owned(&QuestionLabels { about: about.to_owned() })
    }

    /// What is counted of clients' requests to members.
    pub(crate) fn member_shares(&self) -> MemberShareMetrics {
        MemberShareMetrics {
            lasting: self.share("long_running_to_member"),
            watches: self.share("watches_to_member"),
            short: self.share("short_to_member"),
        }
    }

    /// Lets others register metrics of their own in the same exposition.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock());
    }

    /// The exposition in OpenMetrics text.
    pub fn expose(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut out, &self.registry.lock());
        out
    }

    /// What is counted together, or of few things, is there from the beginning: an alert sees the first one only where
    /// there was a zero before.
    fn begin_at_zero(&self) {
        let together = ResourceLabels { group: String::new(), version: String::new(), resource: OTHER.to_owned() };
        drop(self.watch_counters(&together));
        self.expired.with(&together.expired("LIST"), |_| ());
        for about in [QuestionAbout::Name, QuestionAbout::Release, QuestionAbout::Right] {
            drop(self.questions(about));
        }
    }

    /// Registers what clients ask and are told.
    fn register_requests(&self, registry: &mut Registry) {
        registry.register("apiserver_request", "Requests by verb, resource and code", self.requests.family.clone());
        registry.register(
            "tributary_requests",
            "Requests by cluster, resource, what became of them and kind of client",
            self.cluster_requests.family.clone(),
        );
        registry.register(
            "tributary_expired",
            "Lists and watches told that their version is too old (410)",
            self.expired.family.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Time to the head of the answer, watches left out",
            self.durations.family.clone(),
        );
        registry.register("apiserver_longrunning_requests", "Watches open now", self.watches.family.clone());
        registry.register(
            "apiserver_watch_events",
            "Watch events written to clients",
            self.watch_events.family.clone(),
        );
        registry.register(
            "tributary_member_questions",
            "Questions to members that come before an answer to a client",
            self.questions.clone(),
        );
        registry.register(
            "apiserver_terminated_watchers",
            "Watches ended because their client read too slowly",
            self.terminated_watchers.family.clone(),
        );
    }

    /// Registers what may be held, and what is held of that.
    fn register_limits(&self, registry: &mut Registry) {
        registry.register("tributary_limit", "The bounds of what is held", self.limits.clone());
        registry.register("tributary_limit_used", "How much of a limit is used now", self.limits_used.clone());
        registry.register(
            "tributary_limit_refused",
            "Requests refused with 429 because of a limit",
            self.limits_refused.clone(),
        );
    }
}
