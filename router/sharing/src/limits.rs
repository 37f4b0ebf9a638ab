//! Bounds of the router: memory, and the size of requests.
//!
//! The bounds are in the configuration and, as `tributary_limit`, in the metrics, beside the used amounts. A request
//! beyond a bound is answered 400 with the bound, or 413 for a body; `router/tests/simulated/limits/bounds.rs` and
//! `held.rs` have a row for each. The duration of a watch has its own type,
//! [`Timeout`](tributary_apimachinery::Timeout), which cuts larger values.

use std::time::Duration;

use tributary_apimachinery::SelectorBounds;
use tributary_merge::LogConfig;
use tributary_proxy::{ClientTuning, WATCH_STREAM_BYTES};

use crate::body::WHOLE_BODY_BYTES_MAX;
use crate::flow::long_answers::{AT_ONCE, WAITING_MAX};

/// The bytes of all OpenAPI documents that are kept for requests. A cluster's whole v2 document has 2 MB (0.2 MB
/// compressed), and its largest v3 document 0.7 MB: 32 MiB hold the documents that a handful of different clients ask
/// for.
pub const OPENAPI_BYTES: usize = 32 << 20;

/// The bytes of the compressed OpenAPI documents that are kept for the time when a cluster does not answer. All v3
/// documents of a cluster with a thousand CRDs have some 3 MB, and equal documents are held once.
pub const OPENAPI_LAST_BYTES: usize = 16 << 20;

/// The bytes of JSON text that keep the discovery of all clusters over a restart. The documents of a thousand clusters
/// of one kind have 0.3 MB, as each is kept once. Those of some hundred clusters fit also where no two are alike.
pub const LAST_HEARD_BYTES: usize = 64 << 20;

/// The largest refusal of a cluster that is read to find out what it is about, in bytes. A Status is a few hundred.
pub const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// The number of clusters that get a question at the same time. 64: a fleet of 1,000 is asked in 16 rounds, half a
/// second at 30 ms each.
pub const ASKED_AT_ONCE: usize = 64;

/// The bounds that can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of remembered changes of one resource in one cluster. A client that was away for longer lists again.
    pub history_bytes: usize,
    /// The time for which changes are remembered.
    pub history_age: Duration,
    /// Bytes of encoded watch events that watchers share, per resource.
    pub encodings_bytes: usize,
    /// The number of answers above one frame that are written at the same time: of medium answers, and of long answers.
    pub long_answers: usize,
    /// The time after which an unused resource leaves memory.
    pub unused_after: Duration,
    /// The number of requests in flight, until the heads of their answers. Long-running requests (watches, exec, logs)
    /// and health checks do not count.
    pub requests_in_flight: usize,
    /// The number of long-running requests to all clusters in the shared mode: watches, logs, exec, attach and
    /// port-forward.
    pub long_running_requests: usize,
    /// Bytes of bodies in memory: whole requests, lists of members, answers of members to questions about objects and
    /// rights, and answers to writes, which take their room before the write is sent.
    pub held_bytes: usize,
    /// Unread bytes of clusters' answers to long-running requests, of all clusters together. Each such request counts
    /// with the maximum that its answer may leave unread.
    pub member_unread_bytes: usize,
    /// The maximum duration of a request that is not long-running.
    pub request_timeout: Duration,
    /// Bytes of the objects of one resource in one cluster. A cluster with more is unknown in that resource, so that it
    /// takes no memory of other clusters.
    pub collection_bytes: u64,
    /// Bytes of the objects of all resources in all clusters. A collection beyond the bound is not cached, or no longer
    /// followed (`ObjectRoom`).
    pub total_collection_bytes: u64,
    /// The number of namespaces of a resource with their own views, for clusters that forbid reading all namespaces.
    pub namespace_views: usize,
}

/// 4 GiB: 600,000 pods of 7 KB, four times what Kubernetes says that a cluster should have. Less if the
/// total is less than four times that.
pub const COLLECTION_BYTES: u64 = 4 << 30;

/// 4 GiB, without a known size of memory: half of a laptop's 8 GiB.
const TOTAL_COLLECTION_BYTES: u64 = 4 << 30;

/// 2 GiB, without a known size of memory: a quarter of a laptop's 8 GiB.
const MEMBER_UNREAD_BYTES: usize = 2 << 30;

/// Unread bytes of one answer of a cluster: the flow-control window of its stream
/// ([`client_windows`](ClientTuning::client_windows)). Over HTTP/1.1 the buffers of hyper and of the system hold about
/// as much.
pub const ANSWER_WINDOW: usize = 256 << 10;

/// Unread bytes of a watch on the connections that watches share.
pub const WATCH_WINDOW: usize = WATCH_STREAM_BYTES as usize;

