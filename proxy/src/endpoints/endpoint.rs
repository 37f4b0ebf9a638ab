//! One address of a member: its connections, its load, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderValue, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::ClusterName;

use crate::credentials::last_question::LastQuestion;
use crate::endpoints::outlier::{Change, Outlier, is_suspicious};
use crate::endpoints::own_time::OwnTime;
use crate::endpoints::refusals::{Load, Refusals};
use crate::endpoints::slow_start::SlowStart;
use crate::error::ForwardError;
use crate::health::breaker::{Admission, Breaker, Switch};
use crate::health::reachability::{Observer, Reachability};
use crate::health::speaker::Speaker;
use crate::left_out::{LeftOut, LeftOutReason};
use crate::pool::{LaneKind, Pool};
use crate::target::{ServerUrl, Target};

/// Why an endpoint is sent nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainCause {
    /// It is no longer one of the member's.
    Left,
    /// The configuration drains it.
    Configured,
}

impl DrainCause {
    /// What is said of it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Left => "it is no longer one of the cluster's endpoints",
            Self::Configured => "the configuration drains it",
        }
    }
}

/// One address of a member.
pub(crate) struct Endpoint {
    pub(crate) target: Arc<ServerUrl>,
    /// The proxy on the way.
    proxy: Option<Uri>,
    /// Cancelled once it is no longer one of the member's.
    pub(crate) gone: CancellationToken,
    /// Whether the configuration drains it.
    drain: watch::Sender<bool>,
    /// The `Host` header of HTTP/1.1 requests.
    pub(crate) host: HeaderValue,
    pub(crate) pool: Arc<Pool>,
    /// What it last said of our own credentials.
    pub(crate) last_question: LastQuestion,
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
    /// Whether anything is sent to it.
    pub(crate) breaker: Arc<Breaker>,
    /// What our own questions have shown of its answers, and what was wrong with them last.
    outlier: Mutex<(Outlier, Option<Arc<str>>)>,
    /// Since when it is sent requests, where that is not from the start.
    slow_start: Mutex<SlowStart>,
    /// What it has refused lately.
    refusals: Mutex<Refusals>,
    /// How long it takes for a short request of a client that it does not refuse.
    own_time: Mutex<OwnTime>,
    /// Something speaks against it.
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
    /// How long its last answer to our own `/readyz` took once there was a connection; `None` before the first.
    pub latency: Option<Duration>,
    /// Whether it answers our own questions with errors, so that it is asked only where no other is left. Of a member's
    /// only endpoint never.
    pub is_ejected: bool,
    /// How often that has begun since the start.
    pub ejections: u64,
    /// Why it is given no requests, or only those for which no other is left; `None` where nothing is known against it.
    pub left_out: Option<LeftOut>,
    /// How often its breaker has opened since the start.
    pub breaker_openings: u64,
}

impl Endpoint {
    pub(crate) fn new(
        (target, proxy): (Arc<ServerUrl>, Option<Uri>),
        host: HeaderValue,
        pool: Arc<Pool>,
        (observer, breaker): (Arc<Observer>, Arc<Breaker>),
        member: Option<Arc<Observer>>,
    ) -> Self {
        Self {
            target,
            proxy,
            gone: CancellationToken::new(),
            drain: watch::Sender::new(false),
            host,
            pool,
            last_question: LastQuestion::default(),
            observer,
            member,
            broken: AtomicU64::default(),
            short: AtomicUsize::default(),
            long_running: AtomicUsize::default(),
            requests: AtomicU64::default(),
            latency: AtomicU64::default(),
            breaker,
            outlier: Mutex::default(),
            slow_start: Mutex::default(),
            refusals: Mutex::default(),
            own_time: Mutex::default(),
            suspicion: Notify::new(),
            ejections: AtomicU64::default(),
        }
    }

