//! Metrics of the router. A metric that kube-apiserver also has keeps kube-apiserver's name.
//!
//! Source of the names: kubernetes/apiserver `pkg/endpoints/metrics/metrics.go`. The list of metrics in the crate
//! `server` has the help texts; a test compares the list with the exposition.

mod capped;
mod client_class;
mod counted_request;
mod decision;
mod labels;
mod request_series_cache;
mod request_source;

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tributary_apimachinery::Verb;
use tributary_sharing::flow::fair_semaphore::ShareMetrics;
use tributary_sharing::flow::long_answers::{AnswerPermitMetrics, WritePermitMetrics};
use tributary_sharing::limits::Limits;

use crate::topology::MemberShareMetrics;
use capped::Capped;
pub use client_class::ClientClass;
use counted_request::SEVERAL;
pub use counted_request::{CountedCluster, CountedRequest, CountedResource};
pub use decision::Decision;
use labels::{AnswerLengthLabels, ClusterRequestLabels, ExpiredLabels, LimitLabels, LookupLabels, RequestLabels};
pub use labels::{OTHER, ResourceLabels};
use request_series_cache::{RequestSeries, RequestSeriesCache};
pub use request_source::RequestSource;

/// Maximum number of series in each of the two request metrics. 10,000 series take some 500 bytes each. A large fleet
/// has fewer combinations of clusters, resources and response codes.
const REQUEST_SERIES_MAX: usize = 10_000;

/// Maximum number of resources with their own metric series. 1,000: a cluster has some 60 built-in resources, and some
/// hundreds of custom resources. A histogram has 17 series for each resource.
pub const RESOURCES_MAX: usize = 1_000;

/// Subject of a lookup: a request that Tributary sends to clusters because it needs the result to answer a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupSubject {
    /// Finds out whether the clusters have an object with a name.
    Name,
    /// Finds out whether the clusters have records of a Helm release.
    Release,
    /// Finds out whether the client may write an object that the client may not read.
    Right,
}

/// Metrics of the router.
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Capped<RequestLabels, Counter>,
    cluster_requests: Capped<ClusterRequestLabels, Counter>,
    known_requests: RequestSeriesCache,
    durations: Capped<ResourceLabels, Histogram>,
    watches: Capped<ResourceLabels, Gauge>,
    watch_events: Capped<ResourceLabels, Counter>,
    terminated_watchers: Capped<ResourceLabels, Counter>,
    expired: Capped<ExpiredLabels, Counter>,
    limits: Family<LimitLabels, Gauge>,
    limits_used: Family<LimitLabels, Gauge>,
    limits_refused: Family<LimitLabels, Counter>,
    lookups: Family<LookupLabels, Counter>,
    /// Metrics of the permits that limit how many long responses are written at the same time.
    pub answer_permits: AnswerPermitMetrics,
}

/// Upper bounds of the histogram buckets in seconds. The first is 0.25 ms, because a response from the cache takes less
/// than 1 ms.
const DURATION_BUCKETS_SECONDS: [f64; 14] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let metrics = Self {
            requests: Capped::new(REQUEST_SERIES_MAX, Counter::default),
            cluster_requests: Capped::new(REQUEST_SERIES_MAX, Counter::default),
            known_requests: RequestSeriesCache::new(REQUEST_SERIES_MAX),
            durations: Capped::new(RESOURCES_MAX, || Histogram::new(DURATION_BUCKETS_SECONDS)),
            watches: Capped::new(RESOURCES_MAX, Gauge::default),
            watch_events: Capped::new(RESOURCES_MAX, Counter::default),
            terminated_watchers: Capped::new(RESOURCES_MAX, Counter::default),
            expired: Capped::new(RESOURCES_MAX, Counter::default),
            limits: Family::default(),
            limits_used: Family::default(),
            limits_refused: Family::default(),
            lookups: Family::default(),
            answer_permits: answer_permits(&mut registry),
            registry: Mutex::new(Registry::default()),
        };
        metrics.register_requests(&mut registry);
        metrics.register_limits(&mut registry);
        *metrics.registry.lock() = registry;
        metrics.begin_at_zero();
        metrics
    }
}

