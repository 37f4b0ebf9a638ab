//! Whether a cluster's roles and bindings are known as they are now, after contact with it was lost.
//!
//! What they were while it was cut off holds for its objects of that time. When it is there again its objects must not
//! come before the loss of a right to them: each collection is followed by a watch of its own, and none waits for
//! another. So other collections are read on only once all roles and bindings are known as of a moment behind the loss.
//! And what the cluster does not judge itself is not judged by them before that, either.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tributary_cacher::{Cacher, CacherState, Continuity, Precedence};

/// How long an attempt may take. A kube-apiserver tells of progress 1.2 s after it was asked.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// The pause between two looks while they are not followed. 100 ms: less than it takes to ask.
const PAUSE: Duration = Duration::from_millis(100);

/// What the cachers of one cluster's roles and bindings are known to hold. It holds none of them itself.
#[derive(Debug)]
pub(super) struct Confirmation {
    continuity: Vec<watch::Receiver<Continuity>>,
    /// As of when they were last found to hold all there was.
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

    /// Whether they hold what the cluster holds, as far as anybody who follows it can know that. Where they do not it
    /// is found out when they do: what somebody asks for again can be judged by them again soon.
    pub(super) fn counts_now(&self) -> bool {
        let is_confirmed = self.is_confirmed();
        if !is_confirmed {
            self.wanted.notify_one();
        }
        is_confirmed
    }

    fn is_confirmed(&self) -> bool {
        // First what arrives: what has become known behind that is as of later.
        let continuity: Vec<_> = self.continuity.iter().map(|own| *own.borrow()).collect();
        are_known(&continuity, *self.known.lock())
    }

    /// Ends when somebody has found that they do not. Cancelling is safe.
    async fn until_wanted(&self) {
        loop {
            self.wanted.notified().await;
            // Others may have asked for it while it was found out.
            if !self.is_confirmed() {
                return;
            }
        }
    }
}

/// Whether collections are known as they are now that were last known all at this moment: no change is on its way that
/// was made while there was no contact.
fn are_known(continuity: &[Continuity], known: Option<Instant>) -> bool {
    continuity.iter().all(|own| match own {
        Continuity::Broken => false,
        Continuity::Resumed(since) => known.is_some_and(|as_of| as_of >= *since),
        Continuity::Unbroken => true,
    })
}

/// Says what these cachers hold to be known whenever somebody waits for that. Runs until it is dropped.
pub(super) async fn confirm(cachers: Vec<Arc<Cacher>>, precedence: Precedence, confirmation: Arc<Confirmation>) {
    loop {
        tokio::select! {
            () = precedence.until_wanted() => {}
            () = confirmation.until_wanted() => {}
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

/// Whether all of them hold what the cluster held when this began. Revisions are shared by all resources of a group
/// that is stored in one etcd, so one question will do.
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
    fn what_was_known_before_the_last_loss_is_not_known_now() {
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
            // It is open again, and what was missed may still be on its way.
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
