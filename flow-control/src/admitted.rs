//! What a request holds that a schema has let in, and what is counted of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::allowance::Slots;
use crate::gate::Held;
use crate::refusal::{REFUSAL_REASONS, RefusalCause};

/// What is counted of a schema's requests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    short: AtomicUsize,
    long_running: AtomicUsize,
    admitted: AtomicU64,
    refused: [AtomicU64; REFUSAL_REASONS.len()],
}

impl Counts {
    fn counter_for(&self, is_apart: bool) -> &AtomicUsize {
        if is_apart { &self.long_running } else { &self.short }
    }

    /// How many requests are under way, of those that are counted apart or of the others.
    pub(crate) fn under_way(&self, is_apart: bool) -> usize {
        self.counter_for(is_apart).load(Ordering::Relaxed)
    }

    /// One more was let in.
    pub(crate) fn admit(&self) {
        self.admitted.fetch_add(1, Ordering::Relaxed);
    }

    /// One more was refused.
    pub(crate) fn refuse(&self, cause: RefusalCause) {
        self.refused[cause.number()].fetch_add(1, Ordering::Relaxed);
    }

    /// How many were let in.
    pub(crate) fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// How many were refused, for each of [`REFUSAL_REASONS`].
    pub(crate) fn refused(&self) -> [u64; REFUSAL_REASONS.len()] {
        self.refused.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// What a request holds that was let in: its place is free again once this is dropped, whatever schemas there are then.
#[must_use = "its place is free again once it is dropped"]
pub struct AdmittedRequest {
    usage: Arc<Counts>,
    is_apart: bool,
    /// Dropped last: whoever takes the place next finds the count without this one.
    _slot: Option<Held<Slots>>,
}

impl AdmittedRequest {
    /// One more is under way, with what it holds, and is counted apart or not.
    pub(crate) fn begin(usage: &Arc<Counts>, is_apart: bool, slot: Option<Held<Slots>>) -> Self {
        usage.counter_for(is_apart).fetch_add(1, Ordering::Relaxed);
        Self { usage: Arc::clone(usage), is_apart, _slot: slot }
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        self.usage.counter_for(self.is_apart).fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for AdmittedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmittedRequest").field("is_apart", &self.is_apart).finish_non_exhaustive()
    }
}
