//! Connections to one endpoint of a cluster.
//!
//! HTTP/2 connections form lanes, so that a thousand watches cannot delay a GET: one lane for short requests, one for
//! long-running ones. In each, clients, the cachers of single namespaces, and Tributary's other questions have
//! connections of their own; of clients' long-running requests, watches have some, and streams from workloads have
//! others. The next connection is opened when all connections of an asker use 80 % of their streams; for clients'
//! watches, which fill one after the other, when a fifth of a connection is left. A stream counts until its response
//! body has ended or is dropped. hyper's own pooling client has exactly one HTTP/2 connection and queues requests above
//! its streams, so that long watches block each other (hyper#2197, hyper#3623).
//!
//! All streams of a connection share its flow-control window (RFC 9113 §5.2), and a client need not read its answers.
//! So a connection for clients carries no more streams than fit into its window with their whole unread data. Tributary
//! reads answers to cachers and to its own questions at once.
//!
//! A connection is driven in the tokio runtime in which it was dialed. A process may have several runtimes, so that
//! clients and Tributary's own questions do not wait for each other. A request that crosses runtimes wakes a sleeping
//! thread at each step. So a request takes a connection of its own runtime; if there is none yet, it takes one of a
//! second runtime, and a new one is dialed meanwhile. The limit of connections is counted over all runtimes.

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

/// Streams on one connection where the member allows more, or any number. One lost packet delays them all, and Go's
/// servers take it for an attack when too many are reset at once.
const MAX_STREAMS: usize = 500;

/// Streams on a connection before the cluster has sent its limit: kube-apiserver's (`MaxConcurrentStreams` in
/// apiserver's `secure_serving.go`).
const USUAL_STREAMS: usize = 100;

/// Time for which a request waits for a connection to an unreachable cluster, from the start of the dial. The dial goes
/// on to its own limit; people at a terminal, whose client sends several requests, get an error instead of a hanging
/// command.
const UNREACHABLE_PATIENCE: Duration = Duration::from_secs(1);

/// Time for which an upgrade waits for a connection to an unreachable cluster. 100 ms: no other request waits for the
/// same dial, kubectl tries two protocols one after the other, and Tributary notices within a second that a cluster
/// answers again.
const UNREACHABLE_UPGRADE_PATIENCE: Duration = Duration::from_millis(100);

/// Connections that are dialed one after the other if the cluster closes each after its first answer. 3: a load
/// balancer may be draining its servers.
const ASKED_CONNECTIONS_MAX: usize = 3;

/// Time for which a client waits for a connection of its own while it could share one. 1 s, as for one endpoint while
/// there is a second one.
const OWN_CONNECTION_PATIENCE: Duration = Duration::from_secs(1);

/// Content of a cluster's pool at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// HTTP/2 connections for short requests.
    pub short_connections: usize,
    /// Requests in flight on them.
    pub short_streams: usize,
    /// HTTP/2 connections for long-running requests.
    pub long_connections: usize,
    /// Requests in flight on them.
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

/// One request's place on a connection.
pub(crate) enum Connection {
    Http2(StreamPermit),
    Http1(Checkout),
}

/// Connections of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneKind {
    Short,
    /// Watches: clients share the connections.
    Watch,
    /// Other long-running requests: streams from workloads.
    Opaque,
}

/// Part of a pool from which a request may take its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) lane: LaneKind,
    pub(crate) asker: Asker,
    /// Connection of the client, for a client's request.
    pub(crate) peer: Option<Peer>,
}

impl Claim {
    /// Reader of the answer, if the connection must not be shared with other readers.
    fn reader(self) -> Option<Reader> {
        (self.lane == LaneKind::Opaque && self.asker == Asker::Client).then_some(self.peer)
    }

    /// Whether it takes a connection for watches of all clients.
    fn is_shared_watch(self) -> bool {
        self.lane == LaneKind::Watch && self.asker == Asker::Client
    }
}

/// Connections for one kind of request, except clients': [`Pool::clients`], [`Pool::watches`] and [`Pool::readers`].
struct Lane {
    namespaces: Connections,
    ours: Connections,
    /// The requests that may be under way at once to an endpoint that speaks HTTP/1.1.
    http1_places: SharedPlaces,
}

