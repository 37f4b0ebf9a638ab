//! State of this process and its clusters at one time. `/readyz?verbose`, the metrics of cached objects and `tributary
//! status` show the same report, so that they agree.
//!
//! ```text
//! each cluster ──▶ ClusterReport ───────────────────┐
//! each view ─────▶ ResourceReport, CollectionReport ┼─▶ Report::from_parts, a pure join ─▶ JSON, text, metrics
//! each limit ────▶ LimitReport ─────────────────────┘
//! ```
//!
//! The report contains texts of clusters (versions, reasons) unchanged. Escape these texts before you write them to a
//! terminal. The report contains no credentials.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Path of the [report](Report) as JSON. A user who may read this path may see all clusters. No Kubernetes API has this
/// root, and the paths of a single cluster begin with `/clusters`.
pub const PATH: &str = "/tributary/status";

/// Percentage of a limit from which the report shows the limit as nearly reached. 75, because the last quarter of a
/// shared limit is reserved for clients that use little of it. Above 75 %, other clients are refused, or soon will be.
/// A single client can reach only 37 % of a shared limit. The alerts on shared limits use the same percentage.
pub const NEAR_PERCENT: u64 = 75;

/// State of this process and its clusters. Times are whole seconds before the report was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// Version of this program.
    pub version: String,
    /// Time since the start of the process.
    pub uptime_seconds: u64,
    /// Whether the process is shutting down.
    pub draining: bool,
    /// Memory of the whole process, if the operating system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Clusters, sorted by name.
    pub clusters: Vec<ClusterReport>,
    /// Cached resources, sorted by name.
    pub resources: Vec<ResourceReport>,
    /// Collections that are not up to date, sorted by cluster and resource.
    pub behind: Vec<CollectionReport>,
    /// Shared limits, and limits of single collections that are nearly reached.
    pub limits: Vec<LimitReport>,
    /// The hub. `None` without hub mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub: Option<HubReport>,
}

/// State of the hub and its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HubReport {
    /// Reason why changes of the hub do not arrive. `None` if changes arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Objects of the hub: first objects with a problem, then by kind and name.
    pub objects: Vec<HubObjectReport>,
    /// Kinds of objects that are published for controllers. Only the replica that writes them has entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub publications: Vec<PublicationReport>,
}

/// State of a kind of objects that are published for controllers of other systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PublicationReport {
    /// Kind of the objects: `ClusterProfile`, `KubeconfigSecret` or `ArgoCDSecret`.
    pub kind: String,
    /// Namespace of the objects.
    pub namespace: String,
    /// Number of published objects in the hub.
    pub published: u64,
    /// Number of problems, which are reasons why objects are not published or not up to date.
    pub problem_count: u64,
    /// The first 20 problems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// State of an object of the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HubObjectReport {
    /// Kind of the object, as in manifests.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Current generation of the object.
    pub generation: i64,
    /// Generation of the object that Tributary applies. `None` if Tributary applies no generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation_in_force: Option<i64>,
    /// Reason why Tributary refuses the object, one of its references, or entries of its list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// State of the list in a ClusterSource. `None` for other kinds of objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceReport>,
}

/// State of the list in a ClusterSource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceReport {
    /// Name of the field in `spec` that contains the list.
    pub list: String,
    /// Number of entries in the list. `None` until Tributary has read the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<usize>,
    /// Number of entries that Tributary applies. `None` until Tributary has read the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<usize>,
}

/// Condition of a cluster. If several conditions apply, the report shows the first one in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ClusterCondition {
    /// Tributary cannot connect to the cluster, or gets no answer.
    Unreachable,
    /// Tributary does not trust the server's certificate.
    Untrusted,
    /// The cluster rejects Tributary's credentials.
    Unauthorized,
    /// Tributary has no credentials for the cluster: a plugin fails, or a file is unreadable.
    NoCredentials,
    /// The configuration is invalid, or the server expects a different protocol, such as TLS for a URL with `http://`.
    Misconfigured,
    /// The cluster answers, but has a fault that concerns all its collections.
    Troubled,
    /// The cluster has not reported its resources yet.
    #[default]
    Pending,
    /// The cluster answers, but refuses to let Tributary read a collection that clients read.
    Refusing,
    /// The cluster has no known fault.
    Ready,
}

