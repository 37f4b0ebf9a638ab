//! Connections to one endpoint of a cluster.
//!
//! Different kinds of requests use separate HTTP/2 connections (lanes), so that a thousand watches cannot delay a GET.
//! Short requests and long-running requests have separate connections. So do clients, cachers of single namespaces, and
//! Tributary's other requests. Clients' watches are separate from clients' streams from workloads.
//!
//! A new connection is opened when the existing connections use 80 % of their streams. Connections for clients' watches
//! fill one after the other. The next such connection is opened when fewer free streams are left than a fifth of one
//! connection's streams. A stream is in use until its response body has ended or is dropped. hyper's pooling client
//! does not suffice. It has one HTTP/2 connection and queues requests beyond the limit of streams, so that long watches
//! block other requests (hyper#2197, hyper#3623).
//!
//! All streams of a connection share its flow-control window (RFC 9113 §5.2), and a client may leave its responses
//! unread. So a connection for clients has only as many streams as fit into the connection's window with full stream
//! windows. Tributary reads responses to its own requests without delay.
//!
//! The tokio runtime that opened a connection also drives it. A process may have several runtimes, so that clients and
//! Tributary's own requests do not delay each other. A request that crosses runtimes wakes a sleeping thread at each
//! step. So a request prefers a connection of its own runtime. Without one, the request uses a connection of another
//! runtime, and a new connection is opened in the background. The limit of connections counts all runtimes.

pub(crate) mod byte_stream;
pub(crate) mod connection_task;
pub(crate) mod connections;
pub(crate) mod dial;
pub(crate) mod guarded;
pub(crate) mod http1;
pub(crate) mod read_ahead;
pub(crate) mod read_through;
pub(crate) mod readers;
pub(crate) mod received;
pub(crate) mod server_identities;
pub(crate) mod stream_counts;
pub(crate) mod tls;
pub(crate) mod uid_request;
pub(crate) mod watch_connection;
pub(crate) mod watch_stream;
pub(crate) mod yielding_reads;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures::FutureExt;
use tokio::runtime::{self, Handle};
use tokio::time::{Duration, Instant, timeout, timeout_at};
use tributary_apimachinery::{ClusterName, explain};

use crate::credentials::CurrentCredentials;
use crate::credentials::certificate::Certificate;
use crate::error::{ConnectError, ForwardError};
use crate::health::observer::Observer;
use crate::health::state::Input;
use crate::permit_pool::{OriginPermits, RequestOrigin};
use crate::pool::connection_task::ConnectionTask;
use crate::pool::connections::{Connections, Dial, Pick, RequestSender, SharedDial, Slot, StreamPermit};
use crate::pool::dial::{Dialed, Dialer, Http2Use, Streams};
use crate::pool::http1::{Checkout, IdleConnections};
use crate::pool::readers::Readers;
use crate::pool::stream_counts::StreamCounts;
use crate::pool::tls::Protocols;
use crate::pool::uid_request::{ConnectionState, UidRequest};
use crate::tuning::{ClientTuning, Windows};

/// Maximal number of streams on one connection, even if the member allows more. One lost packet delays all streams of a
/// connection. Go's servers treat the reset of many streams at once as an attack.
const MAX_STREAMS: usize = 500;

/// Number of streams on a connection before the cluster has sent its limit. 100, kube-apiserver's default
/// (`MaxConcurrentStreams` in apiserver's `secure_serving.go`).
const USUAL_STREAMS: usize = 100;

/// Time for which a request waits for a connection to an unreachable cluster. The time counts from the start of the
/// connection attempt, which continues to its own time limit. 1 s: kubectl sends several requests per command, and so
/// reports an error soon.
const UNREACHABLE_PATIENCE: Duration = Duration::from_secs(1);

/// Time for which an upgrade waits for a connection to an unreachable cluster. 100 ms: each upgrade starts its own
/// connection attempt, and kubectl tries two protocols in sequence. Probes detect a recovered cluster within a second.
const UNREACHABLE_UPGRADE_PATIENCE: Duration = Duration::from_millis(100);

/// Number of consecutive connection attempts if the cluster closes each new connection after the request for its uid.
/// 3: a load balancer may be draining its servers.
const ASKED_CONNECTIONS_MAX: usize = 3;

