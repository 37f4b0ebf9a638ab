//! The state of this process and its clusters at one moment. `/readyz?verbose`, the metrics of cached objects and
//! `tributary status` show the same report, so that they agree.
//!
//! ```text
//! each cluster ──▶ ClusterReport ───────────────────┐
//! each view ─────▶ ResourceReport, CollectionReport ┼─▶ Report::from_parts, a pure join ─▶ JSON, text, metrics
//! each bound ────▶ LimitReport ─────────────────────┘
//! ```
//!
//! What members said of themselves (versions, reasons) is in it as they said it: whoever writes it to a terminal has to
//! look at its characters first. There is no credential in it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where the [report](Report) stands, as JSON, and by which it is decided who may read what names all clusters. No
/// Kubernetes API has this root, nor has a cluster's own view, which begins with `/clusters`.
pub const PATH: &str = "/tributary/status";

/// From which part of a bound on it is worth a look, in percent. 75: of what is shared among clients one alone is
/// refused from 37 % on and the last quarter is for those who hold little, so beyond this somebody is refused, or soon
/// will be. The alerts on bounds that are shared go by it, too.
pub const NEAR_PERCENT: u64 = 75;

/// How this process and its clusters are. Times are whole seconds before the report was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// This program's version.
    pub version: String,
    /// How long the process has served.
    pub uptime_seconds: u64,
    /// Whether it is shutting down.
    pub draining: bool,
    /// The memory of the whole process, where the system tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// The clusters, by name.
    pub clusters: Vec<ClusterReport>,
    /// The resources that are held, by name.
    pub resources: Vec<ResourceReport>,
    /// The collections that are not current, by cluster and resource.
    pub behind: Vec<CollectionReport>,
    /// The bounds that are shared, and those of single collections that are nearly reached.
    pub limits: Vec<LimitReport>,
}

/// How a cluster is, the first of these that is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ClusterCondition {
    /// Tributary gets no connection, or no answer.
    Unreachable,
    /// Tributary does not trust the server's certificate.
    Untrusted,
    /// The cluster rejects Tributary's credentials.
    Unauthorized,
    /// Tributary has no credentials for the cluster: a plugin fails, or a file is unreadable.
    NoCredentials,
    /// The configuration is invalid, or the address speaks another protocol, such as TLS for a URL with `http://`.
    Misconfigured,
    /// It answers, but something is wrong with it as a whole.
    Troubled,
    /// It has not said yet what it serves.
    #[default]
    Pending,
    /// It answers, but refuses to show something that is asked for.
    Refusing,
    /// Nothing is wrong with it.
    Ready,
}

/// How far what users may do in a cluster is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RightsCondition {
    /// Its roles and bindings have not all been read: users are shown nothing of it.
    #[default]
    Unread,
    /// They are as they are now.
    Current,
    /// They are as they were when they were last followed, and count for a while.
    Behind,
    /// They were last followed too long ago: users are shown nothing of it.
    Outdated,
    /// They are not looked at: users are shown nothing of it from memory, as its configuration says.
    Live,
}

/// By what it is decided what users may read of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RightsDecider {
    /// That has not been found out yet: users are shown nothing of it.
    #[default]
    Undecided,
    /// By its roles and bindings.
    #[serde(rename = "RBAC")]
    Rbac,
    /// By asking it.
    Review,
    /// By itself, request by request: nothing of it is shown from memory.
    Live,
}

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterReport {
    /// Its name.
    pub name: String,
    /// How it is.
    pub condition: ClusterCondition,
    /// What is wrong with it as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// For how long something has been wrong with it as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem_seconds: Option<u64>,
    /// What it refuses to show, and why: one collection, and how many more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Why our credentials there cannot be renewed. Those that there are may still be valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_problem: Option<String>,
    /// What is wrong with who it says that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_problem: Option<String>,
    /// The version of its server, as it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Since when it has not said anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_seconds: Option<u64>,
    /// How old the oldest of what is held of it is. What follows the cluster is as old as the last that it said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// How long its last answer to our own `/readyz` took, at the endpoint that took longest of those that can be
    /// reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_microseconds: Option<u64>,
    /// How many objects are held of it.
    pub objects: u64,
    /// What they occupy, in bytes.
    pub bytes: u64,
    /// How many collections of it are held, or are to be.
    pub collections: u64,
    /// How many of these are not current.
    pub behind: u64,
    /// How far what users may do there is known; nothing where one person owns the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights: Option<RightsCondition>,
    /// By what it is decided what users may read of it; nothing where one person owns the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights_decider: Option<RightsDecider>,
    /// Why that is not by its roles and bindings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights_reason: Option<String>,
    /// What keeps us from knowing what users may do there, and what helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights_problem: Option<String>,
    /// Its addresses, in the order of the configuration.
    pub endpoints: Vec<EndpointReport>,
}

/// One address of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointReport {
    /// Host and port.
    pub address: String,
    /// Whether it is not known to be out of reach.
    pub is_reachable: bool,
    /// Whether it has not said that it is not ready.
    pub is_ready: bool,
    /// Why it cannot be reached, or is the last choice for requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How long its last answer to our own `/readyz` took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_microseconds: Option<u64>,
    /// Requests in flight, watches and upgraded connections included.
    pub outstanding_requests: u64,
    /// Requests that were sent to it.
    pub requests: u64,
    /// What clients followed there and broke off: logs, watches of the cluster's own view, upgraded connections.
    pub broken: u64,
    /// Whether it answers our own questions with errors, so that it is asked only where no other endpoint is left.
    pub is_ejected: bool,
    /// How often that has begun.
    pub ejections: u64,
    /// Why it is left out, in one word: `drain`, `breaker`, `unreachable`, `full`, `probe` or `outlier`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// How often its circuit breaker has opened.
    pub breaker_openings: u64,
}

