//! The configuration of a simulated member.

use std::time::Duration;

const DAY: i64 = 24 * 60 * 60;

/// The configuration of a simulated member. Equal configurations generate equal objects, byte for byte.
#[derive(Clone, Debug)]
pub struct SimulatorConfig {
    /// The member's name, a DNS-1123 label. It is the name of the kubeconfig context and a part of the nodes' names.
    pub name: String,
    /// The seed for all generated names, uids and statuses. The member's name is also a part of the seed.
    pub seed: u64,
    /// The number of generated pods.
    pub pods: usize,
    /// The number of namespaces with pods. The member also has the four namespaces of each new cluster.
    pub namespaces: usize,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of pods per deployment, 1 to 700.
    pub replicas: usize,
    /// The time, in seconds since 1970, before which all generated objects were created. The default is the last
    /// midnight (UTC).
    pub epoch: i64,
    /// The interval of bookmarks in a watch with `allowWatchBookmarks`. The interval of a kube-apiserver is about a
    /// minute.
    pub bookmark_interval: Duration,
    /// The number of events in the watch window. A watch from a version before the oldest event gets 410.
    pub watch_window: usize,
    /// Whether `sendInitialEvents` is supported (the default since Kubernetes 1.34). If not, the member answers with
    /// 422.
    pub watch_list: bool,
    /// Whether the member supports HTTP/2. If not, it supports only HTTP/1.1, like clusters behind some load balancers.
    pub http2: bool,
    /// Whether all changes are recorded for [`SimulatedCluster::history`](crate::SimulatedCluster::history). The record
    /// is longer than the watch window and continues after restores.
    pub keep_history: bool,
    /// Whether roles and bindings are served. The member stores them, but does not authorize by them.
    pub rbac: bool,
    /// Continuous changes of pods, without a request from a test; `None` for no changes.
    pub churn: Option<Churn>,
    /// The minimum revision of the member at its start. Some storage backends derive revisions from the time, so their
    /// revisions start high.
    pub first_revision: u64,
    /// The port on 127.0.0.1; 0 selects a free port.
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
            // The watch window of a kube-apiserver has 100 to 102,400 events.
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

/// Continuous changes of pods, without a request from a test.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// The number of changes per second in the whole member, above 0. About seven of ten changes change a status, and
    /// three replace a pod.
    pub changes_per_second: f64,
}
