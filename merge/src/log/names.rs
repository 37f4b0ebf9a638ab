//! An index over all clusters, from an object's name to the clusters that may have an object with this name.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use tributary_apimachinery::ClusterName;

/// Maps the hash of a key to a cluster, with one slot for each object. An object takes 10 to 20 bytes. Keys are not
/// stored, so a result must be verified in the cluster's snapshot.
#[derive(Default)]
pub(crate) struct Names {
    table: HashTable<NameSlot>,
    hasher: RandomState,
    slots: BTreeMap<ClusterName, u32>,
    clusters: Vec<ClusterName>,
    /// The numbers of dropped clusters, which later clusters reuse.
    free: Vec<u32>,
}

/// An object's slot in the index. If two keys of a cluster have the same 32-bit hash, the index contains two equal
/// slots. So the removal of one key does not remove the slot of the other key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NameSlot {
    hash: u32,
    slot: u32,
}

impl Names {
    pub(crate) fn insert(&mut self, cluster: &ClusterName, key: &str) {
        let entry = NameSlot { hash: self.hash(key), slot: self.slot(cluster) };
        self.table.insert_unique(spread(entry.hash), entry, |entry| spread(entry.hash));
    }

    pub(crate) fn remove(&mut self, cluster: &ClusterName, key: &str) {
        let entry = NameSlot { hash: self.hash(key), slot: self.slot(cluster) };
        if let Ok(found) = self.table.find_entry(spread(entry.hash), |other| *other == entry) {
            found.remove();
        }
    }

    /// Returns the clusters that may have an object with this key, in the order of their names.
    pub(crate) fn candidates(&self, key: &str) -> Vec<&ClusterName> {
        let hash = self.hash(key);
        let entries = self.table.iter_hash(spread(hash)).filter(|entry| entry.hash == hash);
        let mut clusters: Vec<_> = entries.map(|entry| &self.clusters[entry.slot as usize]).collect();
        clusters.sort();
        clusters.dedup();
        clusters
    }

    /// Iterates over the clusters, except `cluster`, that may have an object with this key. A cluster occurs several
    /// times if the hashes of several of its keys are equal.
    pub(crate) fn clusters_with_key<'a>(
        &'a self,
        cluster: &'a ClusterName,
        key: &str,
    ) -> impl Iterator<Item = &'a ClusterName> {
        let hash = self.hash(key);
        let entries = self.table.iter_hash(spread(hash)).filter(move |entry| entry.hash == hash);
        entries.map(|entry| &self.clusters[entry.slot as usize]).filter(move |other| *other != cluster)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    fn hash(&self, key: &str) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    /// Releases a cluster's number for reuse. The cluster must have no object in the index, as after its leave.
    pub(crate) fn forget(&mut self, cluster: &ClusterName) {
        self.free.extend(self.slots.remove(cluster));
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns a cluster's number, which stays until the cluster is dropped.
    fn slot(&mut self, cluster: &ClusterName) -> u32 {
        if let Some(slot) = self.slots.get(cluster) {
            return *slot;
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.clusters[slot as usize] = cluster.clone();
                slot
            }
            None => {
                self.clusters.push(cluster.clone());
                self.clusters.len() as u32 - 1
            }
        };
        self.slots.insert(cluster.clone(), slot);
        slot
    }
}

/// Spreads the 32 bits of a hash over 64 bits (Fibonacci hashing), because the hash table uses the high and the low
/// bits of a 64-bit hash.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_name_index_reuses_the_number_of_a_removed_cluster() {
        let name = |name: &str| ClusterName::new(name).unwrap_or_else(|error| panic!("{error}"));
        let (first, second, third) = (name("first"), name("second"), name("third"));
        let mut names = Names::default();
        names.insert(&first, "ns/x");
        names.insert(&second, "ns/x");
        names.remove(&first, "ns/x");
        names.forget(&first);
        names.forget(&third);
        names.insert(&third, "ns/y");
        assert_eq!((names.candidates("ns/x"), names.candidates("ns/y")), (vec![&second], vec![&third]));
        assert_eq!((names.clusters.len(), names.slots()), (2, 2));
        names.insert(&first, "ns/y");
        assert_eq!(names.candidates("ns/y"), [&first, &third]);
    }
}
