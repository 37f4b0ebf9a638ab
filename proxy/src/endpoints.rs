//! Endpoints (addresses) of one cluster, and the choice of an endpoint for a request.
//!
//! Each endpoint has a state (`health/state.rs`). Requests go to ready endpoints; an endpoint on probation gets a
//! growing part. An endpoint that is not ready, or that fails Tributary's own requests, gets requests only if no better
//! endpoint is left. If all endpoints are unreachable, a request tries all endpoints at once, except endpoints with an
//! open circuit breaker. Of two endpoints of the same rank, the endpoint with less load gets the request (`load.rs`).
//! Watches and short requests are compared separately. A drained endpoint gets only probes.
//!
//! This module does not use tower's `Balance`, which needs `&mut self`, so that every request would pass through one
//! task. `Balance` also polls services for readiness, while connections here open on demand, and drops a failed
//! service. Its `PeakEwma` uses the peak latency: one client's long list would count for all requests.

pub(crate) mod candidates;
pub(crate) mod criteria;
pub(crate) mod destination;
pub(crate) mod endpoint;
pub(crate) mod endpoint_maker;
pub(crate) mod failures;
pub(crate) mod load;

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::{StatusCode, Uri};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::ClusterName;

use crate::endpoints::candidates::Candidates;
use crate::endpoints::criteria::{EndpointCriteria, PreviousAttempt};
use crate::endpoints::destination::{Destination, EndpointSubset};
use crate::endpoints::endpoint::{Endpoint, EndpointRequest, EndpointStatus};
use crate::endpoints::failures::{Failures, are_lost, none_can_be_reached};
use crate::endpoints::load::is_about_object;
use crate::error::ForwardError;
use crate::failure_class::FailureClass;
use crate::health::observer::Observer;
use crate::health::reachability::{Reachability, ReachabilityState};
use crate::health::settings::ANSWER_WITHIN;
use crate::permit_pool::RequestOrigin;
use crate::pool::{PoolKey, StreamClass};

/// Time for which a request waits for a connection to one endpoint if another endpoint may have a connection. 1 s:
/// longer than a handshake with a server on another continent. After one such wait the endpoint is treated as
/// unreachable, so later requests do not wait.
const DIAL_WAIT_MIN: Duration = Duration::from_secs(1);

/// A request waits for a connection as long as the last connection attempt (dial) took, times this factor, and at least
/// [`DIAL_WAIT_MIN`]. 2: slow handshakes are no fault, and their duration varies by less than a factor of 2.
const DIAL_WAIT_FACTOR: u32 = 2;

/// Time limit of requests in flight at a drained endpoint. 1 h: the longest duration of a watch at a kube-apiserver,
/// twice the default of `--min-request-timeout`.
const DRAIN_LIMIT: Duration = Duration::from_secs(3600);

/// Interval at which a drained endpoint is checked for remaining requests in flight.
const DRAIN_INTERVAL: Duration = Duration::from_secs(1);

/// The endpoints in the order of the configuration; at least one.
type EndpointList = Arc<ArcSwap<Vec<Arc<Endpoint>>>>;

pub(crate) struct Endpoints {
    cluster: ClusterName,
    all: EndpointList,
    member: Arc<Observer>,
    /// Whether the configuration had several endpoints at the start. If so, each endpoint has a separate state, and the
    /// list may change.
    has_endpoint_list: bool,
    /// Start index of the next choice. It grows with each request, so that equal endpoints are used alternately.
    rotation: AtomicUsize,
    changes: watch::Sender<()>,
    /// Drained endpoints. The same set applies after the list was replaced.
    drained: Mutex<EndpointSubset>,
    leaving: Mutex<Vec<Weak<Endpoint>>>,
    /// Number of connections that were opened to endpoints that are removed now, plus the number of removed endpoints.
    /// So every removal changes the result of `connections_made`.
    removed_connections: AtomicU64,
}

impl Endpoints {
    /// Creates the list. If the list has several endpoints, a task observes each endpoint. `observer` is the observer
    /// of the cluster.
    pub(crate) fn new(all: Vec<Arc<Endpoint>>, cluster: &ClusterName, observer: &Arc<Observer>) -> Self {
        let endpoints = Self {
            cluster: cluster.clone(),
            has_endpoint_list: all.len() > 1,
            all: Arc::new(ArcSwap::from_pointee(all)),
            member: observer.clone(),
            rotation: AtomicUsize::new(0),
            changes: watch::Sender::new(()),
            drained: Mutex::default(),
            leaving: Mutex::default(),
            removed_connections: AtomicU64::new(0),
        };
        if endpoints.has_endpoint_list {
            endpoints.all().iter().for_each(|endpoint| endpoints.spawn_monitor(endpoint));
        }
        endpoints
    }

