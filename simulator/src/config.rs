//! What a simulated member is made of.

use std::time::Duration;

/// A day, in seconds.
const DAY: i64 = 24 * 60 * 60;

/// The shape of one simulated member. The same configuration gives the same objects, byte for byte.
#[derive(Clone, Debug)]
pub struct SimulatorConfig {
    /// The member's name: its context in kubeconfigs and a part of its nodes' names. A DNS-1123 label.
    pub name: String,
    /// What every generated name, uid and status is derived from, together with the name.
    pub seed: u64,
    /// How many pods are generated.
    pub pods: usize,
    /// How many namespaces hold the pods, beside the four that every cluster has.
    pub namespaces: usize,
    /// How many nodes run the pods.
    pub nodes: usize,
    /// Pods per deployment, 1 to 700.
    pub replicas: usize,
    /// The time, in seconds since 1970, before which all generated objects were created.
    /// The default is the last midnight (UTC).
    pub epoch: i64,
    /// How often a watch with `allowWatchBookmarks` gets a bookmark. kube-apiserver's is about a minute.
    pub bookmark_interval: Duration,
    /// How many events the member remembers; a watch from before the oldest is answered 410.
    pub watch_window: usize,
    /// Whether `sendInitialEvents` is served (the default since Kubernetes 1.34), or refused with 422.
    pub watch_list: bool,
    /// Whether HTTP/2 is spoken, or HTTP/1.1 alone, as behind many a load balancer.
    pub http2: bool,
    /// Whether every change is kept for [`SimulatedCluster::history`](crate::SimulatedCluster::history),
    /// beyond the window and through restores.
    pub keep_history: bool,
    /// Whether roles and bindings are served. They are stored, and nothing is decided by them.
    pub rbac: bool,
    /// Changes that happen by themselves, if any.
    pub churn: Option<Churn>,
    /// The revision that the member has reached at least when it starts:
    /// stores that number their changes by the time begin high.
    pub first_revision: u64,
    /// The port on 127.0.0.1, or 0 for a free one.
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

/// Pods that come, change and go by themselves.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// Changes per second over the whole member, above 0. Of ten, about seven change a status,
    /// the others replace a pod.
    pub changes_per_second: f64,
}
