//! The limits and intervals of a member's client, with the reason for each default.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::credentials::CredentialTuning;
use crate::credentials::plugins::Plugins;
use crate::health::settings::BreakerTuning;
use crate::health::settings::Probe;
use crate::places::Places;

/// Flow-control windows of an HTTP/2 connection, in bytes: unread data that the cluster may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Window of each stream.
    pub stream: u32,
    /// Of all streams together.
    pub connection: u32,
}

impl Windows {
    /// Windows for a connection of this number of streams.
    pub(crate) fn for_streams(self, streams: usize) -> Self {
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        Self { connection: self.stream.saturating_mul(streams), ..self }
    }

    /// Streams that fit into the connection's window with their whole windows, so that none takes another's.
    pub(crate) fn independent_streams(self) -> usize {
        let streams = (self.connection / self.stream.max(1)).max(1);
        usize::try_from(streams).unwrap_or(usize::MAX)
    }
}

/// Settings of a [`crate::ClusterClient`]. `ClientTuning::default()` suits a cluster anywhere on the internet.
#[derive(Clone, Debug)]
pub struct ClientTuning {
    /// The limit of one dial, from the name lookup to the end of the HTTP handshake. Default 10 s: longer than two lost
    /// SYN packets, shorter than a client's patience.
    pub connect_timeout: Duration,
    /// Time limit from a request to its response head; not for long-running requests and upgrades. Default 75 s, for
    /// discovery and cachers: kube-apiserver itself answers 504 after 60 s, with a better message. The caller may set a
    /// shorter one for a client's request.
    pub head_timeout: Duration,
    /// Time for which an abandoned short answer is read before its stream is reset, and minimum age of a watch for a
    /// reset. Default 1 s: most answers have ended by then, and each reset brings the server nearer to closing the
    /// shared connection.
    pub given_up_patience: Duration,
    /// Quiet time after which a connection is pinged. Default 5 s: a ping has 20 bytes.
    pub keep_alive_interval: Duration,
    /// Time limit of a ping. Default 10 s: its answer waits behind data on a slow network. With the interval it bounds
    /// the time for which a half-open connection (a firewall that forgot the flow) goes unnoticed: 15 s, a third of
    /// client-go's default. [`crate::ClusterClient::watch_over`] finds a silent cluster sooner.
    pub keep_alive_timeout: Duration,
    /// Flow-control windows of connections for clients. A client need not read, so a connection carries only as many
    /// streams as fit into its window. Default 256 KiB and 16 MiB: 64 streams, each of 8.7 MB/s at 30 ms round-trip
    /// time (87 MB/s at 3 ms), compressed if the client accepts it. A connection for long-running requests of clients
    /// carries 16 streams, with a window of 4 MiB; one for their watches carries 100, each of 64 KiB in any case. So 24
    /// connections of 16 MiB for short requests, 96 of 4 MiB for long-running ones and 24 of 6.25 MiB for watches bound
    /// the unread data of one endpoint to 918 MiB; wider streams would raise the bound or reduce the requests.
    pub client_windows: Windows,
    /// Flow-control windows of connections for Tributary's own questions. Default 4 MiB and 16 MiB: 140 MB/s at 30 ms
    /// round-trip time. The data is read at once, so a connection may have more streams than fit into its window.
    pub own_windows: Windows,
    /// The largest response head, in bytes. Default 1 MiB; hyper's own 16 KiB is too small for many Warnings.
    pub max_header_list_size: u32,
    /// Connections in each of the two lanes (short and long-running) for Tributary's own questions; clients, and the
    /// cachers of single namespaces, have three quarters as many of their own. Default 32: with the usual 100 streams a
    /// connection, thousands of own watches, and with 64 streams 1,536 requests of clients. Clients have as many again
    /// for their watches, and three times as many for other long-running requests.
    pub max_connections: usize,
    /// Connections over which clients' short requests spread before the first one is full. Default 1: a connection uses
    /// one core for encryption, so a process with several cores sets more.
    pub connections_to_spread_over: usize,
    /// Requests in each of the two lanes to an endpoint with HTTP/1.1 only, where each takes a connection. A quarter is
    /// reserved for clients, one for the cachers of single namespaces and one for Tributary's other questions; the last
    /// is for any of them. Default 256: a load balancer in front of a kube-apiserver has some thousand connections, and
    /// this process some thousand descriptors.
    pub max_http1_requests: usize,
    /// The time after which an unused connection is closed. Default 90 s, as in client-go.
    pub idle_timeout: Duration,
    /// The age at which a token file is read again. Default 10 s: a projected token is replaced long before it expires.
    pub token_file_interval: Duration,
    /// The limit of one run of a credential plugin. Default 60 s: some ask the user in a browser.
    pub exec_timeout: Duration,
    /// Time between two runs of a credential plugin or two forced renewals after a 401. Default 5 s, so that a broken
    /// plugin or account does not start processes without end; while a plugin fails, or a cluster rejects its
    /// credentials, the time doubles up to 10 minutes.
    pub credential_retry_interval: Duration,
    /// Probe of each endpoint. Default [`Probe::default`].
    pub probe: Probe,
    /// Circuit breaker of each endpoint. Default [`BreakerTuning::default`].
    pub breaker: BreakerTuning,
    /// Credential plugins. Clones share them, so that few run at once in all clients of a process.
    pub plugins: Plugins,
    /// Tasks of upgraded connections (exec, attach, port-forward). Clones share one tracker: `tunnels.len()` counts
    /// them, and after `tunnels.close()` `tunnels.wait()` returns when the last has ended.
    pub tunnels: TaskTracker,
    /// Limit of upgraded connections to all clusters whose clients share this. Default 1,024: each takes two
    /// descriptors, and people open a few.
    pub tunnel_places: Places,
    /// Its cancellation ends every tunnel and every long-running answer (watches, logs, streams from workloads): at the
    /// end of the process, or of the cluster's configuration.
    pub shutdown: CancellationToken,
}

impl ClientTuning {
    /// The part that credentials need.
    pub(crate) fn credentials(&self) -> CredentialTuning {
        CredentialTuning {
            token_file_interval: self.token_file_interval,
            exec_timeout: self.exec_timeout,
            retry_interval: self.credential_retry_interval,
            plugins: self.plugins.clone(),
        }
    }
}

impl Default for ClientTuning {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(75),
            given_up_patience: Duration::from_secs(1),
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
            plugins: Plugins::default(),
            tunnels: TaskTracker::new(),
            tunnel_places: Places::new(1024),
            shutdown: CancellationToken::new(),
        }
    }
}
