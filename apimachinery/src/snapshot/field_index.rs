//! An index of a snapshot's objects by the value of a field.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use imbl::OrdSet;

use super::by_key::ByKey;
use crate::{Object, json};

/// A persistent set of the snapshot's objects, ordered by the hash of a field's value and then by key. Objects with
/// equal values are adjacent, in key order. Different values may have equal hashes, so the caller must compare the
/// value of each object.
///
/// An insertion that orders by hash reads only the inserted object's text. Ordering by value would read the text of
/// each compared object.
#[derive(Clone)]
pub(super) struct FieldIndex {
    /// The index of the field in the decoder's list of selectable fields.
    field: usize,
    default: Arc<str>,
    objects: OrdSet<FieldIndexEntry>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FieldIndexEntry {
    value: u64,
    object: ByKey,
}

impl FieldIndexEntry {
    pub(super) fn object(&self) -> &Arc<Object> {
        &self.object.0
    }
}

/// A search key of the index: the hash of a value, and an object's key.
struct FieldIndexKey<'a>(u64, &'a str);

impl Equivalent<FieldIndexEntry> for FieldIndexKey<'_> {
    fn equivalent(&self, entry: &FieldIndexEntry) -> bool {
        self.compare(entry).is_eq()
    }
}

impl Comparable<FieldIndexEntry> for FieldIndexKey<'_> {
    fn compare(&self, entry: &FieldIndexEntry) -> Ordering {
        self.0.cmp(&entry.value).then_with(|| self.1.cmp(entry.object().key().as_str()))
    }
}

impl FieldIndex {
    pub(super) fn new(field: usize, default: Arc<str>) -> Self {
        Self { field, default, objects: OrdSet::new() }
    }

    pub(super) fn field(&self) -> usize {
        self.field
    }

    pub(super) fn insert(&mut self, object: Arc<Object>, replaced: Option<&Object>) {
        let value = self.value_of(&object);
        if let Some(replaced) = replaced {
            let before = self.value_of(replaced);
            if before != value {
                self.objects.remove(&FieldIndexKey(before, replaced.key().as_str()));
            }
        }
        self.objects.insert(FieldIndexEntry { value, object: ByKey(object) });
    }

    pub(super) fn remove(&mut self, object: &Object) {
        self.objects.remove(&FieldIndexKey(self.value_of(object), object.key().as_str()));
    }

    /// Iterates in key order over the objects that may have this field value and whose keys are between `start` and
    /// `end`.
    pub(super) fn range(
        &self,
        value: &str,
        start: Bound<&str>,
        end: Bound<&str>,
    ) -> imbl::ordset::RangedIter<'_, FieldIndexEntry, imbl::shared_ptr::DefaultSharedPtr> {
        let value = hash(value);
        let start = match start {
            Bound::Included(key) => Bound::Included(FieldIndexKey(value, key)),
            Bound::Excluded(key) => Bound::Excluded(FieldIndexKey(value, key)),
            Bound::Unbounded => Bound::Included(FieldIndexKey(value, "")),
        };
        let end = match (end, value.checked_add(1)) {
            (Bound::Included(key), _) => Bound::Included(FieldIndexKey(value, key)),
            (Bound::Excluded(key), _) => Bound::Excluded(FieldIndexKey(value, key)),
            (Bound::Unbounded, Some(next)) => Bound::Excluded(FieldIndexKey(next, "")),
            (Bound::Unbounded, None) => Bound::Unbounded,
        };
        self.objects.range((start, end))
    }

    fn value_of(&self, object: &Object) -> u64 {
        hash(&object.field(self.field).map_or(Cow::Borrowed(&*self.default), json::unescaped))
    }
}

/// Returns a hash that is equal in each process. A client that creates values with equal hashes slows down only lists
/// that select these values.
fn hash(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
