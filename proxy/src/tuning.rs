//! The limits and intervals of a member's client, with the reason for each default.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::credentials::CredentialTuning;
use crate::credentials::plugins::Plugins;
use crate::health::settings::BreakerTuning;
use crate::health::settings::Probe;
use crate::places::Places;

/// The flow-control windows of an HTTP/2 connection, in bytes: what the member may send before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Of each stream.
    pub stream: u32,
    /// Of all streams together.
    pub connection: u32,
}

impl Windows {
    /// The same for a connection of so many streams.
    pub(crate) fn for_streams(self, streams: usize) -> Self {
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        Self { connection: self.stream.saturating_mul(streams), ..self }
    }

    /// How many streams have their whole windows in the connection's: so many cannot take it from each other.
    pub(crate) fn independent_streams(self) -> usize {
        let streams = (self.connection / self.stream.max(1)).max(1);
        usize::try_from(streams).unwrap_or(usize::MAX)
    }
}

/// How a [`crate::ClusterClient`] behaves. `Tuning::default()` suits a member anywhere on the internet.
#[derive(Clone, Debug)]
pub struct ClientTuning {
    /// The limit of one dial, from the name lookup to the end of the HTTP handshake. Default 10 s: longer than two lost
    /// SYN packets, shorter than a client's patience.
    pub connect_timeout: Duration,
    /// The limit from sending a request to its response head; not for long-running requests and upgrades. Default
    /// 75 s, for discovery and cachers: kube-apiserver itself answers 504 after 60 s, and its answer says more than
    /// ours would. A client's request may be given less by whoever forwards it.
    pub head_timeout: Duration,
    /// How long the answer to a short request is read on once its client has gone, before its stream is reset; and how
    /// old a watch has to be for that. Default 1 s: most answers have ended by then, and each reset brings the member
    /// nearer to closing the connection, which other clients use as well.
    pub given_up_patience: Duration,
    /// The quiet time on a connection after which it is pinged. Default 5 s: a ping is 20 bytes.
    pub keep_alive_interval: Duration,
    /// The time a ping may take before the connection is given up. Default 10 s: its answer waits behind what a slow
    /// line still carries. With the interval it bounds how long a single half-open connection (a firewall that forgot
    /// the flow) goes unnoticed: 15 s, a third of what client-go needs by default. A member that is silent as a whole
    /// is found sooner by [`crate::ClusterClient::watch_over`].
    pub keep_alive_timeout: Duration,
    /// The flow-control windows of connections for clients. A client need not read what it asked for, so a connection
    /// carries no more streams than have their whole windows in the connection's. Default 256 KiB and 16 MiB: 64
    /// streams, each of 8.7 MB/s at 30 ms round-trip time (87 MB/s at 3 ms), compressed where the client takes that.
    /// A connection for long-running requests of clients carries 16 streams, and its window is 4 MiB; one for their
    /// watches carries 100, each of 64 KiB whatever is set here. So 24 connections of 16 MiB for short requests, 96 of
    /// 4 MiB for long-running ones and 24 of 6.25 MiB for watches make 918 MiB that all clients together may leave
    /// unread of one endpoint; wider streams would make it more, or the requests fewer.
    pub client_windows: Windows,
    /// The flow-control windows of connections for what this process asks for itself. Default 4 MiB and 16 MiB: 140
    /// MB/s at 30 ms round-trip time, and what a connection may bring before it is read. It is read at once, whatever
    /// clients do, so there may be more streams than have room together.
    pub own_windows: Windows,
    /// The largest response head, in bytes. Default 1 MiB; hyper's own 16 KiB is too small for many Warnings.
    pub max_header_list_size: u32,
    /// The number of connections in each of the two lanes (short and long-running) for what this process asks for
    /// itself; clients, and the cachers of single namespaces, have three quarters as many of their own. Default 32:
    /// with the usual 100 streams a connection that is thousands of own watches, with 64 it is 1,536 of clients, and
    /// both are still no load for a kube-apiserver. Clients have as many once more for their watches, and three times
    /// as many for what else lasts, by client.
    pub max_connections: usize,
    /// Over how many connections clients' short requests spread before the first of them is full. Default 1: a
    /// connection is encrypted and framed on one core, so a process with several cores for it sets more.
    pub connections_to_spread_over: usize,
    /// The number of clients' requests that may wait for a connection to the member at once, all lanes and endpoints
    /// together; more are refused at once. Default 1,024, as Envoy has it: all that clients have under way at a member
    /// may come at once when it is back, most of which find room on a connection before they wait; of a member that
    /// takes connections and says nothing, each would wait for a dial to its limit.
    pub max_waiting_requests: usize,
    /// The number of requests in each of the two lanes that may be under way at once to an endpoint that speaks
    /// HTTP/1.1 only, where each takes a connection of its own. A quarter of them is kept for clients, one for the
    /// cachers of single namespaces and one for what else this process asks; the last is for whoever comes first.
    /// Default 256: a load balancer before a kube-apiserver has some thousand connections for everybody, and this
    /// process some thousand descriptors.
    pub max_http1_requests: usize,
    /// The time after which an unused connection is closed. Default 90 s, as in client-go.
    pub idle_timeout: Duration,
    /// The age at which a token file is read again. Default 10 s: a projected token is replaced long before it expires.
    pub token_file_interval: Duration,
    /// The limit of one run of a credential plugin. Default 60 s: some ask the user in a browser.
    pub exec_timeout: Duration,
    /// The time between two runs of a credential plugin or two forced renewals after a 401. Default 5 s, so that a
    /// broken plugin or account does not become a fork storm; while a plugin fails it doubles to 10 minutes, and so it
    /// does for the member that rejects what the plugin gives.
    pub credential_retry_interval: Duration,
    /// How each endpoint is asked whether it is well. Default [`Probe::default`].
    pub probe: Probe,
    /// When endpoints that fail are sent nothing for a while. Default [`BreakerTuning::default`].
    pub breaker: BreakerTuning,
    /// The credential plugins. Clones share them, so that a few run at once in all clients of a process.
    pub plugins: Plugins,
    /// Where upgraded connections (exec, attach, port-forward) run. Clones share one tracker: `tunnels.len()` counts
    /// them, and after `tunnels.close()` `tunnels.wait()` returns when the last has ended.
    pub tunnels: TaskTracker,
    /// How many upgraded connections there may be at once, to all members whose clients share this. Default 1,024: each
    /// takes two descriptors, and people open a few.
    pub tunnel_places: Places,
    /// Cancelling it ends every tunnel, and breaks off every answer that may go on for hours (watches, logs, what comes
    /// from workloads): the process ends, or the member is no longer served.
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
            max_waiting_requests: 1024,
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
