//! The objects of a collection, their version and their size.

use std::sync::Arc;

use tributary_apimachinery::{
    Change, ChangeType, CollectionVersion, Object, ResourceVersion, SelectableField, Snapshot,
};

use crate::published::PublishedObjects;

/// The collection of a cacher at one version. Only the reflector changes the store; readers receive clones of the
/// snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    snapshot: Snapshot,
    /// The existing objects that were dropped from memory after the observer received them.
    published: PublishedObjects,
    bytes: u64,
}

impl Store {
    /// Returns the objects in memory. Cost: O(1).
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// Returns the number of existing objects, including objects that were dropped from memory.
    pub(crate) fn len(&self) -> usize {
        self.snapshot.len() + self.published.len()
    }

    pub(crate) fn version(&self) -> CollectionVersion {
        self.snapshot.resource_version()
    }

    /// Returns the size of all existing objects in bytes, including objects that were dropped from memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Applies a watch event and returns the resulting change, if any.
    ///
    /// An event with a version below the store's revision is a repetition. Watches are in order of revision, so the
    /// store already contains its change. Several events may have the store's revision; such an event is applied if it
    /// changes the store. The type of the change depends on the store and not on the event: an existing object becomes
    /// `Modified` even if the event is ADDED, and an absent object cannot be `Deleted`.
    pub(crate) fn apply(&mut self, change_type: ChangeType, object: Object) -> Option<Change> {
        let version = object.resource_version();
        if version < self.version().revision() {
            return None;
        }
        let stored_version = self.version_of(object.key().as_str());
        if stored_version.is_some_and(|stored_version| stored_version >= version) {
            return None;
        }
        let is_known = stored_version.is_some();
        let object = Arc::new(object);
        let change = Change { change_type, object: Arc::clone(&object), previous: None };
        if change_type == ChangeType::Deleted && !is_known {
            self.advance(CollectionVersion::begun(version));
            return None;
        }
        self.advance(self.version().with_change(&change));
        if change_type == ChangeType::Deleted {
            return Some(Change { previous: self.remove(object.key().as_str()), ..change });
        }
        let previous = self.insert(object);
        let change_type = if is_known { ChangeType::Modified } else { ChangeType::Added };
        Some(Change { change_type, previous, ..change })
    }

    /// Raises the version. Does nothing if the store's version is higher.
    pub(crate) fn advance(&mut self, version: CollectionVersion) {
        if version > self.version() {
            self.snapshot.set_resource_version(version);
        }
    }

    /// Drops all objects from memory, and keeps their versions and sizes.
    pub(crate) fn release_objects(&mut self) {
        let version = self.version();
        let stored = std::mem::take(&mut self.snapshot);
        self.snapshot.set_resource_version(version);
        self.published.reserve(stored.len());
        stored.iter().for_each(|object| self.published.put(object));
    }

    /// Returns whether a later list shows that the member's revisions went back ([`Snapshot::undoes`]).
    pub(crate) fn is_undone_by(&self, later: &Snapshot) -> bool {
        if self.published.len() == 0 {
            return later.undoes(&self.snapshot);
        }
        let covered = self.version();
        let is_there = |object: &Object| {
            let stored = self.snapshot.get(object.key().as_str());
            let is_stored = |stored: &Arc<Object>| {
                stored.resource_version() == object.resource_version() && stored.uid() == object.uid()
            };
            stored.map_or_else(|| self.published.contains(object), is_stored)
        };
        let mut covers = later.iter().filter(|object| covered >= object.resource_version());
        later.resource_version() < covered || covers.any(|object| !is_there(object))
    }

    /// Returns the version of the object with a key, even if the object was dropped from memory.
    fn version_of(&self, key: &str) -> Option<ResourceVersion> {
        let stored = self.snapshot.get(key).map(|stored| stored.resource_version());
        stored.or_else(|| self.published.version_of(key))
    }

    fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        self.bytes -= self.published.remove(object.key().as_str());
        self.bytes += object.size() as u64;
        let previous = self.snapshot.insert(object);
        self.bytes -= previous.as_ref().map_or(0, |object| object.size() as u64);
        previous
    }

    fn remove(&mut self, key: &str) -> Option<Arc<Object>> {
        let previous = self.snapshot.remove(key);
        self.bytes -= self.published.remove(key);
        self.bytes -= previous.as_ref().map_or(0, |object| object.size() as u64);
        previous
    }
}

