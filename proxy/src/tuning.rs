//! Limits and intervals of a member's client, with the reason for each default.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::command_policy::CommandPolicy;
use crate::credentials::CredentialTuning;
use crate::credentials::plugins::Plugins;
use crate::dial_policy::DialPolicy;
use crate::health::settings::BreakerTuning;
use crate::health::settings::Probe;
use crate::permit_pool::PermitPool;

/// Flow-control windows of an HTTP/2 connection, in bytes. A window is the amount of unread data that the cluster may
/// send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Window of each stream.
    pub stream: u32,
    /// Window of the connection, which all streams share.
    pub connection: u32,
}

impl Windows {
    pub(crate) fn for_streams(self, streams: usize) -> Self {
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        Self { connection: self.stream.saturating_mul(streams), ..self }
    }

    /// Returns the number of streams whose full windows fit into the connection's window, so that streams do not block
    /// each other.
    pub(crate) fn independent_streams(self) -> usize {
        let streams = (self.connection / self.stream.max(1)).max(1);
        usize::try_from(streams).unwrap_or(usize::MAX)
    }
}

/// Settings of a [`crate::ClusterClient`]. `ClientTuning::default()` suits a cluster anywhere on the internet.
#[derive(Clone, Debug)]
pub struct ClientTuning {
    /// Time limit of a connection attempt, from the name lookup to the end of the HTTP handshake. Default 10 s: longer
    /// than two lost SYN packets, and shorter than the patience of clients.
    pub connect_timeout: Duration,
    /// Time limit from a request to its response head, except for long-running requests and upgrades. Default 75 s, for
    /// discovery and cachers: kube-apiserver itself answers 504 after 60 s, with a better message. The caller may set a
    /// shorter limit for a client's request.
    pub head_timeout: Duration,
    /// Time for which an abandoned response is read before its stream is reset, if the request is not long-running.
    /// Also the minimal age of a watch before its reset. Default 1 s: most responses end within this time. After many
    /// resets, the member closes the shared connection.
    pub abandoned_read_time: Duration,
    /// Time without received data after which a connection sends a ping. Default 5 s: a ping has 20 bytes.
    pub keep_alive_interval: Duration,
    /// Time limit of the response to a ping. Default 10 s: on a slow network, the response waits behind other data.
    ///
    /// Together with the interval, the limit detects a half-open connection (for example after a firewall dropped its
    /// state) within 15 s, a third of client-go's default. [`crate::ClusterClient::watch_over`] detects a silent
    /// cluster sooner.
    pub keep_alive_timeout: Duration,
    /// Flow-control windows of connections for clients. A client may leave its responses unread, so a connection
    /// carries only as many streams as fit into its window.
    ///
    /// Default 256 KiB per stream and 16 MiB per connection: 64 streams, each with 8.7 MB/s at 30 ms round-trip time
    /// (87 MB/s at 3 ms), compressed if the client accepts compression. A connection for clients' long-running requests
    /// carries 16 streams, with a window of 4 MiB. A connection for clients' watches always carries 100 streams of 64
    /// KiB.
    ///
    /// The unread data of one endpoint is at most 918 MiB: 24 connections of 16 MiB for short requests, 96 of 4 MiB for
    /// long-running requests and 24 of 6.25 MiB for watches. Wider stream windows would raise this maximum or reduce
    /// the number of requests.
    pub client_windows: Windows,
    /// Flow-control windows of connections for Tributary's own requests. Default 4 MiB and 16 MiB: 140 MB/s at 30 ms
    /// round-trip time. Tributary reads the data without delay, so a connection may have more streams than fit into its
    /// window.
    pub own_windows: Windows,
    /// Maximal size of a response head, in bytes. Default 1 MiB; hyper's default of 16 KiB is too small for many
    /// Warnings.
    pub max_header_list_size: u32,
    /// Maximal number of connections for Tributary's own short requests. Default 32. The maximal numbers of other
    /// connections follow from this number:
    ///
    /// * Tributary's own long-running requests: the same number
    /// * clients' short requests: three quarters of the number
    /// * clients' watches: three quarters of the number
    /// * clients' other long-running requests: three times the number
    /// * cachers of single namespaces: three quarters of the number for each kind of request
    ///
    /// With the usual 100 streams per connection, 32 connections carry thousands of Tributary's watches. With 64
    /// streams per connection, clients can send 1,536 short requests at the same time.
    pub max_connections: usize,
    /// Number of connections over which clients' short requests spread before the first connection is full. Default 1:
    /// one core suffices for one connection. A process with several cores sets a larger number, because the encryption
    /// of a connection uses one core.
    pub connections_to_spread_over: usize,
    /// Maximal number of short requests to an endpoint that supports only HTTP/1.1. Long-running requests have the same
    /// limit in addition. Each request occupies a connection.
    ///
    /// One quarter is reserved for clients, one for cachers of single namespaces, and one for Tributary's other
    /// requests. Any of them may use the last quarter. Default 256: a load balancer in front of a kube-apiserver
    /// supports some thousand connections, and this process some thousand file descriptors.
    pub max_http1_requests: usize,
    /// Time after which an unused connection is closed. Default 90 s, as in client-go.
    pub idle_timeout: Duration,
    /// Age at which a token file is read again. Default 10 s: a projected token is replaced long before its expiry.
    pub token_file_interval: Duration,
    /// Time limit of one run of a credential plugin. Default 60 s, because some plugins wait for a login in a browser.
    pub exec_timeout: Duration,
    /// Minimal time between two runs of a credential plugin, or between two renewals after a 401. Default 5 s, so that
    /// a broken plugin or account does not start processes without end. While a plugin fails, or a cluster rejects its
    /// credentials, the time doubles up to 10 minutes.
    pub credential_retry_interval: Duration,
    /// Probe of each endpoint. Default [`Probe::default`].
    pub probe: Probe,
    /// Circuit breaker of each endpoint. Default [`BreakerTuning::default`].
    pub breaker: BreakerTuning,
    /// Policy for the addresses of each dial. Default `None`: all addresses are allowed, because the user of a
    /// kubeconfig or a file runs this process.
    pub dial_policy: Option<Arc<DialPolicy>>,
    /// Policy for credential plugins. With a policy, a plugin runs with an environment that has only the variables of
    /// its configuration. Default `None`: all plugins are allowed, because the user of a kubeconfig runs this process.
    pub command_policy: Option<Arc<CommandPolicy>>,
    /// Headers of CONNECT requests to an http or https proxy. Default: none.
    pub proxy_headers: HeaderMap,
    /// Credential plugins. Clones share the plugins, so that few plugins run at once in a process.
    pub plugins: Plugins,
    /// Tracker of the tasks of upgraded connections (exec, attach, port-forward). Clones share one tracker.
    /// `tunnels.len()` counts the tasks. After `tunnels.close()`, `tunnels.wait()` returns when the last task has
    /// ended.
    pub tunnels: TaskTracker,
    /// Limit of upgraded connections to all clusters whose clients share this value. Default 1,024: each connection
    /// takes two file descriptors, and people open a few connections.
    pub tunnel_permits: PermitPool,
    /// Cancellation of this token ends every tunnel and every long-running response (watches, logs, streams from
    /// workloads). Cancelled at the end of the process, or when the cluster is removed.
    pub shutdown: CancellationToken,
}

