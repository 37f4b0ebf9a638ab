//! Limits of the router: memory, and the size of requests.
//!
//! The limits are in the configuration. The metrics contain them as `tributary_limit`, together with the used amounts.
//! A request beyond a limit gets 400 with the limit, or 413 for a body; `router/tests/simulated/limits/bounds.rs` and
//! `held.rs` test each limit. The duration of a watch has a separate type,
//! [`Timeout`](tributary_apimachinery::Timeout), which reduces values above the maximum.

use std::time::Duration;

use tributary_apimachinery::SelectorBounds;
use tributary_merge::LogConfig;
use tributary_proxy::{ClientTuning, WATCH_STREAM_BYTES};

use crate::body::WHOLE_BODY_BYTES_MAX;
use crate::flow::long_answers::{AT_ONCE, WAITING_MAX};

/// Maximal size of the OpenAPI documents cached for requests, in bytes. A cluster's v2 document has 2 MB (0.2 MB
/// compressed), and its largest v3 document 0.7 MB. 32 MiB hold the documents for a handful of different clients.
pub const OPENAPI_BYTES: usize = 32 << 20;

/// Maximum size of the compressed OpenAPI documents that Tributary stores for times when a cluster does not answer, in
/// bytes. All v3 documents of a cluster with a thousand CRDs have about 3 MB, and equal documents are stored once.
pub const OPENAPI_LAST_BYTES: usize = 16 << 20;

/// Maximum size of the JSON text in which the discovery of all clusters survives a restart, in bytes. Equal documents
/// are stored once, so a thousand similar clusters need 0.3 MB. 64 MiB also hold some hundred clusters without equal
/// documents.
pub const LAST_HEARD_BYTES: usize = 64 << 20;

/// Maximum number of bytes that Tributary reads of a cluster's error answer, for the reason of the error. A Status has
/// a few hundred bytes.
pub const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Maximum number of clusters to which Tributary sends a request in parallel. With 64, a fleet of 1,000 clusters takes
/// 16 rounds, half a second at 30 ms each.
pub const PARALLEL_REQUESTS_MAX: usize = 64;

/// Configurable limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of remembered changes of one resource in one cluster. A client that resumes a watch from an older version
    /// lists again.
    pub history_bytes: usize,
    /// Maximal age of remembered changes.
    pub history_age: Duration,
    /// Bytes of encoded watch events that the watchers of a resource share, so that each event is encoded once.
    pub encodings_bytes: usize,
    /// Maximum number of concurrently written answers that are larger than one frame. Applies separately to medium and
    /// to long answers.
    pub long_answers: usize,
    /// Time after which Tributary removes an unused resource from memory.
    pub unused_after: Duration,
    /// Maximum number of requests in flight. A request is in flight until the head of its answer. Does not include
    /// long-running requests (watches, exec, logs) and health checks.
    pub requests_in_flight: usize,
    /// Maximum number of long-running requests to all clusters in shared mode: watches, logs, exec, attach and
    /// port-forward.
    pub long_running_requests: usize,
    /// Bytes of bodies in memory: whole requests, lists of members, members' answers about objects and rights, and
    /// answers to writes. A write reserves the bytes of its answer before the request is sent.
    pub held_bytes: usize,
    /// Unread bytes of long-running answers, of all clusters together. Each such request reserves the maximum that its
    /// answer may leave unread.
    pub member_unread_bytes: usize,
    /// Maximal duration of a request that is not long-running.
    pub request_timeout: Duration,
    /// Bytes of the objects of one resource in one cluster. Tributary stops caching a larger collection, so that it
    /// does not take the memory for other clusters.
    pub collection_bytes: u64,
    /// Bytes of all cached objects of all clusters. A collection beyond the limit is not cached, or is no longer
    /// watched (`ObjectMemoryLimit`).
    pub total_collection_bytes: u64,
    /// Maximum of namespace views for each resource. A namespace view caches a single namespace of clusters that forbid
    /// reading all namespaces.
    pub namespace_views: usize,
}

/// Default of `collection_bytes`: 4 GiB, or 600,000 pods of 7 KB, four times the maximum that Kubernetes recommends for
/// a cluster. Smaller if `total_collection_bytes` is less than four times this value.
pub const COLLECTION_BYTES: u64 = 4 << 30;

