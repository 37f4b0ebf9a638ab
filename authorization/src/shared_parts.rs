//! What large grants reach, held once by all who have the same grants.
//!
//! A cluster decides what it gives to whom. What a user may see of a resource is remembered for each of their watches
//! and lists; of some namespaces it is some bytes, of all that may be looked at some megabytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::share::Share;
use crate::visible::Part;

/// From how many places on (bindings, and names that their roles are limited to) it is shared: less is sooner made
/// anew.
pub(crate) const SHARED_FROM: usize = 1_000;

/// Below this many nothing is swept.
const SWEEP_MIN: usize = 256;

/// What is asked of some shares.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PartKey {
    /// The addresses of the shares.
    shares: Vec<usize>,
    verb: Box<str>,
    group: Box<str>,
    resource: Box<str>,
}

/// What was found, for as long as somebody holds it.
#[derive(Debug)]
struct WeakPart {
    part: Weak<Part>,
    /// No other share has their addresses while these are here.
    _shares: Vec<Weak<Share>>,
}

#[derive(Debug, Default)]
struct Parts {
    found: HashMap<PartKey, WeakPart>,
    sweep_at: usize,
}

/// The large parts that somebody holds.
#[derive(Debug, Default)]
pub(crate) struct SharedParts(Mutex<Parts>);

impl SharedParts {
    /// The part that these shares reach, as somebody holds it, or as it is made now.
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
        // Another may have made it meanwhile.
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
        // Whoever panicked has left it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
