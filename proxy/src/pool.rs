//! Connections to one endpoint of a cluster.
//!
//! Kinds of requests use separate HTTP/2 connections (lanes), so that a thousand watches cannot delay a GET. Short
//! requests and long-running requests have separate connections. So do clients, cachers of single namespaces, and
//! Tributary's other requests. Clients' watches are separate from clients' streams from workloads.
//!
//! A new connection is opened when the existing connections use 80 % of their streams. Connections for clients' watches
//! fill one after the other, and the next connection is opened when a fifth of a connection is free. A stream counts
//! until its response body has ended or is dropped. hyper's pooling client does not suffice: it has one HTTP/2
//! connection and queues requests beyond the limit of streams, so that long watches block other requests (hyper#2197,
//! hyper#3623).
//!
//! All streams of a connection share its flow-control window (RFC 9113 §5.2), and a client may not read its responses.
//! So a connection for clients has only as many streams as fit into the connection's window with full stream windows.
//! Tributary reads responses to its own requests without delay.
//!
//! The tokio runtime that opened a connection also drives it. A process may have several runtimes, so that clients and
//! Tributary's own requests do not delay each other. A request that crosses runtimes wakes a sleeping thread at each
//! step. So a request prefers a connection of its own runtime. Without one, the request uses a connection of another
//! runtime, and a new connection is opened in the background. The limit of connections counts all runtimes.

pub(crate) mod connection_task;
pub(crate) mod connections;
pub(crate) mod dial;
pub(crate) mod http1;
pub(crate) mod line;
pub(crate) mod proofs;
pub(crate) mod read_ahead;
pub(crate) mod read_through;
pub(crate) mod readers;
pub(crate) mod received;
pub(crate) mod sips;
pub(crate) mod stream_counts;
pub(crate) mod tls;
pub(crate) mod uid_question;
pub(crate) mod watch_connection;
pub(crate) mod watch_stream;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures::FutureExt;
use tokio::runtime::{self, Handle};
use tokio::time::{Duration, Instant, timeout, timeout_at};
use tributary_apimachinery::{ClusterName, explain};

use crate::credentials::Current;
use crate::credentials::certificate::Certificate;
use crate::error::{ConnectError, ForwardError};
use crate::health::observer::Observer;
use crate::health::state::Input;
use crate::peer::Peer;
use crate::places::{Asker, SharedPlaces};
use crate::pool::connection_task::ConnectionTask;
use crate::pool::connections::{Connections, Dial, Pick, RequestSender, SharedDial, Slot, StreamPermit};
use crate::pool::dial::{Dialed, Dialer, Http2Use, Streams};
use crate::pool::http1::{Checkout, IdleConnections};
use crate::pool::readers::{Reader, Readers};
use crate::pool::stream_counts::StreamCounts;
use crate::pool::tls::Protocols;
use crate::pool::uid_question::{Asking, UidQuestion};
use crate::tuning::{ClientTuning, Windows};

/// Maximal number of streams on one connection, even if the member allows more. One lost packet delays all streams of a
/// connection. Go's servers treat the reset of many streams at once as an attack.
const MAX_STREAMS: usize = 500;

/// Number of streams on a connection before the cluster has sent its limit. kube-apiserver's default
/// (`MaxConcurrentStreams` in apiserver's `secure_serving.go`).
const USUAL_STREAMS: usize = 100;

/// Time for which a request waits for a connection to an unreachable cluster, from the start of the connection attempt.
/// The attempt continues to its own time limit. kubectl sends several requests per command, and reports an error soon
/// instead of waiting for each.
const UNREACHABLE_PATIENCE: Duration = Duration::from_secs(1);

/// Time for which an upgrade waits for a connection to an unreachable cluster. 100 ms: an upgrade's connection attempt
/// is not shared, and kubectl tries two protocols in sequence. Probes detect a recovered cluster within a second.
const UNREACHABLE_UPGRADE_PATIENCE: Duration = Duration::from_millis(100);

/// Number of consecutive connection attempts if the cluster closes each connection after its first response. 3: a load
/// balancer may be draining its servers.
const ASKED_CONNECTIONS_MAX: usize = 3;

/// Time for which a client waits for a separate connection although it could share an existing connection. 1 s, as for
/// one endpoint of several.
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
pub(crate) enum LaneKind {
    Short,
    /// Watches, for which clients share connections.
    Watch,
    /// Other long-running requests: streams from workloads.
    Opaque,
}

