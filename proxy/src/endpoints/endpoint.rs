//! One endpoint (address) of a cluster, with its connections, load and state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderValue, StatusCode, Uri};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::ClusterName;

use crate::credentials::credential_check::CredentialCheck;
use crate::endpoints::load::Traffic;
use crate::error::ForwardError;
use crate::health::observer::Observer;
use crate::health::reachability::Reachability;
use crate::health::responder::Responder;
use crate::health::state::{Ejection, Input, State};
use crate::left_out::{LeftOut, LeftOutReason};
use crate::pool::{Pool, StreamClass};
use crate::target::{ServerUrl, Target};

/// The reason why an endpoint gets no new requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainCause {
    Left,
    Configured,
}

impl DrainCause {
    fn as_str(self) -> &'static str {
        match self {
            Self::Left => "the endpoint was removed from the cluster",
            Self::Configured => "the configuration drains the endpoint",
        }
    }
}

pub(crate) struct Endpoint {
    pub(crate) target: Arc<ServerUrl>,
    /// The proxy between Tributary and the server, if any.
    proxy: Option<Uri>,
    /// Cancelled when the endpoint is removed from the list.
    pub(crate) removed: CancellationToken,
    drain: watch::Sender<bool>,
    pub(crate) host: HeaderValue,
    pub(crate) pool: Arc<Pool>,
    /// The last check whether the endpoint accepts Tributary's own credentials.
    pub(crate) credential_check: CredentialCheck,
    /// Observer of this endpoint. A single endpoint uses the observer of the cluster.
    pub(crate) observer: Arc<Observer>,
    /// Observer of the cluster, if there are several endpoints. Each response is recorded for the endpoint and for the
    /// cluster.
    member: Option<Arc<Observer>>,
    /// Number of clients' long-running responses and tunnels that broke at this endpoint.
    broken: AtomicU64,
    short: Traffic,
    long_running: Traffic,
    requests: AtomicU64,
    /// Duration of the last response to a probe in microseconds, plus one; 0 before the first response.
    latency: AtomicU64,
    /// Wakes the task that checks the endpoint with Tributary's own request.
    suspicion: Notify,
}

