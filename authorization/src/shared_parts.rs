//! A cache of the visible parts of large grants, shared by all users with the same grants.
//!
//! A cluster decides how much it grants. Each watch and list of a user keeps the part of the resource that the user may
//! see: some bytes for a few namespaces, but some megabytes at the limit of the grants.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::share::Share;
use crate::visible::Part;

/// The number of places (bindings, plus names that their roles are limited to) from which on a part is shared. Smaller
/// parts are cheaper to compute again.
pub(crate) const SHARED_FROM: usize = 1_000;

/// The cache is not swept while it has fewer entries than this.
const SWEEP_MIN: usize = 256;

/// The key of a part: the shares of a user and the question.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PartKey {
    /// The addresses of the shares.
    shares: Vec<usize>,
    verb: Box<str>,
    group: Box<str>,
    resource: Box<str>,
}

/// A cached part, which lives as long as a user of it.
#[derive(Debug)]
struct WeakPart {
    part: Weak<Part>,
    /// Keeps the addresses of the shares from being reused.
    _shares: Vec<Weak<Share>>,
}

#[derive(Debug, Default)]
struct Parts {
    found: HashMap<PartKey, WeakPart>,
    sweep_at: usize,
}

/// The large parts that are in use.
#[derive(Debug, Default)]
pub(crate) struct SharedParts(Mutex<Parts>);

impl SharedParts {
    /// The part that these shares make visible, from the cache or computed by `make`.
    pub(crate) fn get(
        &self,
        shares: &[&Arc<Share>],
        [verb, group, resource]: [&str; 3],
        make: impl FnOnce() -> Option<Part>,
    ) -> Option<Arc<Part>> {
        let addresses = shares.iter().map(|share| Arc::as_ptr(share).addr()).collect();
        let asked = PartKey { shares: addresses, verb: verb.into(), group: group.into(), resource: resource.into() };
        let known = |parts: &Parts| parts.found.get(&asked).and_then(|found| found.part.upgrade());
        if let Some(part) = known(&self.parts()) {
            return Some(part);
        }
        let part = Arc::new(make()?);
        let mut parts = self.parts();
        // A concurrent call may have inserted the part in the meantime.
        if let Some(part) = known(&parts) {
            return Some(part);
        }
        if parts.found.len() >= parts.sweep_at {
            parts.found.retain(|_, found| found.part.strong_count() > 0);
            parts.sweep_at = (parts.found.len() * 2).max(SWEEP_MIN);
        }
        let _shares = shares.iter().map(|share| Arc::downgrade(share)).collect();
        parts.found.insert(asked, WeakPart { part: Arc::downgrade(&part), _shares });
        Some(part)
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Parts> {
        // A panic in another thread cannot have left the map in an inconsistent state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
