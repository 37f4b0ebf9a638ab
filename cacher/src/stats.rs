//! Counters of a cacher, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a cacher since its start, and its present size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of objects.
    pub objects: u64,
    /// The size of the objects in memory, text and index, in bytes.
    pub object_bytes: u64,
    /// The number of watch events that changed the collection (without bookmarks and repeated events).
    pub events: u64,
    /// The number of bytes received in bodies.
    pub received_bytes: u64,
    /// The number of complete lists, after the first, that were necessary because events were lost. Lists that replace
    /// a missing bookmark are not included, because they are normal for a collection without bookmarks.
    pub relists: u64,
    /// The number of relists because the member's revisions went back.
    pub resets: u64,
    /// The number of opened watches.
    pub watches: u64,
    /// The number of failed or refused requests and of broken watches. Silent watches are not included, because silence
    /// is normal for an unchanged collection.
    pub failures: u64,
    /// The number of malformed objects and frames that were skipped.
    pub decode_errors: u64,
    /// The number of requests for the member's latest version on behalf of waiters.
    pub progress_requests: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct ReflectorCounters {
    pub(crate) objects: Count,
    pub(crate) object_bytes: Count,
    pub(crate) events: Count,
    pub(crate) received_bytes: Count,
    pub(crate) relists: Count,
    pub(crate) resets: Count,
    pub(crate) watches: Count,
    pub(crate) failures: Count,
    pub(crate) decode_errors: Count,
    pub(crate) progress_requests: Count,
}

impl ReflectorCounters {
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            objects: self.objects.get(),
            object_bytes: self.object_bytes.get(),
            events: self.events.get(),
            received_bytes: self.received_bytes.get(),
            relists: self.relists.get(),
            resets: self.resets.get(),
            watches: self.watches.get(),
            failures: self.failures.get(),
            decode_errors: self.decode_errors.get(),
            progress_requests: self.progress_requests.get(),
        }
    }
}
