//! One address of a cluster, with its connections, load and state.

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
    /// The endpoint has left the list.
    Left,
    /// The configuration drains it.
    Configured,
}

impl DrainCause {
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
    /// Cancelled when the endpoint leaves the list.
    pub(crate) gone: CancellationToken,
    /// Whether the configuration drains it.
    drain: watch::Sender<bool>,
    /// The `Host` header of HTTP/1.1 requests.
    pub(crate) host: HeaderValue,
    pub(crate) pool: Arc<Pool>,
    /// Last answer about the client's own credentials.
    pub(crate) last_question: LastQuestion,
    /// Observer of this address. The cluster's own observer for an only endpoint.
    pub(crate) observer: Arc<Observer>,
    /// Observer of the cluster, if there are several endpoints: an answer counts for both.
    member: Option<Arc<Observer>>,
    /// Long-running answers and tunnels of clients that broke.
    broken: AtomicU64,
    short: Traffic,
    lasting: Traffic,
    requests: AtomicU64,
    /// Duration of the last answer to a probe in microseconds, plus one; 0 before the first.
    latency: AtomicU64,
    /// Wakes the task that asks it our own question.
    suspicion: Notify,
}

/// State of an endpoint at a moment.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Host and port of the server.
    pub address: Arc<str>,
    /// Whether it can be reached.
    pub reachability: Reachability,
    /// Whether the endpoint's last answer to a probe does not say that it is unready.
    pub is_ready: bool,
    /// Requests in flight, watches and tunnels included.
    pub outstanding: usize,
    /// Requests sent to it since the start.
    pub requests: u64,
    /// Answers that clients followed (logs, watches of the member's own view) and tunnels that broke since the start.
    pub broken: u64,
    /// Duration of its last answer to a probe, without the dial; `None` before the first.
    pub latency: Option<Duration>,
    /// Whether it answers Tributary's own questions with errors, so that it gets requests only if no better endpoint is
    /// left. Never for an only endpoint.
    pub is_ejected: bool,
    /// Number of ejections since the start.
    pub ejections: u64,
    /// Reason for which it gets no requests, or only those without a better endpoint; `None` without a known fault.
    pub left_out: Option<LeftOut>,
    /// Number of times that its breaker has opened since the start.
    pub breaker_openings: u64,
}

impl Endpoint {
    pub(crate) fn new(
        target: Arc<ServerUrl>,
        proxy: Option<Uri>,
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

    /// Whether this is the endpoint of an address.
    pub(crate) fn is_at(&self, address: &Target) -> bool {
        self.target.comparable == address.server.comparable && self.proxy == address.proxy
    }

    /// The reason why the endpoint gets no new requests; `None` if it gets requests.
    fn drain_cause(&self) -> Option<DrainCause> {
        match self.gone.is_cancelled() {
            true => Some(DrainCause::Left),
            false => self.is_drained().then_some(DrainCause::Configured),
        }
    }

    /// Returns whether the endpoint may get new requests, apart from its health: the configuration lists it without a
    /// drain.
    pub(crate) fn takes_requests(&self) -> bool {
        self.drain_cause().is_none()
    }

    /// Returns whether the configuration drains the endpoint. A drained endpoint gets probes, but no requests.
    pub(crate) fn is_drained(&self) -> bool {
        *self.drain.borrow()
    }

    /// Starts or ends the drain of the endpoint. Returns whether that is a change.
    pub(crate) fn set_drained(&self, is_drained: bool) -> bool {
        if !is_drained && self.is_drained() {
            self.start_slowly();
        }
        self.drain.send_if_modified(|before| std::mem::replace(before, is_drained) != is_drained)
    }

    /// Waits until the configuration no longer drains it. Cancelling loses nothing.
    pub(crate) async fn is_drained_no_longer(&self) {
        // The sender belongs to this endpoint.
        let mut drain = self.drain.subscribe();
        let _ended = drain.wait_for(|is_drained| !is_drained).await;
    }

    /// Checks whether it may get a new request; a question to exactly this endpoint (`is_to_it`) may go to a drained
    /// one. The request counts as in flight already (`hold`), so a drain that starts now waits for it: the locks give
    /// both an order.
    ///
    /// # Errors
    /// The endpoint takes no new requests.
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

    /// Requests in flight, of all kinds.
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

    /// Reason for which it gets no requests, or only those without a better endpoint.
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

    /// Reason of a drained endpoint, with its reachability.
    fn left_out_by_drain(&self, cause: &str, unreachable: Option<Arc<str>>) -> LeftOut {
        let cause = match unreachable {
            Some(reason) => format!("{cause}; it cannot be reached: {}", self.without_address(&reason)),
            None if !self.observer.is_ready() => format!("{cause}; it says that it is not ready"),
            None => cause.to_owned(),
        };
        LeftOut::new(LeftOutReason::Drain, cause)
    }

    /// Reason of an open breaker, with the cause of unreachability.
    pub(crate) fn left_out_by_breaker(&self, unreachable: Option<Arc<str>>) -> LeftOut {
        let cause = unreachable.map(|reason| self.without_address(&reason));
        LeftOut::new(LeftOutReason::Breaker, cause.unwrap_or_else(|| "it failed several times in a row".into()))
    }

    /// Cause of unreachability in one line, without the address.
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

    /// Starts a question about an object, because a client got an error, or an answer that did not come or broke off.
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

    /// Records an answer: the endpoint, and so the cluster, can be reached.
    pub(crate) fn note_answer(&self) {
        self.observers().for_each(Observer::note_answer);
    }

    /// Something came from it.
    pub(crate) fn heard(&self) {
        self.observers().for_each(Observer::heard);
    }

    /// Records whether it is ready; if it has become ready, requests that wait for the cluster try again.
    pub(crate) fn ready(&self, is_ready: bool) {
        if self.observer.ready(is_ready) {
            self.observers().for_each(Observer::recovered);
        }
    }

    /// Observers of the endpoint and of the cluster. An endpoint without new requests says nothing about a lost
    /// cluster.
    fn observers(&self) -> impl Iterator<Item = &Observer> {
        let member = self.member.as_deref();
        let member = member.filter(|member| !member.is_unreachable() || self.takes_requests());
        std::iter::once(&*self.observer).chain(member)
    }

    /// Records a broken stream of a client: a log, a watch of the cluster's own view, a tunnel.
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

    /// Duration of its last answer to a probe.
    pub(crate) fn latency(&self) -> Option<Duration> {
        self.latency.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_micros)
    }

    /// Records the duration of an answer to a probe.
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

/// Whether an answer with this status may be the endpoint's fault: 501 and 505 concern the request, and a 429 says that
/// the endpoint is busy.
pub(crate) fn is_suspicious(status: StatusCode) -> bool {
    status.is_server_error() && !matches!(status, StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicious_statuses_are_errors_of_the_server() {
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