/// State of Tributary's knowledge of the users' rights in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RightsCondition {
    /// Tributary has not read some roles or bindings. Users see no objects of the cluster.
    #[default]
    Unread,
    /// The rights are up to date.
    Current,
    /// The rights are from the time before Tributary lost contact with the cluster. They apply for a limited time.
    Behind,
    /// The rights are too old, so they no longer apply. Users see no objects of the cluster.
    Outdated,
    /// By configuration, Tributary does not read the cluster's roles. Reads from the cache show users no objects of the
    /// cluster.
    Live,
}

/// Method by which Tributary decides about the rights of users in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RightsDecider {
    /// Tributary does not know the method yet. Users see no objects of the cluster.
    #[default]
    Undecided,
    /// Tributary decides by the cluster's roles and bindings.
    #[serde(rename = "RBAC")]
    Rbac,
    /// Tributary sends access reviews (SubjectAccessReview) to the cluster.
    Review,
    /// The cluster decides about each forwarded request. Reads from the cache show no objects of the cluster.
    Live,
}

/// State of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterReport {
    /// Name of the cluster.
    pub name: String,
    /// Condition of the cluster.
    pub condition: ClusterCondition,
    /// Fault that concerns the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Time since the start of the fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem_seconds: Option<u64>,
    /// First collection that the cluster refuses, with the reason and the number of other refused collections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Reason for which Tributary's credentials cannot be renewed. The current credentials may still be valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_problem: Option<String>,
    /// Problem with the identity of the cluster, such as a uid that a second cluster also has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_problem: Option<String>,
    /// Version of the cluster's server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Time since the last sign of life from the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_seconds: Option<u64>,
    /// Age of the oldest cached collection. The age of a collection with an open watch is the time since the cluster's
    /// last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Duration of the last answer to Tributary's request for `/readyz`, from the slowest reachable endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_microseconds: Option<u64>,
    /// Number of cached objects of the cluster.
    pub objects: u64,
    /// Size of the cached objects in bytes.
    pub bytes: u64,
    /// Number of the cluster's collections that are cached, or are being read.
    pub collections: u64,
    /// Number of the cluster's collections that are not up to date.
    pub behind: u64,
    /// State of the users' rights in the cluster; absent in personal mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights: Option<RightsCondition>,
    /// Method by which the users' rights in the cluster are decided; absent in personal mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights_decider: Option<RightsDecider>,
    /// Reason why Tributary does not use the cluster's roles and bindings to decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights_reason: Option<String>,
    /// Reason why Tributary does not have the users' rights, with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights_problem: Option<String>,
    /// Addresses of the cluster, in the order of the configuration.
    pub endpoints: Vec<EndpointReport>,
}

/// One address of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointReport {
    /// Host and port of the endpoint.
    pub address: String,
    /// Whether the endpoint is reachable. True until Tributary knows.
    pub is_reachable: bool,
    /// Whether the endpoint is ready. True until Tributary knows.
    pub is_ready: bool,
    /// Reason for which the endpoint is unreachable, or gets requests only as the last choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Duration of the last answer to Tributary's request for `/readyz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_microseconds: Option<u64>,
    /// Number of requests in flight to the endpoint, including watches and upgraded connections.
    pub outstanding_requests: u64,
    /// Number of requests that were sent to the endpoint.
    pub requests: u64,
    /// Number of clients' streams that broke at the endpoint: logs, watches below `/clusters/NAME`, upgraded
    /// connections.
    pub broken: u64,
    /// Whether the endpoint answers Tributary's own requests with errors. Such an endpoint gets requests only if no
    /// better endpoint is available.
    pub is_ejected: bool,
    /// Number of times that the endpoint was ejected.
    pub ejections: u64,
    /// Reason for which the endpoint gets no requests: `drain`, `breaker`, `unreachable`, `full`, `probe` or `outlier`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Number of times that the circuit breaker has opened.
    pub breaker_openings: u64,
}

