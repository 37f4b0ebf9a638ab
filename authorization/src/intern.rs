//! Interning of values: equal values of many clusters share one allocation.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// The number of values below which no sweep removes unused values. Such a sweep would free little memory.
const SWEEP_MIN: usize = 1024;

/// Keeps one `Arc` for each distinct value in use. Two interned values are equal exactly if their `Arc`s point to the
/// same allocation.
#[derive(Debug)]
pub(crate) struct Interner<T> {
    values: HashSet<Arc<T>>,
    /// The number of values at which the interner next drops unused values.
    sweep_at: usize,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), sweep_at: SWEEP_MIN }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// Returns the shared copy of a value. Cost: hashing the value, and sometimes an iteration over all values, which
    /// is amortized over the added values.
    pub(crate) fn intern(&mut self, value: T) -> Arc<T> {
        if let Some(existing) = self.values.get(&value) {
            return Arc::clone(existing);
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.values.shrink_to(self.values.len() * 2);
            self.sweep_at = (self.values.len() * 2).max(SWEEP_MIN);
        }
        let value = Arc::new(value);
        self.values.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interner_stores_equal_values_once_and_drops_unused_values() {
        let mut interner = Interner::default();
        let interned = interner.intern(0);
        for value in 0..100 * SWEEP_MIN {
            assert_eq!(*interner.intern(value), value);
            assert!(interner.values.len() <= SWEEP_MIN);
        }
        assert!(Arc::ptr_eq(&interned, &interner.intern(0)));
    }
}
