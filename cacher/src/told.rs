//! Objects that are known and not held: what is left of each once the observer was told of it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use tributary_apimachinery::{Object, ResourceVersion};

/// Which objects there are, by hashes of their keys. 24 bytes for each, and as much again where the table has room
/// left: a tenth of what an object takes without its text.
///
/// Two objects with one hash would be taken for one. The hash is keyed, so nobody can choose names that have the same,
/// and among a hundred thousand objects chance finds two once in four billion collections.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToldObjects {
    by_key: HashMap<u64, PublishedObject>,
    hasher: RandomState,
}

/// What is known of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PublishedObject {
    version: ResourceVersion,
    /// A hash of its uid. Half of one: it is compared for an object of the same key and version alone.
    uid: u32,
    /// The bytes that it occupied; of 4 GiB and more, 4 GiB.
    size: u32,
}

impl ToldObjects {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The version of the object of a key, if there is one.
    pub(crate) fn version_of(&self, key: &str) -> Option<ResourceVersion> {
        self.told_of(key).map(|told| told.version)
    }

    /// Whether this very object is there, at its version.
    pub(crate) fn has(&self, object: &Object) -> bool {
        let told = self.told_of(object.key().as_str());
        told.is_some_and(|told| told.version == object.resource_version() && told.uid == self.uid_of(object))
    }

    /// Puts an object in.
    pub(crate) fn put(&mut self, object: &Object) {
        let size = u32::try_from(object.size()).unwrap_or(u32::MAX);
        let told = PublishedObject { version: object.resource_version(), uid: self.uid_of(object), size };
        self.by_key.insert(self.hasher.hash_one(object.key().as_str()), told);
    }

    /// Takes an object out, if it is there, and gives the bytes that it occupied.
    pub(crate) fn remove(&mut self, key: &str) -> u64 {
        // Whoever holds objects need not hash their keys.
        if self.by_key.is_empty() {
            return 0;
        }
        self.by_key.remove(&self.hasher.hash_one(key)).map_or(0, |told| told.size.into())
    }

    /// Makes room for so many more at once.
    pub(crate) fn reserve(&mut self, objects: usize) {
        self.by_key.reserve(objects);
    }

    fn told_of(&self, key: &str) -> Option<&PublishedObject> {
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