/// Cached data of a resource over all clusters. Limited to one namespace if the configuration names the namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceReport {
    /// API group of the resource.
    pub group: String,
    /// API version of the resource.
    pub version: String,
    /// Plural name of the resource.
    pub resource: String,
    /// The only namespace that is cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Number of objects in all clusters together.
    pub objects: u64,
    /// Number of object names (with namespace) that several clusters have.
    pub repeated_names: u64,
    /// Size of the past changes in the view's log, in bytes.
    pub history_bytes: u64,
    /// Size of the encoded events that watches share, in bytes.
    pub encodings_bytes: u64,
}

/// State of a cached collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectionState {
    /// The collection is up to date.
    Current,
    /// The collection is outdated. Responses contain its objects and a Warning.
    Stale,
    /// The collection has not been read yet.
    #[default]
    Unknown,
}

/// Cached data of a resource in one cluster. Limited to one namespace if the cluster forbids reads of all namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CollectionReport {
    /// Name of the cluster.
    pub cluster: String,
    /// Resource in kubectl's notation.
    pub resource: String,
    /// The only namespace that Tributary reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// State of the collection.
    pub state: CollectionState,
    /// Time since the collection was last up to date, in seconds.
    pub seconds: u64,
    /// Reason for which the collection is not up to date; absent during the first read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the cluster answers, but refuses to let Tributary read the collection.
    pub refused: bool,
    /// Whether the cluster forbids Tributary to list the collection (403).
    pub forbidden: bool,
    /// Number of cached objects of the collection.
    pub objects: u64,
    /// Size of the objects in bytes.
    pub bytes: u64,
    /// Number of relists because the cacher lost changes. Lists that replace missing bookmarks are not counted.
    pub relists: u64,
}

/// A limit of memory or of concurrent work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitReport {
    /// Name of the limit, as in the metric `tributary_limit`.
    pub limit: String,
    /// Cluster or resource to which the limit applies. Absent for a limit of the whole process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Current use of the limit.
    pub used: u64,
    /// Maximum of the limit.
    pub max: u64,
    /// Number of requests that were refused because of the limit since the start of the process. `None` if the limit
    /// has no counter of refused requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
}

impl LimitReport {
    /// Creates the report of a limit of the whole process.
    pub fn new(limit: &str, used: u64, max: u64, refused: Option<u64>) -> Self {
        Self { limit: limit.to_owned(), of: None, used, max, refused }
    }

    /// Returns whether the current use is at least [`NEAR_PERCENT`] of the limit.
    pub fn is_near(&self) -> bool {
        self.used > 0 && self.used.saturating_mul(100) >= self.max.saturating_mul(NEAR_PERCENT)
    }
}

impl Report {
    /// Joins the reports of clusters, views and limits. Omits collections of clusters that have just left or joined the
    /// fleet.
    ///
    /// Visits each collection.
    pub fn from_parts(
        mut clusters: Vec<ClusterReport>,
        mut resources: Vec<ResourceReport>,
        mut collections: Vec<CollectionReport>,
        limits: Vec<LimitReport>,
    ) -> Self {
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        resources.sort_by(|a, b| (&a.resource, &a.group, &a.namespace).cmp(&(&b.resource, &b.group, &b.namespace)));
        // The collections are sorted, so that the report names the first refused collection.
        collections
            .sort_by(|a, b| (&a.cluster, &a.resource, &a.namespace).cmp(&(&b.cluster, &b.resource, &b.namespace)));
        let mut behind = Vec::new();
        for of_one in collections.chunk_by(|a, b| a.cluster == b.cluster) {
            let Ok(at) = clusters.binary_search_by(|cluster| cluster.name.cmp(&of_one[0].cluster)) else { continue };
            clusters[at].count(of_one);
            behind.extend(of_one.iter().filter(|collection| collection.is_behind()).cloned());
        }
        Self { clusters, resources, behind, limits, ..Self::default() }
    }

    /// Returns the report of one cluster.
    pub fn cluster(&self, name: &str) -> Option<&ClusterReport> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }
}

