//! A walk over the objects of a snapshot that may be in a scope.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;
use imbl::ordset::RangedIter;
use imbl::shared_ptr::DefaultSharedPtr;

use super::by_key::ByKey;
use super::field_index::{FieldIndex, FieldIndexEntry};
use super::scope::Scope;
use crate::{Object, ObjectKey};

/// The number of visited objects with other names after which the walk jumps to the next position of the name. 16: a
/// jump costs about as much as 16 visits, so small namespaces are walked and large namespaces are skipped.
const JUMP_AFTER_MISSES: usize = 16;

/// A walk over objects of a snapshot, in key order.
pub struct Walk<'a>(WalkRange<'a>);

enum WalkRange<'a> {
    One(Option<&'a Arc<Object>>),
    /// The objects between two keys whose indexed field may have the required value.
    Keys(RangedIter<'a, ByKey, DefaultSharedPtr>),
    /// The objects with one name, in all namespaces.
    Indexed(RangedIter<'a, FieldIndexEntry, DefaultSharedPtr>),
    /// All objects with a name, in any namespace.
    Named(Named<'a>),
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        objects: &'a OrdSet<ByKey>,
        index: Option<&'a FieldIndex>,
        scope: &Scope<'_>,
        after: Option<&str>,
    ) -> Self {
        let Some(keys) = Keys::new(scope.namespace, after) else { return Self(WalkRange::One(None)) };
        let index = index.zip(scope.field).filter(|(index, (field, _))| index.field() == *field);
        Self(match (index, scope.namespace, scope.name) {
            (Some((index, (_, value))), ..) => WalkRange::Indexed(index.range(value, keys.start(), keys.end())),
            (None, Some(namespace), Some(name)) => {
                let key = ObjectKey::new(namespace, name);
                let key = Some(key.as_str()).filter(|key| after.is_none_or(|after| after < *key));
                WalkRange::One(key.and_then(|key| objects.get(key)).map(|entry| &entry.0))
            }
            (None, None, Some(name)) => {
                WalkRange::Named(Named { objects, name: name.into(), walk: keys.range_in(objects), misses: 0 })
            }
            (None, _, None) => WalkRange::Keys(keys.range_in(objects)),
        })
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = &'a Arc<Object>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            WalkRange::Keys(keys) => keys.next().map(|entry| &entry.0),
            WalkRange::One(object) => object.take(),
            WalkRange::Indexed(entries) => entries.next().map(FieldIndexEntry::object),
            WalkRange::Named(named) => named.next(),
        }
    }
}

/// The range of the keys of a namespace, or of all namespaces, after a given key.
struct Keys<'k> {
    start: Bound<Cow<'k, str>>,
    end: Bound<String>,
}

impl<'k> Keys<'k> {
    /// Creates the range; `None` if it is empty.
    fn new(namespace: Option<&str>, after: Option<&'k str>) -> Option<Self> {
        let after = after.map(|after| Bound::Excluded(Cow::Borrowed(after)));
        let Some(namespace) = namespace else {
            return Some(Self { start: after.unwrap_or(Bound::Unbounded), end: Bound::Unbounded });
        };
        let (first, end) = (format!("{namespace}/"), end_of_namespace(namespace));
        let start = match after {
            // The check prevents a panic: an ordered set panics for a range whose start is after its end.
            Some(Bound::Excluded(after)) if *after >= *end => return None,
            Some(Bound::Excluded(after)) if *after >= *first => Bound::Excluded(after),
            _ => Bound::Included(Cow::Owned(first)),
        };
        Some(Self { start, end: Bound::Excluded(end) })
    }

    fn start(&self) -> Bound<&str> {
        self.start.as_ref().map(|key| &**key)
    }

    fn end(&self) -> Bound<&str> {
        self.end.as_ref().map(String::as_str)
    }

    fn range_in<'a>(&self, objects: &'a OrdSet<ByKey>) -> RangedIter<'a, ByKey, DefaultSharedPtr> {
        objects.range::<_, str>((self.start(), self.end()))
    }
}

/// Returns the end of the range of a namespace's keys. The keys begin with `namespace/`. The character after `/` is
/// `0`, so `namespace0` is above all these keys.
fn end_of_namespace(namespace: &str) -> String {
    format!("{namespace}0")
}

/// The objects with one name, in all namespaces. The walk jumps to the position of the name in a large namespace, and
/// from that position to the next namespace. Either all objects of a resource have a namespace, or no object has one.
struct Named<'a> {
    objects: &'a OrdSet<ByKey>,
    name: Box<str>,
    walk: RangedIter<'a, ByKey, DefaultSharedPtr>,
    /// The number of objects with other names since the last jump.
    misses: usize,
}

impl<'a> Named<'a> {
    fn next(&mut self) -> Option<&'a Arc<Object>> {
        loop {
            let ByKey(object) = self.walk.next()?;
            if object.name() == &*self.name {
                return Some(object);
            }
            self.misses += 1;
            if self.misses == JUMP_AFTER_MISSES {
                self.misses = 0;
                self.walk = self.jump(object)?;
            }
        }
    }

    /// Jumps to the next possible position of the name; `None` after the last position.
    fn jump(&self, from: &Object) -> Option<RangedIter<'a, ByKey, DefaultSharedPtr>> {
        let start = if from.name() < &*self.name {
            ObjectKey::new(from.namespace(), &self.name).as_str().to_owned()
        } else if from.namespace().is_empty() {
            return None;
        } else {
            end_of_namespace(from.namespace())
        };
        Some(self.objects.range::<_, str>((Bound::Included(start.as_str()), Bound::Unbounded)))
    }
}
