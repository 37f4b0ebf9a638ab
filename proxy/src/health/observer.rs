//! Health of a cluster, or of one of its endpoints. The observer records results of requests and probes, and publishes
//! changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::ClusterName;

use crate::error::ForwardError;
use crate::failure_class::FailureClass;
use crate::health::reachability::{Reachability, ReachabilityState};
use crate::health::settings::BreakerTuning;
use crate::health::state::{Input, Machine};

/// Time for which a cluster may be not ready before subscribers are notified. 10 s since the last ready response: as
/// long as a cluster may be silent, and longer than the start hooks of a kube-apiserver.
pub(crate) const UNREADY_AFTER: Duration = Duration::from_secs(10);

/// Health of one endpoint, or of a member. A member with a single endpoint has one observer for both.
pub(crate) struct Observer {
    cluster: ClusterName,
    pub(crate) tuning: BreakerTuning,
    known: Mutex<Known>,
    /// Whether a successful response would leave the state unchanged. A cache of the state machine's answer: most
    /// requests read only this flag, without the lock.
    is_settled: AtomicBool,
    started: Instant,
    /// Time of the last received bytes: milliseconds since `started`, plus one; 0 for never.
    last_data_millis: AtomicU64,
    /// Whether the endpoint was marked as unreachable because it rejects Tributary's credentials.
    is_rejecting: AtomicBool,
    sender: watch::Sender<Reachability>,
}

#[derive(Debug, Default)]
struct Known {
    machine: Machine,
    /// The last failure of Tributary's own request.
    fault: Option<Arc<str>>,
    /// Time of the last ready response. Before any ready response, the time of the first response.
    ready_at: Option<Instant>,
}

impl Observer {
    pub(crate) fn new(cluster: ClusterName, tuning: BreakerTuning) -> Self {
        let (state, since) = (ReachabilityState::Unknown, Instant::now());
        let unknown = Reachability { state, since, last_data_at: None, unready_since: None, recoveries: 0 };
        Self {
            cluster,
            tuning,
            known: Mutex::default(),
            is_settled: AtomicBool::new(false),
            started: since,
            last_data_millis: AtomicU64::new(0),
            is_rejecting: AtomicBool::new(false),
            sender: watch::Sender::new(unknown),
        }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Reachability> {
        self.sender.subscribe()
    }

    pub(crate) fn machine(&self) -> Machine {
        self.known.lock().machine
    }

    /// Returns whether the endpoint is ready, according to its last probe. True before the first probe.
    pub(crate) fn is_ready(&self) -> bool {
        self.machine().is_ready
    }

    pub(crate) fn is_rejecting(&self) -> bool {
        self.is_rejecting.load(Ordering::Relaxed)
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        !self.is_settled.load(Ordering::Relaxed) && self.machine().is_unreachable()
    }

    /// Returns how long the endpoint has been unreachable, and the reason. `None` for a reachable endpoint.
    pub(crate) fn unreachable_for(&self) -> Option<(Duration, Arc<str>)> {
        if self.is_settled.load(Ordering::Relaxed) {
            return None;
        }
        let known = self.sender.borrow();
        match &known.state {
            ReachabilityState::Unreachable { reason, .. } => Some((known.since.elapsed(), reason.clone())),
            ReachabilityState::Unknown | ReachabilityState::Reachable => None,
        }
    }

    pub(crate) fn fault(&self) -> Option<Arc<str>> {
        self.known.lock().fault.clone()
    }

    pub(crate) fn last_data_at(&self) -> Option<Instant> {
        let after = self.last_data_millis.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.started + Duration::from_millis(after))
    }

