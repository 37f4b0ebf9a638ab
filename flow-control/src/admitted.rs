//! Permits of admitted requests, and counters of admitted and refused requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::allowance::Slots;
use crate::gate::GatePermit;
use crate::refusal::{REFUSAL_REASONS, RefusalCause};

#[derive(Debug, Default)]
pub(crate) struct Counts {
    short: AtomicUsize,
    long_running: AtomicUsize,
    admitted: AtomicU64,
    refused: [AtomicU64; REFUSAL_REASONS.len()],
}

impl Counts {
    fn in_flight_counter(&self, is_without_slot: bool) -> &AtomicUsize {
        if is_without_slot { &self.long_running } else { &self.short }
    }

    /// Returns the number of long-running requests without a slot that are in flight if `is_without_slot` is true, and
    /// the number of all other requests in flight if it is false.
    pub(crate) fn in_flight(&self, is_without_slot: bool) -> usize {
        self.in_flight_counter(is_without_slot).load(Ordering::Relaxed)
    }

    pub(crate) fn admit(&self) {
        self.admitted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refuse(&self, cause: RefusalCause) {
        self.refused[cause.number()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    pub(crate) fn refused(&self) -> [u64; REFUSAL_REASONS.len()] {
        self.refused.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// The permit of an admitted request. Dropping the permit frees the slot, even after a change of the schemas.
#[must_use = "its place is free again once it is dropped"]
pub struct AdmittedRequest {
    usage: Arc<Counts>,
    is_without_slot: bool,
    /// Declared last, because fields drop in the order of declaration. The number of requests in flight must decrease
    /// before the slot is free for the next request.
    _slot: Option<GatePermit<Slots>>,
}

impl AdmittedRequest {
    pub(crate) fn begin(usage: &Arc<Counts>, is_without_slot: bool, slot: Option<GatePermit<Slots>>) -> Self {
        usage.in_flight_counter(is_without_slot).fetch_add(1, Ordering::Relaxed);
        Self { usage: Arc::clone(usage), is_without_slot, _slot: slot }
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        self.usage.in_flight_counter(self.is_without_slot).fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for AdmittedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmittedRequest").field("is_apart", &self.is_without_slot).finish_non_exhaustive()
    }
}