/// The bounds of a label or field selector. 128 requirements: each costs time for each object, and people and
/// controllers write up to ten. 1,000 values: a value is found by a search, and some clients list the names of a whole
/// namespace. kube-apiserver has no bound but the length of a request.
pub const SELECTOR: SelectorBounds = SelectorBounds { requirements: 128, values: 1_000 };

/// The maximum length of a name or namespace, in bytes. Most have at most 253; only etcd bounds names of RBAC objects.
/// 8 KiB: common proxies allow as much for a whole request line.
pub const NAME_BYTES: usize = 8 << 10;

/// The number of parameters of a query in the merged view. Reads and writes have up to ten. Parameters of exec and of
/// requests to workloads do not count, because Tributary does not read them. kube-apiserver has no bound but the length
/// of a request; of a cluster's own view it is [`PARAMETERS_MAX`](tributary_apimachinery::query::PARAMETERS_MAX).
pub const QUERY_PARAMETERS: usize = 64;

/// The number of groups and values of extras that a client may impersonate in one request; each is a question to a
/// cluster. 512: dashboards send all groups of their users, and some people have hundreds of groups.
pub const IMPERSONATED_VALUES: usize = 512;

/// The total length of impersonated values, in bytes. 64 KiB: 512 values of twice the length of a long group's name.
pub const IMPERSONATED_BYTES: usize = 64 << 10;

/// 4,000: a client alone may have 1,500 of its 2,000 streams, which no client comes near, and dozens share the
/// rest. Each costs some 10 KiB until it is answered. kube-apiserver's 400 and 200 (`--max-requests-inflight`,
/// `--max-mutating-requests-inflight`) protect its etcd; Tributary has no etcd, and the requests of a frozen
/// member stay for a minute, without refusals for other members.
const REQUESTS_IN_FLIGHT: usize = 4_000;

/// 40,000: a user alone may have 15,000, and each of 64 users has room for 156 in any case; consoles and
/// controllers have some dozens. An idle watch takes 11 KB, so that these are 440 MB, and those of one user 165 MB.
const LONG_RUNNING_REQUESTS: usize = 40_000;

/// 128 MiB: a client alone may have 48 MiB, which are three writes of 8 MiB with their answers, or some 1,700 of 6 KB
/// (each takes its size twice, and 16 KiB).
const HELD_BYTES: usize = 128 << 20;

/// 60 s: kube-apiserver's own (`--request-timeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The largest question about the caller's own rights, in bytes; it goes to every member. One has some 300 bytes.
/// 64 KiB leave room for a SelfSubjectAccessReview with selectors.
pub const REVIEW_BYTES_MAX: usize = 64 << 10;

/// The largest answer of a cluster to such a question, in bytes; every cluster's is held until all are there. A
/// decision is as large as its question. 1 MiB leaves room for a SelfSubjectRulesReview of several thousand rules.
pub const REVIEW_ANSWER_BYTES_MAX: usize = 1 << 20;

/// The largest options of the deletion of a collection, in bytes; they go to every member. They have some 200 bytes.
pub const DELETE_OPTIONS_BYTES_MAX: usize = 256 << 10;

/// 8 MiB: a second of 1,000 events of 8 KB. A watcher that is further behind encodes events again.
const ENCODINGS_BYTES: usize = 8 << 20;

/// 30 minutes: a person at a terminal comes back to the same resources, and a list of them anew costs a member more
/// than an idle watch does in a day.
const UNUSED_AFTER: Duration = Duration::from_secs(30 * 60);

/// The maximum time from the head of a member's answer to its end. Half of the time of a whole request, so that the
/// answer to the client can name the slow cluster.
pub const WHOLE_WITHIN: Duration = Duration::from_secs(30);

/// Bytes of members' answers that are gathered before an answer begins: some thousand pods, or the metrics of twenty
/// thousand.
pub const GATHERED_BYTES_MAX: usize = 8 << 20;

/// The number of unknown clusters in a client's version: clusters that left, or invented names. Each costs several
/// searches. If a fleet loses more clusters at the same time, its clients list again.
pub const UNKNOWN_CLUSTERS: usize = 1024;

/// The number of written objects for each cluster and resource whose versions a read waits for singly, until the
/// member's watch has shown them. With more objects each read waits for all of them. The watch shows them within
/// milliseconds, so there are this many only if the watch lags. 1,024 are 100 KB.
pub const FENCE_OBJECTS: usize = 1024;

/// Number of past states of a resource for the next pages of lists. 16: as many as turns to write them. A past state
/// keeps the objects that changed since.
pub const PAST_STATES: usize = 16;

/// The name of the bound of requests in flight in the metrics.
pub const REQUESTS: &str = "requests_in_flight";