    /// Returns whether a client's request may be sent: the circuit breaker is closed, or allows a trial request.
    pub(crate) fn admit(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed) || self.known.lock().machine.admit(&self.tuning, Instant::now())
    }

    /// Returns the time until a client's request may be sent. `None` if a client's request may be sent now.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        if self.is_settled.load(Ordering::Relaxed) { None } else { self.machine().retry_after(Instant::now()) }
    }

    /// Applies an event that does not change the published reachability.
    pub(crate) fn apply(&self, input: Input) {
        self.apply_to(&mut self.known.lock().machine, input);
    }

    fn apply_to(&self, machine: &mut Machine, input: Input) {
        machine.apply(input, &self.tuning, Instant::now());
        let is_reachable = matches!(input, Input::Answer) || self.is_settled.load(Ordering::Relaxed);
        self.is_settled.store(is_reachable && machine.is_settled(), Ordering::Relaxed);
    }

    /// Records received bytes, perhaps from a server in front of the member.
    pub(crate) fn record_data(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.last_data_millis.store(now + 1, Ordering::Relaxed);
        if !self.is_settled.load(Ordering::Relaxed) {
            self.apply(Input::Sign);
        }
    }

    pub(crate) fn record_response(&self) {
        self.record_data();
        self.is_rejecting.store(false, Ordering::Relaxed);
        if !self.is_settled.load(Ordering::Relaxed) {
            let mut known = self.known.lock();
            // The event is applied before the state is published. The publication wakes waiting requests, and the
            // circuit breaker must already admit them.
            self.apply_to(&mut known.machine, Input::Answer);
            self.publish(ReachabilityState::Reachable);
        }
    }

    /// Records whether the endpoint is ready. Returns true if the endpoint has become ready.
    pub(crate) fn ready(&self, is_ready: bool) -> bool {
        let mut known = self.known.lock();
        let was_ready = known.machine.is_ready;
        self.apply_to(&mut known.machine, Input::Ready(is_ready));
        if is_ready || known.ready_at.is_none() {
            known.ready_at = Some(Instant::now());
        }
        let since = known.ready_at.filter(|since| !is_ready && since.elapsed() >= UNREADY_AFTER);
        self.sender.send_if_modified(|known| std::mem::replace(&mut known.unready_since, since) != since);
        is_ready && !was_ready
    }

    /// Records the result of Tributary's own request: a failure, or success. Returns the state machine before and after
    /// the change.
    pub(crate) fn record_own_result(&self, fault: Option<&str>) -> (Machine, Machine) {
        let mut known = self.known.lock();
        let before = known.machine;
        known.fault = fault.map(Arc::from).or(known.fault.take());
        self.apply_to(&mut known.machine, Input::Judgment { is_good: fault.is_none() });
        (before, known.machine)
    }

    /// Wakes the tasks that wait for a recovery.
    pub(crate) fn recovered(&self) {
        self.sender.send_modify(|known| known.recoveries += 1);
    }

    /// Records a failed request. The failure is ignored unless it concerns the whole cluster.
    pub(crate) fn record_failure(&self, error: &ForwardError) {
        if error.means_unreachable() {
            self.is_rejecting.store(matches!(error, ForwardError::Unauthorized { .. }), Ordering::Relaxed);
            self.record_loss(error.to_string(), error.failure_class());
        }
    }

    pub(crate) fn unreachable(&self, reason: String) {
        self.record_loss(reason, FailureClass::Network);
    }

    pub(crate) fn record_loss(&self, reason: String, failure_class: FailureClass) {
        let mut known = self.known.lock();
        self.apply_to(&mut known.machine, Input::Loss);
        self.publish(ReachabilityState::Unreachable { reason: reason.into(), failure_class });
    }

    /// Publishes a state. The caller holds the lock of the state machine. A later reason replaces an earlier reason,
    /// because a restarting member may first refuse connections and then reject credentials.
    fn publish(&self, state: ReachabilityState) {
        use ReachabilityState::{Reachable, Unreachable};
        self.sender.send_if_modified(|known| {
            let is_new_reason = match (&known.state, &state) {
                (Reachable, Reachable) => return false,
                (Unreachable { reason: before, .. }, Unreachable { reason, .. }) => Some(before != reason),
                _ => None,
            };
            if let Some(is_new_reason) = is_new_reason {
                known.state = state;
                return is_new_reason;
            }
            tracing::debug!(cluster = %self.cluster, ?state, "the reachability has changed");
            let recoveries = known.recoveries + u64::from(matches!(state, Reachable));
            let (since, last_data_at, unready_since) = (Instant::now(), self.last_data_at(), known.unready_since);
            *known = Reachability { state, since, last_data_at, unready_since, recoveries };
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn endpoint_is_published_as_unready_after_ten_seconds() {
        let observer = Observer::new(ClusterName::new("a").unwrap(), BreakerTuning::default());
        let known = observer.subscribe();
        let since = || known.borrow().unready_since;
        assert!(!observer.ready(true));
        let ready_at = Instant::now();
        for _ in 0..9 {
            tokio::time::advance(Duration::from_secs(1)).await;
            observer.ready(false);
            assert_eq!((since(), observer.is_ready()), (None, false));
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        observer.ready(false);
        assert_eq!(since(), Some(ready_at), "as of when it was");
        observer.unreachable("refused".to_owned());
        observer.record_response();
        assert_eq!(since(), Some(ready_at), "that it answers does not say that it is");
        assert!(observer.ready(true));
        assert_eq!(since(), None);
        // An endpoint that has never been ready is published as not ready since its first response.
        let observer = Observer::new(ClusterName::new("b").unwrap(), BreakerTuning::default());
        tokio::time::advance(Duration::from_secs(60)).await;
        observer.ready(false);
        assert_eq!(observer.subscribe().borrow().unready_since, None);
        tokio::time::advance(UNREADY_AFTER).await;
        observer.ready(false);
        assert_eq!(observer.subscribe().borrow().unready_since, Some(Instant::now() - UNREADY_AFTER));
    }

    #[test]
    fn repeated_failure_keeps_the_start_of_the_outage_and_updates_its_reason() {
        let observer = Observer::new(ClusterName::new("a").unwrap(), BreakerTuning::default());
        let known = observer.subscribe();
        let reason = || match &known.borrow().state {
            ReachabilityState::Unreachable { reason, .. } => reason.to_string(),
            _ => String::new(),
        };
        observer.unreachable("refused".to_owned());
        let since = known.borrow().since;
        assert_eq!(reason(), "refused");
        observer.unreachable("401".to_owned());
        assert_eq!((reason(), known.borrow().since), ("401".to_owned(), since));
        observer.record_response();
        assert!(known.borrow().is_reachable());
        assert_eq!(known.borrow().recoveries, 1);
    }
}
