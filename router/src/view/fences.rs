//! Read-your-writes: what a read must wait for after a write through this process.
//!
//! A fence holds the version that a member's answer to a write carried. Until the owner's cacher has it, reads with an
//! unset resourceVersion wait.

use std::collections::BTreeMap;

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, ResourceVersion};

/// What reads of one resource wait for, per cluster.
#[derive(Debug, Default)]
pub struct Fences {
    pending: Mutex<BTreeMap<ClusterName, Pending>>,
}

#[derive(Debug)]
struct Pending {
    fence: Fence,
    /// When the last write was noted.
    since: Instant,
}

/// What reads wait for in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// The highest version that a write was answered with.
    pub version: ResourceVersion,
    /// Deletions that no version was answered for.
    pub deletions: Vec<Deletion>,
}

/// A deletion that was answered without the version that it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The object's key.
    pub key: String,
    /// Its uid: it is gone when no object of the key has it.
    pub uid: String,
    /// Its version before, where it may stay for a while with finalizers or a grace period: a newer one shows that it is being
    /// deleted. `None` where it is known to be gone.
    pub before: Option<ResourceVersion>,
}

/// How many deletions are remembered per cluster; beyond it the oldest is forgotten. They are seen within milliseconds, so this
/// many are waited for only if the member's watch lags, or after a large collection was deleted: its last ones then.
const DELETIONS_MAX: usize = 1024;

/// How long a write is waited for. 30 s: ten reads' patience. What a cacher in good standing has not seen by then will not come: the
/// answer spoke of something else, of a collection whose etcd is not the object's, say; and reads must not fail for ever.
const WAITED_FOR: Duration = Duration::from_secs(30);

impl Fences {
    /// Remembers the version of an object that a write was answered with.
    pub fn wrote(&self, cluster: &ClusterName, version: ResourceVersion) {
        self.note(cluster, |fence| fence.version = fence.version.max(version));
    }

    /// Remembers that objects were deleted.
    pub fn deleted(&self, cluster: &ClusterName, deletions: impl IntoIterator<Item = Deletion>) {
        self.note(cluster, |fence| {
            fence.deletions.extend(deletions);
            let beyond = fence.deletions.len().saturating_sub(DELETIONS_MAX);
            fence.deletions.drain(..beyond);
        });
    }

    fn note(&self, cluster: &ClusterName, change: impl FnOnce(&mut Fence)) {
        let mut all = self.pending.lock();
        let now = Instant::now();
        let pending = all.entry(cluster.clone()).or_insert_with(|| Pending { fence: Fence::default(), since: now });
        pending.since = now;
        change(&mut pending.fence);
    }

    /// What is waited for, per cluster. Cost: one lock; nothing is allocated where nothing is pending.
    pub fn pending(&self) -> Vec<(ClusterName, Fence)> {
        let mut all = self.pending.lock();
        all.retain(|_, pending| pending.since.elapsed() < WAITED_FOR);
        all.iter().map(|(cluster, pending)| (cluster.clone(), pending.fence.clone())).collect()
    }

    /// Forgets what has been reached, unless more was written meanwhile.
    pub fn reached(&self, cluster: &ClusterName, fence: &Fence) {
        let mut pending = self.pending.lock();
        let Some(Pending { fence: current, .. }) = pending.get_mut(cluster) else { return };
        current.deletions.retain(|deletion| !fence.deletions.contains(deletion));
        if current.deletions.is_empty() && current.version <= fence.version {
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

    #[tokio::test(start_paused = true)]
    async fn a_fence_falls_in_the_end() {
        let (fences, cluster) = (Fences::default(), ClusterName::new("c").unwrap());
        fences.wrote(&cluster, ResourceVersion(5));
        tokio::time::advance(WAITED_FOR - Duration::from_secs(1)).await;
        assert_eq!(fences.pending().len(), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(fences.pending().is_empty());
    }

    #[test]
    fn of_many_deletions_the_last_are_remembered() {
        let (fences, cluster) = (Fences::default(), ClusterName::new("c").unwrap());
        let deletion = |number: usize| Deletion { key: format!("n/{number}"), uid: String::new(), before: None };
        fences.deleted(&cluster, (0..DELETIONS_MAX + 5).map(deletion));
        let kept = fences.pending().remove(0).1.deletions;
        assert_eq!((kept.len(), &*kept[0].key), (DELETIONS_MAX, "n/5"));
    }

    #[test]
    fn a_fence_falls_when_all_of_it_is_reached() {
        let (fences, cluster) = (Fences::default(), ClusterName::new("c").unwrap());
        fences.wrote(&cluster, ResourceVersion(5));
        fences.wrote(&cluster, ResourceVersion(3));
        let deletion = Deletion { key: "n/a".into(), uid: "u".into(), before: None };
        fences.deleted(&cluster, [deletion.clone()]);
        let (_, seen) = fences.pending().remove(0);
        assert_eq!(seen, Fence { version: ResourceVersion(5), deletions: vec![deletion] });
        fences.wrote(&cluster, ResourceVersion(7));
        fences.reached(&cluster, &seen);
        assert_eq!(fences.pending()[0].1, Fence { version: ResourceVersion(7), deletions: vec![] });
        fences.reached(&cluster, &Fence { version: ResourceVersion(7), deletions: vec![] });
        assert!(fences.pending().is_empty());
    }
}
