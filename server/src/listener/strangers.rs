//! Connections on which nobody is known yet: a part of all, so that whoever has no credential cannot take the room of
//! those who have one. Nor their memory: a cluster may have to be asked who sends a request, and the heads of all that
//! come meanwhile are held.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::bounds::CONNECTIONS_PART;
use super::heads::{AllHeads, ConnectionHeads, HeldHead};

/// The connections on which nobody is known yet. One more than they may be sends away the one that has been so for
/// longest: a client that means to say who it is has done so by then.
#[derive(Debug)]
pub(crate) struct Strangers {
    max: usize,
    waiting: Mutex<Waiting>,
    /// What there is in the heads of their requests.
    heads: AllHeads,
}

/// By the order in which they came.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    connections: BTreeMap<u64, CancellationToken>,
}

/// The place of one connection, until somebody is known on it or it is dropped.
#[derive(Debug)]
pub(crate) struct Stranger {
    number: u64,
    sent_away: CancellationToken,
    among: Arc<Strangers>,
    /// What there is in the heads of its requests.
    heads: ConnectionHeads,
}

impl Strangers {
    /// A part of so many connections.
    pub(super) fn of(connections: usize) -> Arc<Self> {
        Self::at_most((connections / CONNECTIONS_PART).max(1))
    }

    /// So many connections.
    pub(crate) fn at_most(max: usize) -> Arc<Self> {
        Arc::new(Self { max, waiting: Mutex::default(), heads: AllHeads::default() })
    }

    /// Takes in one more, and sends the oldest away where they are too many.
    pub(crate) fn admit(self: &Arc<Self>) -> Stranger {
        let sent_away = CancellationToken::new();
        let mut waiting = self.waiting.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.connections.insert(number, sent_away.clone());
        if waiting.connections.len() > self.max
            && let Some((_, oldest)) = waiting.connections.pop_first()
        {
            oldest.cancel();
        }
        Stranger { number, sent_away, among: Arc::clone(self), heads: self.heads.of_connection() }
    }
}

impl Stranger {
    /// Holds the head of a request of which it is not known yet who sends it, until that is known or it is answered;
    /// `None` where there is no room for it.
    pub(super) fn hold(&self, bytes: usize) -> Option<HeldHead> {
        self.heads.hold(bytes)
    }

    /// Holds what comes of a head that has not ended.
    pub(super) fn begun(&self) -> HeldHead {
        self.heads.begun()
    }

    /// Somebody is known on the connection: it is no stranger's any more. Whoever was sent away stays so.
    pub(super) fn becomes_known(&self) {
        self.among.waiting.lock().connections.remove(&self.number);
    }

    /// Ends when the connection has to make room for another. Cancel: safe.
    pub(crate) async fn sent_away(&self) {
        self.sent_away.cancelled().await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.becomes_known();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_makes_room() {
        let strangers = Strangers::of(8);
        let is_away = |stranger: &Stranger| stranger.sent_away.is_cancelled();
        let (first, second) = (strangers.admit(), strangers.admit());
        first.becomes_known();
        let third = strangers.admit();
        assert!(![&first, &second, &third].into_iter().any(is_away));
        let fourth = strangers.admit();
        assert_eq!([&first, &second, &third, &fourth].map(is_away), [false, true, false, false]);
        drop(third);
        let fifth = strangers.admit();
        assert!(!is_away(&fourth) && !is_away(&fifth));
        assert_eq!(Strangers::of(1).max, 1);
    }
}
