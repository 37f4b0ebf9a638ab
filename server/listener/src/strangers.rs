//! Connections without an authenticated request ("strangers"). They get only a part of all connection slots, so that
//! clients without credentials cannot displace authenticated clients. They also share a constant number of permits for
//! long incomplete heads.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::heads::{AllHeads, ConnectionHeads, HeldHead};
use crate::settings::CONNECTIONS_PART;

/// The most unauthenticated connections with a long incomplete head (`received.rs`). hyper and h2 store at most 2 MiB
/// of one head, so 64 heads need 128 MiB. A head arrives within a round trip, and few heads are longer than a TCP
/// segment. So few heads are incomplete at the same time unless a client floods.
const LONG_HEADS_MAX: usize = 64;

/// The connections without an authenticated request. A connection above the limit closes the oldest one, because a
/// client with credentials would have sent a request by that time.
#[derive(Debug)]
pub(super) struct Strangers {
    connections: Arc<Places>,
    /// The permits of connections with a long incomplete head.
    long_heads: Arc<Places>,
    /// The sizes of the heads of unauthenticated requests.
    heads: AllHeads,
}

/// A constant number of permits for connections. Acquiring a permit above the number closes the connection with the
/// oldest permit.
#[derive(Debug)]
struct Places {
    max: usize,
    taken: Mutex<TakenPlaces>,
}

/// The acquired connection permits, ordered by age.
#[derive(Debug, Default)]
struct TakenPlaces {
    next: u64,
    connections: BTreeMap<u64, CancellationToken>,
}

/// The permit of one connection. Released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    number: u64,
    among: Arc<Places>,
}

#[derive(Debug)]
pub(super) struct Stranger {
    place: ConnectionPermit,
    sent_away: CancellationToken,
    among: Arc<Strangers>,
    /// The sizes of the heads of the connection's requests.
    heads: ConnectionHeads,
}

impl Strangers {
    /// Creates the permits for unauthenticated connections, as a part of all connections.
    pub(super) fn with_connections(connections: usize) -> Arc<Self> {
        let connections = Places::at_most((connections / CONNECTIONS_PART).max(1));
        let long_heads = Places::at_most(LONG_HEADS_MAX);
        Arc::new(Self { connections, long_heads, heads: AllHeads::default() })
    }

    /// Acquires a permit for a new connection. Above the limit, closes the oldest unauthenticated connection.
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

    /// Acquires a permit. Above the limit, closes the connection with the oldest permit.
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
    /// Releases the permit. A connection that was already told to close still closes.
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
    /// Counts the head of an unauthenticated request until the returned guard is dropped. Returns `None` above the
    /// limit.
    pub(super) fn hold_head(&self, bytes: usize) -> Option<HeldHead> {
        self.heads.hold_head(bytes)
    }

    /// Acquires a permit for a long incomplete head. Above the limit, closes the connection with the oldest permit.
    pub(super) fn begin_long_head(&self) -> ConnectionPermit {
        self.among.long_heads.acquire(self.sent_away.clone())
    }

    /// Releases the permit of a connection that became authenticated. A connection that was already told to close still
    /// closes.
    pub(super) fn becomes_known(&self) {
        self.place.leave();
    }

    /// Completes when the connection must close in favor of a new connection. Cancel: safe.
    pub(super) async fn sent_away(&self) {
        self.sent_away.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_connection_closes_the_oldest_unauthenticated_connection() {
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
    fn new_long_head_closes_the_connection_with_the_oldest() {
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
