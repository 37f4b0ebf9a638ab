//! Notifications about changes of rights, for all watches that depend on rights.
//!
//! Each notified watch checks its user's rights, which takes some microseconds for each group. A user with the right to
//! bind roles in a cluster can cause hundreds of changes in a second. Therefore a sleeping watch wakes only once for
//! all changes within a short time. A watch that has an event to send reads the counter before it sends, so it sees
//! each change at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Minimum time between two notifications of the watches. 200 ms: a tenth of the time within which a lost right has to
/// take effect.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(200);

/// Counter of changes of rights. Clones share the counter.
#[derive(Clone, Default)]
pub(super) struct RightsChanges(Arc<ChangeState>);

#[derive(Default)]
struct ChangeState {
    count: watch::Sender<u64>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    notified: Option<Instant>,
    /// Whether a task waits to send the next notification.
    is_waiting: bool,
}

impl RightsChanges {
    pub(super) fn follow(&self) -> watch::Receiver<u64> {
        self.0.count.subscribe()
    }

    /// Counts a change. Notifies the watches at once, or, soon after an earlier notification, later together with the
    /// following changes.
    pub(super) fn add_change(&self) {
        let mut last = self.0.last.lock();
        // Raises the counter, but does not wake the watches yet.
        self.0.count.send_if_modified(|count| {
            *count += 1;
            false
        });
        if last.is_waiting {
            return;
        }
        let next = last.notified.map(|notified| notified + NOTIFY_INTERVAL).filter(|next| Instant::now() < *next);
        match (next, Handle::try_current()) {
            (Some(next), Ok(runtime)) => {
                last.is_waiting = true;
                let own = self.clone();
                runtime.spawn(async move {
                    sleep_until(next).await;
                    own.send_change(&mut own.0.last.lock());
                });
            }
            _ => self.send_change(&mut last),
        }
    }

    fn send_change(&self, last: &mut Last) {
        *last = Last { notified: Some(Instant::now()), is_waiting: false };
        self.0.count.send_modify(|count| *count += 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn first_rights_change_notifies_at_once_and_later_changes_together() {
        let changes = RightsChanges::default();
        let mut notified = changes.follow();
        let mut is_notified = || {
            let is_notified = notified.has_changed().unwrap();
            notified.mark_unchanged();
            is_notified
        };
        changes.add_change();
        assert!(is_notified());
        for _ in 0..1_000 {
            changes.add_change();
        }
        assert!(!is_notified(), "all of them wait");
        assert!(*changes.follow().borrow() > 1_000, "who looks sees them");
        sleep(2 * NOTIFY_INTERVAL).await;
        assert!(is_notified(), "and none is forgotten");
        sleep(NOTIFY_INTERVAL).await;
        assert!(!is_notified());
        changes.add_change();
        assert!(is_notified(), "nothing was told for a while");
        let mut count = 0;
        for _ in 0..1_000 {
            changes.add_change();
            advance(Duration::from_millis(1)).await;
            count += u32::from(is_notified());
        }
        assert!((4..=6).contains(&count), "{count}");
    }
}
