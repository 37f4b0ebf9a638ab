//! Counters of what the router does, under kube-apiserver's names where it has one.
//!
//! Source of names: kubernetes/apiserver `pkg/endpoints/metrics/metrics.go`.

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tributary_apimachinery::{GroupVersionResource, RequestInfo, Verb};

use crate::discovery::Union;
use crate::flow::fair_share::ShareMetrics;
use crate::flow::long_answers::{AnswerTurnMetrics, TurnMetrics};
use crate::limits::Limits;
use crate::topology::MemberShareMetrics;

/// The labels of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
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

    /// The labels of a request. What no member serves is not named: a client could make series without end.
    pub(crate) fn of(info: &RequestInfo, union: &Union, source: RequestSource) -> Self {
        let mut labels = Self::unparsed();
        labels.verb = match info.verb {
            Verb::Create => "POST".into(),
            Verb::Update => "PUT".into(),
            verb => verb.as_str().to_uppercase(),
        };
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

/// The labels of a lane of long answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AnswerLengthLabels {
    /// How long its answers are.
    pub length: String,
}

/// The router's metrics.
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<ResourceLabels, Histogram, fn() -> Histogram>,
    watches: Family<ResourceLabels, Gauge>,
    watch_events: Family<ResourceLabels, Counter>,
    terminated_watchers: Family<ResourceLabels, Counter>,
    limits: Family<LimitLabels, Gauge>,
    limits_used: Family<LimitLabels, Gauge>,
    limits_refused: Family<LimitLabels, Counter>,
    questions: Family<QuestionLabels, Counter>,
    /// Long answers and their turns.
    pub lanes: AnswerTurnMetrics,
}

/// Buckets from a quarter of a millisecond, since an answer from memory takes less than one.
const DURATION_BUCKETS_SECONDS: [f64; 14] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        let durations =
            Family::new_with_constructor((|| Histogram::new(DURATION_BUCKETS_SECONDS)) as fn() -> Histogram);
        let metrics = Self {
            requests,
            durations,
            watches: Family::default(),
            watch_events: Family::default(),
            terminated_watchers: Family::default(),
            limits: Family::default(),
            limits_used: Family::default(),
            limits_refused: Family::default(),
            questions: Family::default(),
            lanes: lanes(&mut registry),
            registry: Mutex::new(Registry::default()),
        };
        metrics.register_requests(&mut registry);
        metrics.register_limits(&mut registry);
        *metrics.registry.lock() = registry;
        metrics
    }
}

/// The metrics of both lanes. A name is registered once, for all its labels: a second HELP line is an error to who
/// reads it.
fn lanes(registry: &mut Registry) -> AnswerTurnMetrics {
    let (active, waiting) =
        (Family::<AnswerLengthLabels, Gauge>::default(), Family::<AnswerLengthLabels, Gauge>::default());
    let refused = Family::<AnswerLengthLabels, Counter>::default();
    registry.register("tributary_answers_active", "Answers of more than a frame being written", active.clone());
    registry.register("tributary_answers_waiting", "Answers that wait for their turn", waiting.clone());
    registry.register("tributary_answers_refused", "Answers refused with 429: no turn in time", refused.clone());
    let lane = |length: &str| {
        let labels = AnswerLengthLabels { length: length.into() };
        TurnMetrics {
            active: active.get_or_create_owned(&labels),
            waiting: waiting.get_or_create_owned(&labels),
            refused: refused.get_or_create_owned(&labels),
        }
    };
    AnswerTurnMetrics { medium: lane("medium"), long: lane("long") }
}

/// The counters of one resource's watches.
pub struct WatchCounters {
    /// Watches open now.
    pub watches: Gauge,
    /// Watch events written to clients.
    pub events: Counter,
    /// Watches that were ended because their client read too slowly.
    pub terminated: Counter,
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
}

impl Metrics {
    /// The counters of one resource's watches, to be kept with it.
    pub fn watch_counters(&self, labels: &ResourceLabels) -> WatchCounters {
        WatchCounters {
            watches: self.watches.get_or_create_owned(labels),
            events: self.watch_events.get_or_create_owned(labels),
            terminated: self.terminated_watchers.get_or_create_owned(labels),
        }
    }

    /// Counts one request when the head of its answer is known.
    pub fn observe(&self, labels: RequestLabels, took: Duration) {
        if labels.verb != "WATCH" {
            let resource = ResourceLabels {
                group: labels.group.clone(),
                version: labels.version.clone(),
                resource: labels.resource.clone(),
            };
            self.durations.get_or_create(&resource).observe(took.as_secs_f64());
        }
        self.requests.get_or_create(&labels).inc();
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
        MemberShareMetrics { lasting: self.share("long_running_to_member"), short: self.share("short_to_member") }
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

    /// Registers what clients ask and are told.
    fn register_requests(&self, registry: &mut Registry) {
        registry.register("apiserver_request", "Requests by verb, resource and code", self.requests.clone());
        registry.register(
            "apiserver_request_duration_seconds",
            "Time to the head of the answer, watches left out",
            self.durations.clone(),
        );
        registry.register("apiserver_longrunning_requests", "Watches open now", self.watches.clone());
        registry.register("apiserver_watch_events", "Watch events written to clients", self.watch_events.clone());
        registry.register(
            "tributary_member_questions",
            "Questions to members that come before an answer to a client",
            self.questions.clone(),
        );
        registry.register(
            "apiserver_terminated_watchers",
            "Watches ended because their client read too slowly",
            self.terminated_watchers.clone(),
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