impl ClientTuning {
    pub(crate) fn credentials(&self) -> CredentialTuning {
        CredentialTuning {
            token_file_interval: self.token_file_interval,
            exec_timeout: self.exec_timeout,
            retry_interval: self.credential_retry_interval,
            plugins: self.plugins.clone(),
            command_policy: self.command_policy.clone(),
        }
    }
}

impl Default for ClientTuning {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(75),
            abandoned_read_time: Duration::from_secs(1),
            keep_alive_interval: Duration::from_secs(5),
            keep_alive_timeout: Duration::from_secs(10),
            client_windows: Windows { stream: 256 << 10, connection: 16 << 20 },
            own_windows: Windows { stream: 4 << 20, connection: 16 << 20 },
            max_header_list_size: 1 << 20,
            max_connections: 32,
            connections_to_spread_over: 1,
            max_http1_requests: 256,
            idle_timeout: Duration::from_secs(90),
            token_file_interval: Duration::from_secs(10),
            exec_timeout: Duration::from_secs(60),
            credential_retry_interval: Duration::from_secs(5),
            probe: Probe::default(),
            breaker: BreakerTuning::default(),
            dial_policy: None,
            command_policy: None,
            proxy_headers: HeaderMap::new(),
            plugins: Plugins::default(),
            tunnels: TaskTracker::new(),
            tunnel_permits: PermitPool::new(1024),
            shutdown: CancellationToken::new(),
        }
    }
}