/// One resource over all clusters, or one namespace of it where the configuration names one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceReport {
    /// The API group.
    pub group: String,
    /// Version in the request.
    pub version: String,
    /// The plural resource.
    pub resource: String,
    /// The one namespace that is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// How many objects all clusters have together.
    pub objects: u64,
    /// How many names, with their namespace, objects of several clusters have.
    pub repeated_names: u64,
    /// What the changes that are remembered occupy, in bytes.
    pub history_bytes: u64,
    /// What the encoded events that watchers share occupy, in bytes.
    pub encodings_bytes: u64,
}

/// Whether what is held of a collection is what the cluster has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectionState {
    /// It is.
    Current,
    /// It was, and is served on.
    Stale,
    /// Nothing is held yet.
    #[default]
    Unknown,
}

/// One resource of one cluster, or one namespace of it where that is read by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CollectionReport {
    /// Name of the cluster.
    pub cluster: String,
    /// The resource, as kubectl takes it.
    pub resource: String,
    /// The one namespace that is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether what is held is what the cluster has.
    pub state: CollectionState,
    /// For how long it has not been; what is held is as old.
    pub seconds: u64,
    /// Why not; none while it is read for the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the cluster answers and refuses it.
    pub refused: bool,
    /// Whether it refuses it because it forbids it (403).
    pub forbidden: bool,
    /// How many objects are held.
    pub objects: u64,
    /// What they occupy, in bytes.
    pub bytes: u64,
    /// How often it was listed anew since it is followed, because changes were lost: lists that are made where no
    /// bookmarks come are not counted.
    pub relists: u64,
}

/// A bound of what is held or under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitReport {
    /// Its name, as in the metric `tributary_limit`.
    pub limit: String,
    /// What it is counted for, if not for the whole process: a cluster, a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// How much of it is used.
    pub used: u64,
    /// How much there is.
    pub max: u64,
    /// How many requests were refused because of it since the start, where that is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
}

impl LimitReport {
    /// A bound of the whole process.
    pub fn new(limit: &str, used: u64, max: u64, refused: Option<u64>) -> Self {
        Self { limit: limit.to_owned(), of: None, used, max, refused }
    }

    /// Whether so much of it is used that it is worth a look.
    pub fn is_near(&self) -> bool {
        self.used > 0 && self.used.saturating_mul(100) >= self.max.saturating_mul(NEAR_PERCENT)
    }
}

impl Report {
    /// Joins what clusters, views and bounds say of themselves. Clusters are taken by name; a collection of a cluster
    /// that is not among them has just left, or just come, and is left out.
    ///
    /// Cost: one look at each collection.
    pub fn from_parts(
        mut clusters: Vec<ClusterReport>,
        mut resources: Vec<ResourceReport>,
        mut collections: Vec<CollectionReport>,
        limits: Vec<LimitReport>,
    ) -> Self {
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        resources.sort_by(|a, b| (&a.resource, &a.group, &a.namespace).cmp(&(&b.resource, &b.group, &b.namespace)));
        // What a cluster refuses is named by the first.
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

    /// One cluster.
    pub fn cluster(&self, name: &str) -> Option<&ClusterReport> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }
}

impl ClusterReport {
    /// Takes over what is held of it.
    fn count(&mut self, collections: &[CollectionReport]) {
        let heard = self.heard_seconds.unwrap_or_default();
        let mut refused = Vec::new();
        for collection in collections {
            self.objects += collection.objects;
            self.bytes += collection.bytes;
            self.collections += 1;
            self.behind += u64::from(collection.is_behind());
            let age = match collection.state {
                CollectionState::Current => Some(heard),
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
    /// Whether it is not current.
    pub fn is_behind(&self) -> bool {
        self.state != CollectionState::Current
    }
}

/// Whole microseconds, as reports have them.
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
    fn a_cluster_is_as_old_as_the_oldest_of_what_is_held() {
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
        let told: Vec<_> = report
            .clusters
            .iter()
            .map(|it| (it.name.as_str(), it.age_seconds, it.collections, it.behind, it.objects, it.bytes))
            .collect();
        assert_eq!(
            told,
            [("a", Some(2), 1, 0, 10, 1000), ("b", Some(7), 2, 1, 20, 2000), ("c", None, 1, 1, 10, 1000)],
            "by name, and nothing of who is gone"
        );
        let behind: Vec<_> = report.behind.iter().map(|it| (it.cluster.as_str(), it.resource.as_str())).collect();
        assert_eq!(behind, [("b", "nodes"), ("c", "pods")]);
    }

    #[test]
    fn what_a_cluster_refuses_is_named_once_and_counted() {
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
            let told = report.cluster("a").unwrap();
            assert_eq!(told.condition, expected);
            assert_eq!(told.refusal.as_deref(), Some("nodes: forbidden; and 2 more collections"));
        }
    }

    #[test]
    fn a_bound_is_near_from_three_quarters_on() {
        let is_near = |used, max| LimitReport::new("held_bytes", used, max, None).is_near();
        assert_eq!(
            [(74, 100), (75, 100), (0, 0), (1, 1), (u64::MAX, 1)].map(|(used, max)| is_near(used, max)),
            [false, true, false, true, true]
        );
    }

    #[test]
    fn a_report_reads_what_it_writes_and_what_a_later_one_leaves_out() {
        let report =
            Report::from_parts(vec![cluster("a", ClusterCondition::Ready)], Vec::new(), Vec::new(), Vec::new());
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        assert_eq!(serde_json::from_str::<Report>(r#"{"clusters": [], "weather": 1}"#).unwrap(), Report::default());
    }
}