    /// Whether it is the one at this address.
    pub(crate) fn is_at(&self, address: &Target) -> bool {
        self.target.comparable == address.server.comparable && self.proxy == address.proxy
    }

    /// Why it is sent nothing new, where it is not.
    fn drain_cause(&self) -> Option<DrainCause> {
        match self.gone.is_cancelled() {
            true => Some(DrainCause::Left),
            false => self.is_drained().then_some(DrainCause::Configured),
        }
    }

    /// Whether it may be sent something new, as far as that is not for what is known of it to say: it is the member's,
    /// and is not drained.
    pub(crate) fn takes_requests(&self) -> bool {
        self.drain_cause().is_none()
    }

    /// Whether the configuration drains it: it is asked whether it is well, and is sent nothing else.
    pub(crate) fn is_drained(&self) -> bool {
        *self.drain.borrow()
    }

    /// Whether the configuration drains it from now on. Gives whether that is new.
    pub(crate) fn set_drained(&self, is_drained: bool) -> bool {
        if !is_drained && self.is_drained() {
            self.start_slowly();
        }
        self.drain.send_if_modified(|before| std::mem::replace(before, is_drained) != is_drained)
    }

    /// Waits until the configuration no longer drains it. Cancelling loses nothing.
    pub(crate) async fn is_drained_no_longer(&self) {
        // The sender is the endpoint's own, so that it cannot be gone meanwhile.
        let mut drain = self.drain.subscribe();
        let _ended = drain.wait_for(|is_drained| !is_drained).await;
    }

    /// Whether it may be sent something new; a question of our own to it alone (`is_to_it`) may be sent to one that is
    /// drained. A request that is in flight by now (`hold`) and finds that it may, is seen by whoever drains it and
    /// waits for what is under way: the locks bring both in an order.
    ///
    /// # Errors
    /// That it may not.
    pub(crate) fn check_drain(&self, cluster: &ClusterName, is_to_it: bool) -> Result<(), ForwardError> {
        match self.drain_cause() {
            Some(DrainCause::Configured) if is_to_it => Ok(()),
            Some(cause) => {
                let why = LeftOut::new(LeftOutReason::Drain, cause.as_str());
                let left_out = Arc::new([(self.target.address.clone(), why)]);
                let cluster = cluster.clone();
                Err(ForwardError::NoEndpoint { cluster, is_chosen: false, left_out, retry_after: Duration::ZERO })
            }
            None => Ok(()),
        }
    }

    /// How many requests are in flight, whatever their kind.
    pub(crate) fn in_flight(&self) -> usize {
        self.outstanding(LaneKind::Short) + self.outstanding(LaneKind::Opaque)
    }

    /// Whether it can be reached, as far as is known.
    pub(crate) fn is_usable(&self) -> bool {
        !self.observer.is_unreachable()
    }

    /// Whether nothing at all is known against it: it can be reached, is ready, answers questions of our own well, and
    /// is not drained.
    pub(crate) fn is_first_choice(&self) -> bool {
        self.is_usable() && self.takes_requests() && self.observer.is_ready() && !self.is_ejected()
    }

    /// How many requests of this kind are in flight.
    pub(crate) fn outstanding(&self, kind: LaneKind) -> usize {
        self.in_flight_of(kind).load(Ordering::Relaxed)
    }

    /// What it has to do of this kind, where a short request usually takes so long.
    pub(crate) fn load(&self, kind: LaneKind, usual: Duration, now: Instant) -> Load {
        let own_usual = match kind {
            LaneKind::Short => self.own_time.lock().get(now),
            // What lasts is in flight for as long as its client likes.
            LaneKind::Watch | LaneKind::Opaque => Duration::ZERO,
        };
        let refused = self.refusals.lock().count(kind, usual, now);
        Load { in_flight: self.outstanding(kind), refused, usual: own_usual }
    }

