//! The collection, as one writer changes it.

use std::sync::Arc;

use tributary_apimachinery::{
    Change, ChangeType, CollectionVersion, Object, ResourceVersion, SelectableField, Snapshot,
};

/// The collection of one cacher at one version, and its size. Written by the reflector alone; readers get clones of the
/// snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    snapshot: Snapshot,
    bytes: u64,
}

impl Store {
    /// The collection as of now: an O(1) clone.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    pub(crate) fn version(&self) -> CollectionVersion {
        self.snapshot.resource_version()
    }

    /// The bytes that the objects occupy.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Applies one event of a watch and gives the change that it makes, if any.
    ///
    /// An event of a revision before the one held is a repetition: watches are in order of revision, so what it says is
    /// contained already. One of the very revision may be one of several that share it, and says something new if it
    /// changes something. The change's type follows from what is held, not from the event: an object that is already
    /// there is `Modified` even if the event says ADDED, and one that is not there cannot be `Deleted`.
    pub(crate) fn apply(&mut self, change_type: ChangeType, object: Object) -> Option<Change> {
        let version = object.resource_version();
        if version < self.version().revision() {
            return None;
        }
        let held = self.snapshot.get(object.key().as_str());
        if held.is_some_and(|held| held.resource_version() >= version) {
            return None;
        }
        let is_held = held.is_some();
        let object = Arc::new(object);
        let change = Change { change_type, object: Arc::clone(&object), previous: None };
        if change_type == ChangeType::Deleted && !is_held {
            self.advance(CollectionVersion::begun(version));
            return None;
        }
        self.advance(self.version().after(&change));
        if change_type == ChangeType::Deleted {
            return Some(Change { previous: self.remove(object.key().as_str()), ..change });
        }
        let previous = self.insert(object);
        let change_type = if is_held { ChangeType::Modified } else { ChangeType::Added };
        Some(Change { change_type, previous, ..change })
    }

    /// Moves the version forward, unless it is there already.
    pub(crate) fn advance(&mut self, version: CollectionVersion) {
        if version > self.version() {
            self.snapshot.set_resource_version(version);
        }
    }

    /// Forgets the texts of these objects, or of all (`None`).
    pub(crate) fn forget_texts(&mut self, changes: Option<&[Change]>) {
        let held: Vec<_> = match changes {
            Some(changes) => {
                changes.iter().filter_map(|change| self.snapshot.get(change.object.key().as_str())).collect()
            }
            None => self.snapshot.iter().collect(),
        };
        let texts = held.into_iter().filter(|object| !object.is_without_text());
        let without: Vec<_> = texts.map(|object| Arc::new(object.without_text())).collect();
        for object in without {
            self.insert(object);
        }
    }

    fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        self.bytes += object.size() as u64;
        let previous = self.snapshot.insert(object);
        self.bytes -= previous.as_ref().map_or(0, |object| object.size() as u64);
        previous
    }

    fn remove(&mut self, key: &str) -> Option<Arc<Object>> {
        let previous = self.snapshot.remove(key);
        self.bytes -= previous.as_ref().map_or(0, |object| object.size() as u64);
        previous
    }
}

/// A collection that is being listed, while the one before is still served.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    store: Store,
    before: Option<Snapshot>,
}

impl Staging {
    /// Begins an empty collection of objects with these fields. Objects that are the same in `before` are shared with
    /// it, so that a relist does not hold everything twice and differences are found by comparing pointers.
    pub(crate) fn new(fields: &[SelectableField], before: Option<Snapshot>) -> Self {
        Self { store: Store { snapshot: Snapshot::indexed(fields), bytes: 0 }, before }
    }

    /// Puts an object in.
    pub(crate) fn put(&mut self, object: Object) {
        let known = self.before.as_ref().and_then(|before| before.get(object.key().as_str()));
        let object = match known {
            // After a restore the same version may stand for other bytes.
            Some(known) if known.json() == object.json() => known.clone(),
            _ => Arc::new(object),
        };
        self.store.insert(object);
    }

    /// The bytes that the objects occupy.
    pub(crate) fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// Takes an object out again.
    pub(crate) fn remove(&mut self, key: &str) {
        self.store.remove(key);
    }

    /// The complete collection, as of `version`.
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
    fn a_text_is_forgotten_and_still_counted() {
        let mut store = Store::default();
        for (name, version) in [("a", 1), ("b", 2)] {
            store.apply(ChangeType::Added, object(name, version, &"x".repeat(100)));
        }
        let bytes = store.bytes();
        let change = store.apply(ChangeType::Modified, object("a", 3, &"y".repeat(200))).unwrap();
        store.forget_texts(Some(&[change]));
        let text = |store: &Store, key: &str| store.snapshot().get(key).unwrap().json().len();
        assert!(text(&store, "n/a") < 40 && text(&store, "n/b") > 100);
        store.forget_texts(None);
        assert!(text(&store, "n/b") < 40);
        assert_eq!((store.bytes(), size(&store)), (bytes + 100, bytes + 100));
        assert_eq!(store.snapshot().get("n/a").unwrap().resource_version(), ResourceVersion(3));
        store.apply(ChangeType::Deleted, object("a", 4, "gone"));
        store.apply(ChangeType::Deleted, object("b", 5, "gone"));
        assert_eq!(store.bytes(), 0);
    }

    fn size(store: &Store) -> u64 {
        store.snapshot.iter().map(|object| object.size() as u64).sum()
    }

    #[test]
    fn the_change_follows_from_what_is_held() {
        use ChangeType::{Added, Deleted, Modified};
        let mut store = Staging::new(&[], None).finish(ResourceVersion(10));
        // (event, name, version) → (change, version of the previous object), version after
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
    fn a_relist_shares_what_did_not_change() {
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
