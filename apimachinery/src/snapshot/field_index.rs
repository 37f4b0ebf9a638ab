//! The objects of a snapshot by the value of one field.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use imbl::OrdSet;

use super::by_key::ByKey;
use crate::{Object, json};

/// A persistent set of the same objects, ordered by the hash of one field's value and then by key: those of one value
/// stand together in key order. Values of the same hash stand together as well, so what is found is to be filtered.
///
/// Ordering by a hash leaves one look at an object's text per insertion, where ordering by values takes one for each
/// comparison.
#[derive(Clone)]
pub(super) struct FieldIndex {
    /// The field's place in the decoder's list, and what holds where an object has none.
    place: usize,
    default: Arc<str>,
    objects: OrdSet<FieldIndexEntry>,
}

/// An object in its place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FieldIndexEntry {
    value: u64,
    object: ByKey,
}

impl FieldIndexEntry {
    /// The object.
    pub(super) fn object(&self) -> &Arc<Object> {
        &self.object.0
    }
}

/// A place in the index: the hash of a value, and a key.
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
    /// An empty index of the field at this place of the decoder's list.
    pub(super) fn new(place: usize, default: Arc<str>) -> Self {
        Self { place, default, objects: OrdSet::new() }
    }

    /// The field's place in the decoder's list.
    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// Puts an object in, in place of the one that it replaced.
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

    /// Takes an object out.
    pub(super) fn remove(&mut self, object: &Object) {
        self.objects.remove(&FieldIndexKey(self.value_of(object), object.key().as_str()));
    }

    /// The objects that may have this value, between two keys and in key order.
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
        hash(&object.field(self.place).map_or(Cow::Borrowed(&*self.default), json::unescaped))
    }
}

/// The same in each process. Whoever makes values of one hash makes lists of these values slower, and nothing else.
fn hash(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
