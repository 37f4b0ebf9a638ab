//! The streams of a connection to a member: how many are open, and how many broke off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Streams of a connection that ended before their answers did; then a new connection takes its place. 128: with the
/// open streams of clients (64), fewer than the 500 handlers at which a kube-apiserver closes the connection, and than
/// the 500 streams of which Envoy checks whether most were reset.
pub(crate) const BROKEN_OFF_MAX: usize = 128;

/// Counters that the connection's task and its requests share.
#[derive(Debug)]
pub(crate) struct StreamCounts {
    /// Reserved and open streams.
    pub(crate) open: AtomicUsize,
    pub(crate) allowed: AtomicUsize,
    /// Streams that ended before their answers did: most were reset for clients that had gone.
    pub(crate) broken_off: AtomicUsize,
    /// Set by requests, cleared by the reaper.
    pub(crate) used: AtomicBool,
}

impl StreamCounts {
    /// Without streams, with this limit.
    pub(crate) fn new(allowed: usize) -> Self {
        let [open, broken_off] = Default::default();
        Self { open, broken_off, allowed: allowed.into(), used: true.into() }
    }

    /// Sets the limit of streams.
    pub(crate) fn allow(&self, streams: usize) {
        self.allowed.store(streams, Ordering::Relaxed);
    }

    /// Whether so many streams were reset that the server may soon close the connection. It takes new requests only
    /// while all others are full, until there is a new one.
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
    /// Reserves a stream on a connection.
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
