//! Accepts connections and serves them until [`ListenerOptions::stop`] is cancelled.
//!
//! ```text
//! bind → accept → PROXY header, from configured peers → TLS handshake → HTTP/2 or HTTP/1.1 → RequestService
//!          │                                              │
//!   stop: close socket         GOAWAY, watches close with bookmarks, wait for tunnels, at most DRAIN_TIMEOUT
//! ```
//!
//! Invariant: the number of connections is bounded (see [`Bounds`]). Each connection, including an upgraded one,
//! occupies its slot until its socket closes.

mod authentication;
mod byte_counter;
mod capacity;
mod coalesce;
mod connection;
mod connection_driver;
mod early_answer;
mod goaway;
mod heads;
mod http_settings;
mod interruption;
mod metrics;
mod outgoing;
mod proxy_protocol;
mod refusal;
mod request;
mod service;
mod settings;
mod streams;
pub mod tls;
mod tracked_stream;
mod trailers;
mod unauthenticated_connections;
mod unread;
mod user_connections;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tributary_apimachinery::Permit;

pub use capacity::ListenerCapacity;
pub use metrics::{ListenerMetrics, RefusalLabels};
pub use refusal::ListenerRefusal;
pub use service::{AnswerCapacity, AuthenticationOutcome, Handshake, LimitCheck, RequestService, ServiceAnswer};
pub use settings::{
    Bounds, CONNECTIONS_MAX, ConnectionAge, GoawayChance, InvalidPeerNetwork, ListenAddress, ListenAddressError,
    PeerNetwork, ProxyProtocolPeers, TLS_1_2, TLS_1_3, TlsVersions, UNREAD_BYTES_MAX,
};

use connection::ClientConnection;
use goaway::RandomGoaway;
use proxy_protocol::ProxyHeaders;
use tls::TlsSettings;

/// The time limit for open connections to end at shutdown. The kubelet kills the process 30 s after SIGTERM, so time
/// remains for the steps after the drain.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The time in which, during a drain, watches send their last bookmarks and short answers end. After this time, the log
/// reports the number of open connections.
const DRAIN_SOON: Duration = Duration::from_secs(1);
/// The most connections in the kernel's accept queue: the order of magnitude of Go and nginx.
const BACKLOG: u32 = 1024;
/// The first pause after a failed `accept`, for example for lack of file descriptors. Each pause doubles, up to
/// [`ACCEPT_PAUSE_MAX`].
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause after a failed accept, as in Go's `net/http`.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// An error that prevents the listener from starting.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The port is in use by another process.
    #[error("{0} is in use by another process; choose another port by --listen, or port 0 for a free one")]
    InUse(SocketAddr),
    /// The operating system does not allow listening on the address.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address to listen on.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Listens on an address. Port 0 selects a free port; `local_addr` returns its number.
///
/// # Errors
/// [`BindError`]. Must be called within a tokio runtime.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Without SO_REUSEADDR, a restarted process could not use the port while old connections are in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        // Accepted sockets inherit keepalive. HTTP/1.1 watches and tunnels have no PING, so only keepalive detects dead
        // clients.
        socket.set_keepalive(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address),
        _ => BindError::Bind { address, source },
    })
}

/// The result of draining the listener's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The number of connections that were open at the timeout. The end of the process closes them.
    pub cut: usize,
}

/// The settings of a listener.
pub struct ListenerOptions {
    /// The serving certificates and the versions of TLS.
    pub tls: Arc<TlsSettings>,
    /// The limits of connections and of unread bytes, and the metrics. Other listeners may share the capacity.
    pub capacity: Arc<ListenerCapacity>,
    /// The load balancers that send a PROXY header.
    pub proxies: ProxyProtocolPeers,
    /// The probability that a request is the last on its connection.
    pub goaway_chance: GoawayChance,
    /// The age at which a connection stops accepting requests; `None` without a maximal age.
    pub connection_age: Option<ConnectionAge>,
    /// The token whose cancellation starts the drain.
    pub stop: CancellationToken,
}

/// Serves connections until [`ListenerOptions::stop`] is cancelled, then drains.
///
/// Cancel: dropping the future closes the listener; connections live on in their tasks, so cancel
/// [`ListenerOptions::stop`] instead.
pub async fn serve<S: RequestService>(listener: TcpListener, service: Arc<S>, options: ListenerOptions) -> Drained {
    let ListenerOptions { tls, capacity, proxies, goaway_chance, connection_age, stop } = options;
    capacity.add_listener();
    let server = Server {
        tls,
        proxies: Arc::new(ProxyHeaders::from_peers(proxies)),
        capacity,
        sockets: TaskTracker::new(),
        stop: stop.clone(),
        goaway_chance,
        connection_age,
        service,
    };
    stop.run_until_cancelled(server.accept(&listener)).await;
    // The listening socket closes before the drain, so that new clients are refused at once and connect to another
    // replica.
    drop(listener);
    server.drain().await
}