/// A collection that is being listed, while the previous collection is still served.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    store: Store,
    before: Option<Snapshot>,
}

impl Staging {
    /// Creates an empty collection with an index for each of the `fields`. If a listed object equals the object in
    /// `before`, both collections share one object. So a relist does not double the memory, and the observer can find
    /// the changed objects by comparing pointers.
    pub(crate) fn new(fields: &[SelectableField], before: Option<Snapshot>) -> Self {
        Self { store: Store { snapshot: Snapshot::indexed(fields), ..Store::default() }, before }
    }

    pub(crate) fn put(&mut self, object: Object) {
        let previous = self.before.as_ref().and_then(|before| before.get(object.key().as_str()));
        let object = match previous {
            // The texts are compared, because after a restored backup an object may have a different text at the same
            // version.
            Some(previous) if previous.json() == object.json() => previous.clone(),
            _ => Arc::new(object),
        };
        self.store.insert(object);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.store.remove(key);
    }

    /// Completes the list, and sets the version of the collection.
    pub(crate) fn finish(mut self, version: ResourceVersion) -> Store {
        self.store.snapshot.set_resource_version(version);
        self.store
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ObjectDecoder;

    use super::*;

    fn object(name: &str, version: u64, text: &str) -> Object {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}},"data":"{text}"}}"#
        );
        ObjectDecoder::new("v1", "ConfigMap", [].into()).decode(text.as_bytes()).unwrap()
    }

    #[test]
    fn store_keeps_the_number_of_objects_after_dropping_their_content() {
        use ChangeType::{Added, Deleted, Modified};
        let mut store = Staging::new(&[], None).finish(ResourceVersion(10));
        let text = "x".repeat(100);
        let size = object("a", 11, &text).size() as u64;
        // Each case: ((event type, name, version), type of the resulting change, number of existing objects)
        let cases = [
            ((Added, "a", 11), Some(Added), 1),
            ((Added, "b", 12), Some(Added), 2),
            ((Added, "b", 12), None, 2),
            ((Modified, "a", 11), None, 2),
            ((Added, "a", 13), Some(Modified), 2),
            ((Deleted, "c", 14), None, 2),
            ((Deleted, "a", 15), Some(Deleted), 1),
            ((Deleted, "a", 15), None, 1),
            ((Modified, "b", 16), Some(Modified), 1),
            ((Deleted, "b", 17), Some(Deleted), 0),
        ];
        for ((event, name, version), expected, left) in cases {
            let change = store.apply(event, object(name, version, &text));
            let found = change.as_ref().map(|change| (change.change_type, change.object.resource_version().0));
            assert_eq!(found, expected.map(|expected| (expected, version)), "{event:?} {name} {version}");
            store.release_objects();
            assert_eq!((store.len(), store.bytes()), (left, left as u64 * size), "{event:?} {name} {version}");
            assert!(store.snapshot().is_empty());
        }
        assert_eq!(store.version().to_string(), "17-1");
    }

    #[test]
    fn versions_of_dropped_objects_reveal_that_the_members_revisions_decreased() {
        type Objects<'a> = &'a [(&'a str, &'a str, u64)];
        let named = |name: &str, uid: &str, version: u64| {
            let metadata =
                format!(r#"{{"name":"{name}","namespace":"n","uid":"{uid}","resourceVersion":"{version}"}}"#);
            let text = format!(r#"{{"metadata":{metadata}}}"#);
            ObjectDecoder::new("v1", "ConfigMap", [].into()).decode(text.as_bytes()).unwrap()
        };
        let collection = |version: u64, objects: Objects<'_>| {
            let mut staging = Staging::new(&[], None);
            objects.iter().for_each(|(name, uid, version)| staging.put(named(name, uid, *version)));
            staging.finish(ResourceVersion(version))
        };
        let cases: [(u64, Objects<'_>, bool, &str); 7] = [
            (12, &[("a", "1", 5), ("b", "2", 7)], false, "no object changed"),
            (12, &[("b", "2", 11)], false, "one object was deleted, one changed"),
            (12, &[("a", "1", 5), ("b", "2", 7), ("c", "3", 12)], false, "one object was added"),
            (9, &[("a", "1", 5), ("b", "2", 7)], true, "the version is lower"),
            (12, &[("a", "1", 5), ("b", "2", 8)], true, "a covered version has different content"),
            (12, &[("a", "4", 5), ("b", "2", 7)], true, "the object has a different uid"),
            (12, &[("a", "1", 5), ("c", "3", 9)], true, "an object of a covered version was not known"),
        ];
        for (version, objects, expected, why) in cases {
            let later = collection(version, objects).snapshot();
            let mut store = collection(10, &[("a", "1", 5), ("b", "2", 7)]);
            assert_eq!(store.is_undone_by(&later), expected, "held: {why}");
            store.release_objects();
            assert_eq!(store.is_undone_by(&later), expected, "let go: {why}");
        }
    }

    fn size(store: &Store) -> u64 {
        store.snapshot.iter().map(|object| object.size() as u64).sum()
    }

    #[test]
    fn change_type_of_a_watch_event_depends_on_the_stored_object() {
        use ChangeType::{Added, Deleted, Modified};
        let mut store = Staging::new(&[], None).finish(ResourceVersion(10));
        // Each case: ((event type, name, version), (type of the resulting change, version of the previous object),
        // version of the store)
        let cases = [
            ((Added, "a", 11), Some((Added, None)), "11"),
            ((Added, "a", 12), Some((Modified, Some(11))), "12"),
            ((Modified, "b", 13), Some((Added, None)), "13"),
            ((Modified, "b", 13), None, "13"),
            ((Deleted, "b", 12), None, "13"),
            ((Deleted, "b", 13), None, "13"),
            ((Deleted, "c", 14), None, "14-0"),
            ((Deleted, "a", 15), Some((Deleted, Some(12))), "15-1"),
            ((Deleted, "a", 15), None, "15-1"),
            ((Modified, "b", 9), None, "15-1"),
            ((Deleted, "b", 15), Some((Deleted, Some(13))), "15-2"),
            ((Added, "d", 16), Some((Added, None)), "16"),
            ((Added, "e", 16), Some((Added, None)), "16"),
            ((Added, "f", 17), Some((Added, None)), "17"),
            ((Deleted, "d", 18), Some((Deleted, Some(16))), "18-1"),
            ((Deleted, "e", 18), Some((Deleted, Some(16))), "18-2"),
            ((Deleted, "d", 18), None, "18-2"),
        ];
        for ((event, name, version), expected, after) in cases {
            let change = store.apply(event, object(name, version, "some text"));
            let found = change.as_ref().map(|c| (c.change_type, c.previous.as_ref().map(|o| o.resource_version().0)));
            assert_eq!(found, expected, "{event:?} {name} {version}");
            assert_eq!(store.version().to_string(), after, "{event:?} {name} {version}");
            assert_eq!(store.bytes(), size(&store));
            if let Some(change) = change {
                assert_eq!(change.resource_version().0, version);
            }
        }
        assert_eq!(store.snapshot().len(), 1);
    }

    #[test]
    fn relist_reuses_the_memory_of_unchanged_objects() {
        let mut staging = Staging::new(&[], None);
        for (name, text) in [("a", "1"), ("b", "1"), ("c", "1")] {
            staging.put(object(name, 5, text));
        }
        let before = staging.finish(ResourceVersion(5));
        let mut staging = Staging::new(&[], Some(before.snapshot()));
        staging.put(object("a", 5, "1"));
        staging.put(object("b", 5, "other text at the same version"));
        staging.put(object("d", 6, "1"));
        staging.put(object("e", 6, "1"));
        staging.remove("n/e");
        let after = staging.finish(ResourceVersion(7));
        let shared = |key: &str| {
            let (before, after) = (before.snapshot(), after.snapshot());
            Arc::ptr_eq(before.get(key).unwrap(), after.get(key).unwrap())
        };
        assert!(shared("n/a"));
        assert!(!shared("n/b"));
        assert_eq!(
            (after.snapshot().len(), after.version(), after.bytes()),
            (3, ResourceVersion(7).into(), size(&after))
        );
    }
}