/// Time for which a client's request waits for a separate connection although another client's connection has a free
/// stream. 1 s, the same time as for a connection to one of several endpoints (`DIAL_WAIT_MIN`).
const OWN_CONNECTION_PATIENCE: Duration = Duration::from_secs(1);

/// Statistics of a cluster's connection pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Number of HTTP/2 connections for short requests.
    pub short_connections: usize,
    /// Number of requests in flight on connections for short requests.
    pub short_streams: usize,
    /// Number of HTTP/2 connections for long-running requests.
    pub long_connections: usize,
    /// Number of requests in flight on connections for long-running requests.
    pub long_streams: usize,
    /// Number of idle HTTP/1.1 connections.
    pub idle_http1_connections: usize,
}

impl PoolStatistics {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            short_connections: self.short_connections + other.short_connections,
            short_streams: self.short_streams + other.short_streams,
            long_connections: self.long_connections + other.long_connections,
            long_streams: self.long_streams + other.long_streams,
            idle_http1_connections: self.idle_http1_connections + other.idle_http1_connections,
        }
    }
}

/// Reserved capacity for one request on a connection: an HTTP/2 stream or an HTTP/1.1 connection.
pub(crate) enum Connection {
    Http2(StreamPermit),
    Http1(Checkout),
}

/// Kind of request, which determines the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamClass {
    Short,
    /// Watches, for which clients share connections.
    Watch,
    /// Other long-running requests: streams from workloads.
    Streamed,
}

/// The attributes of a request that determine its connections in the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolKey {
    pub(crate) stream_class: StreamClass,
    pub(crate) origin: RequestOrigin,
    /// The client's connection, for a client's request.
    pub(crate) peer: Option<SocketAddr>,
}

impl PoolKey {
    /// Returns the client's connection (the reader) for a request whose HTTP/2 connection no other reader may share.
    /// `None` for other requests.
    fn reader(self) -> Option<Option<SocketAddr>> {
        (self.stream_class == StreamClass::Streamed && self.origin == RequestOrigin::Client).then_some(self.peer)
    }

    /// Returns whether the request uses the connections for watches of all clients.
    fn is_shared_watch(self) -> bool {
        self.stream_class == StreamClass::Watch && self.origin == RequestOrigin::Client
    }
}

/// Connections for one kind of Tributary's own requests. Clients' connections are in [`Pool::clients`],
/// [`Pool::watches`] and [`Pool::readers`].
struct OwnConnections {
    namespaces: Connections,
    ours: Connections,
    /// Permits for concurrent requests to an HTTP/1.1 endpoint.
    http1_permits: OriginPermits,
}

enum FullPoolAction {
    /// Wait for the attempt to open a connection.
    Wait(Dial),
    /// Use a stream on an idle connection, or on the connection of a different reader.
    Borrow(StreamPermit),
    /// Search for a free stream again, because a stream has become free.
    Again,
    Full,
}

impl OwnConnections {
    fn new(tuning: &ClientTuning) -> Self {
        let http1_permits = OriginPermits::new(tuning.max_http1_requests);
        Self { namespaces: Connections::default(), ours: Connections::default(), http1_permits }
    }

    fn reap(&self) {
        self.namespaces.reap();
        self.ours.reap();
    }
}

pub(crate) struct Pool {
    cluster: ClusterName,
    dialer: Dialer,
    /// Reads the uid of the cluster on each new connection. `None` for users' own tokens, which the cluster
    /// authenticates.
    uid_request: Option<UidRequest>,
    observer: Arc<Observer>,
    tuning: ClientTuning,
    short: OwnConnections,
    long: OwnConnections,
    /// Connections for short requests of clients.
    clients: Connections,
    /// Connections for watches of clients.
    watches: Connections,
    /// Connections for other long-running requests of clients.
    readers: Readers,
    http1: Arc<IdleConnections>,
    speaks_http1: AtomicBool,
    next_id: AtomicU64,
    /// Number of opened connections, including HTTP/1.1.
    dialed: AtomicU64,
    /// Duration of the last connection attempt, in milliseconds; 0 before the first attempt.
    dial_took: AtomicU64,
}

