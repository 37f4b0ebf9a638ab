//! Connections without an authenticated request. They get only a part of all connection slots, so that clients without
//! credentials cannot displace authenticated clients. They also share a constant number of permits for long incomplete
//! heads.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::heads::{AllHeads, ConnectionHeads, CountedHead};
use crate::settings::UNAUTHENTICATED_DIVISOR;

/// The most unauthenticated connections with a long incomplete head (`byte_counter.rs`). hyper and h2 store at most 2
/// MiB of one head, so 64 heads need 128 MiB. A head arrives within a round trip, and few heads are longer than a TCP
/// segment. Therefore only a flood produces many incomplete heads at the same time.
const LONG_HEADS_MAX: usize = 64;

/// The connections without an authenticated request. A new connection above the limit closes the oldest unauthenticated
/// connection. A client with credentials would already have sent a request on the oldest connection.
#[derive(Debug)]
pub(super) struct UnauthenticatedConnections {
    connections: Arc<ConnectionPermitPool>,
    /// The permits of connections with a long incomplete head.
    long_heads: Arc<ConnectionPermitPool>,
    /// The sizes of the heads of unauthenticated requests.
    heads: AllHeads,
}

/// A constant number of permits for connections. If no permit is free, a new permit closes the connection with the
/// oldest permit.
#[derive(Debug)]
struct ConnectionPermitPool {
    max: usize,
    acquired: Mutex<AcquiredPermits>,
}

/// The acquired connection permits, ordered by age.
#[derive(Debug, Default)]
struct AcquiredPermits {
    next: u64,
    connections: BTreeMap<u64, CancellationToken>,
}

/// The permit of one connection. Released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    number: u64,
    pool: Arc<ConnectionPermitPool>,
}

#[derive(Debug)]
pub(super) struct UnauthenticatedConnection {
    permit: ConnectionPermit,
    evicted: CancellationToken,
    pool: Arc<UnauthenticatedConnections>,
    /// The sizes of the heads of the connection's requests.
    heads: ConnectionHeads,
}

impl UnauthenticatedConnections {
    /// Creates the permits for unauthenticated connections: a quarter of this number of connections.
    pub(super) fn with_connections(connections: usize) -> Arc<Self> {
        let connections = ConnectionPermitPool::at_most((connections / UNAUTHENTICATED_DIVISOR).max(1));
        let long_heads = ConnectionPermitPool::at_most(LONG_HEADS_MAX);
        Arc::new(Self { connections, long_heads, heads: AllHeads::default() })
    }

    /// Acquires a permit for a new connection. Above the limit, closes the oldest unauthenticated connection.
    pub(super) fn admit(self: &Arc<Self>) -> UnauthenticatedConnection {
        let evicted = CancellationToken::new();
        let permit = self.connections.acquire(evicted.clone());
        UnauthenticatedConnection { permit, evicted, pool: Arc::clone(self), heads: self.heads.add_connection() }
    }
}

impl ConnectionPermitPool {
    fn at_most(max: usize) -> Arc<Self> {
        Arc::new(Self { max, acquired: Mutex::default() })
    }

    /// Acquires a permit. Above the limit, closes the connection with the oldest permit.
    fn acquire(self: &Arc<Self>, connection: CancellationToken) -> ConnectionPermit {
        let mut acquired = self.acquired.lock();
        let number = acquired.next;
        acquired.next += 1;
        acquired.connections.insert(number, connection);
        if acquired.connections.len() > self.max
            && let Some((_, oldest)) = acquired.connections.pop_first()
        {
            oldest.cancel();
        }
        ConnectionPermit { number, pool: Arc::clone(self) }
    }
}

impl ConnectionPermit {
    /// Releases the permit. A connection whose close was already requested still closes.
    fn release(&self) {
        self.pool.acquired.lock().connections.remove(&self.number);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.release();
    }
}

impl UnauthenticatedConnection {
    /// Counts the head's bytes of an unauthenticated request until the returned guard is dropped. Returns `None` if the
    /// heads exceed their limit.
    pub(super) fn count_head(&self, bytes: usize) -> Option<CountedHead> {
        self.heads.count_head(bytes)
    }

    /// Acquires a permit for a long incomplete head. Above the limit, closes the connection with the oldest permit.
    pub(super) fn acquire_long_head(&self) -> ConnectionPermit {
        self.pool.long_heads.acquire(self.evicted.clone())
    }

    /// Releases the permit of a connection that became authenticated. A connection whose close was already requested
    /// still closes.
    pub(super) fn release_permit(&self) {
        self.permit.release();
    }

    /// Completes when the connection must close to free its permit for a new connection. Cancel: safe.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_connection_closes_the_oldest_unauthenticated_connection() {
        let unauthenticated_connections = UnauthenticatedConnections::with_connections(8);
        let is_away = |unauthenticated: &UnauthenticatedConnection| unauthenticated.evicted.is_cancelled();
        let (first, second) = (unauthenticated_connections.admit(), unauthenticated_connections.admit());
        first.release_permit();
        let third = unauthenticated_connections.admit();
        assert!(![&first, &second, &third].into_iter().any(is_away));
        let fourth = unauthenticated_connections.admit();
        assert_eq!([&first, &second, &third, &fourth].map(is_away), [false, true, false, false]);
        drop(third);
        let fifth = unauthenticated_connections.admit();
        assert!(!is_away(&fourth) && !is_away(&fifth));
        assert_eq!(UnauthenticatedConnections::with_connections(1).connections.max, 1);
    }

    #[test]
    fn new_long_request_head_closes_the_connection_with_the_oldest_one() {
        let unauthenticated_connections = UnauthenticatedConnections::with_connections(4 * 2 * LONG_HEADS_MAX);
        let connections: Vec<_> = (0..=LONG_HEADS_MAX).map(|_| unauthenticated_connections.admit()).collect();
        let mut places: Vec<_> = connections[1..].iter().map(UnauthenticatedConnection::acquire_long_head).collect();
        drop(places.pop());
        places
            .extend([&connections[LONG_HEADS_MAX], &connections[0]].map(UnauthenticatedConnection::acquire_long_head));
        let away: Vec<_> = connections.iter().map(|unauthenticated| unauthenticated.evicted.is_cancelled()).collect();
        assert_eq!(away.iter().position(|is_away| *is_away), Some(1), "the first that took a place");
        assert_eq!(away.iter().filter(|is_away| **is_away).count(), 1);
    }
}
