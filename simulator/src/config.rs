//! The configuration of a simulated member.

use std::time::Duration;

/// A day, in seconds.
const DAY: i64 = 24 * 60 * 60;

/// The configuration of a simulated member. Equal configurations produce equal objects, byte for byte.
#[derive(Clone, Debug)]
pub struct SimulatorConfig {
    /// The member's name: its context in kubeconfigs and a part of its nodes' names. A DNS-1123 label.
    pub name: String,
    /// The seed of all generated names, uids and statuses, together with the member's name.
    pub seed: u64,
    /// The number of generated pods.
    pub pods: usize,
    /// The number of namespaces with pods, besides the four of each cluster.
    pub namespaces: usize,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of pods per deployment, 1 to 700.
    pub replicas: usize,
    /// The time, in seconds since 1970, before which all generated objects were created. The default is the last
    /// midnight (UTC).
    pub epoch: i64,
    /// The interval of bookmarks in a watch with `allowWatchBookmarks`. kube-apiserver's is about a minute.
    pub bookmark_interval: Duration,
    /// The number of events that the member remembers; a watch from before the oldest gets 410.
    pub watch_window: usize,
    /// Whether `sendInitialEvents` is supported (the default since Kubernetes 1.34), or refused with 422.
    pub watch_list: bool,
    /// Whether the member supports HTTP/2, or only HTTP/1.1, like behind some load balancers.
    pub http2: bool,
    /// Whether all changes are kept for [`SimulatedCluster::history`](crate::SimulatedCluster::history), beyond the
    /// window and through restores.
    pub keep_history: bool,
    /// Whether roles and bindings are served. They are stored without an effect.
    pub rbac: bool,
    /// Changes without a request, if any.
    pub churn: Option<Churn>,
    /// The minimum revision of the member at its start: stores that number their changes by the time start high.
    pub first_revision: u64,
    /// The port on 127.0.0.1, or 0 for a free port.
    pub port: u16,
}

impl Default for SimulatorConfig {
    fn default() -> Self {
        Self {
            name: "member1".to_owned(),
            seed: 1,
            pods: 100,
            namespaces: 5,
            nodes: 10,
            replicas: 5,
            epoch: jiff::Timestamp::now().as_second() / DAY * DAY,
            bookmark_interval: Duration::from_secs(60),
            // kube-apiserver's ring is 100 to 102,400 events long.
            watch_window: 10_000,
            watch_list: true,
            http2: true,
            keep_history: false,
            rbac: false,
            churn: None,
            first_revision: 0,
            port: 0,
        }
    }
}

/// Pods that are created, changed and deleted without a request.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// The number of changes per second in the whole member, above 0. About seven of ten change a status, the others
    /// replace a pod.
    pub changes_per_second: f64,
}
