//! Connections without an authenticated request ("strangers"). They get a part of all connections, so that clients
//! without credentials cannot crowd out the others, and a constant number of places for long incomplete heads.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::heads::{AllHeads, ConnectionHeads, HeldHead};
use crate::settings::CONNECTIONS_PART;

/// The most unauthenticated connections with a long incomplete head (`received.rs`). hyper and h2 keep at most 2 MiB of
/// one head, so 64 of them are 128 MiB. A head arrives within a round trip, and heads longer than a TCP segment are
/// rare, so few are incomplete at once unless a client floods.
const LONG_HEADS_MAX: usize = 64;

/// The connections without an authenticated request. A connection beyond the limit closes the oldest one: a client with
/// credentials has sent a request by then.
#[derive(Debug)]
pub(super) struct Strangers {
    connections: Arc<Places>,
    /// The connections with a long incomplete head.
    long_heads: Arc<Places>,
    /// The sizes of the heads of their requests.
    heads: AllHeads,
}

/// A constant number of places for connections. A connection beyond the number closes the oldest one.
#[derive(Debug)]
struct Places {
    max: usize,
    taken: Mutex<TakenPlaces>,
}

/// The taken places, in the order of taking.
#[derive(Debug, Default)]
struct TakenPlaces {
    next: u64,
    connections: BTreeMap<u64, CancellationToken>,
}

/// The place of one connection. Given up when dropped.
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
    /// The sizes of the heads of the connection's requests.
    heads: ConnectionHeads,
}

impl Strangers {
    /// Creates the places: a part of this many connections.
    pub(super) fn with_connections(connections: usize) -> Arc<Self> {
        let connections = Places::at_most((connections / CONNECTIONS_PART).max(1));
        let long_heads = Places::at_most(LONG_HEADS_MAX);
        Arc::new(Self { connections, long_heads, heads: AllHeads::default() })
    }

    /// Admits a connection. Closes the oldest one beyond the limit.
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

    /// Takes a place for a connection, and closes the oldest connection if there are too many.
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
    /// Gives the place up. A connection that was told to close still closes.
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
    /// Counts the head of an unauthenticated request until the returned value is dropped; `None` where there is no
    /// room.
    pub(super) fn hold_head(&self, bytes: usize) -> Option<HeldHead> {
        self.heads.hold_head(bytes)
    }

    /// Takes a place among the long incomplete heads. If there are too many, the oldest of these connections is closed.
    pub(super) fn begin_long_head(&self) -> ConnectionPermit {
        self.among.long_heads.acquire(self.sent_away.clone())
    }

    /// Gives the place up, because the connection is authenticated. A connection that was told to close still closes.
    pub(super) fn becomes_known(&self) {
        self.place.leave();
    }

    /// Completes when the connection has to make room for another one. Cancel: safe.
    pub(super) async fn sent_away(&self) {
        self.sent_away.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_unauthenticated_connection_is_closed_for_a_new_one() {
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
    fn connection_with_the_oldest_long_head_is_closed_for_another() {
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