/// Next step of a request without room.
enum WithoutRoom {
    /// Wait for a connection.
    Wait(Dial),
    /// Take room on an idle connection, or on a different reader's.
    Borrow(StreamPermit),
    /// Look again: there is room by now.
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

/// All connections to one endpoint.
pub(crate) struct Pool {
    cluster: ClusterName,
    dialer: Dialer,
    /// Asks each new connection for the uid of its cluster. `None` for users' own tokens, which the cluster checks.
    question: Option<UidQuestion>,
    observer: Arc<Observer>,
    tuning: ClientTuning,
    short: Lane,
    long: Lane,
    /// For short requests of clients.
    clients: Connections,
    /// For watches of clients.
    watches: Connections,
    /// For other long-running requests of clients.
    readers: Readers,
    http1: Arc<IdleConnections>,
    /// Whether the last connection negotiated HTTP/1.1.
    speaks_http1: AtomicBool,
    next_id: AtomicU64,
    /// Opened connections, with those over HTTP/1.1.
    dialed: AtomicU64,
    /// Duration of the last dial, in milliseconds; 0 before the first.
    dial_took: AtomicU64,
}

impl Pool {
    /// An empty pool, and a task that closes idle connections for as long as the pool lives.
    pub(crate) fn new(
        cluster: ClusterName,
        dialer: Dialer,
        question: Option<UidQuestion>,
        observer: Arc<Observer>,
        tuning: ClientTuning,
    ) -> Arc<Self> {
        // An interval of zero is not allowed.
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

    /// Reserves a stream for a request, on a connection made with these credentials, renewed or not.
    ///
    /// Waits for a dial only if no connection has room. Cancellation leaves the dial running for other requests.
    ///
    /// # Errors
    /// Of the dial; `Full` if every allowed connection is full.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        claim: Claim,
        credentials: &Arc<Current>,
    ) -> Result<Connection, ForwardError> {
        let Claim { lane: kind, asker, .. } = claim;
        let here = Handle::current().id();
        // In each round, other requests may take the room of a new connection; this number of rounds fills every
        // connection.
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

    /// Next step of a request without room on its connections.
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
        // Before a second dial that may fail, too.
        if let Some(permit) = self.readers.borrow(version) {
            return WithoutRoom::Borrow(permit);
        }
        match make_room() {
            true => self.join_dial(claim, credentials).map_or(WithoutRoom::Again, WithoutRoom::Wait),
            false => self.readers.dial_under_way(version).map_or(WithoutRoom::Full, WithoutRoom::Wait),
        }
    }

    /// Waits for a dial. A reader waits a short time if other readers' connections have room, and takes that room if
    /// the dial fails.
    ///
    /// # Errors
    /// Of the dial.
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

    /// Waits for a dial; not for long if the member could not be reached last time.
    async fn wait_for(&self, dial: Dial) -> Result<(), ForwardError> {
        let Some((age, reason)) = self.observer.unreachable_for() else { return dial.ended.await };
        let dialed = timeout_at(dial.begun + UNREACHABLE_PATIENCE, dial.ended).await;
        dialed.unwrap_or_else(|_| Err(ForwardError::Unreachable { cluster: self.cluster.clone(), reason, age }))
    }

    /// Dials a connection for an upgrade: HTTP/1.1, outside the pool, without HTTP/2 windows. The time is short for an
    /// unreachable cluster.
    pub(crate) async fn dial_http1(&self, credentials: &Arc<Current>) -> Result<Dialed, ForwardError> {
        let dial = self.dial(Protocols::Http1, Http2Use::Any(self.tuning.client_windows), credentials);
        let Some((age, reason)) = self.observer.unreachable_for() else { return dial.await };
        let unreachable = || ForwardError::Unreachable { cluster: self.cluster.clone(), reason, age };
        timeout(UNREACHABLE_UPGRADE_PATIENCE, dial).await.unwrap_or_else(|_| Err(unreachable()))
    }

    /// Opens a connection to the known cluster and counts it, or reports the failure.
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
                // Each answer of such a server needs a connection of its own.
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

    /// Reports a failed connection.
    fn not_dialed(&self, error: &ForwardError) {
        self.observer.failed(error);
        if error.is_of_dial() {
            self.observer.apply(Input::Failure);
        }
    }

    /// Breaks every connection, tunnels included: the endpoint is silent.
    pub(crate) fn cut(&self) {
        self.dialer.cut();
    }

    /// Whether connections can be made with this client certificate.
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

    /// Connections that a request may take, if they are not by reader.
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

