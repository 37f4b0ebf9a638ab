//! One address of a member: its connections, its load, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderValue, StatusCode, Uri};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::ClusterName;

use crate::credentials::last_question::LastQuestion;
use crate::endpoints::load::Traffic;
use crate::error::ForwardError;
use crate::health::observer::Observer;
use crate::health::reachability::Reachability;
use crate::health::speaker::Speaker;
use crate::health::state::{Ejection, Input, State};
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
    short: Traffic,
    lasting: Traffic,
    requests: AtomicU64,
    /// How long its last answer to our own question took, in microseconds, plus one; 0 before the first.
    latency: AtomicU64,
    /// Wakes the task that asks it our own question.
    suspicion: Notify,
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
        observer: Arc<Observer>,
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
            short: Traffic::default(),
            lasting: Traffic::default(),
            requests: AtomicU64::default(),
            latency: AtomicU64::default(),
            suspicion: Notify::new(),
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
        self.short.in_flight() + self.lasting.in_flight()
    }

    pub(crate) fn state(&self) -> State {
        self.observer.machine().state(!self.takes_requests(), Instant::now())
    }

    /// The requests of this kind, in flight and answered.
    pub(crate) fn traffic(&self, kind: LaneKind) -> &Traffic {
        match kind {
            LaneKind::Short => &self.short,
            LaneKind::Watch | LaneKind::Opaque => &self.lasting,
        }
    }

    /// Whether another request of this kind may be in flight.
    pub(crate) fn has_room(&self, kind: LaneKind) -> bool {
        let limit = self.observer.tuning.max_in_flight_per_endpoint;
        kind != LaneKind::Short || limit.is_none_or(|limit| self.short.in_flight() < limit)
    }

    /// Counts a request as in flight for as long as the guard lives.
    pub(crate) fn begin_request(self: &Arc<Self>, kind: LaneKind) -> EndpointRequest {
        self.traffic(kind).in_flight.fetch_add(1, Ordering::Relaxed);
        EndpointRequest { endpoint: self.clone(), kind }
    }

    /// Why it is given no requests, or only those for which no other is left.
    pub(crate) fn left_out(&self) -> Option<LeftOut> {
        let unreachable = self.observer.unreachable_for().map(|(_, reason)| reason);
        if let Some(cause) = self.drain_cause() {
            return Some(self.left_out_by_drain(cause.as_str(), unreachable));
        }
        if self.observer.retry_after().is_some() {
            return Some(self.left_out_by_breaker(unreachable));
        }
        match self.state() {
            State::Ready | State::Probation { .. } | State::Drained => None,
            State::Reachable => Some(LeftOut::new(LeftOutReason::Probe, "it says that it is not ready")),
            State::Ejected(Ejection::Faulty { .. }) => {
                Some(LeftOut::new(LeftOutReason::Outlier, self.observer.fault()?))
            }
            State::Ejected(Ejection::Unreachable) => {
                Some(LeftOut::new(LeftOutReason::Unreachable, self.without_address(&unreachable?)))
            }
        }
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
            Speaker::Member => self.note_answer(),
            Speaker::Rejecting => self.heard(),
            Speaker::Intermediary => {}
        }
    }

    /// Notes the status of an answer to a request.
    pub(crate) fn gave(&self, status: StatusCode) {
        if is_suspicious(status) {
            self.suspect();
        }
    }

    /// Has the endpoint asked our own question: a client got an error, or an answer that did not come or broke off.
    pub(crate) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Waits for the next [suspicion](Self::suspect). Cancelling loses nothing.
    pub(crate) async fn suspected(&self) {
        self.suspicion.notified().await;
    }

    /// Notes a fault in an answer to our own question, or that the answer was good.
    pub(crate) fn judged(&self, cluster: &ClusterName, fault: Option<&str>) {
        let (before, after) = self.observer.judged(fault);
        let endpoint = &self.target.address;
        match (before.is_faulty(), after.is_faulty()) {
            (false, true) => tracing::warn!(%cluster, %endpoint, reason = fault,
                "an endpoint does not answer as it should; the others are used"),
            (true, false) => tracing::info!(%cluster, %endpoint, "the endpoint is used again, little by little"),
            (true, true) | (false, false) => {}
        }
    }

    /// Begins the probation of an endpoint that gets requests from now on.
    pub(crate) fn start_slowly(&self) {
        self.observer.apply(Input::Start);
    }

    /// It answers: so it can be reached, and the member by it.
    pub(crate) fn note_answer(&self) {
        self.observers().for_each(Observer::note_answer);
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
        let machine = self.observer.machine();
        // The read lock ends with this statement. The observer takes its write lock while it holds the lock of the
        // machine, which `left_out` takes.
        let reachability = self.observer.subscribe().borrow().clone();
        EndpointStatus {
            address: self.target.address.clone(),
            reachability,
            is_ready: machine.is_ready,
            outstanding: self.in_flight(),
            requests: self.requests.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            latency: self.latency(),
            is_ejected: machine.is_faulty(),
            ejections: machine.ejections,
            left_out: self.left_out(),
            breaker_openings: machine.openings,
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
        self.endpoint.traffic(self.kind).in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether an answer of this status is an error by which the endpoint may be at fault: 501 and 505 are about the
/// request, and a 429 says that the endpoint is busy.
pub(crate) fn is_suspicious(status: StatusCode) -> bool {
    status.is_server_error() && !matches!(status, StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_server_are_suspicious() {
        for (status, expected) in [
            (200, false),
            (403, false),
            (429, false),
            (500, true),
            (501, false),
            (502, true),
            (503, true),
            (505, false),
        ] {
            assert_eq!(is_suspicious(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }
}