impl Pool {
    /// Creates an empty pool. Spawns a task that closes idle connections until the pool is dropped.
    pub(crate) fn new(
        cluster: ClusterName,
        dialer: Dialer,
        uid_request: Option<UidRequest>,
        observer: Arc<Observer>,
        tuning: ClientTuning,
    ) -> Arc<Self> {
        // tokio panics for an interval of zero, so an idle timeout of zero becomes 1 ms.
        let idle_timeout = tuning.idle_timeout.max(Duration::from_millis(1));
        let pool = Arc::new(Self {
            cluster,
            dialer,
            uid_request,
            observer,
            short: OwnConnections::new(&tuning),
            long: OwnConnections::new(&tuning),
            clients: Connections::default(),
            watches: Connections::default(),
            readers: Readers::default(),
            tuning,
            http1: Arc::default(),
            speaks_http1: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
            dialed: AtomicU64::new(0),
            dial_took: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&pool);
        tokio::spawn(async move {
            let mut interval = tokio::time::interval(idle_timeout);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                interval.tick().await;
                let Some(pool) = weak.upgrade() else { return };
                pool.short.reap();
                pool.long.reap();
                pool.clients.reap();
                pool.watches.reap();
                pool.readers.reap();
                pool.http1.reap(idle_timeout);
            }
        });
        pool
    }

