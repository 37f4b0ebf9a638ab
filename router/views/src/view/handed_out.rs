//! Log position before which a watch cannot resume from the resourceVersion of a single object.
//!
//! ```text
//! Watcher::next ──private_before──▶ record_batch ─▶ the client sees the events, and may later send the version of one
//!                                └────▶ private_before ──▶ Watcher::after_event, for that version
//! ```
//!
//! The log does not record its readers, so readers need only the read lock of the log.

use std::sync::atomic::{AtomicU64, Ordering};

/// Log position before which a watch must not resume: the highest
/// [`BatchOutcome::private_before`](tributary_merge::BatchOutcome::private_before) of all watches of one log.
#[derive(Default)]
pub struct HandedOut(AtomicU64);

impl HandedOut {
    /// Records a batch of events of a watch. Call this function before the client sees the events.
    ///
    /// Relaxed ordering suffices: a client that sends the version of an event has received the event, so the client's
    /// request comes after this call.
    pub fn record_batch(&self, private_before: u64) {
        if private_before > 0 {
            self.0.fetch_max(private_before, Ordering::Relaxed);
        }
    }

    /// Returns the log position before which a watch must not resume from the resourceVersion of a single object.
    pub fn private_before(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
