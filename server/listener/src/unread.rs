//! The unread bytes of all connections together, and the limit for one connection.
//!
//! Connections share the bytes ([`FairShare`]): a connection may have half of the bytes that others leave. Bytes in
//! transit cannot be taken back. But once few bytes are free, a connection with a fair share or more whose client reads
//! nothing is cut sooner.
//! and whose client reads nothing, is cut sooner than the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use tributary_limiters::FairShare;

use crate::heads::AllHeads;
use crate::settings::HELD_BYTES_MAX;

/// The unread bytes that each connection may always have, in bytes. 64 KiB, four frames: an active reader never waits
/// for clients that do not read.
const OWN_BYTES: usize = 64 << 10;

/// Counts the unread bytes against a limit. Shared by all connections.
///
/// Active readers never wait because of the limit: a connection with few unread bytes always gets the next piece. So
/// each connection may have a piece beyond the limit.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    bytes: Gauge,
    bytes_max: usize,
    /// The number of connections with unread bytes.
    holders: Arc<AtomicUsize>,
    /// The heads of requests that wait for room.
    pub(super) waiting_heads: AllHeads,
}

impl Unread {
    /// Counts in a gauge of the metrics.
    pub(super) fn new(bytes: Gauge, bytes_max: usize) -> Self {
        Self { bytes, bytes_max, holders: Arc::default(), waiting_heads: AllHeads::default() }
    }

    /// The counts at this moment.
    pub(super) fn load(&self) -> UnreadLoad {
        let bytes = usize::try_from(self.bytes.get()).unwrap_or(0);
        UnreadLoad { bytes, bytes_max: self.bytes_max, holders: self.holders.load(Ordering::Relaxed) }
    }

    /// Counts new bytes of a connection that had `before` unread bytes.
    pub(super) fn add(&self, before: usize, bytes: usize) {
        self.bytes.inc_by(i64::try_from(bytes).unwrap_or(i64::MAX));
        if before == 0 && bytes > 0 {
            self.holders.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Uncounts bytes of a connection that has `left` unread bytes afterwards.
    pub(super) fn remove(&self, left: usize, bytes: usize) {
        self.bytes.dec_by(i64::try_from(bytes).unwrap_or(i64::MAX));
        if left == 0 && bytes > 0 {
            self.holders.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The unread bytes of all connections at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnreadLoad {
    bytes: usize,
    bytes_max: usize,
    holders: usize,
}

impl UnreadLoad {
    /// Returns whether a connection with this many unread bytes may be given more.
    pub(super) fn has_room(self, own: usize) -> bool {
        let others = self.bytes.saturating_sub(own);
        own < OWN_BYTES || (own < HELD_BYTES_MAX && own <= FairShare::without_reserve(self.bytes_max).room(others))
    }

    /// Returns whether a connection with this many unread bytes blocks others: few bytes are free, and it has the share
    /// that each connection would have if one more came.
    pub(super) fn is_in_the_way(self, own: usize) -> bool {
        let little = HELD_BYTES_MAX.min(self.bytes_max / 4);
        self.left() < little && own >= self.bytes_max / (self.holders + 1)
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
    fn unread_limit_of_a_connection_depends_on_the_remaining_room() {
        for (own, bytes, holders, has_room, is_in_the_way) in [
            // A single connection has 16 MiB, however much is left.
            (0, 0, 0, true, false),
            (15 * MIB, 15 * MIB, 1, true, false),
            (16 * MIB, 16 * MIB, 1, false, false),
            // Fifteen connections at the limit of a single connection.
            (16 * MIB, 240 * MIB, 15, false, false),
            // The next connection may have half of the rest; from then on the earlier ones block it.
            (0, 240 * MIB, 15, true, false),
            (8 * MIB, 248 * MIB, 16, true, false),
            (9 * MIB, 249 * MIB, 16, false, false),
            (16 * MIB, 249 * MIB, 16, false, true),
            // A connection with few bytes is given a frame, and blocks nobody.
            (OWN_BYTES - 1, 300 * MIB, 17, true, false),
            (OWN_BYTES, 300 * MIB, 17, false, false),
            // With equal shares, all connections have a fair share.
            (8 * MIB, 248 * MIB, 31, true, true),
            (9 * MIB, 250 * MIB, 28, false, true),
        ] {
            let load = UnreadLoad { bytes, bytes_max: 256 * MIB, holders };
            assert_eq!((load.has_room(own), load.is_in_the_way(own)), (has_room, is_in_the_way), "{own} of {load:?}");
        }
    }

    #[test]
    fn stalled_connections_leave_room_for_new_ones() {
        let mut held = Vec::new();
        for _ in 0..40 {
            let mut own = 0;
            let load = |own| UnreadLoad {
                bytes: held.iter().sum::<usize>() + own,
                bytes_max: 256 * MIB,
                holders: held.len() + 1,
            };
            while load(own).has_room(own) {
                own += OWN_BYTES;
            }
            held.push(own);
        }
        // The bytes of the first connections, and of the 17th.
        assert_eq!((held[0], held[14]), (16 * MIB, 16 * MIB));
        assert!(held[16] >= 4 * MIB, "{held:?}");
        // Some connections with many bytes can always be cut when a new one has only a frame.
        let load = UnreadLoad { bytes: held.iter().sum(), bytes_max: 256 * MIB, holders: held.len() };
        let in_the_way: Vec<_> = held.iter().filter(|own| load.is_in_the_way(**own)).collect();
        assert!(!in_the_way.is_empty() && in_the_way.len() < held.len(), "{held:?}");
    }

    #[test]
    fn connections_are_counted_while_they_have_unread_bytes() {
        let unread = Unread::new(Gauge::default(), 10);
        unread.add(0, 3);
        unread.add(3, 2);
        assert_eq!((unread.load().bytes, unread.load().holders), (5, 1));
        unread.remove(2, 3);
        assert_eq!((unread.load().left(), unread.load().holders), (8, 1));
        unread.remove(0, 2);
        assert_eq!((unread.load().bytes, unread.load().holders), (0, 0));
    }
}
