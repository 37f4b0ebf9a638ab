//! The streams of a connection to a member: how many are open, and how many broke off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How many streams of a connection may have ended before their answers did; then another takes its place. 128: with
/// those that clients have open on it (64), fewer than the 500 whose handlers a kube-apiserver has run or wait before
/// it closes the connection with all that is on it, and than the 500 of which Envoy looks whether most were reset.
pub(crate) const BROKEN_OFF_MAX: usize = 128;

/// What the connection's task and its requests share.
#[derive(Debug)]
pub(crate) struct StreamCounts {
    /// Those that requests have, or may open.
    pub(crate) open: AtomicUsize,
    pub(crate) allowed: AtomicUsize,
    /// How many have ended before their answers did: most of them were reset for clients that had gone.
    pub(crate) broken_off: AtomicUsize,
    /// Set by requests, cleared by the reaper.
    pub(crate) used: AtomicBool,
}

impl StreamCounts {
    /// None yet, of so many.
    pub(crate) fn new(allowed: usize) -> Self {
        let [open, broken_off] = Default::default();
        Self { open, broken_off, allowed: allowed.into(), used: true.into() }
    }

    /// So many are allowed from now on.
    pub(crate) fn allow(&self, streams: usize) {
        self.allowed.store(streams, Ordering::Relaxed);
    }

    /// Whether so many of its streams were reset that the member may soon close it, with all that is on it. It takes
    /// new requests only while the others are full, and until there is another.
    pub(crate) fn are_worn(&self) -> bool {
        self.broken_off.load(Ordering::Relaxed) >= BROKEN_OFF_MAX
    }

    pub(crate) fn is_left_clean(&self) -> bool {
        self.broken_off.load(Ordering::Relaxed) == 0
    }
}

/// A stream on which a request is sent. Dropped, it counts as broken off.
#[derive(Debug)]
pub(crate) struct SentStream(Option<Arc<StreamCounts>>);

impl SentStream {
    /// Of a connection.
    pub(crate) fn on(counts: &Arc<StreamCounts>) -> Self {
        Self(Some(counts.clone()))
    }

    /// The stream is not reset: the answer was read to its end, or nothing was sent on it.
    pub(crate) fn ended_well(mut self) {
        self.0 = None;
    }
}

impl Drop for SentStream {
    fn drop(&mut self) {
        if let Some(counts) = &self.0 {
            counts.broken_off.fetch_add(1, Ordering::Relaxed);
        }
    }
}
