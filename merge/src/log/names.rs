//! Which clusters have an object of a name: one index over all clusters.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use tributary_apimachinery::ClusterName;

/// Hash of the key → cluster, once for each object. 10 to 20 bytes an object; keys are not kept, so a hit is to be
/// verified in the cluster's snapshot.
#[derive(Default)]
pub(crate) struct Names {
    table: HashTable<Place>,
    hasher: RandomState,
    slots: BTreeMap<ClusterName, u32>,
    clusters: Vec<ClusterName>,
}

/// An object's place. Two keys of one cluster with the same 32 bits have two equal places, so each can be taken out.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    hash: u32,
    slot: u32,
}

impl Names {
    pub(crate) fn insert(&mut self, cluster: &ClusterName, key: &str) {
        let place = Place { hash: self.hash(key), slot: self.slot(cluster) };
        self.table.insert_unique(spread(place.hash), place, |place| spread(place.hash));
    }

    pub(crate) fn remove(&mut self, cluster: &ClusterName, key: &str) {
        let place = Place { hash: self.hash(key), slot: self.slot(cluster) };
        if let Ok(found) = self.table.find_entry(spread(place.hash), |other| *other == place) {
            found.remove();
        }
    }

    /// The clusters that may have an object of this key, in the order of their names.
    pub(crate) fn candidates(&self, key: &str) -> Vec<&ClusterName> {
        let hash = self.hash(key);
        let places = self.table.iter_hash(spread(hash)).filter(|place| place.hash == hash);
        let mut clusters: Vec<_> = places.map(|place| &self.clusters[place.slot as usize]).collect();
        clusters.sort();
        clusters.dedup();
        clusters
    }

    /// How many objects are indexed.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    fn hash(&self, key: &str) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    /// A cluster's number. Numbers stay: names of clusters are few and come back.
    fn slot(&mut self, cluster: &ClusterName) -> u32 {
        if let Some(slot) = self.slots.get(cluster) {
            return *slot;
        }
        let slot = self.clusters.len() as u32;
        self.clusters.push(cluster.clone());
        self.slots.insert(cluster.clone(), slot);
        slot
    }
}

/// Spreads 32 bits over the 64 that the table takes its groups and tags from (Fibonacci hashing).
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
