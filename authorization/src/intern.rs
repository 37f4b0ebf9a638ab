//! One copy of what many clusters have alike.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Below this many values nothing is swept: it would save little.
const SWEEP_MIN: usize = 1024;

/// Keeps one `Arc` for each distinct value that somebody holds. Two of its values are equal exactly when their `Arc`s
/// are the same.
#[derive(Debug)]
pub(crate) struct Interner<T> {
    values: HashSet<Arc<T>>,
    /// How many values there are when those that nobody holds are dropped next.
    sweep_at: usize,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), sweep_at: SWEEP_MIN }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The one copy of a value. Costs its hash, and now and then a walk over all, which the values added since pay for.
    pub(crate) fn intern(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.values.get(&value) {
            return Arc::clone(known);
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
    fn equal_values_are_one_and_what_nobody_holds_goes() {
        let mut interner = Interner::default();
        let kept = interner.intern(0);
        for value in 0..100 * SWEEP_MIN {
            assert_eq!(*interner.intern(value), value);
            assert!(interner.values.len() <= SWEEP_MIN);
        }
        assert!(Arc::ptr_eq(&kept, &interner.intern(0)));
    }
}
