//! The versions and sizes of objects that were dropped from memory after the observer received them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use tributary_apimachinery::{Object, ResourceVersion};

/// The published objects, by hashes of their keys. An object takes 24 bytes, and up to as many again for free slots of
/// the table. A stored object takes ten times as much, in addition to its text.
///
/// Two objects whose keys have equal hashes would be treated as one object. The hash is keyed, so clients cannot choose
/// names with equal hashes. Among a hundred thousand objects, chance produces a collision once in four billion
/// collections.
#[derive(Clone, Debug, Default)]
pub(crate) struct PublishedObjects {
    by_key: HashMap<u64, PublishedObject>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PublishedObject {
    version: ResourceVersion,
    /// A hash of the uid. 32 bits suffice, because uids are compared only between objects with equal key and version.
    uid: u32,
    /// The former size of the object in memory, in bytes; a larger size is stored as 4 GiB.
    size: u32,
}

impl PublishedObjects {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the version of the object with a key, if the object was published.
    pub(crate) fn version_of(&self, key: &str) -> Option<ResourceVersion> {
        self.published_of(key).map(|published| published.version)
    }

    /// Returns whether the same version of the object, with the same uid, was published.
    pub(crate) fn contains(&self, object: &Object) -> bool {
        let published = self.published_of(object.key().as_str());
        published.is_some_and(|published| {
            published.version == object.resource_version() && published.uid == self.uid_of(object)
        })
    }

    pub(crate) fn put(&mut self, object: &Object) {
        let size = u32::try_from(object.size()).unwrap_or(u32::MAX);
        let published = PublishedObject { version: object.resource_version(), uid: self.uid_of(object), size };
        self.by_key.insert(self.hasher.hash_one(object.key().as_str()), published);
    }

    /// Removes an object and returns its size in bytes, or 0 if the object was not published.
    pub(crate) fn remove(&mut self, key: &str) -> u64 {
        // In a collection whose objects stay in memory, the map is always empty. No hash is computed for such a
        // collection.
        if self.by_key.is_empty() {
            return 0;
        }
        self.by_key.remove(&self.hasher.hash_one(key)).map_or(0, |published| published.size.into())
    }

    pub(crate) fn reserve(&mut self, objects: usize) {
        self.by_key.reserve(objects);
    }

    fn published_of(&self, key: &str) -> Option<&PublishedObject> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&self.hasher.hash_one(key))
    }

    fn uid_of(&self, object: &Object) -> u32 {
        let [.., a, b, c, d] = self.hasher.hash_one(object.uid()).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}
