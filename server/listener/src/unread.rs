//! The unread bytes of all connections together, and the limit for one connection.
//!
//! Connections share the limit ([`FairShare`]): a connection may use half of the bytes that the other connections leave
//! free. A connection cannot give back bytes that it has accepted. So if few bytes are free, a connection with at least
//! its fair share of the bytes is closed sooner than other connections when its client reads nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use tributary_limiters::FairShare;

use crate::heads::AllHeads;
use crate::settings::CONNECTION_UNREAD_BYTES_MAX;

/// The unread bytes that are always allowed on a connection, in bytes. With 64 KiB, four frames, an active reader never
/// waits for clients that do not read.
const OWN_BYTES: usize = 64 << 10;

/// Counts the unread bytes of all connections against a limit.
///
/// The limit never delays active readers: a connection with few unread bytes always gets its next piece. So each
/// connection may increase the sum beyond the limit by one piece.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    bytes: Gauge,
    bytes_max: usize,
    /// The number of connections with unread bytes.
    unread_connections: Arc<AtomicUsize>,
    /// The heads of requests that wait for capacity.
    pub(super) waiting_heads: AllHeads,
}

impl Unread {
    /// Creates the count of unread bytes. `bytes` is the gauge in the metrics.
    pub(super) fn new(bytes: Gauge, bytes_max: usize) -> Self {
        Self { bytes, bytes_max, unread_connections: Arc::default(), waiting_heads: AllHeads::default() }
    }

    pub(super) fn load(&self) -> UnreadLoad {
        let bytes = usize::try_from(self.bytes.get()).unwrap_or(0);
        UnreadLoad {
            bytes,
            bytes_max: self.bytes_max,
            unread_connections: self.unread_connections.load(Ordering::Relaxed),
        }
    }

    /// Adds unread bytes of a connection. The connection had `before` unread bytes before this call.
    pub(super) fn add(&self, before: usize, bytes: usize) {
        self.bytes.inc_by(i64::try_from(bytes).unwrap_or(i64::MAX));
        if before == 0 && bytes > 0 {
            self.unread_connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Subtracts read bytes of a connection. The connection has `left` unread bytes after this call.
    pub(super) fn remove(&self, left: usize, bytes: usize) {
        self.bytes.dec_by(i64::try_from(bytes).unwrap_or(i64::MAX));
        if left == 0 && bytes > 0 {
            self.unread_connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A snapshot of the unread bytes of all connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnreadLoad {
    bytes: usize,
    bytes_max: usize,
    unread_connections: usize,
}

impl UnreadLoad {
    /// Returns whether a connection with `own` unread bytes may get more of an answer.
    pub(super) fn has_capacity(self, own: usize) -> bool {
        let others = self.bytes.saturating_sub(own);
        own < OWN_BYTES
            || (own < CONNECTION_UNREAD_BYTES_MAX && own <= FairShare::without_reserve(self.bytes_max).capacity(others))
    }

    /// Returns whether a connection with `own` unread bytes blocks other connections. Few bytes must be free, and `own`
    /// must be at least a fair share. The fair share is computed as if one more connection existed.
    pub(super) fn blocks_others(self, own: usize) -> bool {
        let little = CONNECTION_UNREAD_BYTES_MAX.min(self.bytes_max / 4);
        self.left() < little && own >= self.bytes_max / (self.unread_connections + 1)
    }

    fn left(self) -> usize {
        self.bytes_max.saturating_sub(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn unread_bytes_limit_of_a_connection_depends_on_free_bytes() {
        for (own, bytes, unread_connections, has_capacity, blocks_others) in [
            // A connection may have at most 16 MiB of unread bytes, even if more bytes are free.
            (0, 0, 0, true, false),
            (15 * MIB, 15 * MIB, 1, true, false),
            (16 * MIB, 16 * MIB, 1, false, false),
            // Each of fifteen connections has 16 MiB of unread bytes, the limit of one connection.
            (16 * MIB, 240 * MIB, 15, false, false),
            // The 16th connection may use half of the free bytes: 8 MiB. If even fewer bytes are free, the connections
            // with 16 MiB block other connections.
            (0, 240 * MIB, 15, true, false),
            (8 * MIB, 248 * MIB, 16, true, false),
            (9 * MIB, 249 * MIB, 16, false, false),
            (16 * MIB, 249 * MIB, 16, false, true),
            // A connection with few unread bytes gets another frame, and blocks nobody.
            (OWN_BYTES - 1, 300 * MIB, 17, true, false),
            (OWN_BYTES, 300 * MIB, 17, false, false),
            // If all connections have equally many unread bytes, each connection has at least a fair share.
            (8 * MIB, 248 * MIB, 31, true, true),
            (9 * MIB, 250 * MIB, 28, false, true),
        ] {
            let load = UnreadLoad { bytes, bytes_max: 256 * MIB, unread_connections };
            assert_eq!(
                (load.has_capacity(own), load.blocks_others(own)),
                (has_capacity, blocks_others),
                "{own} of {load:?}"
            );
        }
    }

    #[test]
    fn stalled_connections_leave_capacity_for_new_connections() {
        let mut held = Vec::new();
        for _ in 0..40 {
            let mut own = 0;
            let load = |own| UnreadLoad {
                bytes: held.iter().sum::<usize>() + own,
                bytes_max: 256 * MIB,
                unread_connections: held.len() + 1,
            };
            while load(own).has_capacity(own) {
                own += OWN_BYTES;
            }
            held.push(own);
        }
        // The first 15 connections reach 16 MiB, the limit of one connection. The 17th connection still gets some MiB.
        assert_eq!((held[0], held[14]), (16 * MIB, 16 * MIB));
        assert!(held[16] >= 4 * MIB, "{held:?}");
        // When a new connection has only one frame, some connections with many bytes can always be closed.
        let load = UnreadLoad { bytes: held.iter().sum(), bytes_max: 256 * MIB, unread_connections: held.len() };
        let in_the_way: Vec<_> = held.iter().filter(|own| load.blocks_others(**own)).collect();
        assert!(!in_the_way.is_empty() && in_the_way.len() < held.len(), "{held:?}");
    }

    #[test]
    fn connections_with_unread_bytes_are_counted() {
        let unread = Unread::new(Gauge::default(), 10);
        unread.add(0, 3);
        unread.add(3, 2);
        assert_eq!((unread.load().bytes, unread.load().unread_connections), (5, 1));
        unread.remove(2, 3);
        assert_eq!((unread.load().left(), unread.load().unread_connections), (8, 1));
        unread.remove(0, 2);
        assert_eq!((unread.load().bytes, unread.load().unread_connections), (0, 0));
    }
}
