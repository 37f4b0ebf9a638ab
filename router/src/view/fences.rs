//! Read-your-writes: what a read must wait for after a write through this process.
//!
//! A fence holds the version that a member's answer to a write carried. Until the owner's cacher has it, reads with an
//! unset resourceVersion wait.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tributary_apimachinery::{ClusterName, ResourceVersion};

/// What reads of one resource wait for, per cluster.
#[derive(Debug, Default)]
pub struct Fences {
    pending: Mutex<BTreeMap<ClusterName, Fence>>,
}

/// What reads wait for in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// The highest version that a write was answered with.
    pub version: ResourceVersion,
    /// Objects that a deletion was answered for with a Status, as key and uid: gone when no object of the key has the uid.
    pub gone: Vec<(String, String)>,
}

/// How many deletions are remembered per cluster; beyond it the oldest is forgotten. Deletions answered by a Status are
/// seen within milliseconds, so this many are waited for only if the member's watch lags.
const GONE_MAX: usize = 1024;

impl Fences {
    /// Remembers the version of an object that a write was answered with.
    pub fn wrote(&self, cluster: &ClusterName, version: ResourceVersion) {
        let mut pending = self.pending.lock();
        let fence = pending.entry(cluster.clone()).or_default();
        fence.version = fence.version.max(version);
    }

    /// Remembers that an object was deleted.
    pub fn deleted(&self, cluster: &ClusterName, key: &str, uid: &str) {
        let mut pending = self.pending.lock();
        let gone = &mut pending.entry(cluster.clone()).or_default().gone;
        if gone.len() == GONE_MAX {
            gone.remove(0);
        }
        gone.push((key.to_owned(), uid.to_owned()));
    }

    /// What is waited for, per cluster. Cost: one lock; nothing is allocated where nothing is pending.
    pub fn pending(&self) -> Vec<(ClusterName, Fence)> {
        self.pending.lock().iter().map(|(cluster, fence)| (cluster.clone(), fence.clone())).collect()
    }

    /// Forgets what has been reached, unless more was written meanwhile.
    pub fn reached(&self, cluster: &ClusterName, fence: &Fence) {
        let mut pending = self.pending.lock();
        let Some(current) = pending.get_mut(cluster) else { return };
        current.gone.retain(|gone| !fence.gone.contains(gone));
        if current.gone.is_empty() && current.version <= fence.version {
            pending.remove(cluster);
        }
    }

    /// Forgets a cluster: it left, or its revisions began anew.
    pub fn forget(&self, cluster: &ClusterName) {
        self.pending.lock().remove(cluster);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_falls_when_all_of_it_is_reached() {
        let (fences, cluster) = (Fences::default(), ClusterName::new("c").unwrap());
        fences.wrote(&cluster, ResourceVersion(5));
        fences.wrote(&cluster, ResourceVersion(3));
        fences.deleted(&cluster, "n/a", "u");
        let (_, seen) = fences.pending().remove(0);
        assert_eq!(seen, Fence { version: ResourceVersion(5), gone: vec![("n/a".into(), "u".into())] });
        fences.wrote(&cluster, ResourceVersion(7));
        fences.reached(&cluster, &seen);
        assert_eq!(fences.pending()[0].1, Fence { version: ResourceVersion(7), gone: vec![] });
        fences.reached(&cluster, &Fence { version: ResourceVersion(7), gone: vec![] });
        assert!(fences.pending().is_empty());
    }
}