/// Default of `total_collection_bytes` if the size of the machine's memory is unknown: 4 GiB, half of a laptop's 8 GiB.
const TOTAL_COLLECTION_BYTES: u64 = 4 << 30;

/// Default of `member_unread_bytes` if the size of the machine's memory is unknown: 2 GiB, a quarter of a laptop's 8
/// GiB.
const MEMBER_UNREAD_BYTES: usize = 2 << 30;

/// Maximum number of unread bytes of one answer of a cluster: the flow-control window of the stream
/// ([`client_windows`](ClientTuning::client_windows)). Over HTTP/1.1, the buffers of hyper and of the kernel hold about
/// as much.
pub const ANSWER_WINDOW: usize = 256 << 10;

/// Maximum number of unread bytes of a watch on a connection that several watches share.
pub const WATCH_WINDOW: usize = WATCH_STREAM_BYTES as usize;

/// Limits of a label or field selector. 128 requirements: each costs time for each object, and people and controllers
/// write up to ten. 1,000 values: some clients list the names of a whole namespace, and the search for a value is fast.
/// kube-apiserver limits only the length of a request.
pub const SELECTOR: SelectorBounds = SelectorBounds { requirements: 128, values: 1_000 };

/// Maximal length of a name or namespace, in bytes. Most names have at most 253 bytes; only etcd limits the names of
/// RBAC objects. Common proxies allow 8 KiB for a whole request line.
pub const NAME_BYTES: usize = 8 << 10;

/// Maximum number of query parameters in the merged view. Reads and writes have up to ten. The limit does not apply to
/// exec and to requests to workloads, because Tributary does not read their parameters. kube-apiserver limits only the
/// length of a request. The limit for the path of a single cluster is
/// [`PARAMETERS_MAX`](tributary_apimachinery::query::PARAMETERS_MAX).
pub const QUERY_PARAMETERS: usize = 64;

/// Maximum number of groups and extra values that a client may impersonate in one request. Each value costs a review in
/// a cluster. Dashboards impersonate all groups of their users, and some people have hundreds of groups.
pub const IMPERSONATED_VALUES: usize = 512;

/// Maximal total length of impersonated values, in bytes. 64 KiB hold 512 values of twice the length of a long group
/// name.
pub const IMPERSONATED_BYTES: usize = 64 << 10;

/// Default of `requests_in_flight`: 4,000. A single client has 2,000 streams and may have 1,500 requests in flight,
/// which clients do not reach in practice. Dozens of clients share the remainder. Each request costs about 10 KiB.
/// kube-apiserver's 400 and 200 (`--max-requests-inflight`, `--max-mutating-requests-inflight`) protect etcd, which
/// Tributary does not have. If a member stops answering, its requests last for a minute, and requests to other members
/// are still admitted.
const REQUESTS_IN_FLIGHT: usize = 4_000;

/// Default of `long_running_requests`: 40,000. A single user may have 15,000, and each of 64 users can always have 156.
/// Consoles and controllers have some dozens. An idle watch takes 11 KB, so all take 440 MB, and the watches of one
/// user 165 MB.
const LONG_RUNNING_REQUESTS: usize = 40_000;

/// Default of `held_bytes`: 128 MiB. A single client may have 48 MiB: three writes of 8 MiB with their answers, or some
/// 1,700 writes of 6 KB (each takes twice its size, and 16 KiB).
const HELD_BYTES: usize = 128 << 20;

/// Default of `request_timeout`: 60 s, as in kube-apiserver (`--request-timeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximal size of a self-review (SelfSubjectAccessReview and similar), in bytes, which Tributary sends to every
/// member. A review has some 300 bytes. 64 KiB allow a SelfSubjectAccessReview with selectors.
pub const REVIEW_BYTES_MAX: usize = 64 << 10;

/// Maximum size of a cluster's answer to a self-review, in bytes. Tributary holds the answers of all clusters until the
/// last one arrives. The answer to an access review is as large as the review. 1 MiB holds a SelfSubjectRulesReview of
/// several thousand rules.
pub const REVIEW_ANSWER_BYTES_MAX: usize = 1 << 20;

