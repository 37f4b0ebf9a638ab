//! Confirmation that a cluster's roles and bindings are up to date after lost contact.
//!
//! Roles and bindings from before an outage hold for the objects of that time. After the outage, new objects must not
//! come before the loss of a right: each collection has a watch of its own, and none waits for another. So other
//! collections continue only after all roles and bindings are known to be newer than the outage, and Tributary's own
//! decisions about impersonation wait for it as well.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tributary_cacher::{Cacher, CacherState, Continuity, Precedence};

/// Time limit of an attempt. A kube-apiserver reports progress 1.2 s after the question.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// The pause between two looks while they are not followed. 100 ms: less than it takes to ask.
const PAUSE: Duration = Duration::from_millis(100);

/// State of the cachers of one cluster's roles and bindings. It contains no objects.
#[derive(Debug)]
pub(super) struct Confirmation {
    continuity: Vec<watch::Receiver<Continuity>>,
    /// Time at which they were last known to be complete.
    known: Mutex<Option<Instant>>,
    wanted: Notify,
}

/// Each is of other cachers.
impl PartialEq for Confirmation {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Confirmation {}

impl Confirmation {
    pub(super) fn new(cachers: &[Arc<Cacher>]) -> Arc<Self> {
        let continuity = cachers.iter().map(|cacher| cacher.continuity()).collect();
        Arc::new(Self { continuity, known: Mutex::default(), wanted: Notify::new() })
    }

    /// Whether the cachers are up to date, as far as a follower can know. If not, starts an attempt, so that a repeated
    /// request may succeed soon.
    pub(super) fn counts_now(&self) -> bool {
        let is_confirmed = self.is_confirmed();
        if !is_confirmed {
            self.wanted.notify_one();
        }
        is_confirmed
    }

    fn is_confirmed(&self) -> bool {
        // Read before the time, because later facts belong to a later time.
        let continuity: Vec<_> = self.continuity.iter().map(|own| *own.borrow()).collect();
        are_known(&continuity, *self.known.lock())
    }

    /// Waits until a caller finds that they are not. Cancellation is safe.
    async fn until_awaited(&self) {
        loop {
            self.wanted.notified().await;
            // A second caller may have waited for the attempt that has just ended.
            if !self.is_confirmed() {
                return;
            }
        }
    }
}

/// Whether collections that were complete at this time are complete now: no change from an outage is under way.
fn are_known(continuity: &[Continuity], known: Option<Instant>) -> bool {
    continuity.iter().all(|own| match own {
        Continuity::Broken => false,
        Continuity::Resumed(since) => known.is_some_and(|as_of| as_of >= *since),
        Continuity::Unbroken => true,
    })
}

/// Confirms these cachers whenever a caller waits for it. Runs until it is dropped.
pub(super) async fn confirm(cachers: Vec<Arc<Cacher>>, precedence: Precedence, confirmation: Arc<Confirmation>) {
    loop {
        tokio::select! {
            () = precedence.until_awaited() => {}
            () = confirmation.until_awaited() => {}
        }
        let as_of = loop {
            let begun = Instant::now();
            if are_known_anew(&cachers).await {
                break begun;
            }
            sleep(PAUSE).await;
        };
        *confirmation.known.lock() = Some(as_of);
        precedence.mark_known(as_of);
    }
}

/// Whether all cachers have reached the cluster's state at the begin of this call. All resources of a group in one etcd
/// share revisions, so one question suffices.
async fn are_known_anew(cachers: &[Arc<Cacher>]) -> bool {
    let is_followed = |cacher: &Arc<Cacher>| {
        cacher.state() == CacherState::Synced && *cacher.continuity().borrow() != Continuity::Broken
    };
    let are_followed = || cachers.iter().all(is_followed);
    if !are_followed() {
        return false;
    }
    let Some(Ok(latest)) = (match cachers.first() {
        Some(cacher) => Some(cacher.latest().await),
        None => None,
    }) else {
        return false;
    };
    let reached = join_all(cachers.iter().map(|cacher| cacher.wait_for(latest, ATTEMPT_MAX))).await;
    reached.iter().all(Result::is_ok) && are_followed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_known_before_the_last_loss_of_contact_do_not_count() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let (broken, unbroken) = (Continuity::Broken, Continuity::Unbroken);
        let resumed = |seconds| Continuity::Resumed(at(seconds));
        for (continuity, known, expected) in [
            // All has been listed, and no contact was lost.
            ([unbroken, unbroken], None, true),
            // One watch has broken off, and the cluster answers.
            ([unbroken, broken], None, false),
            ([unbroken, broken], Some(9), false),
            // The watch is open again, and missed changes may be under way.
            ([unbroken, resumed(7)], None, false),
            ([unbroken, resumed(7)], Some(6), false),
            ([unbroken, resumed(7)], Some(7), true),
            ([resumed(8), resumed(7)], Some(7), false),
            ([resumed(8), resumed(7)], Some(8), true),
        ] {
            assert_eq!(are_known(&continuity, known.map(at)), expected, "{continuity:?} {known:?}");
        }
    }
}
