//! The limits and intervals of a member's client, with the reason for each default.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::places::Places;
use crate::plugins::Plugins;

/// How a [`crate::ClusterClient`] behaves. `Tuning::default()` suits a member anywhere on the internet.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The limit of one dial, from the name lookup to the end of the HTTP handshake. Default 10 s: longer than two lost
    /// SYN packets, shorter than a client's patience.
    pub connect_timeout: Duration,
    /// The limit from sending a request to its response head; not for long-running requests and upgrades. Default
    /// 75 s, for discovery and cachers: kube-apiserver itself answers 504 after 60 s, and its answer says more than ours would. A client's
    /// request may be given less by whoever forwards it.
    pub head_timeout: Duration,
    /// The quiet time on a connection after which it is pinged. Default 20 s.
    pub keep_alive_interval: Duration,
    /// The time a ping may take before the connection is given up. Default 10 s. With the interval it bounds how long a
    /// half-open connection (a suspended laptop, a firewall that forgot the flow) goes unnoticed: 30 s, less than the
    /// 45 s that client-go needs by default.
    pub keep_alive_timeout: Duration,
    /// Flow-control window of one stream, in bytes. Default 4 MiB: 200 MB/s at 20 ms round-trip time.
    pub stream_window: u32,
    /// Flow-control window of one connection, in bytes. Default 16 MiB: what all of its unread streams may hold in
    /// memory together.
    pub connection_window: u32,
    /// The largest response head, in bytes. Default 1 MiB; hyper's own 16 KiB is too small for many Warnings.
    pub max_header_list_size: u32,
    /// The number of connections in each of the two lanes (short and long-running), of which clients use three quarters. Default 32: with the usual 100 to
    /// 250 streams a connection that is thousands of watches, and still no load for a kube-apiserver.
    pub max_connections: usize,
    /// The number of requests in each of the two lanes that may be under way at once to an endpoint that speaks HTTP/1.1 only,
    /// where each takes a connection of its own. Clients have three quarters of them. Default 256: a load balancer before a kube-apiserver has some thousand
    /// connections for everybody, and this process some thousand descriptors.
    pub max_http1_requests: usize,
    /// The time after which an unused connection is closed. Default 90 s, as in client-go.
    pub idle_timeout: Duration,
    /// The age at which a token file is read again. Default 10 s: a projected token is replaced long before it expires.
    pub token_file_interval: Duration,
    /// The limit of one run of a credential plugin. Default 60 s: some ask the user in a browser.
    pub exec_timeout: Duration,
    /// The time between two runs of a credential plugin or two forced renewals after a 401. Default 5 s, so that a
    /// broken plugin or account does not become a fork storm; while a plugin fails it doubles to 10 minutes, and so it does for
    /// the member that rejects what the plugin gives.
    pub credential_retry_interval: Duration,
    /// The credential plugins. Clones share them, so that a few run at once in all clients of a process.
    pub plugins: Plugins,
    /// Where upgraded connections (exec, attach, port-forward) run. Clones share one tracker: `tunnels.len()` counts
    /// them, and after `tunnels.close()` `tunnels.wait()` returns when the last has ended.
    pub tunnels: TaskTracker,
    /// How many upgraded connections there may be at once, to all members whose clients share this. Default 1,024: each takes
    /// two descriptors, and people open a few.
    pub tunnel_places: Places,
    /// Cancelling it ends every tunnel, and breaks off every answer that may go on for hours (watches, logs, what comes from
    /// workloads): the process ends, or the member is no longer served.
    pub shutdown: CancellationToken,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(75),
            keep_alive_interval: Duration::from_secs(20),
            keep_alive_timeout: Duration::from_secs(10),
            stream_window: 4 << 20,
            connection_window: 16 << 20,
            max_header_list_size: 1 << 20,
            max_connections: 32,
            max_http1_requests: 256,
            idle_timeout: Duration::from_secs(90),
            token_file_interval: Duration::from_secs(10),
            exec_timeout: Duration::from_secs(60),
            credential_retry_interval: Duration::from_secs(5),
            plugins: Plugins::default(),
            tunnels: TaskTracker::new(),
            tunnel_places: Places::new(1024),
            shutdown: CancellationToken::new(),
        }
    }
}
