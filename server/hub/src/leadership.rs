//! The right of one replica to write to the hub.

use std::future::{Future, pending};

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The right of this replica to write while it holds the Lease. Clones share one state.
#[derive(Clone, Debug)]
pub struct Leadership(pub(crate) watch::Receiver<Option<Instant>>);

/// The reason why a request was not sent, or was cancelled and may have had its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not hold the Lease of the hub's writers")]
pub(crate) struct NotLeader;

impl Leadership {
    /// Returns whether this replica holds the Lease.
    pub(crate) fn is_leader(&self) -> bool {
        self.end().is_some()
    }

    /// Waits until this replica holds the Lease. Cancel: safe.
    pub(crate) async fn begun(&mut self) {
        let is_ended = self.0.wait_for(|end| end.is_some_and(is_future)).await.is_err();
        if is_ended {
            // The candidate is gone, so this replica never holds the Lease again.
            pending::<()>().await;
        }
    }

    /// Sends a request if this replica holds the Lease, and cancels it at the end of the right to write.
    ///
    /// # Errors
    /// [`NotLeader`].
    pub(crate) async fn send<F: Future>(&self, request: F) -> Result<F::Output, NotLeader> {
        let end = self.end().ok_or(NotLeader)?;
        timeout_at(end, request).await.map_err(|_| NotLeader)
    }

    fn end(&self) -> Option<Instant> {
        self.0.borrow().filter(|end| is_future(*end))
    }
}

fn is_future(end: Instant) -> bool {
    Instant::now() < end
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_is_sent_only_while_the_replica_holds_the_lease() {
        let (candidate, until) = watch::channel(None);
        let mut leadership = Leadership(until);
        assert_eq!(leadership.send(async { "sent" }).await, Err(NotLeader));
        let begun = timeout_at(Instant::now() + Duration::from_secs(60), leadership.begun()).await;
        assert!(begun.is_err() && !leadership.is_leader());

        candidate.send_replace(Some(Instant::now() + Duration::from_secs(10)));
        leadership.begun().await;
        assert_eq!(leadership.send(async { "sent" }).await, Ok("sent"));
        assert_eq!(leadership.send(pending::<()>()).await, Err(NotLeader), "an answer after the end of the Lease");
        assert!(!leadership.is_leader(), "the Lease was not renewed");

        drop(candidate);
        let begun = timeout_at(Instant::now() + Duration::from_secs(60), leadership.begun()).await;
        assert!(begun.is_err(), "the candidate is gone");
    }
}
