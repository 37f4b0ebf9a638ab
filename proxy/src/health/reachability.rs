//! Whether a member, or one of its endpoints, can be reached, as its own traffic and its `/readyz` show it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use tokio::sync::watch;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::ClusterName;

use crate::error::ForwardError;
use crate::obstacle::Obstacle;

/// What is known of a member.
#[derive(Clone, Debug)]
pub struct Reachability {
    /// The state.
    pub state: ReachabilityState,
    /// When the state was entered.
    pub since: Instant,
    /// When it last said anything before that; `None` if it never has.
    pub heard: Option<Instant>,
    /// When it last said that it is ready, once that is more than 10 s ago and it says that it is not. A member is as
    /// ready as its readiest endpoint.
    pub unready_since: Option<Instant>,
    /// How often it has become well: it could be reached again, or was ready again. Whoever waits out a failure need
    /// not wait any longer when this has grown.
    pub recoveries: u64,
}

/// The state of a [`Reachability`].
#[derive(Clone, Debug)]
pub enum ReachabilityState {
    /// Nothing has been asked of it yet.
    Unknown,
    /// The last dial, request or question for `/readyz` got an answer.
    Reachable,
    /// The last dial failed, a connection went silent, `/readyz` was not answered and nothing else came, or the member
    /// rejects our credentials.
    Unreachable {
        /// Why, in one line, for people.
        reason: Arc<str>,
        /// The class of the failure, for `tributary status`.
        obstacle: Obstacle,
    },
}

impl Reachability {
    /// True after an answer, false after a failure and before the first try.
    pub fn is_reachable(&self) -> bool {
        matches!(self.state, ReachabilityState::Reachable)
    }
}

/// How long a member may say that it is not ready before that is known of it. 10 s, from when it last was: as long as
/// one may be silent before readers are told, and longer than the hooks of a kube-apiserver take that starts.
pub(crate) const UNREADY_AFTER: Duration = Duration::from_secs(10);

const UNKNOWN: u8 = 0;
const REACHABLE: u8 = 1;
const UNREACHABLE: u8 = 2;

/// Collects successes and failures; publishes changes of the state. Whoever follows them tells people.
#[derive(Debug)]
pub(crate) struct Observer {
    cluster: ClusterName,
    /// The published state without its lock: the request path reads only this.
    state: AtomicU8,
    started: Instant,
    /// When it last said anything: milliseconds since `started`, plus one; 0 is never.
    last_heard: AtomicU64,
    /// Whether it has not said that it is not ready.
    is_ready: AtomicBool,
    /// When it was last ready, as [`last_heard`](Self::last_heard); of one that never was, when it first said so.
    last_ready: AtomicU64,
    /// Whether it cannot be reached for its not accepting our credentials.
    is_rejecting: AtomicBool,
    sender: watch::Sender<Reachability>,
}

impl Observer {
    pub(crate) fn new(cluster: ClusterName) -> Self {
        let started = Instant::now();
        let (sender, _) = watch::channel(Reachability {
            state: ReachabilityState::Unknown,
            since: started,
            heard: None,
            unready_since: None,
            recoveries: 0,
        });
        let (state, last_heard, last_ready) = (AtomicU8::new(UNKNOWN), AtomicU64::new(0), AtomicU64::new(0));
        let (is_ready, is_rejecting) = (AtomicBool::new(true), AtomicBool::new(false));
        Self { cluster, state, started, last_heard, is_ready, last_ready, is_rejecting, sender }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Reachability> {
        self.sender.subscribe()
    }

    /// When the member last said anything.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        self.time(&self.last_heard)
    }