/// The name of the bound of long-running requests in the metrics.
pub const LONG_RUNNING: &str = "long_running_requests";

/// The name of the bound of switched connections in the metrics.
pub const UPGRADES: &str = "upgraded_connections";

/// The name of the bound of held bytes in the metrics.
pub const BYTES: &str = "held_bytes";

/// The name of the bound of unread bytes of clusters' answers in the metrics.
pub const MEMBER_UNREAD: &str = "member_unread_bytes";

/// The name of the bound of the bytes of all objects in the metrics.
pub const OBJECTS: &str = "total_collection_bytes";

/// 256: more namespaces than a person or a controller visits. In a cluster that forbids a watch of all namespaces, 256
/// watches are 11 % of the 2,400 streams for them over HTTP/2. Over HTTP/1.1 they have 64 to 128 connections, and a
/// cluster is unknown in further namespaces. Clients share the views in use; a client alone may have 96.
const NAMESPACE_VIEWS: usize = 256;

/// Time after which the view of an unused namespace ends. 2 minutes: a client that visits many namespaces does not
/// return to each, and the list of a namespace costs a member little. The view of a forbidden namespace with watches
/// also stays as long before a new view takes its place: otherwise watchers of such namespaces would end each other's
/// watches for ever.
pub const NAMESPACE_UNUSED_AFTER: Duration = Duration::from_secs(120);

impl Default for Limits {
    fn default() -> Self {
        let history = LogConfig::default();
        Self {
            history_bytes: history.history_bytes_max,
            history_age: history.history_age_max,
            encodings_bytes: ENCODINGS_BYTES,
            long_answers: AT_ONCE,
            unused_after: UNUSED_AFTER,
            requests_in_flight: REQUESTS_IN_FLIGHT,
            long_running_requests: LONG_RUNNING_REQUESTS,
            held_bytes: HELD_BYTES,
            member_unread_bytes: MEMBER_UNREAD_BYTES,
            request_timeout: REQUEST_TIMEOUT,
            collection_bytes: COLLECTION_BYTES.min(TOTAL_COLLECTION_BYTES / 2),
            total_collection_bytes: TOTAL_COLLECTION_BYTES,
            namespace_views: NAMESPACE_VIEWS,
        }
    }
}

impl Limits {
    /// Returns the bounds of the log of a resource.
    pub fn log(&self) -> LogConfig {
        LogConfig { history_bytes_max: self.history_bytes, history_age_max: self.history_age, ..LogConfig::default() }
    }

    /// Returns every bound under its name in the metrics, also bounds that cannot be set. Times are in seconds.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let to_members = ClientTuning::default();
        vec![
            ("history_bytes", self.history_bytes as u64),
            ("history_age_seconds", self.history_age.as_secs()),
            ("encodings_bytes", self.encodings_bytes as u64),
            ("long_answers", self.long_answers as u64),
            ("long_answers_waiting", WAITING_MAX as u64),
            ("namespace_views", self.namespace_views as u64),
            ("namespace_views_unused_after_seconds", NAMESPACE_UNUSED_AFTER.as_secs()),
            ("openapi_bytes", OPENAPI_BYTES as u64),
            ("openapi_last_bytes", OPENAPI_LAST_BYTES as u64),
            ("last_heard_bytes", LAST_HEARD_BYTES as u64),
            ("fence_objects", FENCE_OBJECTS as u64),
            ("past_states", PAST_STATES as u64),
            ("request_body_bytes", WHOLE_BODY_BYTES_MAX as u64),
            ("review_bytes", REVIEW_BYTES_MAX as u64),
            ("review_answer_bytes", REVIEW_ANSWER_BYTES_MAX as u64),
            ("delete_options_bytes", DELETE_OPTIONS_BYTES_MAX as u64),
            ("live_list_bytes", GATHERED_BYTES_MAX as u64),
            ("impersonated_values", IMPERSONATED_VALUES as u64),
            ("impersonated_bytes", IMPERSONATED_BYTES as u64),
            (REQUESTS, self.requests_in_flight as u64),
            (LONG_RUNNING, self.long_running_requests as u64),
            (BYTES, self.held_bytes as u64),
            (MEMBER_UNREAD, self.member_unread_bytes as u64),
            ("collection_bytes", self.collection_bytes),
            (OBJECTS, self.total_collection_bytes),
            ("request_timeout_seconds", self.request_timeout.as_secs()),
            ("member_http1_requests", to_members.max_http1_requests as u64),
            (UPGRADES, to_members.tunnel_places.all() as u64),
            ("unused_after_seconds", self.unused_after.as_secs()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_with_the_window_of_its_stream() {
        assert_eq!(u64::from(ClientTuning::default().client_windows.stream), ANSWER_WINDOW as u64);
    }
}