/// Maximal size of DeleteOptions for a collection, in bytes, which Tributary sends to every member. Typical options
/// have 200 bytes.
pub const DELETE_OPTIONS_BYTES_MAX: usize = 256 << 10;

/// Default of `encodings_bytes`: 8 MiB, a second of 1,000 events of 8 KB. For a watcher that lags more, Tributary
/// encodes the events again.
const ENCODINGS_BYTES: usize = 8 << 20;

/// Default of `unused_after`: 30 minutes. A person at a terminal comes back to the same resources, and a new list costs
/// a member more than an idle watch does in a day.
const UNUSED_AFTER: Duration = Duration::from_secs(30 * 60);

/// Maximal time from the head of a member's answer to its end. Half of the request timeout, so that the answer to the
/// client can name the slow cluster.
pub const WHOLE_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of members' answers that Tributary gathers before it begins the answer to the client: some thousand pods, or
/// the metrics of twenty thousand pods.
pub const GATHERED_BYTES_MAX: usize = 8 << 20;

/// Maximum number of unknown clusters in a client's composite resourceVersion: removed clusters, or invented names.
/// Each costs several searches. If more clusters are removed at once, clients have to list again.
pub const UNKNOWN_CLUSTERS: usize = 1024;

/// Maximum number of written objects that Tributary remembers for each cluster and resource, until the member's watch
/// shows the write. A read waits only for the writes of the objects that it reads. Beyond the maximum, each read waits
/// for all writes. The watch shows writes within milliseconds, so only a lagging watch reaches the maximum. 1,024
/// entries take 100 KB.
pub const PENDING_WRITE_OBJECTS: usize = 1024;

/// Number of past states of a resource that Tributary holds, from which clients read the next pages of their lists. 16,
/// as many as concurrently written answers. A past state holds the objects that have changed since that state.
pub const PAST_STATES: usize = 16;

/// Metric label of the limit of requests in flight.
pub const REQUESTS: &str = "requests_in_flight";

/// Metric label of the limit of long-running requests.
pub const LONG_RUNNING: &str = "long_running_requests";

/// Metric label of the limit of upgraded connections.
pub const UPGRADES: &str = "upgraded_connections";

/// Metric label of the limit of body bytes in memory.
pub const BYTES: &str = "held_bytes";

/// Metric label of the limit of unread bytes of clusters' answers.
pub const MEMBER_UNREAD: &str = "member_unread_bytes";

/// Metric label of the limit of the bytes of all cached objects.
pub const OBJECTS: &str = "total_collection_bytes";

/// Default of `namespace_views`: 256 namespaces, more than a person or a controller visits. In a cluster that forbids a
/// watch of all namespaces, each namespace needs a watch. 256 watches are 11 % of the 2,400 HTTP/2 streams that
/// Tributary has for watches of a cluster. Over HTTP/1.1, only 64 to 128 connections are available, so Tributary cannot
/// watch more namespaces of the cluster. Clients share the views; a single client may have 96.
const NAMESPACE_VIEWS: usize = 256;

/// Time after which an unused namespace view ends. 2 minutes: a client that visits many namespaces does not return to
/// each, and the list of a namespace costs a member little. The view of a forbidden namespace with watches also stays
/// for this time before a new view replaces it, so that the watchers of forbidden namespaces do not repeatedly end each
/// other's watches.
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
    /// Returns the limits of a resource's log of changes.
    pub fn log(&self) -> LogConfig {
        LogConfig { history_bytes_max: self.history_bytes, history_age_max: self.history_age, ..LogConfig::default() }
    }

    /// Returns every limit by its name in the metrics, including constant limits. Times are in seconds.
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
            ("fence_objects", PENDING_WRITE_OBJECTS as u64),
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
            (UPGRADES, to_members.tunnel_permits.all() as u64),
            ("unused_after_seconds", self.unused_after.as_secs()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_window_equals_the_http2_stream_window() {
        assert_eq!(u64::from(ClientTuning::default().client_windows.stream), ANSWER_WINDOW as u64);
    }
}