    fn spawn_monitor(&self, endpoint: &Arc<Endpoint>) {
        let tended = EndpointMonitor {
            cluster: self.cluster.clone(),
            all: Arc::downgrade(&self.all),
            address: endpoint.target.address.clone(),
            removed: endpoint.removed.clone(),
            member: self.member.clone(),
        };
        tokio::spawn(tended.run(endpoint.observer.subscribe()));
    }

    pub(crate) fn all(&self) -> Arc<Vec<Arc<Endpoint>>> {
        self.all.load_full()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(crate) fn has_endpoint_list(&self) -> bool {
        self.has_endpoint_list
    }

    /// Replaces the list. Removed endpoints get no new requests, and their requests in flight may end. New endpoints
    /// start on probation.
    pub(crate) fn replace(&self, endpoints: Vec<Arc<Endpoint>>) {
        let before = self.all();
        let is_in = |list: &[Arc<Endpoint>], one: &Arc<Endpoint>| list.iter().any(|other| Arc::ptr_eq(other, one));
        for new in endpoints.iter().filter(|one| !is_in(&before, one)) {
            new.start_slowly();
            self.spawn_monitor(new);
        }
        let removed: Vec<_> = before.iter().filter(|one| !is_in(&endpoints, one)).cloned().collect();
        let drained = self.drained.lock();
        self.drain(&endpoints, &drained);
        self.all.store(Arc::new(endpoints));
        drop(drained);
        let mut leaving = self.leaving.lock();
        leaving.retain(|before| before.strong_count() > 0);
        for endpoint in removed {
            self.removed_connections.fetch_add(endpoint.pool.connections_made() + 1, Ordering::Relaxed);
            endpoint.removed.cancel();
            leaving.push(Arc::downgrade(&endpoint));
            tracing::info!(cluster = %self.cluster, endpoint = %endpoint.target.address, in_flight = endpoint.in_flight(),
                "an endpoint was removed from the cluster; its requests in flight may end");
            tokio::spawn(close_when_drained(self.cluster.clone(), endpoint));
        }
        drop(leaving);
        self.mark_lost_without_endpoints("all reachable endpoints were removed from the cluster");
        self.changes.send_replace(());
    }

    /// Sets the drained endpoints. A drained endpoint gets only probes, and its requests in flight may end.
    pub(crate) fn set_drained(&self, drained: &EndpointSubset) {
        let mut before = self.drained.lock();
        if *before == *drained {
            return;
        }
        *before = drained.clone();
        self.drain(&self.all(), &before);
        drop(before);
        if self.has_endpoint_list {
            self.mark_lost_without_endpoints("all reachable endpoints are drained");
        }
    }

    /// Drains the endpoints in the set. Ends the drain of all endpoints outside of the set.
    fn drain(&self, endpoints: &[Arc<Endpoint>], drained: &EndpointSubset) {
        for endpoint in endpoints {
            let is_drained = drained.includes(&endpoint.target);
            if !endpoint.set_drained(is_drained) {
                continue;
            }
            let (address, in_flight) = (&endpoint.target.address, endpoint.in_flight());
            if is_drained {
                tracing::info!(cluster = %self.cluster, endpoint = %address, in_flight,
                    "an endpoint is drained; its requests in flight may end");
                let (cluster, endpoint) = (self.cluster.clone(), Arc::clone(endpoint));
                tokio::spawn(async move {
                    let given_up = endpoint.clone();
                    tokio::select! {
                        () = close_when_drained(cluster, endpoint) => {}
                        () = given_up.is_drained_no_longer() => {}
                        // For a removed endpoint, a separate task waits for the requests in flight.
                        () = given_up.removed.cancelled() => {}
                    }
                });
            } else {
                tracing::info!(cluster = %self.cluster, endpoint = %address, "the endpoint is no longer drained");
            }
        }
    }

    /// Reports the cluster as unreachable, for this `reason`, if none of its endpoints is reachable.
    fn mark_lost_without_endpoints(&self, reason: &str) {
        let all = self.all();
        if are_lost(&all) && !self.member.is_unreachable() {
            self.member.unreachable(none_can_be_reached(&self.cluster, all.len(), reason));
        }
        self.record_readiness(&self.member);
    }

    pub(crate) fn statuses(&self) -> Vec<EndpointStatus> {
        self.all.load().iter().map(|endpoint| endpoint.status()).collect()
    }

    /// Closes the connections and streams of all endpoints, including removed endpoints.
    pub(crate) fn cut(&self) {
        self.all().iter().for_each(|endpoint| endpoint.pool.cut());
        self.leaving.lock().iter().filter_map(Weak::upgrade).for_each(|endpoint| endpoint.pool.cut());
    }

    pub(crate) fn leaving(&self) -> Vec<EndpointStatus> {
        self.leaving.lock().iter().filter_map(Weak::upgrade).map(|endpoint| endpoint.status()).collect()
    }

    /// Returns the number of HTTP/2 connections that were opened so far, plus one for each removed endpoint. As long as
    /// the number is unchanged, the same servers answer.
    pub(crate) fn connections_made(&self) -> u64 {
        let now = self.all.load().iter().map(|endpoint| endpoint.pool.connections_made()).sum::<u64>();
        now + self.removed_connections.load(Ordering::Relaxed)
    }

    /// Checks that the request's path can be appended to the URL of each endpoint.
    pub(crate) fn check(&self, uri: &Uri) -> Result<(), &'static str> {
        self.all.load().iter().try_for_each(|endpoint| endpoint.target.check(uri))
    }