    /// Reserves a stream for a request, on a connection with these credentials, or with renewed credentials.
    ///
    /// Waits for a new connection only if no connection has a free stream. Cancellation does not stop a connection
    /// attempt, which continues for other requests.
    ///
    /// # Errors
    /// The error of the connection attempt. [`ForwardError::Full`] if all allowed connections are full.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        pool_key: PoolKey,
        credentials: &Arc<CurrentCredentials>,
    ) -> Result<Connection, ForwardError> {
        let PoolKey { stream_class: kind, origin, .. } = pool_key;
        let here = Handle::current().id();
        // Other requests may take all streams of a new connection, so several rounds may be needed. After the last
        // round, as many connections as allowed were opened, and all are full.
        for _ in 0..=self.connections_for(pool_key) {
            match self.pick(pool_key, credentials.version, here) {
                Pick::Free(permit) => return Ok(Connection::Http2(permit)),
                Pick::FreeButGrow(permit) => {
                    if self.may_grow(pool_key, credentials.version) && !self.is_growth_futile(pool_key) {
                        drop(self.join_dial(pool_key, credentials));
                    }
                    return Ok(Connection::Http2(permit));
                }
                Pick::Full => {}
            }
            if self.speaks_http1() {
                let permit = self
                    .stream_class(kind)
                    .http1_permits
                    .acquire(origin)
                    .ok_or_else(|| self.http1_is_full(pool_key))?;
                if let Some(checkout) = self.http1.reuse_connection(credentials.version, here) {
                    return Ok(Connection::Http1(checkout.with_permit(permit)));
                }
                if let Some(checkout) = Box::pin(self.open(pool_key, credentials)).await? {
                    return Ok(Connection::Http1(checkout.with_permit(permit)));
                }
                continue;
            }
            let dial = match self.choose_full_pool_action(pool_key, credentials, here) {
                FullPoolAction::Wait(dial) => dial,
                FullPoolAction::Borrow(permit) => return Ok(Connection::Http2(permit)),
                FullPoolAction::Again => continue,
                FullPoolAction::Full => break,
            };
            if let Some(borrowed) = Box::pin(self.wait_or_borrow(pool_key, credentials.version, dial)).await? {
                return Ok(Connection::Http2(borrowed));
            }
        }
        Err(self.full(pool_key))
    }

    /// Decides the next step of a request that has found no free stream.
    fn choose_full_pool_action(
        self: &Arc<Self>,
        pool_key: PoolKey,
        credentials: &Arc<CurrentCredentials>,
        here: runtime::Id,
    ) -> FullPoolAction {
        let version = credentials.version;
        let Some(reader) = pool_key.reader() else {
            return match self.may_grow(pool_key, version) {
                true => self.join_dial(pool_key, credentials).map_or(FullPoolAction::Again, FullPoolAction::Wait),
                false => FullPoolAction::Full,
            };
        };
        if let Some(permit) = self.readers.adopt(reader, version, here) {
            return FullPoolAction::Borrow(permit);
        }
        let make_room = || {
            while !self.may_grow(pool_key, version) {
                if !self.readers.close_idle() {
                    return false;
                }
            }
            true
        };
        if !self.readers.has_just_failed() && make_room() {
            return self.join_dial(pool_key, credentials).map_or(FullPoolAction::Again, FullPoolAction::Wait);
        }
        // After a recent failure, a new connection attempt may fail again, so a free stream on another reader's
        // connection is used instead.
        if let Some(permit) = self.readers.borrow(version) {
            return FullPoolAction::Borrow(permit);
        }
        match make_room() {
            true => self.join_dial(pool_key, credentials).map_or(FullPoolAction::Again, FullPoolAction::Wait),
            false => self.readers.dial_under_way(version).map_or(FullPoolAction::Full, FullPoolAction::Wait),
        }
    }

    /// Waits for a connection attempt. If other readers' connections have free streams, the wait is short, and the
    /// request uses such a stream if the attempt fails.
    ///
    /// # Errors
    /// The error of the connection attempt.
    async fn wait_or_borrow(
        &self,
        pool_key: PoolKey,
        version: u64,
        dial: Dial,
    ) -> Result<Option<StreamPermit>, ForwardError> {
        let borrow = || pool_key.reader().and_then(|_| self.readers.borrow(version));
        let dialed = match timeout_at(dial.begun + OWN_CONNECTION_PATIENCE, self.wait_for(dial.clone())).await {
            Ok(dialed) => dialed,
            Err(_) => match borrow() {
                Some(permit) => return Ok(Some(permit)),
                None => self.wait_for(dial).await,
            },
        };
        dialed.map(|()| None).or_else(|error| borrow().map(Some).ok_or(error))
    }

    /// Waits for a connection attempt. The wait is short if the member was unreachable before.
    async fn wait_for(&self, dial: Dial) -> Result<(), ForwardError> {
        let Some((age, reason)) = self.observer.unreachable_for() else { return dial.ended.await };
        let dialed = timeout_at(dial.begun + UNREACHABLE_PATIENCE, dial.ended).await;
        dialed.unwrap_or_else(|_| Err(ForwardError::Unreachable { cluster: self.cluster.clone(), reason, age }))
    }

    /// Opens an HTTP/1.1 connection for an upgrade, outside of the pool. The time limit is short if the cluster is
    /// unreachable.
    pub(crate) async fn dial_http1(&self, credentials: &Arc<CurrentCredentials>) -> Result<Dialed, ForwardError> {
        let dial = self.dial(Protocols::Http1, Http2Use::Any(self.tuning.client_windows), credentials);
        let Some((age, reason)) = self.observer.unreachable_for() else { return dial.await };
        let unreachable = || ForwardError::Unreachable { cluster: self.cluster.clone(), reason, age };
        timeout(UNREACHABLE_UPGRADE_PATIENCE, dial).await.unwrap_or_else(|_| Err(unreachable()))
    }

    /// Opens a connection, checks that it leads to the expected cluster, and counts it. Reports a failure to the
    /// observer.
    async fn dial(
        &self,
        protocols: Protocols,
        http2: Http2Use,
        credentials: &Arc<CurrentCredentials>,
    ) -> Result<Dialed, ForwardError> {
        let dialed = self.dial_known_cluster(protocols, http2, credentials).await;
        dialed.inspect_err(|error| self.record_dial_failure(error))
    }

    async fn dial_known_cluster(
        &self,
        protocols: Protocols,
        http2: Http2Use,
        credentials: &Arc<CurrentCredentials>,
    ) -> Result<Dialed, ForwardError> {
        let Some(uid_request) = &self.uid_request else {
            return self.dial_counted(protocols, http2, credentials).await;
        };
        for _ in 0..ASKED_CONNECTIONS_MAX {
            let mut dialed = self.dial_counted(protocols, http2, credentials).await?;
            let is_http1 = matches!(dialed, Dialed::Http1(..));
            match uid_request.read_uid(&mut dialed, credentials).await? {
                ConnectionState::Open => return Ok(dialed),
                // The server closes its HTTP/1.1 connections after each response. So the request gets a new connection
                // on which the uid is not read.
                ConnectionState::Closed if is_http1 => return self.dial_counted(protocols, http2, credentials).await,
                ConnectionState::Closed => {}
            }
        }
        Err(uid_request.closed())
    }

    async fn dial_counted(
        &self,
        protocols: Protocols,
        http2: Http2Use,
        credentials: &CurrentCredentials,
    ) -> Result<Dialed, ForwardError> {
        let begun = Instant::now();
        let dialed = self.dialer.dial(protocols, http2, credentials).await?;
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.dial_took.store(took, Ordering::Relaxed);
        self.dialed.fetch_add(1, Ordering::Relaxed);
        Ok(dialed)
    }

    fn record_dial_failure(&self, error: &ForwardError) {
        self.observer.record_failure(error);
        if error.is_dial_failure() {
            self.observer.apply(Input::Failure);
        }
    }

    /// Closes every connection and tunnel, because the endpoint is silent.
    pub(crate) fn cut(&self) {
        self.dialer.cut();
    }

    /// Checks the client certificate and the certificate authorities, without opening a connection.
    pub(crate) async fn check(&self, certificate: &Certificate) -> Result<(), ConnectError> {
        self.dialer.check(certificate).await
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        let plus = |some: (usize, usize), more: (usize, usize)| (some.0 + more.0, some.1 + more.1);
        let of = |stream_class: &OwnConnections, clients| {
            plus(plus(clients, stream_class.namespaces.statistics()), stream_class.ours.statistics())
        };
        let (short_connections, short_streams) = of(&self.short, self.clients.statistics());
        let (long_connections, long_streams) =
            of(&self.long, plus(self.watches.statistics(), self.readers.statistics()));
        PoolStatistics {
            short_connections,
            short_streams,
            long_connections,
            long_streams,
            idle_http1_connections: self.http1.len(),
        }
    }

    fn stream_class(&self, kind: StreamClass) -> &OwnConnections {
        match kind {
            StreamClass::Short => &self.short,
            StreamClass::Watch | StreamClass::Streamed => &self.long,
        }
    }

    /// Returns the connections for a request that may share its connection with other readers.
    fn shared(&self, pool_key: PoolKey) -> &Connections {
        match pool_key.origin {
            RequestOrigin::Client if pool_key.stream_class == StreamClass::Watch => &self.watches,
            RequestOrigin::Client => &self.clients,
            RequestOrigin::Namespaces => &self.stream_class(pool_key.stream_class).namespaces,
            RequestOrigin::Ourselves => &self.stream_class(pool_key.stream_class).ours,
        }
    }

    fn pick(&self, pool_key: PoolKey, version: u64, here: runtime::Id) -> Pick {
        match pool_key.reader() {
            Some(reader) => self.readers.pick(reader, version, here),
            None if pool_key.is_shared_watch() => self.watches.pick_first(version),
            None if pool_key.origin == RequestOrigin::Client => {
                self.clients.pick_spread(version, here, self.tuning.connections_to_spread_over)
            }
            None => self.shared(pool_key).pick(version, here),
        }
    }

    /// Adds a connection for requests of this kind.
    fn push(&self, pool_key: PoolKey, slot: Arc<Slot>) {
        match pool_key.reader() {
            Some(reader) => self.readers.push(reader, slot),
            None => self.shared(pool_key).push(slot),
        }
    }

    fn remove(&self, pool_key: PoolKey, id: u64) {
        match pool_key.reader() {
            Some(_) => self.readers.remove(id),
            None => self.shared(pool_key).remove(id),
        }
    }

    fn http2_use(&self, pool_key: PoolKey) -> Http2Use {
        let windows = self.windows(pool_key);
        if pool_key.is_shared_watch() { Http2Use::Watches(windows) } else { Http2Use::Any(windows) }
    }

    fn windows(&self, pool_key: PoolKey) -> Windows {
        match (pool_key.origin, pool_key.reader()) {
            (RequestOrigin::Client, Some(_)) => self.tuning.client_windows.for_streams(readers::STREAMS),
            (RequestOrigin::Client, None) if pool_key.is_shared_watch() => watch_connection::windows(),
            (RequestOrigin::Client, None) => self.tuning.client_windows,
            (RequestOrigin::Namespaces | RequestOrigin::Ourselves, _) => self.tuning.own_windows,
        }
    }

    /// Returns the maximal number of streams on a connection for this kind of request. The cluster's own limit may be
    /// lower.
    fn streams_for(&self, pool_key: PoolKey) -> usize {
        match pool_key.origin {
            RequestOrigin::Client => self.windows(pool_key).independent_streams().min(MAX_STREAMS),
            RequestOrigin::Namespaces | RequestOrigin::Ourselves => MAX_STREAMS,
        }
    }

    /// Returns the maximal number of HTTP/2 connections for this kind of request and this origin.
    fn connections_for(&self, pool_key: PoolKey) -> usize {
        let most = self.tuning.max_connections;
        match (pool_key.origin, pool_key.reader()) {
            (RequestOrigin::Client, Some(_)) => most.saturating_mul(readers::CONNECTIONS_FOR_EACH),
            (RequestOrigin::Client | RequestOrigin::Namespaces, _) => most - most / 4,
            (RequestOrigin::Ourselves, _) => most,
        }
    }

    /// Removes a connection that accepts no more requests, and logs the reason.
    fn ended(&self, pool_key: PoolKey, id: u64, broken: Option<Broken>) {
        self.remove(pool_key, id);
        let Some(Broken { cause, is_silence }) = broken else { return };
        if is_silence {
            self.observer.unreachable(format!(
                "cluster {}: the server no longer answers on the connection: {cause}",
                self.cluster
            ));
        }
        tracing::debug!(cluster = %self.cluster, %cause, "HTTP/2 connection broke");
    }

    pub(crate) fn connections_made(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Returns the number of connections opened so far, over HTTP/1.1 or HTTP/2, including tunnels.
    pub(crate) fn dialed(&self) -> u64 {
        self.dialed.load(Ordering::Relaxed)
    }

    pub(crate) fn last_dial_took(&self) -> Duration {
        Duration::from_millis(self.dial_took.load(Ordering::Relaxed))
    }

    pub(crate) fn speaks_http1(&self) -> bool {
        self.speaks_http1.load(Ordering::Relaxed)
    }

    /// Returns the maximal number of concurrent requests of this kind that clients may have.
    pub(crate) fn for_clients(&self, stream_class: StreamClass) -> usize {
        if self.speaks_http1() {
            return self.stream_class(stream_class).http1_permits.max_permits(RequestOrigin::Client);
        }
        let pool_key = PoolKey { stream_class, origin: RequestOrigin::Client, peer: None };
        let known = match stream_class {
            StreamClass::Short => self.clients.streams_of_one(),
            StreamClass::Watch => self.watches.streams_of_one(),
            StreamClass::Streamed => self.readers.streams_of_one(),
        };
        let streams = known.unwrap_or_else(|| USUAL_STREAMS.min(self.streams_for(pool_key))).max(1);
        self.connections_for(pool_key).saturating_mul(streams)
    }

    fn may_grow(&self, pool_key: PoolKey, version: u64) -> bool {
        let usable = match pool_key.reader() {
            Some(reader) => self.readers.count(version, reader),
            None => self.shared(pool_key).usable(version),
        };
        usable < self.connections_for(pool_key)
    }

    /// Returns whether another connection attempt would probably fail, or would bring no free stream, because the
    /// endpoint supports only HTTP/1.1.
    fn is_growth_futile(&self, pool_key: PoolKey) -> bool {
        let has_just_failed = match pool_key.reader() {
            Some(_) => self.readers.has_just_failed(),
            None => self.shared(pool_key).has_just_failed(),
        };
        self.speaks_http1() || has_just_failed
    }

    fn full(&self, pool_key: PoolKey) -> ForwardError {
        let what = match pool_key.origin {
            RequestOrigin::Client if pool_key.is_shared_watch() => "connections for watches of clients to the cluster",
            RequestOrigin::Client => "connections for clients to the cluster",
            RequestOrigin::Namespaces => "connections to the cluster for caches of single namespaces",
            RequestOrigin::Ourselves => "connections to the cluster for Tributary's own requests",
        };
        ForwardError::Full { cluster: self.cluster.clone(), what, limit: self.connections_for(pool_key) }
    }

    fn http1_is_full(&self, PoolKey { stream_class, origin, .. }: PoolKey) -> ForwardError {
        let what = match origin {
            RequestOrigin::Client => "HTTP/1.1 connections for clients to the cluster",
            RequestOrigin::Namespaces => "HTTP/1.1 connections to the cluster for caches of single namespaces",
            RequestOrigin::Ourselves => "HTTP/1.1 connections to the cluster for Tributary's own requests",
        };
        ForwardError::Full {
            cluster: self.cluster.clone(),
            what,
            limit: self.stream_class(stream_class).http1_permits.max_permits(origin),
        }
    }

    /// Joins the current connection attempt with the same credentials, or starts an attempt. `None` if a new connection
    /// is no longer needed.
    fn join_dial(self: &Arc<Self>, pool_key: PoolKey, credentials: &Arc<CurrentCredentials>) -> Option<Dial> {
        let begin = || self.begin_dial(pool_key, credentials);
        match pool_key.reader() {
            Some(reader) => Some(self.readers.join_dial(reader, credentials.version, begin)),
            None if pool_key.is_shared_watch() => self.watches.join_needed_dial(credentials.version, begin),
            None => Some(self.shared(pool_key).join_dial(credentials.version, begin)),
        }
    }

    /// Starts a connection attempt, which continues even if no request waits for it.
    fn begin_dial(self: &Arc<Self>, pool_key: PoolKey, credentials: &Arc<CurrentCredentials>) -> SharedDial {
        let (pool, credentials) = (self.clone(), credentials.clone());
        let task = tokio::spawn(async move {
            // `open` adds an HTTP/1.1 connection to the idle connections, from which a waiting request takes it.
            pool.open(pool_key, &credentials).await.map(drop)
        });
        let interrupted = self.full(pool_key);
        let ended = async move { task.await.unwrap_or(Err(interrupted)) }.boxed().shared();
        if let Some(reader) = pool_key.reader() {
            let (pool, begun, ended) = (self.clone(), Instant::now(), ended.clone());
            tokio::spawn(async move {
                let is_success = ended.await.is_ok();
                pool.readers.record_dial(reader, begun, is_success);
            });
        }
        ended
    }

    /// Opens a connection, which the current runtime drives. An HTTP/2 connection is added to the pool, and an HTTP/1.1
    /// connection is returned.
    async fn open(
        self: &Arc<Self>,
        pool_key: PoolKey,
        credentials: &Arc<CurrentCredentials>,
    ) -> Result<Option<Checkout>, ForwardError> {
        let (version, runtime) = (credentials.version, Handle::current().id());
        match self.dial(Protocols::Http2OrHttp1, self.http2_use(pool_key), credentials).await? {
            Dialed::Http1(sender, connection) => {
                self.speaks_http1.store(true, Ordering::Relaxed);
                let cluster = self.cluster.clone();
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%cluster, error = explain(&error), "HTTP/1.1 connection broke");
                    }
                });
                Ok(Some(self.http1.checkout(sender, version, runtime)))
            }
            Dialed::Http2(sender, connection) => {
                self.add(pool_key, version, runtime, RequestSender::Usual(sender), *connection);
                Ok(None)
            }
            Dialed::Watches(sender, connection) => {
                self.add(pool_key, version, runtime, RequestSender::Watches(sender), *connection);
                Ok(None)
            }
        }
    }

    /// Adds an HTTP/2 connection to the pool, and drives the connection in the current runtime.
    fn add<C>(
        self: &Arc<Self>,
        pool_key: PoolKey,
        version: u64,
        runtime: runtime::Id,
        sender: RequestSender,
        connection: ConnectionTask<C>,
    ) where
        C: Streams + Send + 'static,
    {
        self.speaks_http1.store(false, Ordering::Relaxed);
        let (id, most) = (self.next_id.fetch_add(1, Ordering::Relaxed), self.streams_for(pool_key));
        let counts = Arc::new(StreamCounts::new(streams_allowed(&connection).min(most)));
        self.push(pool_key, Arc::new(Slot { id, version, runtime, sender, counts: counts.clone() }));
        tokio::spawn(drive(Arc::downgrade(self), pool_key, id, most, counts, connection));
    }
}

struct Broken {
    cause: String,
    is_silence: bool,
}

/// Returns the number of streams that the cluster allows on a connection; 0 for a connection that accepts no more
/// requests.
fn streams_allowed<C: Streams>(connection: &ConnectionTask<C>) -> usize {
    connection.connection().map_or(0, Streams::max_send_streams)
}

/// Drives an HTTP/2 connection to its end. Updates the allowed number of streams, up to `most`.
async fn drive<C: Streams>(
    pool: Weak<Pool>,
    pool_key: PoolKey,
    id: u64,
    most: usize,
    counts: Arc<StreamCounts>,
    mut connection: ConnectionTask<C>,
) {
    let ended = futures::future::poll_fn(|cx| {
        let polled = connection.poll_connection(cx);
        // Every request wakes this task. So the task notices a changed limit of streams with the next request.
        counts.allow(streams_allowed(&connection).min(most));
        polled
    })
    .await;
    if let Some(pool) = pool.upgrade() {
        let broken = |error: C::Error| Broken { cause: explain(&error), is_silence: C::is_silence(&error) };
        pool.ended(pool_key, id, ended.err().map(broken));
    }
    connection.finish().await;
}
