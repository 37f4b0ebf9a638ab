//! Connections without an authenticated request: a part of all connections, so that clients without a credential cannot
//! take the room of those with one, and a constant number of places for long heads that have not ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::heads::{AllHeads, ConnectionHeads, HeldHead};
use crate::settings::CONNECTIONS_PART;

/// The connections without an authenticated request that may have received a long part of a head which has not ended
/// (`received.rs`). hyper and h2 keep 2 MiB of one at most, so 64 of them are 128 MiB. A head arrives within a round
/// trip, and longer ones than a segment of TCP are rare, so few are unfinished at once unless somebody floods.
const LONG_HEADS_MAX: usize = 64;

/// The connections without an authenticated request. The oldest is closed for one more: a client with credentials has
/// sent a request by then.
#[derive(Debug)]
pub(super) struct Strangers {
    connections: Arc<Places>,
    /// The connections with a long head that has not ended.
    long_heads: Arc<Places>,
    /// What there is in the heads of their requests.
    heads: AllHeads,
}

/// A constant number of places for connections. The oldest connection is closed for one more.
#[derive(Debug)]
struct Places {
    max: usize,
    taken: Mutex<TakenPlaces>,
}

/// The places that are taken, in the order of taking.
#[derive(Debug, Default)]
struct TakenPlaces {
    next: u64,
    connections: BTreeMap<u64, CancellationToken>,
}

/// The place of one connection, until dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    number: u64,
    among: Arc<Places>,
}

/// A connection without an authenticated request.
#[derive(Debug)]
pub(super) struct Stranger {
    place: ConnectionPermit,
    sent_away: CancellationToken,
    among: Arc<Strangers>,
    /// What there is in the heads of its requests.
    heads: ConnectionHeads,
}

impl Strangers {
    /// A part of so many connections.
    pub(super) fn with_connections(connections: usize) -> Arc<Self> {
        let connections = Places::at_most((connections / CONNECTIONS_PART).max(1));
        let long_heads = Places::at_most(LONG_HEADS_MAX);
        Arc::new(Self { connections, long_heads, heads: AllHeads::default() })
    }

    /// Takes in one more, and sends the oldest away where they are too many.
    pub(super) fn admit(self: &Arc<Self>) -> Stranger {
        let sent_away = CancellationToken::new();
        let place = self.connections.acquire(sent_away.clone());
        Stranger { place, sent_away, among: Arc::clone(self), heads: self.heads.of_connection() }
    }
}

impl Places {
    fn at_most(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// Takes a place for a connection, and closes the oldest connection where there are too many.
    fn acquire(self: &Arc<Self>, connection: CancellationToken) -> ConnectionPermit {
        let mut taken = self.taken.lock();
        let number = taken.next;
        taken.next += 1;
        taken.connections.insert(number, connection);
        if taken.connections.len() > self.max
            && let Some((_, oldest)) = taken.connections.pop_first()
        {
            oldest.cancel();
        }
        ConnectionPermit { number, among: Arc::clone(self) }
    }
}

impl ConnectionPermit {
    /// Gives the place up. The connection stays closed if it was.
    fn leave(&self) {
        self.among.taken.lock().connections.remove(&self.number);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Stranger {
    /// Holds the head of a request of which it is not known yet who sends it, until that is known or it is answered;
    /// `None` where there is no room for it.
    pub(super) fn hold_head(&self, bytes: usize) -> Option<HeldHead> {
        self.heads.hold_head(bytes)
    }

    /// Takes a place among the long heads that have not ended. The oldest connection among them is sent away if there
    /// are too many.
    pub(super) fn begin_long_head(&self) -> ConnectionPermit {
        self.among.long_heads.acquire(self.sent_away.clone())
    }

    /// Somebody is known on the connection: it is no stranger's any more. Whoever was sent away stays so.
    pub(super) fn becomes_known(&self) {
        self.place.leave();
    }

    /// Ends when the connection has to make room for another. Cancel: safe.
    pub(super) async fn sent_away(&self) {
        self.sent_away.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_makes_room() {
        let strangers = Strangers::with_connections(8);
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
        assert_eq!(Strangers::with_connections(1).connections.max, 1);
    }

    #[test]
    fn the_oldest_long_head_makes_room() {
        let strangers = Strangers::with_connections(4 * 2 * LONG_HEADS_MAX);
        let connections: Vec<_> = (0..=LONG_HEADS_MAX).map(|_| strangers.admit()).collect();
        let mut places: Vec<_> = connections[1..].iter().map(Stranger::begin_long_head).collect();
        drop(places.pop());
        places.extend([&connections[LONG_HEADS_MAX], &connections[0]].map(Stranger::begin_long_head));
        let away: Vec<_> = connections.iter().map(|stranger| stranger.sent_away.is_cancelled()).collect();
        assert_eq!(away.iter().position(|is_away| *is_away), Some(1), "the first that took a place");
        assert_eq!(away.iter().filter(|is_away| **is_away).count(), 1);
    }
}
