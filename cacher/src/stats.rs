//! Counts of one cacher, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one cacher since its start, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Objects held.
    pub objects: u64,
    /// Bytes that the objects occupy, text and places.
    pub object_bytes: u64,
    /// Watch events that were applied (bookmarks and repetitions not counted).
    pub events: u64,
    /// Bytes received in bodies.
    pub received_bytes: u64,
    /// Complete lists taken after the first because events were lost. Those that are made for want of bookmarks are not
    /// counted: they belong to how such a collection is followed.
    pub relists: u64,
    /// Of these, those because revisions went back.
    pub resets: u64,
    /// Watches opened.
    pub watches: u64,
    /// Requests that failed or were refused, and watches that broke off (silent ones not counted: on a collection that
    /// does not change they are no fault).
    pub failures: u64,
    /// Objects and frames that were skipped because they could not be read.
    pub decode_errors: u64,
    /// Times the member was asked for progress because a waiter's version was outstanding.
    pub progress_requests: u64,
}

/// A count that one task adds to and any may read.
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

/// The counts as the reflector writes them.
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