    /// Whether another request of this kind may be in flight.
    pub(crate) fn has_room(&self, kind: LaneKind) -> bool {
        let limit = self.breaker.tuning().max_in_flight_per_endpoint;
        kind != LaneKind::Short || limit.is_none_or(|limit| self.outstanding(kind) < limit)
    }

    /// Counts a request as in flight for as long as the guard lives.
    pub(crate) fn hold(self: &Arc<Self>, kind: LaneKind) -> EndpointRequest {
        self.hold_admitted(kind, Admission::Free)
    }

    /// As [`hold`](Self::hold), for a request that the breaker has let in.
    pub(crate) fn hold_admitted(self: &Arc<Self>, kind: LaneKind, admission: Admission) -> EndpointRequest {
        self.in_flight_of(kind).fetch_add(1, Ordering::Relaxed);
        EndpointRequest { endpoint: self.clone(), kind, admission }
    }

    /// Why it is given no requests, or only those for which no other is left.
    pub(crate) fn left_out(&self) -> Option<LeftOut> {
        let unreachable = self.observer.unreachable_for().map(|(_, reason)| reason);
        if let Some(cause) = self.drain_cause() {
            return Some(self.left_out_by_drain(cause.as_str(), unreachable));
        }
        if self.breaker.closed_for().is_some() {
            return Some(self.left_out_by_breaker(unreachable));
        }
        if let Some(reason) = unreachable {
            return Some(LeftOut::new(LeftOutReason::Unreachable, self.without_address(&reason)));
        }
        if !self.observer.is_ready() {
            return Some(LeftOut::new(LeftOutReason::Probe, "it says that it is not ready"));
        }
        let outlier = self.outlier.lock();
        let cause = outlier.1.clone().filter(|_| outlier.0.is_ejected())?;
        Some(LeftOut::new(LeftOutReason::Outlier, cause))
    }

    /// That it is drained, and whether it could take requests again.
    fn left_out_by_drain(&self, cause: &str, unreachable: Option<Arc<str>>) -> LeftOut {
        let cause = match unreachable {
            Some(reason) => format!("{cause}; it cannot be reached: {}", self.without_address(&reason)),
            None if !self.observer.is_ready() => format!("{cause}; it says that it is not ready"),
            None => cause.to_owned(),
        };
        LeftOut::new(LeftOutReason::Drain, cause)
    }

    /// That its breaker is open, and why, if it cannot be reached.
    pub(crate) fn left_out_by_breaker(&self, unreachable: Option<Arc<str>>) -> LeftOut {
        let cause = unreachable.map(|reason| self.without_address(&reason));
        LeftOut::new(LeftOutReason::Breaker, cause.unwrap_or_else(|| "it failed several times in a row".into()))
    }