impl ClusterReport {
    fn count(&mut self, collections: &[CollectionReport]) {
        let since_last_answer = self.heard_seconds.unwrap_or_default();
        let mut refused = Vec::new();
        for collection in collections {
            self.objects += collection.objects;
            self.bytes += collection.bytes;
            self.collections += 1;
            self.behind += u64::from(collection.is_behind());
            let age = match collection.state {
                CollectionState::Current => Some(since_last_answer),
                CollectionState::Stale => Some(collection.seconds),
                CollectionState::Unknown => None,
            };
            self.age_seconds = self.age_seconds.max(age);
            if collection.refused {
                refused.push(format!("{}: {}", collection.resource, collection.reason.as_deref().unwrap_or_default()));
            }
        }
        if self.condition == ClusterCondition::Ready && !refused.is_empty() {
            self.condition = ClusterCondition::Refusing;
        }
        self.refusal = match &refused[..] {
            [] => None,
            [only] => Some(only.clone()),
            [first, more @ ..] => Some(format!("{first}; and {} more collections", more.len())),
        };
    }
}

impl CollectionReport {
    /// Returns whether the collection is not up to date.
    pub fn is_behind(&self) -> bool {
        self.state != CollectionState::Current
    }
}

/// Returns a duration in whole microseconds.
pub fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str, condition: ClusterCondition) -> ClusterReport {
        ClusterReport { name: name.to_owned(), condition, heard_seconds: Some(2), ..ClusterReport::default() }
    }

    fn collection(cluster: &str, resource: &str, state: CollectionState, seconds: u64) -> CollectionReport {
        let (cluster, resource) = (cluster.to_owned(), resource.to_owned());
        let (objects, bytes) = (10, 1000);
        CollectionReport { cluster, resource, state, seconds, objects, bytes, ..CollectionReport::default() }
    }

    #[test]
    fn reported_cluster_age_is_that_of_its_oldest_collection() {
        use ClusterCondition::{Ready, Unreachable};
        use CollectionState::{Current, Stale, Unknown};
        let clusters = vec![cluster("b", Ready), cluster("a", Unreachable), cluster("c", Ready)];
        let collections = vec![
            collection("gone", "pods", Stale, 9),
            collection("b", "pods", Current, 0),
            collection("b", "nodes", Stale, 7),
            collection("c", "pods", Unknown, 90),
            collection("a", "pods", Current, 0),
        ];
        let report = Report::from_parts(clusters, Vec::new(), collections, Vec::new());
        let summaries: Vec<_> = report
            .clusters
            .iter()
            .map(|it| (it.name.as_str(), it.age_seconds, it.collections, it.behind, it.objects, it.bytes))
            .collect();
        assert_eq!(
            summaries,
            [("a", Some(2), 1, 0, 10, 1000), ("b", Some(7), 2, 1, 20, 2000), ("c", None, 1, 1, 10, 1000)],
            "by name, and nothing of who is gone"
        );
        let behind: Vec<_> = report.behind.iter().map(|it| (it.cluster.as_str(), it.resource.as_str())).collect();
        assert_eq!(behind, [("b", "nodes"), ("c", "pods")]);
    }

    #[test]
    fn report_names_one_refused_collection_and_counts_the_others() {
        let refused = |resource: &str| CollectionReport {
            refused: true,
            reason: Some("forbidden".to_owned()),
            ..collection("a", resource, CollectionState::Unknown, 1)
        };
        for (condition, expected) in [
            (ClusterCondition::Ready, ClusterCondition::Refusing),
            (ClusterCondition::Unreachable, ClusterCondition::Unreachable),
        ] {
            let collections = vec![refused("secrets"), refused("nodes"), refused("pods")];
            let report = Report::from_parts(vec![cluster("a", condition)], Vec::new(), collections, Vec::new());
            let reported = report.cluster("a").unwrap();
            assert_eq!(reported.condition, expected);
            assert_eq!(reported.refusal.as_deref(), Some("nodes: forbidden; and 2 more collections"));
        }
    }

    #[test]
    fn limit_is_reported_as_nearly_reached_from_75_percent() {
        let is_near = |used, max| LimitReport::new("held_bytes", used, max, None).is_near();
        assert_eq!(
            [(74, 100), (75, 100), (0, 0), (1, 1), (u64::MAX, 1)].map(|(used, max)| is_near(used, max)),
            [false, true, false, true, true]
        );
    }

    #[test]
    fn status_report_is_parsed_even_if_fields_are_missing() {
        let report =
            Report::from_parts(vec![cluster("a", ClusterCondition::Ready)], Vec::new(), Vec::new(), Vec::new());
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        assert_eq!(serde_json::from_str::<Report>(r#"{"clusters": [], "weather": 1}"#).unwrap(), Report::default());
    }
}