/// Status of an endpoint at one point in time.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Host and port of the server.
    pub address: Arc<str>,
    /// Whether the endpoint is reachable.
    pub reachability: Reachability,
    /// False if the endpoint's last response to a probe reports that it is not ready.
    pub is_ready: bool,
    /// Number of requests in flight, including watches and tunnels.
    pub outstanding: usize,
    /// Number of requests sent to the endpoint since the start.
    pub requests: u64,
    /// Number of clients' streams that broke since the start: followed logs, watches of the member's own API, and
    /// tunnels.
    pub broken: u64,
    /// Duration of the last response to a probe, without the time for the connection. `None` before the first response.
    pub latency: Option<Duration>,
    /// Whether the endpoint is ejected because it fails Tributary's own requests. It then gets requests only if no
    /// better endpoint is left. Never true for a single endpoint.
    pub is_ejected: bool,
    /// Number of ejections since the start.
    pub ejections: u64,
    /// The reason why the endpoint gets no requests, or gets requests only if no better endpoint is left. `None`
    /// without a known fault.
    pub left_out: Option<LeftOut>,
    /// Number of times that the circuit breaker has opened since the start.
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
            removed: CancellationToken::new(),
            drain: watch::Sender::new(false),
            host,
            pool,
            credential_check: CredentialCheck::default(),
            observer,
            member,
            broken: AtomicU64::default(),
            short: Traffic::default(),
            long_running: Traffic::default(),
            requests: AtomicU64::default(),
            latency: AtomicU64::default(),
            suspicion: Notify::new(),
        }
    }

    pub(crate) fn is_at(&self, address: &Target) -> bool {
        self.target.comparable == address.server.comparable && self.proxy == address.proxy
    }

    /// Returns the reason why the endpoint gets no new requests: it was removed, or the configuration drains it. `None`
    /// otherwise.
    fn drain_cause(&self) -> Option<DrainCause> {
        match self.removed.is_cancelled() {
            true => Some(DrainCause::Left),
            false => self.is_drained().then_some(DrainCause::Configured),
        }
    }

    /// Returns whether the configuration lists the endpoint and does not drain it. The health of the endpoint is
    /// ignored.
    pub(crate) fn accepts_requests(&self) -> bool {
        self.drain_cause().is_none()
    }

    /// Returns whether the configuration drains the endpoint. A drained endpoint gets probes, but no requests.
    pub(crate) fn is_drained(&self) -> bool {
        *self.drain.borrow()
    }

    /// Starts or ends the drain of the endpoint. Returns whether the state has changed.
    pub(crate) fn set_drained(&self, is_drained: bool) -> bool {
        if !is_drained && self.is_drained() {
            self.start_slowly();
        }
        self.drain.send_if_modified(|before| std::mem::replace(before, is_drained) != is_drained)
    }

    /// Waits for the end of the configured drain. Cancel-safe.
    pub(crate) async fn is_drained_no_longer(&self) {
        // The result is ignored, because the wait cannot fail: the channel's sender belongs to this endpoint, so the
        // channel stays open.
        let mut drain = self.drain.subscribe();
        let _ended = drain.wait_for(|is_drained| !is_drained).await;
    }

    /// Checks whether the endpoint may get a new request. A request that names this endpoint (`is_to_it`) may go to it
    /// even while it is drained. The caller has already counted the request as in flight, so a drain that starts now
    /// waits for the request.
    ///
    /// # Errors
    /// An error if the endpoint takes no new requests.
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

    pub(crate) fn in_flight(&self) -> usize {
        self.short.in_flight() + self.long_running.in_flight()
    }

    pub(crate) fn state(&self) -> State {
        self.observer.machine().state(!self.accepts_requests(), Instant::now())
    }

    pub(crate) fn traffic(&self, kind: StreamClass) -> &Traffic {
        match kind {
            StreamClass::Short => &self.short,
            StreamClass::Watch | StreamClass::Streamed => &self.long_running,
        }
    }

    /// Returns whether the endpoint's limit allows another request of this kind in flight.
    pub(crate) fn has_capacity(&self, kind: StreamClass) -> bool {
        let limit = self.observer.tuning.max_in_flight_per_endpoint;
        kind != StreamClass::Short || limit.is_none_or(|limit| self.short.in_flight() < limit)
    }

    /// Counts a request as in flight until the returned guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>, kind: StreamClass) -> EndpointRequest {
        self.traffic(kind).in_flight.fetch_add(1, Ordering::Relaxed);
        EndpointRequest { endpoint: self.clone(), kind }
    }

    /// Returns the reason why the endpoint gets no requests, or gets requests only if no better endpoint is left.
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
            State::Reachable => Some(LeftOut::new(LeftOutReason::Probe, "/readyz reports that it is not ready")),
            State::Ejected(Ejection::Faulty { .. }) => {
                Some(LeftOut::new(LeftOutReason::Outlier, self.observer.fault()?))
            }
            State::Ejected(Ejection::Unreachable) => {
                Some(LeftOut::new(LeftOutReason::Unreachable, self.without_address(&unreachable?)))
            }
        }
    }

    /// Returns why a drained endpoint gets no requests: `cause`, followed by the reason `unreachable` if the endpoint
    /// is also unreachable.
    fn left_out_by_drain(&self, cause: &str, unreachable: Option<Arc<str>>) -> LeftOut {
        let cause = match unreachable {
            Some(reason) => format!("{cause}; the endpoint is unreachable: {}", self.without_address(&reason)),
            None if !self.observer.is_ready() => format!("{cause}; /readyz reports that it is not ready"),
            None => cause.to_owned(),
        };
        LeftOut::new(LeftOutReason::Drain, cause)
    }

    /// Returns why an endpoint with an open circuit breaker gets no requests: the reason `unreachable` or, for a
    /// reachable endpoint, that several requests failed.
    pub(crate) fn left_out_by_breaker(&self, unreachable: Option<Arc<str>>) -> LeftOut {
        let cause = unreachable.map(|reason| self.without_address(&reason));
        LeftOut::new(LeftOutReason::Breaker, cause.unwrap_or_else(|| "several requests in a row failed".into()))
    }

    /// Returns the cause of unreachability in one line, without the endpoint's address.
    fn without_address(&self, reason: &str) -> Arc<str> {
        let known = format!(" cannot be reached at {}: ", self.target.address);
        reason.split_once(&known).map_or(reason, |(_, cause)| cause).into()
    }

    pub(crate) fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the endpoint, or a server in front of the endpoint, sent a response head.
    pub(crate) fn record_response_head(&self, responder: Responder) {
        match responder {
            Responder::Member => self.record_response(),
            Responder::Rejecting => self.record_data(),
            Responder::Intermediary => {}
        }
    }

    pub(crate) fn record_status(&self, status: StatusCode) {
        if is_suspicious(status) {
            self.suspect();
        }
    }

    /// Requests a check of the endpoint with Tributary's own request. Called when a client's request gets an error, a
    /// broken response or no response.
    pub(crate) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Waits for the next call of [`suspect`](Self::suspect). Cancel-safe.
    pub(crate) async fn suspected(&self) {
        self.suspicion.notified().await;
    }

    /// Records the result of Tributary's own request: `fault` describes the failure, and `None` stands for success.
    pub(crate) fn record_own_result(&self, cluster: &ClusterName, fault: Option<&str>) {
        let (before, after) = self.observer.record_own_result(fault);
        let endpoint = &self.target.address;
        match (before.is_faulty(), after.is_faulty()) {
            (false, true) => tracing::warn!(%cluster, %endpoint, reason = fault,
                "an endpoint answers with errors; the other endpoints are used"),
            (true, false) => tracing::info!(%cluster, %endpoint,
                "the endpoint gets a growing part of the requests again"),
            (true, true) | (false, false) => {}
        }
    }

    /// Starts the probation of an endpoint that was added to the list, or whose drain has ended.
    pub(crate) fn start_slowly(&self) {
        self.observer.apply(Input::Start);
    }

    /// Records a response, which shows that the endpoint and its cluster are reachable.
    pub(crate) fn record_response(&self) {
        self.observers().for_each(Observer::record_response);
    }

    /// Records received bytes, which show that the endpoint is alive.
    pub(crate) fn record_data(&self) {
        self.observers().for_each(Observer::record_data);
    }

    /// Records whether the endpoint is ready. When the endpoint becomes ready, requests that wait for the cluster try
    /// again.
    pub(crate) fn ready(&self, is_ready: bool) {
        if self.observer.ready(is_ready) {
            self.observers().for_each(Observer::recovered);
        }
    }

    /// Returns the observers that record a response: those of the endpoint and of the cluster. If the cluster is
    /// unreachable and this endpoint takes no requests, the cluster's observer is omitted. So a response of this
    /// endpoint cannot mark the cluster as reachable while no endpoint takes requests.
    fn observers(&self) -> impl Iterator<Item = &Observer> {
        let member = self.member.as_deref();
        let member = member.filter(|member| !member.is_unreachable() || self.accepts_requests());
        std::iter::once(&*self.observer).chain(member)
    }

    /// Records a client's stream that broke at this endpoint: a log, a watch of the member's own API, or a tunnel.
    pub(crate) fn record_broken_stream(&self, cluster: &ClusterName, error: &str) {
        self.broken.fetch_add(1, Ordering::Relaxed);
        let endpoint = &self.target.address;
        tracing::info!(%cluster, %endpoint, error, "a log, watch or upgraded connection of a client broke off");
    }

    pub(crate) fn status(&self) -> EndpointStatus {
        let machine = self.observer.machine();
        // A separate statement releases the read lock before `left_out` takes the lock of the state machine. The
        // observer takes the two locks in the opposite order, so holding both could deadlock.
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

    pub(crate) fn latency(&self) -> Option<Duration> {
        self.latency.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_micros)
    }

    pub(crate) fn record_latency(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX - 1);
        self.latency.store(took.saturating_add(1), Ordering::Relaxed);
    }
}

/// A request in flight at an endpoint. Counted until dropped.
pub(crate) struct EndpointRequest {
    pub(crate) endpoint: Arc<Endpoint>,
    kind: StreamClass,
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

/// Returns whether a response with this status may be the endpoint's fault. 501 and 505 are faults of the request, and
/// 429 means that the endpoint is busy.
pub(crate) fn is_suspicious(status: StatusCode) -> bool {
    status.is_server_error() && !matches!(status, StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_5xx_errors_are_attributed_to_the_endpoint() {
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
