//! What all connections together have been given and have not taken, and how much of that one of them may have.
//!
//! Connections share the bytes ([`FairShare`]): a connection may have half of the bytes that others leave. Nobody can
//! be made to give back bytes that are under way; but once few bytes are free, a connection that has a fair part or
//! more, and whose client reads nothing, is cut sooner than the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use tributary_limiters::FairShare;

use crate::heads::AllHeads;
use crate::settings::HELD_BYTES_MAX;

/// What a connection may have of that however much others do not take, in bytes. 64 KiB, a frame of a long answer:
/// whoever reads is never stopped by those who do not.
const OWN_BYTES: usize = 64 << 10;

/// Counts it, against a bound. Shared by all connections.
///
/// Nobody who reads waits because of it: a connection that has little untaken is given the next piece in any case, so
/// that there may be a piece for each connection beyond the bound.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    bytes: Gauge,
    bytes_max: usize,
    /// How many connections have something untaken.
    holders: Arc<AtomicUsize>,
    /// What the requests have in their heads that wait until more is taken.
    pub(super) waiting_heads: AllHeads,
}

impl Unread {
    /// Counts in a gauge of the metrics.
    pub(super) fn new(bytes: Gauge, bytes_max: usize) -> Self {
        Self { bytes, bytes_max, holders: Arc::default(), waiting_heads: AllHeads::default() }
    }

    /// What there is now.
    pub(super) fn load(&self) -> UnreadLoad {
        let bytes = usize::try_from(self.bytes.get()).unwrap_or(0);
        UnreadLoad { bytes, bytes_max: self.bytes_max, holders: self.holders.load(Ordering::Relaxed) }
    }

    /// Counts bytes of a connection that had so many before.
    pub(super) fn add(&self, before: usize, bytes: usize) {
        self.bytes.inc_by(i64::try_from(bytes).unwrap_or(i64::MAX));
        if before == 0 && bytes > 0 {
            self.holders.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes bytes off of a connection that has so many left.
    pub(super) fn remove(&self, left: usize, bytes: usize) {
        self.bytes.dec_by(i64::try_from(bytes).unwrap_or(i64::MAX));
        if left == 0 && bytes > 0 {
            self.holders.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What all connections have untaken at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnreadLoad {
    bytes: usize,
    bytes_max: usize,
    holders: usize,
}

impl UnreadLoad {
    /// Whether a connection that has so much may be given more.
    pub(super) fn has_room(self, own: usize) -> bool {
        let others = self.bytes.saturating_sub(own);
        own < OWN_BYTES || (own < HELD_BYTES_MAX && own <= FairShare::without_reserve(self.bytes_max).room(others))
    }

    /// Whether a connection that has so much is in others' way: little is left, and it has what each
    /// would have if one more came.
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
    fn nobody_has_more_than_is_left_to_others() {
        for (own, bytes, holders, has_room, is_in_the_way) in [
            // One alone has 16 MiB, however much is left.
            (0, 0, 0, true, false),
            (15 * MIB, 15 * MIB, 1, true, false),
            (16 * MIB, 16 * MIB, 1, false, false),
            // As many as have all that they may.
            (16 * MIB, 240 * MIB, 15, false, false),
            // The next one may have half of what is left, and those before it are in its way from then on.
            (0, 240 * MIB, 15, true, false),
            (8 * MIB, 248 * MIB, 16, true, false),
            (9 * MIB, 249 * MIB, 16, false, false),
            (16 * MIB, 249 * MIB, 16, false, true),
            // Whoever has little is given a frame, and is nobody's trouble, whatever the others have.
            (OWN_BYTES - 1, 300 * MIB, 17, true, false),
            (OWN_BYTES, 300 * MIB, 17, false, false),
            // Where all have the same, all have a fair part.
            (8 * MIB, 248 * MIB, 31, true, true),
            (9 * MIB, 250 * MIB, 28, false, true),
        ] {
            let load = UnreadLoad { bytes, bytes_max: 256 * MIB, holders };
            assert_eq!((load.has_room(own), load.is_in_the_way(own)), (has_room, is_in_the_way), "{own} of {load:?}");
        }
    }

    #[test]
    fn connections_that_take_nothing_never_leave_nothing() {
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
        // What the first ones have, and the 17th.
        assert_eq!((held[0], held[14]), (16 * MIB, 16 * MIB));
        assert!(held[16] >= 4 * MIB, "{held:?}");
        // Some of those that have much are always to be cut where one that comes has but a frame.
        let load = UnreadLoad { bytes: held.iter().sum(), bytes_max: 256 * MIB, holders: held.len() };
        let in_the_way: Vec<_> = held.iter().filter(|own| load.is_in_the_way(**own)).collect();
        assert!(!in_the_way.is_empty() && in_the_way.len() < held.len(), "{held:?}");
    }

    #[test]
    fn connections_are_counted_while_they_have_something() {
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