    /// Why it cannot be reached, in a line of which the address is told already.
    fn without_address(&self, reason: &str) -> Arc<str> {
        let known = format!(" cannot be reached at {}: ", self.target.address);
        reason.split_once(&known).map_or(reason, |(_, cause)| cause).into()
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
            self.suspect();
        }
    }

    /// It has answered a short request after so long, and did not refuse it.
    pub(crate) fn served(&self, took: Duration) {
        self.own_time.lock().note(took, Instant::now());
    }

    /// It has refused a short request after so long, where one usually takes so long as `usual`.
    pub(crate) fn refused(&self, took: Duration, usual: Duration) {
        self.refusals.lock().note_short(took, usual, Instant::now());
    }

    /// It has refused a watch.
    pub(crate) fn refused_watch(&self) {
        self.refusals.lock().note_watch(Instant::now());
    }

    /// Something speaks against it: an error that a client was given, an answer that did not come or broke off, a late
    /// one to a question of our own.
    pub(crate) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Waits until something has spoken against it since this was last waited for. Cancelling loses nothing.
    pub(crate) async fn suspected(&self) {
        self.suspicion.notified().await;
    }

    /// What was wrong with the answers to questions of our own, if anything was.
    pub(crate) fn judged(&self, fault: Option<&str>) -> Change {
        let mut outlier = self.outlier.lock();
        if fault.is_some() {
            outlier.1 = fault.map(Arc::from);
        }
        let change = outlier.0.judged(fault.is_none());
        match change {
            Change::Ejected => {
                self.ejections.fetch_add(1, Ordering::Relaxed);
            }
            // Under the lock: it is not seen to be well before that.
            Change::Returned => self.start_slowly(),
            Change::None => {}
        }
        change
    }

    /// Whether it answers our own questions with errors.
    pub(crate) fn is_ejected(&self) -> bool {
        self.outlier.lock().0.is_ejected()
    }

    /// It is sent requests from now on, beside others: little by little.
    pub(crate) fn start_slowly(&self) {
        self.slow_start.lock().begin(Instant::now());
    }

    /// Whether it lets this turn pass because it has not been sent requests for long.
    pub(crate) fn lets_pass(&self, turn: usize, now: Instant) -> bool {
        self.slow_start.lock().lets_pass(turn, now)
    }

    /// It answers: so it can be reached, and the member by it.
    pub(crate) fn answered(&self) {
        self.close_breaker();
        // Before it is known to be back.
        if self.observer.is_unreachable() {
            self.start_slowly();
        }
        self.observers().for_each(Observer::answered);
    }

    /// Something came from it.
    pub(crate) fn heard(&self) {
        self.close_breaker();
        self.observers().for_each(Observer::heard);
    }

    /// It is there. Before anything else is known of that: whoever is woken by it is to be let in.
    fn close_breaker(&self) {
        if self.breaker.answered() == Switch::Closed {
            tracing::debug!(endpoint = %self.target.address, "the endpoint answers; its breaker is closed");
        }
    }

    /// It says whether it is ready; where it has become so, whoever waits out a failure of the member is to try again.
    pub(crate) fn ready(&self, is_ready: bool) {
        if is_ready && !self.observer.is_ready() {
            self.start_slowly();
        }
        if self.observer.ready(is_ready) {
            self.observers().for_each(Observer::recovered);
        }
    }

    /// What is known of it, and of the member where that is not the same. What is still under way at one that is sent
    /// nothing new does not say that anything new can be asked of a member that is lost.
    fn observers(&self) -> impl Iterator<Item = &Observer> {
        let member = self.member.as_deref();
        let member = member.filter(|member| !member.is_unreachable() || self.takes_requests());
        std::iter::once(&*self.observer).chain(member)
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
            outstanding: self.in_flight(),
            requests: self.requests.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            latency: self.latency(),
            is_ejected: self.is_ejected(),
            ejections: self.ejections.load(Ordering::Relaxed),
            left_out: self.left_out(),
            breaker_openings: self.breaker.openings(),
        }
    }

    /// How long its last answer to our own question took.
    pub(crate) fn latency(&self) -> Option<Duration> {
        self.latency.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_micros)
    }

    /// It answered our own question after so long.
    pub(crate) fn answered_within(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX - 1);
        self.latency.store(took.saturating_add(1), Ordering::Relaxed);
    }

    fn in_flight_of(&self, kind: LaneKind) -> &AtomicUsize {
        match kind {
            LaneKind::Short => &self.short,
            LaneKind::Watch | LaneKind::Opaque => &self.long_running,
        }
    }
}

/// A request in flight at an endpoint. Counted until dropped.
pub(crate) struct EndpointRequest {
    pub(crate) endpoint: Arc<Endpoint>,
    kind: LaneKind,
    admission: Admission,
}

impl std::fmt::Debug for EndpointRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({})", self.endpoint.target.address)
    }
}

impl Drop for EndpointRequest {
    fn drop(&mut self) {
        self.endpoint.in_flight_of(self.kind).fetch_sub(1, Ordering::Relaxed);
        if let Admission::Trial(trial) = self.admission {
            self.endpoint.breaker.gave_up(trial);
        }
    }
}