struct Server<S> {
    tls: Arc<TlsSettings>,
    proxies: Arc<ProxyHeaders>,
    capacity: Arc<ListenerCapacity>,
    /// The tracker of open sockets, including upgraded connections.
    sockets: TaskTracker,
    stop: CancellationToken,
    goaway_chance: GoawayChance,
    connection_age: Option<ConnectionAge>,
    service: Arc<S>,
}

impl<S: RequestService> Server<S> {
    async fn accept(&self, listener: &TcpListener) {
        let mut pause = ACCEPT_PAUSE;
        let (mut saturated, mut failing) = (false, false);
        loop {
            let slot = self.slot(&mut saturated).await;
            match listener.accept().await {
                Ok((stream, client)) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("connections are accepted again");
                    }
                    pause = ACCEPT_PAUSE;
                    self.spawn(stream, client, slot);
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    // The warning is logged once, because `accept` may fail for hours, with a retry each second.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "connections cannot be accepted; the server tries again each second");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
    }

    /// Waits for a free connection slot. Logs once each time that all slots are taken.
    async fn slot(&self, saturated: &mut bool) -> OwnedSemaphorePermit {
        let ListenerCapacity { slots, connections_max, .. } = &*self.capacity;
        let free = slots.available_permits();
        if free == 0 && !*saturated {
            tracing::warn!(connections = connections_max, "the limit of connections is reached; new ones wait");
        }
        *saturated = free == 0 || (*saturated && free < connections_max / 10);
        loop {
            // `acquire_owned` fails only for a closed semaphore, and this semaphore is never closed.
            if let Ok(slot) = Arc::clone(slots).acquire_owned().await {
                return slot;
            }
        }
    }

    fn spawn(&self, stream: TcpStream, client: SocketAddr, slot: OwnedSemaphorePermit) {
        let connection = ClientConnection {
            tls: Arc::clone(&self.tls),
            proxies: Arc::clone(&self.proxies),
            service: Arc::clone(&self.service),
            stop: self.stop.clone(),
            goaway: RandomGoaway::new(self.goaway_chance, self.connection_age),
            metrics: Arc::clone(&self.capacity.metrics),
            peer: client,
            unread: self.capacity.unread.clone(),
            unauthenticated: self.capacity.unauthenticated_connections.admit(),
            users: Arc::clone(&self.capacity.users),
        };
        connection.spawn(stream, self.socket(slot));
    }

    /// Creates the permit of an open socket. The permit contains the connection slot, the tracker's token, and the
    /// socket's count in the metrics.
    fn socket(&self, slot: OwnedSemaphorePermit) -> Permit {
        let (tracked, open) = (self.sockets.token(), self.capacity.metrics.connections.clone());
        open.inc();
        Permit::new(move || {
            open.dec();
            drop((tracked, slot));
        })
    }

    /// Sends GOAWAY over HTTP/2, or ends keep-alive over HTTP/1.1. Makes the service close its watches with bookmarks,
    /// and waits until the sockets are closed.
    async fn drain(self) -> Drained {
        tracing::info!(connections = self.sockets.len(), "draining");
        let Self { sockets, service, .. } = self;
        sockets.close();
        let drained = async { tokio::join!(service.drain(), sockets.wait()) };
        tokio::pin!(drained);
        let cut = match tokio::time::timeout(DRAIN_SOON, &mut drained).await {
            Ok(_) => 0,
            Err(_) => {
                tracing::info!(
                    connections = sockets.len(),
                    "waiting for exec, attach, port-forward and logs -f to end; they are cut {} s after the first \
                     signal, or at once by a second signal",
                    DRAIN_TIMEOUT.as_secs()
                );
                let left = DRAIN_TIMEOUT.saturating_sub(DRAIN_SOON);
                tokio::time::timeout(left, drained).await.map_or_else(|_| sockets.len(), |_| 0)
            }
        };
        tracing::info!(cut, "drained");
        Drained { cut }
    }
}

/// Returns whether an accept failed because its client disconnected. The accept loop then needs no pause.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}
