//! Counters of the streams of a connection to a member: open streams, and streams that were reset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of streams that may be aborted on a connection before a new connection replaces it. 128: at most 64 streams
/// of clients are open at that time, and may be aborted in addition. A kube-apiserver closes a connection at 500
/// handlers of reset streams. Envoy checks after 500 streams whether most were reset.
pub(crate) const BROKEN_OFF_MAX: usize = 128;

/// Counters that a connection's task shares with the requests on the connection.
#[derive(Debug)]
pub(crate) struct StreamCounts {
    pub(crate) open: AtomicUsize,
    pub(crate) allowed: AtomicUsize,
    /// Number of streams that ended before their responses were complete. Most were reset because the client
    /// disconnected.
    pub(crate) broken_off: AtomicUsize,
    /// Whether a request has used the connection. Requests set the flag, and the task that closes idle connections
    /// clears it.
    pub(crate) used: AtomicBool,
}

impl StreamCounts {
    pub(crate) fn new(allowed: usize) -> Self {
        let [open, broken_off] = Default::default();
        Self { open, broken_off, allowed: allowed.into(), used: true.into() }
    }

    pub(crate) fn allow(&self, streams: usize) {
        self.allowed.store(streams, Ordering::Relaxed);
    }

    /// Returns whether so many streams were reset that the member may soon close the connection. Such a connection gets
    /// requests only while all other connections are full and no new connection exists.
    pub(crate) fn have_many_resets(&self) -> bool {
        self.broken_off.load(Ordering::Relaxed) >= BROKEN_OFF_MAX
    }

    pub(crate) fn is_left_clean(&self) -> bool {
        self.broken_off.load(Ordering::Relaxed) == 0
    }
}

/// The stream of a sent request. If the value is dropped without a call of `complete`, the stream counts as aborted.
#[derive(Debug)]
pub(crate) struct SentStream(Option<Arc<StreamCounts>>);

impl SentStream {
    pub(crate) fn on(counts: &Arc<StreamCounts>) -> Self {
        Self(Some(counts.clone()))
    }

    /// Records that the stream is not reset: the response was read to its end, or nothing was sent.
    pub(crate) fn complete(mut self) {
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