/// Registers the metrics of the permits for medium and long responses. Each metric is one family with a label for the
/// length class, because parsers reject a second HELP line for the same metric name.
fn answer_permits(registry: &mut Registry) -> AnswerPermitMetrics {
    let (active, waiting) =
        (Family::<AnswerLengthLabels, Gauge>::default(), Family::<AnswerLengthLabels, Gauge>::default());
    let refused = Family::<AnswerLengthLabels, Counter>::default();
    registry.register("tributary_answers_active", "Answers longer than 64 KiB that are being written", active.clone());
    registry.register(
        "tributary_answers_waiting",
        "Answers longer than 64 KiB that wait to be written",
        waiting.clone(),
    );
    registry.register(
        "tributary_answers_refused",
        "Answers longer than 64 KiB that were refused with 429, because too many other answers were being written",
        refused.clone(),
    );
    let of = |length| {
        let labels = AnswerLengthLabels { length };
        WritePermitMetrics {
            active: active.get_or_create_owned(&labels),
            waiting: waiting.get_or_create_owned(&labels),
            refused: refused.get_or_create_owned(&labels),
        }
    };
    AnswerPermitMetrics { medium: of("medium"), long: of("long") }
}

/// Counters of one resource's watches.
pub struct WatchCounters {
    /// Number of open watches.
    pub watches: Gauge,
    /// Number of watch events written to clients.
    pub events: Counter,
    /// Number of watches that were ended because their client read too slowly.
    pub terminated: Counter,
    /// Number of watches that ended with 410 because their version is too old.
    pub expired: Counter,
}

impl Metrics {
    /// Returns the counters of a resource's watches. Store the counters with the resource, because the lookup of a
    /// counter costs more than an increment.
    pub fn watch_counters(&self, labels: &ResourceLabels) -> WatchCounters {
        WatchCounters {
            watches: self.watches.with(labels, Gauge::clone),
            events: self.watch_events.with(labels, Counter::clone),
            terminated: self.terminated_watchers.with(labels, Counter::clone),
            expired: self.expired.with(&labels.expired(Verb::Watch), Counter::clone),
        }
    }

    /// Counts a request when the head of its response is available. Costs one lookup if a request with equal labels was
    /// counted before.
    pub fn observe(&self, request: &CountedRequest<'_>, code: StatusCode, took: Duration) {
        self.known_requests.count(request, code, took, || self.series_of(request, code));
    }

    /// Returns the series of requests with these labels and this code. If the limit of series is reached, requests of
    /// new kinds share one series.
    fn series_of(&self, request: &CountedRequest<'_>, code: StatusCode) -> RequestSeries {
        let labels = RequestLabels::from_request(request, code);
        let expired = (code == StatusCode::GONE).then(|| labels.resource.expired(request.verb));
        let is_timed = request.verb != Verb::Watch;
        RequestSeries {
            expired: expired.map(|labels| self.expired.with(&labels, Counter::clone)),
            durations: is_timed.then(|| self.durations.with(&labels.resource, Histogram::clone)),
            cluster_requests: self.cluster_requests.with(&ClusterRequestLabels::from_request(request), Counter::clone),
            requests: self.requests.with(&labels, Counter::clone),
        }
    }

    /// Removes the series of clusters that are no longer configured.
    pub fn keep_clusters(&self, is_configured: impl Fn(&str) -> bool) {
        let is_of_none = |cluster: &str| cluster.is_empty() || cluster == SEVERAL;
        self.cluster_requests.retain(|labels| is_of_none(&labels.cluster) || is_configured(&labels.cluster));
        // The cache is cleared after the series are removed, so that no concurrent reader restores a removed series.
        self.known_requests.clear();
    }