    /// The time that is kept there, if there is one.
    fn time(&self, kept: &AtomicU64) -> Option<Instant> {
        let after = kept.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.started + Duration::from_millis(after))
    }

    /// Keeps this moment there.
    fn keep_now(&self, kept: &AtomicU64) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        kept.store(now + 1, Ordering::Relaxed);
    }

    /// Whether the last that is known is that it cannot be reached.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.state.load(Ordering::Relaxed) == UNREACHABLE
    }

    /// For how long the member has been unreachable, and why; `None` if it is not known to be.
    pub(crate) fn unreachable_for(&self) -> Option<(Duration, Arc<str>)> {
        if !self.is_unreachable() {
            return None;
        }
        let known = self.sender.borrow();
        match &known.state {
            ReachabilityState::Unreachable { reason, .. } => Some((known.since.elapsed(), reason.clone())),
            _ => None,
        }
    }

    /// Something came from the member.
    pub(crate) fn heard(&self) {
        self.keep_now(&self.last_heard);
    }

    /// The member says whether it is ready. Gives whether it has become so.
    pub(crate) fn ready(&self, is_ready: bool) -> bool {
        let was_ready = self.is_ready.swap(is_ready, Ordering::Relaxed);
        if is_ready || self.time(&self.last_ready).is_none() {
            self.keep_now(&self.last_ready);
        }
        let since = self.time(&self.last_ready).filter(|since| !is_ready && since.elapsed() >= UNREADY_AFTER);
        self.sender.send_if_modified(|known| std::mem::replace(&mut known.unready_since, since) != since);
        is_ready && !was_ready
    }

    /// Whether it has not said that it is not ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// Whether the last that is known is that it does not accept our credentials.
    pub(crate) fn is_rejecting(&self) -> bool {
        self.is_rejecting.load(Ordering::Relaxed)
    }

    /// Whoever waits out a failure of it is to try again.
    pub(crate) fn recovered(&self) {
        self.sender.send_modify(|known| known.recoveries += 1);
    }

    /// The member answered.
    pub(crate) fn answered(&self) {
        self.heard();
        self.is_rejecting.store(false, Ordering::Relaxed);
        if self.state.load(Ordering::Relaxed) != REACHABLE {
            self.publish(REACHABLE, ReachabilityState::Reachable);
        }
    }

    /// A request failed. Only failures that say something about the member, not about one request, count.
    pub(crate) fn failed(&self, error: &ForwardError) {
        if error.means_unreachable() {
            self.is_rejecting.store(matches!(error, ForwardError::Unauthorized { .. }), Ordering::Relaxed);
            self.lost(error.to_string(), error.obstacle());
        }
    }

    /// The member cannot be reached, or is silent.
    pub(crate) fn unreachable(&self, reason: String) {
        self.lost(reason, Obstacle::Network);
    }

    /// Notes that the member is out of reach. A later reason replaces an earlier one: a member that restarts may first
    /// refuse connections and then reject our credentials.
    pub(crate) fn lost(&self, reason: String, obstacle: Obstacle) {
        if !self.is_unreachable() {
            self.publish(UNREACHABLE, ReachabilityState::Unreachable { reason: reason.into(), obstacle });
            return;
        }
        self.sender.send_if_modified(|known| match &mut known.state {
            ReachabilityState::Unreachable { reason: before, obstacle: obstacle_before } if **before != *reason => {
                (*before, *obstacle_before) = (reason.into(), obstacle);
                true
            }
            _ => false,
        });
    }

    fn publish(&self, code: u8, state: ReachabilityState) {
        self.sender.send_if_modified(|current| {
            // Two requests may come here at once: the channel's lock decides which of them makes the change.
            if self.state.swap(code, Ordering::Relaxed) == code {
                return false;
            }
            match &state {
                ReachabilityState::Unreachable { reason, .. } => {
                    tracing::debug!(cluster = %self.cluster, %reason, "cluster became unreachable");
                }
                _ => tracing::debug!(cluster = %self.cluster, "cluster is reachable"),
            }
            let recoveries = current.recoveries + u64::from(code == REACHABLE);
            let unready_since = current.unready_since;
            *current = Reachability { state, since: Instant::now(), heard: self.heard_at(), unready_since, recoveries };
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn that_it_is_not_ready_is_known_once_it_is_more_than_a_moment() {
        let observer = Observer::new(ClusterName::new("a").unwrap());
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
        observer.answered();
        assert_eq!(since(), Some(ready_at), "that it answers does not say that it is");
        assert!(observer.ready(true));
        assert_eq!(since(), None);
        // One that never was counts from its first word.
        let observer = Observer::new(ClusterName::new("b").unwrap());
        tokio::time::advance(Duration::from_secs(60)).await;
        observer.ready(false);
        assert_eq!(observer.subscribe().borrow().unready_since, None);
        tokio::time::advance(UNREADY_AFTER).await;
        observer.ready(false);
        assert_eq!(observer.subscribe().borrow().unready_since, Some(Instant::now() - UNREADY_AFTER));
    }

    #[test]
    fn the_latest_reason_counts_and_the_first_time() {
        let observer = Observer::new(ClusterName::new("a").unwrap());
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
        observer.answered();
        assert!(known.borrow().is_reachable());
        assert_eq!(known.borrow().recoveries, 1);
    }
}