/// The attributes of a request that determine its connections in the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) lane: LaneKind,
    pub(crate) asker: Asker,
    /// The client's connection, for a client's request.
    pub(crate) peer: Option<Peer>,
}

impl Claim {
    /// Returns the reader of the response, if other readers must not share the connection.
    fn reader(self) -> Option<Reader> {
        (self.lane == LaneKind::Opaque && self.asker == Asker::Client).then_some(self.peer)
    }

    /// Returns whether the request uses the connections for watches of all clients.
    fn is_shared_watch(self) -> bool {
        self.lane == LaneKind::Watch && self.asker == Asker::Client
    }
}

/// Connections for one kind of Tributary's own requests. Clients' connections are in [`Pool::clients`],
/// [`Pool::watches`] and [`Pool::readers`].
struct Lane {
    namespaces: Connections,
    ours: Connections,
    /// Permits for concurrent requests to an HTTP/1.1 endpoint.
    http1_places: SharedPlaces,
}

enum WithoutRoom {
    /// Wait for a new connection.
    Wait(Dial),
    /// Use a stream on an idle connection, or on the connection of a different reader.
    Borrow(StreamPermit),
    /// Search again, because a stream is free now.
    Again,
    Full,
}

impl Lane {
    fn new(tuning: &ClientTuning) -> Self {
        let http1_places = SharedPlaces::new(tuning.max_http1_requests);
        Self { namespaces: Connections::default(), ours: Connections::default(), http1_places }
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
    question: Option<UidQuestion>,
    observer: Arc<Observer>,
    tuning: ClientTuning,
    short: Lane,
    long: Lane,
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
        question: Option<UidQuestion>,
        observer: Arc<Observer>,
        tuning: ClientTuning,
    ) -> Arc<Self> {
        // tokio panics for an interval of zero.
        let idle_timeout = tuning.idle_timeout.max(Duration::from_millis(1));
        let pool = Arc::new(Self {
            cluster,
            dialer,
            question,
            observer,
            short: Lane::new(&tuning),
            long: Lane::new(&tuning),
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
        claim: Claim,
        credentials: &Arc<Current>,
    ) -> Result<Connection, ForwardError> {
        let Claim { lane: kind, asker, .. } = claim;
        let here = Handle::current().id();
        // In each round, other requests may take all streams of a new connection. After this number of rounds, all
        // allowed connections are full.
        for _ in 0..=self.connections_for(claim) {
            match self.pick(claim, credentials.version, here) {
                Pick::Room(permit) => return Ok(Connection::Http2(permit)),
                Pick::Tight(permit) => {
                    if self.may_grow(claim, credentials.version) && !self.grows_in_vain(claim) {
                        drop(self.join_dial(claim, credentials));
                    }
                    return Ok(Connection::Http2(permit));
                }
                Pick::Full => {}
            }
            if self.speaks_http1() {
                let place = self.lane(kind).http1_places.acquire(asker).ok_or_else(|| self.http1_is_full(claim))?;
                if let Some(checkout) = self.http1.reuse_connection(credentials.version, here) {
                    return Ok(Connection::Http1(checkout.placed(place)));
                }
                if let Some(checkout) = Box::pin(self.open(claim, credentials)).await? {
                    return Ok(Connection::Http1(checkout.placed(place)));
                }
                continue;
            }
            let dial = match self.without_room(claim, credentials, here) {
                WithoutRoom::Wait(dial) => dial,
                WithoutRoom::Borrow(permit) => return Ok(Connection::Http2(permit)),
                WithoutRoom::Again => continue,
                WithoutRoom::Full => break,
            };
            if let Some(borrowed) = Box::pin(self.wait_or_borrow(claim, credentials.version, dial)).await? {
                return Ok(Connection::Http2(borrowed));
            }
        }
        Err(self.full(claim))
    }

    /// Decides the next step of a request without a free stream.
    fn without_room(self: &Arc<Self>, claim: Claim, credentials: &Arc<Current>, here: runtime::Id) -> WithoutRoom {
        let version = credentials.version;
        let Some(reader) = claim.reader() else {
            return match self.may_grow(claim, version) {
                true => self.join_dial(claim, credentials).map_or(WithoutRoom::Again, WithoutRoom::Wait),
                false => WithoutRoom::Full,
            };
        };
        if let Some(permit) = self.readers.adopt(reader, version, here) {
            return WithoutRoom::Borrow(permit);
        }
        let make_room = || {
            while !self.may_grow(claim, version) {
                if !self.readers.close_idle() {
                    return false;
                }
            }
            true
        };
        if !self.readers.has_just_failed() && make_room() {
            return self.join_dial(claim, credentials).map_or(WithoutRoom::Again, WithoutRoom::Wait);
        }
        // After a recent failure, a free stream on another reader's connection is preferred to a connection attempt,
        // which may fail again.
        if let Some(permit) = self.readers.borrow(version) {
            return WithoutRoom::Borrow(permit);
        }
        match make_room() {
            true => self.join_dial(claim, credentials).map_or(WithoutRoom::Again, WithoutRoom::Wait),
            false => self.readers.dial_under_way(version).map_or(WithoutRoom::Full, WithoutRoom::Wait),
        }
    }

    /// Waits for a connection attempt. If other readers' connections have free streams, the wait is short, and the
    /// request uses such a stream if the attempt fails.
    ///
    /// # Errors
    /// The error of the connection attempt.
    async fn wait_or_borrow(
        &self,
        claim: Claim,
        version: u64,
        dial: Dial,
    ) -> Result<Option<StreamPermit>, ForwardError> {
        let borrow = || claim.reader().and_then(|_| self.readers.borrow(version));
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

    /// Opens a connection for an upgrade: HTTP/1.1, outside of the pool. The time limit is short for an unreachable
    /// cluster.
    pub(crate) async fn dial_http1(&self, credentials: &Arc<Current>) -> Result<Dialed, ForwardError> {
        let dial = self.dial(Protocols::Http1, Http2Use::Any(self.tuning.client_windows), credentials);
        let Some((age, reason)) = self.observer.unreachable_for() else { return dial.await };
        let unreachable = || ForwardError::Unreachable { cluster: self.cluster.clone(), reason, age };
        timeout(UNREACHABLE_UPGRADE_PATIENCE, dial).await.unwrap_or_else(|_| Err(unreachable()))
    }

    /// Opens a connection to the expected cluster and counts the connection. Reports a failure to the observer.
    async fn dial(
        &self,
        protocols: Protocols,
        http2: Http2Use,
        credentials: &Arc<Current>,
    ) -> Result<Dialed, ForwardError> {
        let dialed = self.dial_known_cluster(protocols, http2, credentials).await;
        dialed.inspect_err(|error| self.not_dialed(error))
    }

    async fn dial_known_cluster(
        &self,
        protocols: Protocols,
        http2: Http2Use,
        credentials: &Arc<Current>,
    ) -> Result<Dialed, ForwardError> {
        let Some(question) = &self.question else { return self.dial_counted(protocols, http2, credentials).await };
        for _ in 0..ASKED_CONNECTIONS_MAX {
            let mut dialed = self.dial_counted(protocols, http2, credentials).await?;
            let is_http1 = matches!(dialed, Dialed::Http1(..));
            match question.ask_connection(&mut dialed, credentials).await? {
                Asking::Open => return Ok(dialed),
                // An HTTP/1.1 server that closes connections after each response needs a new connection for each
                // request.
                Asking::Closed if is_http1 => return self.dial_counted(protocols, http2, credentials).await,
                Asking::Closed => {}
            }
        }
        Err(question.closed())
    }

    async fn dial_counted(
        &self,
        protocols: Protocols,
        http2: Http2Use,
        credentials: &Current,
    ) -> Result<Dialed, ForwardError> {
        let begun = Instant::now();
        let dialed = self.dialer.dial(protocols, http2, credentials).await?;
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.dial_took.store(took, Ordering::Relaxed);
        self.dialed.fetch_add(1, Ordering::Relaxed);
        Ok(dialed)
    }

    fn not_dialed(&self, error: &ForwardError) {
        self.observer.failed(error);
        if error.is_of_dial() {
            self.observer.apply(Input::Failure);
        }
    }

    /// Closes every connection and tunnel, because the endpoint is silent.
    pub(crate) fn cut(&self) {
        self.dialer.cut();
    }

    /// Checks that connections can be opened with this client certificate.
    pub(crate) async fn check(&self, certificate: &Certificate) -> Result<(), ConnectError> {
        self.dialer.check(certificate).await
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        let plus = |some: (usize, usize), more: (usize, usize)| (some.0 + more.0, some.1 + more.1);
        let of = |lane: &Lane, clients| plus(plus(clients, lane.namespaces.statistics()), lane.ours.statistics());
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

    fn lane(&self, kind: LaneKind) -> &Lane {
        match kind {
            LaneKind::Short => &self.short,
            LaneKind::Watch | LaneKind::Opaque => &self.long,
        }
    }

    /// Returns the connections for a request whose reader may share connections.
    fn shared(&self, claim: Claim) -> &Connections {
        match claim.asker {
            Asker::Client if claim.lane == LaneKind::Watch => &self.watches,
            Asker::Client => &self.clients,
            Asker::Namespaces => &self.lane(claim.lane).namespaces,
            Asker::Ourselves => &self.lane(claim.lane).ours,
        }
    }

    fn pick(&self, claim: Claim, version: u64, here: runtime::Id) -> Pick {
        match claim.reader() {
            Some(reader) => self.readers.pick(reader, version, here),
            None if claim.is_shared_watch() => self.watches.pick_first(version),
            None if claim.asker == Asker::Client => {
                self.clients.pick_spread(version, here, self.tuning.connections_to_spread_over)
            }
            None => self.shared(claim).pick(version, here),
        }
    }

    /// Adds a connection for requests of this kind.
    fn push(&self, claim: Claim, slot: Arc<Slot>) {
        match claim.reader() {
            Some(reader) => self.readers.push(reader, slot),
            None => self.shared(claim).push(slot),
        }
    }

    fn remove(&self, claim: Claim, id: u64) {
        match claim.reader() {
            Some(_) => self.readers.remove(id),
            None => self.shared(claim).remove(id),
        }
    }

    fn http2_use(&self, claim: Claim) -> Http2Use {
        let windows = self.windows(claim);
        if claim.is_shared_watch() { Http2Use::Watches(windows) } else { Http2Use::Any(windows) }
    }

    fn windows(&self, claim: Claim) -> Windows {
        match (claim.asker, claim.reader()) {
            (Asker::Client, Some(_)) => self.tuning.client_windows.for_streams(readers::STREAMS),
            (Asker::Client, None) if claim.is_shared_watch() => watch_connection::windows(),
            (Asker::Client, None) => self.tuning.client_windows,
            (Asker::Namespaces | Asker::Ourselves, _) => self.tuning.own_windows,
        }
    }

    /// Returns the maximal number of streams on a connection for this kind of request. The cluster's own limit may be
    /// lower.
    fn streams_for(&self, claim: Claim) -> usize {
        match claim.asker {
            Asker::Client => self.windows(claim).independent_streams().min(MAX_STREAMS),
            Asker::Namespaces | Asker::Ourselves => MAX_STREAMS,
        }
    }

    /// Returns the maximal number of HTTP/2 connections for this kind of request and this origin.
    fn connections_for(&self, claim: Claim) -> usize {
        let most = self.tuning.max_connections;
        match (claim.asker, claim.reader()) {
            (Asker::Client, Some(_)) => most.saturating_mul(readers::CONNECTIONS_FOR_EACH),
            (Asker::Client | Asker::Namespaces, _) => most - most / 4,
            (Asker::Ourselves, _) => most,
        }
    }

    /// Removes a connection that accepts no more requests, and logs the reason.
    fn ended(&self, claim: Claim, id: u64, broken: Option<Broken>) {
        self.remove(claim, id);
        let Some(Broken { cause, is_silence }) = broken else { return };
        if is_silence {
            self.observer.unreachable(format!("cluster {}: the connection went silent: {cause}", self.cluster));
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

    /// Returns the maximal number of concurrent requests of clients of this kind.
    pub(crate) fn for_clients(&self, lane: LaneKind) -> usize {
        if self.speaks_http1() {
            return self.lane(lane).http1_places.room(Asker::Client);
        }
        let claim = Claim { lane, asker: Asker::Client, peer: None };
        let known = match lane {
            LaneKind::Short => self.clients.streams_of_one(),
            LaneKind::Watch => self.watches.streams_of_one(),
            LaneKind::Opaque => self.readers.streams_of_one(),
        };
        let streams = known.unwrap_or_else(|| USUAL_STREAMS.min(self.streams_for(claim))).max(1);
        self.connections_for(claim).saturating_mul(streams)
    }

    fn may_grow(&self, claim: Claim, version: u64) -> bool {
        let usable = match claim.reader() {
            Some(reader) => self.readers.count(version, reader),
            None => self.shared(claim).usable(version),
        };
        usable < self.connections_for(claim)
    }

    /// Returns whether another connection attempt would probably not help.
    fn grows_in_vain(&self, claim: Claim) -> bool {
        let has_just_failed = match claim.reader() {
            Some(_) => self.readers.has_just_failed(),
            None => self.shared(claim).has_just_failed(),
        };
        self.speaks_http1() || has_just_failed
    }

    fn full(&self, claim: Claim) -> ForwardError {
        let what = match claim.asker {
            Asker::Client if claim.is_shared_watch() => "connections to it that clients may use for watches",
            Asker::Client => "connections to it that clients may use",
            Asker::Namespaces => "connections to it for single namespaces",
            Asker::Ourselves => "own connections to it",
        };
        ForwardError::Full { cluster: self.cluster.clone(), what, limit: self.connections_for(claim) }
    }

    fn http1_is_full(&self, Claim { lane, asker, .. }: Claim) -> ForwardError {
        let what = match asker {
            Asker::Client => "HTTP/1.1 connections to it that clients may use",
            Asker::Namespaces => "HTTP/1.1 connections to it for single namespaces",
            Asker::Ourselves => "own HTTP/1.1 connections to it",
        };
        ForwardError::Full { cluster: self.cluster.clone(), what, limit: self.lane(lane).http1_places.room(asker) }
    }

    /// Joins the current connection attempt with the same credentials, or starts an attempt. `None` if no attempt is
    /// needed any more.
    fn join_dial(self: &Arc<Self>, claim: Claim, credentials: &Arc<Current>) -> Option<Dial> {
        let begin = || self.begin_dial(claim, credentials);
        match claim.reader() {
            Some(reader) => Some(self.readers.join_dial(reader, credentials.version, begin)),
            None if claim.is_shared_watch() => self.watches.join_needed_dial(credentials.version, begin),
            None => Some(self.shared(claim).join_dial(credentials.version, begin)),
        }
    }

    /// Starts a connection attempt, which continues even if no request waits for it.
    fn begin_dial(self: &Arc<Self>, claim: Claim, credentials: &Arc<Current>) -> SharedDial {
        let (pool, credentials) = (self.clone(), credentials.clone());
        let task = tokio::spawn(async move {
            // A waiting request takes the HTTP/1.1 connection from the idle connections.
            pool.open(claim, &credentials).await.map(drop)
        });
        let interrupted = self.full(claim);
        let ended = async move { task.await.unwrap_or(Err(interrupted)) }.boxed().shared();
        if let Some(reader) = claim.reader() {
            let (pool, begun, ended) = (self.clone(), Instant::now(), ended.clone());
            tokio::spawn(async move {
                let is_success = ended.await.is_ok();
                pool.readers.note_dial(reader, begun, is_success);
            });
        }
        ended
    }

    /// Opens a connection, which the current runtime drives. An HTTP/2 connection is added to the pool, and an HTTP/1.1
    /// connection is returned.
    async fn open(
        self: &Arc<Self>,
        claim: Claim,
        credentials: &Arc<Current>,
    ) -> Result<Option<Checkout>, ForwardError> {
        let (version, runtime) = (credentials.version, Handle::current().id());
        match self.dial(Protocols::Http2OrHttp1, self.http2_use(claim), credentials).await? {
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
                self.add(claim, version, runtime, RequestSender::Usual(sender), *connection);
                Ok(None)
            }
            Dialed::Watches(sender, connection) => {
                self.add(claim, version, runtime, RequestSender::Watches(sender), *connection);
                Ok(None)
            }
        }
    }

    /// Adds an HTTP/2 connection to the pool, and drives the connection in the current runtime.
    fn add<C>(
        self: &Arc<Self>,
        claim: Claim,
        version: u64,
        runtime: runtime::Id,
        sender: RequestSender,
        connection: ConnectionTask<C>,
    ) where
        C: Streams + Send + 'static,
    {
        self.speaks_http1.store(false, Ordering::Relaxed);
        let (id, most) = (self.next_id.fetch_add(1, Ordering::Relaxed), self.streams_for(claim));
        let counts = Arc::new(StreamCounts::new(streams_allowed(&connection).min(most)));
        self.push(claim, Arc::new(Slot { id, version, runtime, sender, counts: counts.clone() }));
        tokio::spawn(drive(Arc::downgrade(self), claim, id, most, counts, connection));
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
    claim: Claim,
    id: u64,
    most: usize,
    counts: Arc<StreamCounts>,
    mut connection: ConnectionTask<C>,
) {
    let ended = futures::future::poll_fn(|cx| {
        let polled = connection.poll_connection(cx);
        // Every request wakes this task, so a changed limit of the member is known one request later.
        counts.allow(streams_allowed(&connection).min(most));
        polled
    })
    .await;
    if let Some(pool) = pool.upgrade() {
        let broken = |error: C::Error| Broken { cause: explain(&error), is_silence: C::is_silence(&error) };
        pool.ended(claim, id, ended.err().map(broken));
    }
    connection.finish().await;
}
