//! A cache of the objects that large grants make visible, shared by all users with equal grants.
//!
//! A cluster decides the size of its grants. Each watch and list of a user stores the visible namespaces and names:
//! some bytes for a few namespaces, but some megabytes at the limit of the grants.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::share::Share;
use crate::visible::Part;

/// The minimum number of bindings and resource names for a shared result. Smaller results are cheaper to compute again.
pub(crate) const SHARED_FROM: usize = 1_000;

/// The minimum number of entries for a sweep of the cache.
const SWEEP_MIN: usize = 256;

/// The key of a cached result: the user's grants, and the verb and resource of the request.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PartKey {
    /// The addresses of the user's grants.
    shares: Vec<usize>,
    verb: Box<str>,
    group: Box<str>,
    resource: Box<str>,
}

/// A cached result. The result is dropped when no list or watch uses it any more.
#[derive(Debug)]
struct WeakPart {
    part: Weak<Part>,
    /// These references keep the grants' memory allocated. No other grants can therefore get the addresses in the key.
    _shares: Vec<Weak<Share>>,
}

#[derive(Debug, Default)]
struct Parts {
    found: HashMap<PartKey, WeakPart>,
    sweep_at: usize,
}

/// The cached results that a list or watch uses.
#[derive(Debug, Default)]
pub(crate) struct SharedParts(Mutex<Parts>);

impl SharedParts {
    /// Returns the objects that these grants make visible, from the cache or computed by `make`.
    pub(crate) fn get(
        &self,
        shares: &[&Arc<Share>],
        [verb, group, resource]: [&str; 3],
        make: impl FnOnce() -> Option<Part>,
    ) -> Option<Arc<Part>> {
        let addresses = shares.iter().map(|share| Arc::as_ptr(share).addr()).collect();
        let key = PartKey { shares: addresses, verb: verb.into(), group: group.into(), resource: resource.into() };
        let cached = |parts: &Parts| parts.found.get(&key).and_then(|found| found.part.upgrade());
        if let Some(part) = cached(&self.parts()) {
            return Some(part);
        }
        let part = Arc::new(make()?);
        let mut parts = self.parts();
        // A concurrent call may have inserted the result meanwhile.
        if let Some(part) = cached(&parts) {
            return Some(part);
        }
        if parts.found.len() >= parts.sweep_at {
            parts.found.retain(|_, found| found.part.strong_count() > 0);
            parts.sweep_at = (parts.found.len() * 2).max(SWEEP_MIN);
        }
        let _shares = shares.iter().map(|share| Arc::downgrade(share)).collect();
        parts.found.insert(key, WeakPart { part: Arc::downgrade(&part), _shares });
        Some(part)
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Parts> {
        // A panic in another thread cannot have left the map inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
