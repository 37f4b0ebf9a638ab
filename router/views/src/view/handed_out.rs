//! Up to where the log was told with versions of clients' own: numbers of single objects that say less
//! than their clients have.
//!
//! ```text
//! Watcher::next ──private_before──▶ note ─▶ then the client sees the events, and may name one of them
//!                                └────▶ private_before ──▶ Watcher::after_event, of whoever names it
//! ```
//!
//! The log itself says nothing of who read it, so whoever reads needs no more than the lock for readers.

use std::sync::atomic::{AtomicU64, Ordering};

/// The highest [`BatchOutcome::private_before`](tributary_merge::BatchOutcome::private_before) of all watches of one log.
#[derive(Default)]
pub struct HandedOut(AtomicU64);

impl HandedOut {
    /// Takes note of a turn of a watch, before its client sees the events.
    ///
    /// Nothing else hangs on the order of memory: a client that names an event has seen it,
    /// and so what was noted before.
    pub fn add_turn(&self, private_before: u64) {
        if private_before > 0 {
            self.0.fetch_max(private_before, Ordering::Relaxed);
        }
    }

    /// The position before which numbers of single objects are not to be gone on from.
    pub fn private_before(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
