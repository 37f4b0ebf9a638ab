//! Makes the collections of a member wait for its RBAC collections after a loss of contact.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Makes the collections of a member wait for its RBAC collections, the *preceding collections*. After a loss of
/// contact, no other collection is read until the preceding collections are current again.
///
/// RBAC rules decide which objects are visible, so the rules must not be older than the objects. Clones share the
/// state. By default there are no preceding collections.
#[derive(Clone, Debug, Default)]
pub struct Precedence(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    first: watch::Sender<FirstCollections>,
    wanted: Notify,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FirstCollections {
    #[default]
    Nothing,
    /// All preceding RBAC collections are current as of this time. `None` if contact with one of them was lost, and not
    /// restored.
    Collections(Option<Instant>),
}

impl Precedence {
    /// Declares that no preceding RBAC collections exist any longer, and releases all waiters.
    pub fn nothing(&self) {
        self.set(|_| FirstCollections::Nothing);
    }

    /// Declares that preceding RBAC collections exist. Waiters that were already released are not affected.
    pub fn begin(&self) {
        self.set(|first| match first {
            FirstCollections::Nothing => FirstCollections::Collections(None),
            FirstCollections::Collections(_) => first,
        });
    }

    /// Records a loss of contact with a preceding RBAC collection.
    pub fn lost(&self) {
        self.set(|_| FirstCollections::Collections(None));
    }

    /// Records that all preceding RBAC collections are current as of this time, which releases the waiters for this or
    /// an earlier time. Does nothing if there are no preceding collections.
    pub fn mark_known(&self, as_of: Instant) {
        self.set(|first| match first {
            FirstCollections::Nothing => first,
            FirstCollections::Collections(_) => FirstCollections::Collections(Some(as_of)),
        });
    }

    /// Completes when another collection waits for the preceding RBAC collections. Cancelling loses no wakeup.
    pub async fn until_awaited(&self) {
        self.0.wanted.notified().await;
    }

    /// Waits until the preceding RBAC collections are current as of `moment` or later. Cancelling is safe.
    pub(crate) async fn known_since(&self, moment: Instant) {
        let mut first = self.0.first.subscribe();
        loop {
            match *first.borrow_and_update() {
                FirstCollections::Nothing => return,
                FirstCollections::Collections(Some(as_of)) if as_of >= moment => return,
                FirstCollections::Collections(_) => self.0.wanted.notify_one(),
            }
            if first.changed().await.is_err() {
                return;
            }
        }
    }

    fn set(&self, next: impl FnOnce(FirstCollections) -> FirstCollections) {
        self.0.first.send_if_modified(|first| {
            let next = next(*first);
            std::mem::replace(first, next) != next
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn collection_waits_until_preceding_rbac_collections_are_current() {
        let precedence = Precedence::default();
        let (before, now) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        precedence.known_since(now).await;
        precedence.mark_known(now);
        precedence.begin();
        let waiting = precedence.known_since(now);
        tokio::pin!(waiting);
        assert!(
            futures::poll!(&mut waiting).is_pending(),
            "a time that was recorded without preceding collections does not count"
        );
        precedence.until_awaited().await;
        precedence.mark_known(before);
        assert!(futures::poll!(&mut waiting).is_pending());
        // The waiter still waits, because the RBAC collections are current only as of `before`. So `until_awaited`
        // completes again.
        precedence.until_awaited().await;
        precedence.mark_known(now);
        precedence.begin();
        waiting.await;
        precedence.lost();
        let waiting = precedence.known_since(now);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending(), "contact has been lost in the meantime");
        precedence.nothing();
        waiting.await;
    }
}