    /// Opens a connection or stream at the best endpoint. Tries the next endpoint if the best endpoint is unreachable
    /// or was removed.
    ///
    /// # Errors
    /// The endpoint's error if the cluster has a single endpoint. [`ForwardError::NoEndpoint`] for several endpoints,
    /// or for endpoints that a policy chose.
    pub(crate) async fn open<T, F: Future<Output = Result<T, ForwardError>>>(
        &self,
        (kind, origin): (StreamClass, RequestOrigin),
        destination: &Destination,
        tried: &PreviousAttempt,
        open: impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<(EndpointRequest, T), ForwardError> {
        let criteria = EndpointCriteria { kind, origin, destination, tried };
        loop {
            let all = self.all();
            match self.open_among(&all, criteria, &open).await {
                // The list was replaced during the attempt, so the loop tries the endpoints of the new list.
                Err(_) if !Arc::ptr_eq(&all, &self.all()) => {}
                opened => return opened,
            }
        }
    }

    /// Like [`open`](Self::open), but only at these endpoints, which may be removed during the attempts.
    async fn open_among<T, F: Future<Output = Result<T, ForwardError>>>(
        &self,
        all: &Arc<Vec<Arc<Endpoint>>>,
        criteria: EndpointCriteria<'_>,
        open: &impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<(EndpointRequest, T), ForwardError> {
        if criteria.has_limits() {
            self.check_load(all, criteria.kind)?;
        }
        let begin = |endpoint| self.begin(endpoint, all.len(), criteria, open);
        match (criteria.destination, all.as_slice()) {
            (Destination::Any | Destination::At(_), [only]) if !criteria.tried.was_answered_at(only) => {
                return match criteria.has_capacity_at(only) {
                    true => begin(only).await,
                    false => Err(failures::full(&self.cluster, only)),
                };
            }
            (Destination::At(place), all) => {
                let endpoint = &all[(*place).min(all.len() - 1)];
                return begin(endpoint).await.map_err(|error| {
                    // One endpoint's fault is no fault of the cluster, so the error names the endpoint.
                    let mut failures = Failures::new(&self.cluster);
                    failures.add_failure(endpoint, error);
                    failures.into_error(&self.all.load(), &self.member, false)
                });
            }
            (Destination::Any | Destination::Chosen(_), _) => {}
        }
        let mut failures = Failures::new(&self.cluster);
        let mut candidates = Candidates::among(all, criteria, &self.cluster, &mut failures);
        while let Some((endpoint, has_another)) = candidates.next(self.rotation.fetch_add(1, Ordering::Relaxed)) {
            match opened_in_time(endpoint, has_another, begin(endpoint)).await {
                Some(Ok(opened)) => return Ok(opened),
                Some(Err(error)) if error.is_endpoint_failure() => failures.add_failure(endpoint, error),
                Some(Err(error)) => return Err(error),
                None => candidates.postpone(endpoint),
            }
        }
        // If the list was replaced meanwhile, the remaining endpoints are not tried: the caller continues with the
        // endpoints of the new list.
        let rest = if Arc::ptr_eq(all, &self.all.load()) { candidates.remaining() } else { Vec::new() };
        let mut tries: FuturesUnordered<_> =
            rest.into_iter().map(|endpoint| begin(endpoint).map(move |opened| (endpoint, opened))).collect();
        while let Some((endpoint, opened)) = tries.next().await {
            match opened {
                Ok(opened) => return Ok(opened),
                Err(error) => failures.add_failure(endpoint, error),
            }
        }
        let is_chosen = matches!(criteria.destination, Destination::Chosen(_));
        Err(failures.into_error(&self.all.load(), &self.member, is_chosen))
    }

    /// Opens a connection or stream at one of several endpoints, unless the endpoint's circuit breaker refuses the
    /// request.
    async fn begin<T, F: Future<Output = Result<T, ForwardError>>>(
        &self,
        endpoint: &Arc<Endpoint>,
        count: usize,
        criteria: EndpointCriteria<'_>,
        open: &impl Fn(Arc<Endpoint>) -> F,
    ) -> Result<(EndpointRequest, T), ForwardError> {
        if criteria.has_limits() && !endpoint.observer.admit() {
            return Err(failures::open_breaker(&self.cluster, endpoint, count));
        }
        let request = endpoint.begin_request(criteria.kind);
        // The request already counts as in flight, so a drain that starts now waits for the request.
        endpoint.check_drain(&self.cluster, criteria.has_fixed_endpoint())?;
        let opened = open(Arc::clone(endpoint)).await?;
        endpoint.check_drain(&self.cluster, criteria.has_fixed_endpoint())?;
        Ok((request, opened))
    }

    /// Returns whether responses to requests of this origin change the measured load of an endpoint. True for clients'
    /// requests to a cluster with several endpoints.
    pub(crate) fn measures_load(&self, origin: RequestOrigin) -> bool {
        origin == RequestOrigin::Client && self.has_endpoint_list
    }

    /// Records the status and the duration of a response for the load of the endpoint. `None` as the status means a
    /// broken connection.
    pub(crate) fn record_response(
        &self,
        endpoint: &Endpoint,
        pool_key: PoolKey,
        status: Option<StatusCode>,
        took: Duration,
    ) {
        debug_assert!(self.measures_load(pool_key.origin), "nobody compares them by what {pool_key:?} is answered");
        let is_error = status.is_none_or(|status| status.is_client_error() || status.is_server_error());
        // A 5xx, a 429 or a broken connection is the server's fault. Any other error status concerns the watch itself:
        // each endpoint would refuse the watch.
        let is_of_server =
            status.is_none_or(|status| status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS);
        let (answers, now) = (&endpoint.traffic(pool_key.stream_class).answers, Instant::now());
        match pool_key.stream_class {
            StreamClass::Short if status.is_some_and(is_about_object) => {}
            StreamClass::Short if is_error => {
                if let Some(usual) = self.usual_latency(now) {
                    answers.lock().record_error(took, usual, now);
                }
            }
            StreamClass::Short => answers.lock().record_success(took, now),
            StreamClass::Watch if is_of_server => answers.lock().record_refused_watch(now),
            // Other results are ignored: an error of a watch concerns its resource, and a workload may cause an error
            // of a stream.
            StreamClass::Watch | StreamClass::Streamed => {}
        }
    }

    /// Returns the mean latency of short requests in seconds, over all endpoints that answered recently.
    fn usual_latency(&self, now: Instant) -> Option<f64> {
        let all = self.all.load();
        let known =
            all.iter().filter_map(|endpoint| endpoint.traffic(StreamClass::Short).answers.lock().latency(1, now));
        let (sum, count) = known.fold((0.0, 0.0), |(sum, count), latency| (sum + latency.ln(), count + 1.0));
        (count > 0.0).then(|| (sum / count).exp())
    }

    /// Returns whether an endpoint other than `than`, without known faults, could take a request of this kind.
    pub(crate) fn has_another(
        &self,
        than: &Arc<Endpoint>,
        (kind, origin): (StreamClass, RequestOrigin),
        destination: &Destination,
    ) -> bool {
        let all = self.all.load();
        let has_limits = origin != RequestOrigin::Ourselves;
        if matches!(destination, Destination::At(_)) || (has_limits && self.check_load(&all, kind).is_err()) {
            return false;
        }
        let is_let_in =
            |other: &Endpoint| !has_limits || (other.has_capacity(kind) && other.observer.retry_after().is_none());
        all.iter().any(|other| {
            !Arc::ptr_eq(other, than)
                && other.state().is_good()
                && is_let_in(other)
                && destination.includes(&other.target)
        })
    }

    /// Returns the configured limit of clients' short requests in flight, over all endpoints. This is the cluster's
    /// limit, or the limit for each endpoint times the number of endpoints that take requests, whichever is smaller. An
    /// endpoint with an open circuit breaker takes no requests.
    pub(crate) fn short_max(&self) -> Option<usize> {
        let all = self.all.load();
        let tuning = &all.first()?.observer.tuning;
        let takes =
            |endpoint: &&Arc<Endpoint>| endpoint.state().is_usable() && endpoint.observer.retry_after().is_none();
        let of_each = |each: usize| each.saturating_mul(all.iter().filter(takes).count().max(1));
        let at_each = tuning.max_in_flight_per_endpoint.map(of_each);
        tuning.max_in_flight.into_iter().chain(at_each).min()
    }

    /// Checks that the short requests in flight at all endpoints are fewer than the cluster's limit.
    ///
    /// # Errors
    /// [`ForwardError::Full`] if the limit is reached.
    fn check_load(&self, all: &[Arc<Endpoint>], kind: StreamClass) -> Result<(), ForwardError> {
        let Some(limit) = all.first().and_then(|endpoint| endpoint.observer.tuning.max_in_flight) else {
            return Ok(());
        };
        let in_flight = || all.iter().map(|endpoint| endpoint.traffic(kind).in_flight()).sum::<usize>();
        match kind {
            StreamClass::Short if in_flight() >= limit => Err(ForwardError::Full {
                cluster: self.cluster.clone(),
                what: "requests in flight that circuitBreaker.maxRequestsInflight allows",
                limit,
            }),
            StreamClass::Short | StreamClass::Watch | StreamClass::Streamed => Ok(()),
        }
    }

    /// Records whether at least one of several endpoints is ready. A single endpoint and its cluster have the same
    /// observer, so nothing is recorded for them.
    pub(crate) fn record_readiness(&self, member: &Observer) {
        if self.has_endpoint_list {
            let all = self.all.load();
            // If all endpoints are drained, the cluster counts as ready, because no probe has reported the opposite.
            let are_drained = all.iter().all(|endpoint| !endpoint.accepts_requests());
            let is_ready = |endpoint: &Arc<Endpoint>| endpoint.state().is_usable() && endpoint.observer.is_ready();
            member.ready(are_drained || all.iter().any(is_ready));
        }
    }
}

/// Waits for a connection to an endpoint. The wait has a time limit if a second endpoint is available. Returns `None`
/// at the time limit. The endpoint is then marked as unreachable, unless it sent bytes during the wait.
async fn opened_in_time<T>(
    endpoint: &Endpoint,
    has_another: bool,
    opening: impl Future<Output = Result<T, ForwardError>>,
) -> Option<Result<T, ForwardError>> {
    if !has_another {
        return Some(opening.await);
    }
    let (begun, dialed) = (Instant::now(), endpoint.pool.dialed());
    let dial_wait = dial_wait(endpoint.pool.last_dial_took());
    if let Ok(opened) = timeout(dial_wait, opening).await {
        return Some(opened);
    }
    // A new connection may take long although the endpoint is alive: several connections may open one after the other,
    // or responses may arrive on other streams during a slow handshake.
    let has_sent_data = endpoint.observer.last_data_at().is_some_and(|last_data_at| last_data_at >= begun);
    if !has_sent_data && endpoint.pool.dialed() == dialed {
        let (address, dial_wait) = (&endpoint.target.address, dial_wait.as_secs_f32());
        endpoint.observer.unreachable(format!("no connection to {address} within {dial_wait:.1} s"));
    }
    None
}

/// Returns how long a request waits for a connection to an endpoint whose last connection attempt took
/// `last_dial_took`. At most the time limit of a probe, because the probe detects longer silence.
fn dial_wait(last_dial_took: Duration) -> Duration {
    (last_dial_took * DIAL_WAIT_FACTOR).clamp(DIAL_WAIT_MIN, ANSWER_WITHIN)
}

/// Waits until a drained or removed endpoint has no requests in flight, then closes its connections. Aborts the
/// remaining requests after the time limit.
async fn close_when_drained(cluster: ClusterName, endpoint: Arc<Endpoint>) {
    let limit = Instant::now() + DRAIN_LIMIT;
    while endpoint.in_flight() > 0 && Instant::now() < limit {
        sleep(DRAIN_INTERVAL).await;
    }
    let (address, in_flight) = (&endpoint.target.address, endpoint.in_flight());
    tracing::info!(%cluster, endpoint = %address, in_flight, "the endpoint is drained: its connections are closed");
    endpoint.pool.cut();
}

struct EndpointMonitor {
    cluster: ClusterName,
    all: Weak<ArcSwap<Vec<Arc<Endpoint>>>>,
    address: Arc<str>,
    /// Cancelled when the endpoint is removed from the list.
    removed: CancellationToken,
    member: Arc<Observer>,
}

impl EndpointMonitor {
    /// Logs when the endpoint becomes unreachable and when it returns. Marks the cluster as lost if no endpoint is
    /// reachable. Ends when the endpoints are dropped.
    ///
    /// Handles several fast changes as one change, because each check reads the current state of all endpoints.
    async fn run(self, mut reachability: watch::Receiver<Reachability>) {
        let mut is_reported = false;
        loop {
            let state = reachability.borrow_and_update().state.clone();
            match state {
                ReachabilityState::Unreachable { reason, failure_class } => {
                    self.record_loss(&reason, failure_class, is_reported);
                    is_reported = true;
                }
                ReachabilityState::Reachable if is_reported => {
                    self.back();
                    is_reported = false;
                }
                ReachabilityState::Reachable | ReachabilityState::Unknown => {}
            }
            tokio::select! {
                changed = reachability.changed() => if changed.is_err() {
                    return;
                },
                () = self.removed.cancelled() => return,
            }
        }
    }

    fn record_loss(&self, reason: &str, failure_class: FailureClass, is_reported: bool) {
        let Some(all) = self.all.upgrade() else { return };
        let all = all.load();
        let others = all.iter().filter(|endpoint| endpoint.state().is_usable()).count();
        if !is_reported {
            let endpoint = &self.address;
            tracing::warn!(cluster = %self.cluster, %endpoint, reason, others,
                "an endpoint is unreachable; the other endpoints are used");
        }
        if are_lost(&all) {
            self.member.record_loss(none_can_be_reached(&self.cluster, all.len(), reason), failure_class);
        }
    }

    fn back(&self) {
        tracing::info!(cluster = %self.cluster, endpoint = %self.address, "the endpoint is reachable again");
    }
}

#[cfg(test)]
mod tests {
    use kube::config::AuthInfo;

    use super::*;
    use crate::credentials::certificate::Certificate;
    use crate::endpoints::endpoint_maker::EndpointMaker;
    use crate::health::settings::BreakerTuning;
    use crate::health::state::Input;
    use crate::target::{Address, targets};
    use crate::tuning::ClientTuning;

    #[tokio::test(start_paused = true)]
    async fn request_limit_of_a_member_excludes_endpoints_with_an_open_circuit_breaker() {
        let cluster = ClusterName::new("a").unwrap();
        let [first, second] = [1, 2].map(|port| format!("http://127.0.0.1:{port}").parse::<Uri>().unwrap());
        let config = kube::Config::new(first);
        let breaker = BreakerTuning { max_in_flight_per_endpoint: Some(7), ..BreakerTuning::default() };
        let (failures, open_for) = (breaker.consecutive_failures, breaker.open_for);
        let member = Arc::new(Observer::new(cluster.clone(), BreakerTuning::default()));
        let maker = EndpointMaker {
            cluster: &cluster,
            config: &config,
            tuning: &ClientTuning { breaker, ..ClientTuning::default() },
            certificate: &Certificate::configured(&AuthInfo::default()),
            server_identities: &Arc::default(),
            connector: None,
            uid: None,
            member: &member,
            is_one_of_several: true,
        };
        let mut all = Vec::new();
        for target in targets(&cluster, &config, &[Address::from(second)]).unwrap() {
            all.push(maker.make(target).await.unwrap());
        }
        let endpoints = Endpoints::new(all, &cluster, &member);
        assert_eq!(endpoints.short_max(), Some(14));
        for _ in 0..failures {
            endpoints.all()[0].observer.apply(Input::Failure);
        }
        assert_eq!(endpoints.short_max(), Some(7));
        tokio::time::advance(open_for).await;
        assert_eq!(endpoints.short_max(), Some(14), "it may be tried again");
    }
}
