//! One address of a member: its connections, its load, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

use crate::outlier::{Change, Outlier, is_suspicious};
use crate::pool::{LaneKind, Pool};
use crate::reachability::{Observer, Reachability};
use crate::speaker::Speaker;
use crate::target::ServerUrl;

/// One address of a member.
pub(crate) struct Endpoint {
    pub(crate) target: Arc<ServerUrl>,
    /// The `Host` header of HTTP/1.1 requests.
    pub(crate) host: HeaderValue,
    pub(crate) pool: Arc<Pool>,
    /// What is known of this address. Of a member's only one it is what is known of the member.
    pub(crate) observer: Arc<Observer>,
    /// What is known of the member, if it has further ones: what one answers is noted of both then.
    member: Option<Arc<Observer>>,
    /// Long-running answers and tunnels of clients that broke.
    broken: AtomicU64,
    short: AtomicUsize,
    long_running: AtomicUsize,
    requests: AtomicU64,
    /// How long its last answer to our own question took, in microseconds, plus one; 0 before the first.
    latency: AtomicU64,
    /// What our own questions have shown of its answers.
    outlier: Mutex<Outlier>,
    /// A client was given an error.
    suspicion: Notify,
    ejections: AtomicU64,
}

/// An endpoint as it is now.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Host and port.
    pub address: Arc<str>,
    /// Whether it can be reached.
    pub reachability: Reachability,
    /// Whether it has not said that it is not ready.
    pub is_ready: bool,
    /// Requests in flight, watches and tunnels included.
    pub outstanding: usize,
    /// Requests sent to it since the start.
    pub requests: u64,
    /// Answers that clients followed (logs, watches of the member's own view) and tunnels that broke since the start.
    pub broken: u64,
    /// How long its last answer to our own `/readyz` took, a handshake included where there was no connection; `None`
    /// before the first.
    pub latency: Option<Duration>,
    /// Whether it answers our own questions with errors, so that it is asked only where no other is left. Of a member's
    /// only endpoint never.
    pub is_ejected: bool,
    /// How often that has begun since the start.
    pub ejections: u64,
}

impl Endpoint {
    pub(crate) fn new(
        target: Arc<ServerUrl>,
        host: HeaderValue,
        pool: Arc<Pool>,
        observer: Arc<Observer>,
        member: Option<Arc<Observer>>,
    ) -> Self {
        Self {
            target,
            host,
            pool,
            observer,
            member,
            broken: AtomicU64::default(),
            short: AtomicUsize::default(),
            long_running: AtomicUsize::default(),
            requests: AtomicU64::default(),
            latency: AtomicU64::default(),
            outlier: Mutex::default(),
            suspicion: Notify::new(),
            ejections: AtomicU64::default(),
        }
    }

    /// Whether nothing is known against it.
    pub(crate) fn is_usable(&self) -> bool {
        !self.observer.is_unreachable()
    }

    /// Whether nothing at all is known against it: it can be reached, is ready, and answers questions of our own well.
    pub(crate) fn is_first_choice(&self) -> bool {
        self.is_usable() && self.observer.is_ready() && !self.is_ejected()
    }

    /// How many requests of this kind are in flight.
    pub(crate) fn outstanding(&self, kind: LaneKind) -> usize {
        self.load(kind).load(Ordering::Relaxed)
    }

    /// Counts a request as in flight for as long as the guard lives.
    pub(crate) fn hold(self: &Arc<Self>, kind: LaneKind) -> EndpointRequest {
        self.load(kind).fetch_add(1, Ordering::Relaxed);
        EndpointRequest { endpoint: self.clone(), kind }
    }

    /// A request is being sent to it.
    pub(crate) fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The head of an answer to a request came.
    pub(crate) fn spoke(&self, speaker: Speaker) {
        match speaker {
            Speaker::Member => self.answered(),
            Speaker::Rejecting => self.heard(),
            Speaker::Intermediary => {}
        }
    }

    /// A request was answered with this status.
    pub(crate) fn gave(&self, status: StatusCode) {
        if is_suspicious(status) {
            self.suspicion.notify_one();
        }
    }

    /// Waits until a request was answered with an error since this was last waited for. Cancelling loses nothing.
    pub(crate) async fn suspected(&self) {
        self.suspicion.notified().await;
    }

    /// Our own questions were answered, well or not.
    pub(crate) fn judged(&self, is_well: bool) -> Change {
        let change = self.outlier.lock().judged(is_well, Instant::now());
        if change == Change::Ejected {
            self.ejections.fetch_add(1, Ordering::Relaxed);
        }
        change
    }

    /// Whether it answers our own questions with errors.
    pub(crate) fn is_ejected(&self) -> bool {
        self.outlier.lock().is_ejected()
    }

    /// Whether it lets this turn pass because it has just come back.
    pub(crate) fn lets_pass(&self, turn: usize, now: Instant) -> bool {
        self.outlier.lock().lets_pass(turn, now)
    }

    /// It answers: so it can be reached, and the member by it.
    pub(crate) fn answered(&self) {
        self.observers().for_each(Observer::answered);
    }

    /// Something came from it.
    pub(crate) fn heard(&self) {
        self.observers().for_each(Observer::heard);
    }

    /// It says whether it is ready; where it has become so, whoever waits out a failure of the member is to try again.
    pub(crate) fn ready(&self, is_ready: bool) {
        if self.observer.ready(is_ready) {
            self.observers().for_each(Observer::recovered);
        }
    }

    /// What is known of it, and of the member where that is not the same.
    fn observers(&self) -> impl Iterator<Item = &Observer> {
        std::iter::once(&*self.observer).chain(self.member.as_deref())
    }

    /// What a client followed broke off: a log, a watch of the member's own view, a tunnel.
    pub(crate) fn broke_off(&self, cluster: &ClusterName, error: &str) {
        self.broken.fetch_add(1, Ordering::Relaxed);
        let endpoint = &self.target.address;
        tracing::info!(%cluster, %endpoint, error, "a log, watch or upgraded connection of a client broke off");
    }

    pub(crate) fn status(&self) -> EndpointStatus {
        EndpointStatus {
            address: self.target.address.clone(),
            reachability: self.observer.subscribe().borrow().clone(),
            is_ready: self.observer.is_ready(),
            outstanding: self.outstanding(LaneKind::Short) + self.outstanding(LaneKind::LongRunning),
            requests: self.requests.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            latency: self.latency.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_micros),
            is_ejected: self.is_ejected(),
            ejections: self.ejections.load(Ordering::Relaxed),
        }
    }

    /// It answered our own question after so long.
    pub(crate) fn answered_within(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX - 1);
        self.latency.store(took.saturating_add(1), Ordering::Relaxed);
    }

    fn load(&self, kind: LaneKind) -> &AtomicUsize {
        match kind {
            LaneKind::Short => &self.short,
            LaneKind::LongRunning => &self.long_running,
        }
    }
}

/// A request in flight at an endpoint. Counted until dropped.
pub(crate) struct EndpointRequest {
    pub(crate) endpoint: Arc<Endpoint>,
    kind: LaneKind,
}

impl std::fmt::Debug for EndpointRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({})", self.endpoint.target.address)
    }
}

impl Drop for EndpointRequest {
    fn drop(&mut self) {
        self.endpoint.load(self.kind).fetch_sub(1, Ordering::Relaxed);
    }
}
