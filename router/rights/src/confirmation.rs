//! Confirmation that a cluster's mirrored roles and bindings are up to date after lost contact.
//!
//! Roles and bindings from before an outage are consistent with the objects from before the outage. After the outage, a
//! client must not get new objects before a lost right takes effect. Each collection has its own watch, and the watches
//! resume independently. Therefore the watches of all other collections resume only after the roles and bindings are
//! newer than the outage. Tributary's own decisions about impersonation wait as well.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tributary_cacher::{Cacher, CacherState, Continuity, Precedence};

/// Time limit of one attempt to confirm the cachers. A kube-apiserver reports watch progress 1.2 s after a request for
/// progress.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// Pause between two attempts while a cacher has no open watch. 100 ms is less than an attempt takes.
const PAUSE: Duration = Duration::from_millis(100);

/// State of one cluster's cachers of roles and bindings: whether they are up to date. Contains no objects.
#[derive(Debug)]
pub(super) struct Confirmation {
    continuity: Vec<watch::Receiver<Continuity>>,
    /// Latest time at which all cachers are known to have had all changes of the cluster.
    known: Mutex<Option<Instant>>,
    wanted: Notify,
}

/// Two confirmations are equal only if they are the same allocation, because each belongs to its own cachers.
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

    /// Returns whether the cachers are up to date. If not, starts an attempt to confirm them, so that a repeated
    /// request may succeed soon.
    pub(super) fn counts_now(&self) -> bool {
        let is_confirmed = self.is_confirmed();
        if !is_confirmed {
            self.wanted.notify_one();
        }
        is_confirmed
    }

    fn is_confirmed(&self) -> bool {
        // Reads the confirmed time last, so that a confirmation between the two reads has an effect.
        let continuity: Vec<_> = self.continuity.iter().map(|own| *own.borrow()).collect();
        are_known(&continuity, *self.known.lock())
    }

    /// Waits until a caller needs a confirmation that is missing. Cancellation is safe.
    async fn until_awaited(&self) {
        loop {
            self.wanted.notified().await;
            // The attempt that has just ended may also have confirmed the cachers for this caller.
            if !self.is_confirmed() {
                return;
            }
        }
    }
}

/// Returns whether the cachers have all changes now. `known` is the latest time at which they had all changes. A cacher
/// whose watch resumed after `known` may lack changes of an outage.
fn are_known(continuity: &[Continuity], known: Option<Instant>) -> bool {
    continuity.iter().all(|own| match own {
        Continuity::Broken => false,
        Continuity::Resumed(since) => known.is_some_and(|as_of| as_of >= *since),
        Continuity::Unbroken => true,
    })
}

/// Confirms the cachers whenever a caller, or a watch of another collection, waits for a confirmation. Runs until
/// dropped.
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

/// Returns whether all cachers have reached the state that the cluster had at the start of this call. One read of the
/// latest revision suffices for all cachers, because all resources of an API group in one etcd share revisions.
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
    fn confirmation_of_roles_expires_when_a_watch_resumes_later() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let (broken, unbroken) = (Continuity::Broken, Continuity::Unbroken);
        let resumed = |seconds| Continuity::Resumed(at(seconds));
        for (continuity, known, expected) in [
            ([unbroken, unbroken], None, true),
            ([unbroken, broken], None, false),
            ([unbroken, broken], Some(9), false),
            // The interrupted watch is open again, but missed changes may not have arrived yet.
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