    /// Adds a connection to those that a request may take.
    fn push(&self, claim: Claim, slot: Arc<Slot>) {
        match claim.reader() {
            Some(reader) => self.readers.push(reader, slot),
            None => self.shared(claim).push(slot),
        }
    }

    /// Forgets a connection that has ended.
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

    /// Streams on a connection for this request, of those that the cluster allows.
    fn streams_for(&self, claim: Claim) -> usize {
        match claim.asker {
            Asker::Client => self.windows(claim).independent_streams().min(MAX_STREAMS),
            Asker::Namespaces | Asker::Ourselves => MAX_STREAMS,
        }
    }

    /// Limit of HTTP/2 connections for this request. They belong to its asker.
    fn connections_for(&self, claim: Claim) -> usize {
        let most = self.tuning.max_connections;
        match (claim.asker, claim.reader()) {
            (Asker::Client, Some(_)) => most.saturating_mul(readers::CONNECTIONS_FOR_EACH),
            (Asker::Client | Asker::Namespaces, _) => most - most / 4,
            (Asker::Ourselves, _) => most,
        }
    }

    /// Forgets a connection that takes no more requests, and logs the reason.
    fn ended(&self, claim: Claim, id: u64, broken: Option<Broken>) {
        self.remove(claim, id);
        let Some(Broken { cause, is_silence }) = broken else { return };
        if is_silence {
            self.observer.unreachable(format!("cluster {}: the connection went silent: {cause}", self.cluster));
        }
        tracing::debug!(cluster = %self.cluster, %cause, "HTTP/2 connection broke");
    }

    /// Number of HTTP/2 connections made so far.
    pub(crate) fn connections_made(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Number of connections opened so far, over HTTP/1.1 or HTTP/2, with tunnels.
    pub(crate) fn dialed(&self) -> u64 {
        self.dialed.load(Ordering::Relaxed)
    }

    /// Duration of the last dial; zero before the first.
    pub(crate) fn last_dial_took(&self) -> Duration {
        Duration::from_millis(self.dial_took.load(Ordering::Relaxed))
    }

    /// Whether the last connection negotiated HTTP/1.1.
    pub(crate) fn speaks_http1(&self) -> bool {
        self.speaks_http1.load(Ordering::Relaxed)
    }

    /// Limit of concurrent requests of clients in a lane.
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

    /// Whether a dial would not bring the next connection, as far as is known.
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

    /// Starts a dial, or joins the current one with the same credentials. `None` if none is needed any more.
    fn join_dial(self: &Arc<Self>, claim: Claim, credentials: &Arc<Current>) -> Option<Dial> {
        let begin = || self.begin_dial(claim, credentials);
        match claim.reader() {
            Some(reader) => Some(self.readers.join_dial(reader, credentials.version, begin)),
            None if claim.is_shared_watch() => self.watches.join_needed_dial(credentials.version, begin),
            None => Some(self.shared(claim).join_dial(credentials.version, begin)),
        }
    }

    /// Starts a dial, whether or not a request waits for it.
    fn begin_dial(self: &Arc<Self>, claim: Claim, credentials: &Arc<Current>) -> SharedDial {
        let (pool, credentials) = (self.clone(), credentials.clone());
        let task = tokio::spawn(async move {
            // A waiting request takes an HTTP/1.1 connection from the idle ones.
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

    /// Opens a connection, which is driven where this runs. An HTTP/2 one goes to its like,
    /// an HTTP/1.1 one to the caller.
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

    /// Adds an HTTP/2 connection, and drives it in this runtime.
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

/// Why a connection broke.
struct Broken {
    cause: String,
    /// Whether a ping had no answer.
    is_silence: bool,
}

/// Streams that the cluster allows on a connection; none after it takes no more.
fn streams_allowed<C: Streams>(connection: &ConnectionTask<C>) -> usize {
    connection.connection().map_or(0, Streams::max_send_streams)
}

/// Runs an HTTP/2 connection to its end, keeping count of the streams that the member allows, up to `most`.
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
        // Every request wakes this task, so a limit that the member changes is known one request later.
        counts.allow(streams_allowed(&connection).min(most));
        polled
    })
    .await;
    if let Some(pool) = pool.upgrade() {
        let broken = |error: C::Error| Broken { cause: explain(&error), is_silence: C::is_silence(&error) };
        pool.ended(claim, id, ended.err().map(broken));
    }
    // Open streams go on.
    connection.finish().await;
}
