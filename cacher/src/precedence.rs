//! What is to be known of a member before other collections of it are read on.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The collections of a member that come before its others: once contact was lost, no other is read on until these are
/// known anew. Who may see an object is said by other objects, which must not be the older ones. Clones share it.
///
/// By default nothing comes first.
#[derive(Clone, Debug, Default)]
pub struct Precedence(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    first: watch::Sender<FirstCollections>,
    wanted: Notify,
}

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FirstCollections {
    #[default]
    Nothing,
    /// Collections that are known as of this moment at least, or as of some moment before contact was lost.
    Collections(Option<Instant>),
}

impl Precedence {
    /// Nothing comes first, and nobody waits any longer.
    pub fn nothing(&self) {
        self.set(|_| FirstCollections::Nothing);
    }

    /// There are collections that come first. Whoever has waited for them already is not concerned.
    pub fn begin(&self) {
        self.set(|first| match first {
            FirstCollections::Nothing => FirstCollections::Collections(None),
            FirstCollections::Collections(_) => first,
        });
    }

    /// Contact was lost with a collection that comes first.
    pub fn lost(&self) {
        self.set(|_| FirstCollections::Collections(None));
    }

    /// All that come first are known as of this moment, or later. Does nothing where nothing comes first.
    pub fn mark_known(&self, as_of: Instant) {
        self.set(|first| match first {
            FirstCollections::Nothing => first,
            FirstCollections::Collections(_) => FirstCollections::Collections(Some(as_of)),
        });
    }

    /// Ends when somebody waits for them to be known anew. Cancelling loses nothing.
    pub async fn until_wanted(&self) {
        self.0.wanted.notified().await;
    }

    /// Waits until what comes first is known as of a moment behind this one. Cancelling is safe.
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
    async fn what_was_known_before_is_not_enough() {
        let precedence = Precedence::default();
        let (before, now) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        precedence.known_since(now).await;
        precedence.mark_known(now);
        precedence.begin();
        let waiting = precedence.known_since(now);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending(), "what is said while nothing comes first is of no account");
        precedence.until_wanted().await;
        precedence.mark_known(before);
        assert!(futures::poll!(&mut waiting).is_pending());
        // It is said again that somebody waits.
        precedence.until_wanted().await;
        precedence.mark_known(now);
        precedence.begin();
        waiting.await;
        precedence.lost();
        let waiting = precedence.known_since(now);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending(), "contact was lost since");
        precedence.nothing();
        waiting.await;
    }
}