    /// Sets the gauges of the configured limits.
    pub fn set_limits(&self, limits: &Limits) {
        for (name, limit) in limits.named() {
            let labels = LimitLabels { limit: name };
            self.limits.get_or_create(&labels).set(i64::try_from(limit).unwrap_or(i64::MAX));
        }
    }

    /// Returns the gauge of a limit's current use, for a limit that never refuses a request. `limit` is the value of
    /// the label.
    pub fn used_of(&self, limit: &'static str) -> Gauge {
        self.limits_used.get_or_create_owned(&LimitLabels { limit })
    }

    /// Returns the metrics of a limit: a gauge of its current use, and a counter of refused requests. `limit` is the
    /// value of the label.
    pub fn share(&self, limit: &'static str) -> ShareMetrics {
        let labels = LimitLabels { limit };
        ShareMetrics {
            used: self.limits_used.get_or_create_owned(&labels),
            refused: self.limits_refused.get_or_create_owned(&labels),
        }
    }

    /// Returns the counter of lookups with this subject.
    pub fn lookups(&self, about: LookupSubject) -> Counter {
        let about = match about {
            LookupSubject::Name => "name",
            LookupSubject::Release => "helm_release",
            LookupSubject::Right => "right",
        };
        self.lookups.get_or_create_owned(&LookupLabels { about })
    }

    /// Returns the metrics of the limits for clients' requests to a cluster.
    pub fn member_shares(&self) -> MemberShareMetrics {
        MemberShareMetrics {
            long_running: self.share("long_running_to_member"),
            watches: self.share("watches_to_member"),
            short: self.share("short_to_member"),
        }
    }

    /// Registers additional metrics in the same exposition.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock());
    }

    /// Returns the exposition of all metrics as OpenMetrics text.
    pub fn expose(&self) -> String {
        let mut out = String::new();
        // A write to a String cannot fail.
        let _ = text::encode(&mut out, &self.registry.lock());
        out
    }

    /// Creates these series with the value zero at the start. An alert on an increase would miss the first count of a
    /// series that begins with one.
    fn begin_at_zero(&self) {
        let together = ResourceLabels::other();
        drop(self.watch_counters(&together));
        self.expired.with(&together.expired(Verb::List), |_| ());
        for about in [LookupSubject::Name, LookupSubject::Release, LookupSubject::Right] {
            drop(self.lookups(about));
        }
    }

    fn register_requests(&self, registry: &mut Registry) {
        registry.register("apiserver_request", "Requests by verb, resource and code", self.requests.family.clone());
        registry.register(
            "tributary_requests",
            "Requests by cluster, resource, decision and kind of client",
            self.cluster_requests.family.clone(),
        );
        registry.register(
            "tributary_expired",
            "Lists and watches answered with 410 because their version is too old",
            self.expired.family.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Time until the answer begins, without watches",
            self.durations.family.clone(),
        );
        registry.register("apiserver_longrunning_requests", "Open watches", self.watches.family.clone());
        registry.register(
            "apiserver_watch_events",
            "Watch events written to clients",
            self.watch_events.family.clone(),
        );
        registry.register(
            "tributary_member_questions",
            "Requests to clusters that precede the answer to a client",
            self.lookups.clone(),
        );
        registry.register(
            "apiserver_terminated_watchers",
            "Watches that were ended because their client read too slowly",
            self.terminated_watchers.family.clone(),
        );
    }

    fn register_limits(&self, registry: &mut Registry) {
        registry.register("tributary_limit", "Limits of this process", self.limits.clone());
        registry.register("tributary_limit_used", "Used part of a shared limit", self.limits_used.clone());
        registry.register(
            "tributary_limit_refused",
            "Requests that were refused with 429 because of a limit",
            self.limits_refused.clone(),
        );
    }
}

#[cfg(test)]
mod tests;
