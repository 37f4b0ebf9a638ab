//! Read-your-writes: what a read must wait for after a write through this process.
//!
//! A fence holds the versions that a member's answers to writes carried, by the objects that were written. Until the
//! owner's cacher has them, reads with an unset resourceVersion wait: of one object for the fences that name it, of a
//! collection for all. So a member whose watch lags holds up those who read what was written there, and nobody else.

use std::collections::BTreeMap;

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, ResourceVersion};

use crate::limits::FENCE_OBJECTS;

/// What reads of one resource wait for, per cluster.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    pending: Mutex<BTreeMap<ClusterName, ClusterFence>>,
}

#[derive(Debug)]
struct ClusterFence {
    written: FencedVersions,
    deletions: Vec<Deletion>,
    /// When the last write was noted.
    since: Instant,
    late: Option<Late>,
}

/// The versions that writes were answered with.
#[derive(Debug)]
enum FencedVersions {
    /// Of each object the highest, by its key.
    Objects(BTreeMap<String, ResourceVersion>),
    /// Of more objects than are told apart, or of one that is not known: the highest of all.
    Collection(ResourceVersion),
}

/// What reads wait for in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fence {
    /// The highest version that a write was answered with.
    pub version: ResourceVersion,
    /// Deletions that no version was answered for.
    pub deletions: Vec<Deletion>,
}

/// What a list has waited for in vain.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    /// What did not come.
    pub fence: Fence,
    /// When the wait began.
    pub since: Instant,
}

/// What reads of a collection wait for in one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Waited {
    /// The cluster.
    pub cluster: ClusterName,
    /// All that was written there.
    pub fence: Fence,
    /// What of it was waited for in vain.
    pub late: Option<Late>,
}

/// A deletion that was answered without the version that it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    /// The object's key.
    pub key: String,
    /// Its uid: it is gone when no object of the key has it.
    pub uid: String,
    /// Its version before, where it may stay for a while with finalizers or a grace period: a newer one shows that it
    /// is being deleted. `None` where it is known to be gone.
    pub before: Option<ResourceVersion>,
}

/// How many deletions are remembered per cluster; beyond it the oldest is forgotten. They are seen within milliseconds,
/// so this many are waited for only if the member's watch lags, or after a large collection was deleted:
/// its last ones then.
const DELETIONS_MAX: usize = 1024;

/// How long a write is waited for. 30 s: ten reads' patience. What a cacher in good standing has not seen by then will
/// not come: the answer spoke of something else, for example of a collection whose etcd is not the object's; and reads
/// must not fail for ever.
const WAITED_FOR: Duration = Duration::from_secs(30);

impl Fences {
    /// Remembers the version of an object that a write was answered with.
    /// `key` is `None` where it is not known which object it is.
    pub(crate) fn wrote(&self, cluster: &ClusterName, key: Option<&str>, version: ResourceVersion) {
        self.note(cluster, |pending| pending.written.note(key, version));
    }

    /// Remembers that objects were deleted.
    pub(crate) fn deleted(&self, cluster: &ClusterName, deletions: impl IntoIterator<Item = Deletion>) {
        self.note(cluster, |pending| {
            pending.deletions.extend(deletions);
            let beyond = pending.deletions.len().saturating_sub(DELETIONS_MAX);
            pending.deletions.drain(..beyond);
        });
    }

    fn note(&self, cluster: &ClusterName, change: impl FnOnce(&mut ClusterFence)) {
        let mut all = self.pending.lock();
        let pending = all.entry(cluster.clone()).or_insert_with(ClusterFence::new);
        if pending.is_over() {
            *pending = ClusterFence::new();
        }
        pending.since = Instant::now();
        change(pending);
    }

    /// What a read of the collection waits for, per cluster. Cost: one lock;
    /// nothing is allocated where nothing is pending.
    pub(crate) fn pending(&self) -> Vec<Waited> {
        let mut all = self.pending.lock();
        all.retain(|_, pending| !pending.is_over());
        let waited = |(cluster, pending): (&ClusterName, &ClusterFence)| Waited {
            cluster: cluster.clone(),
            fence: Fence { version: pending.written.highest(), deletions: pending.deletions.clone() },
            late: pending.late.clone(),
        };
        all.iter().map(waited).collect()
    }

    /// What a read of one object waits for, per cluster where an object of that key was written. Cost: one lock, and a
    /// look at each cluster where something is pending.
    pub(crate) fn pending_of(&self, key: &str) -> Vec<(ClusterName, Fence)> {
        let mut all = self.pending.lock();
        all.retain(|_, pending| !pending.is_over());
        let fences = all.iter().filter_map(|(cluster, pending)| Some((cluster.clone(), pending.fence_of(key)?)));
        fences.collect()
    }

    /// Whether an object of a namespace was written or deleted in a cluster, as far as reads wait for it.
    pub(crate) fn concern(&self, cluster: &ClusterName, namespace: &str) -> bool {
        let all = self.pending.lock();
        let is_of = |key: &String| key.split_once('/').is_some_and(|(own, _)| own == namespace);
        all.get(cluster).filter(|pending| !pending.is_over()).is_some_and(|pending| {
            let written = match &pending.written {
                FencedVersions::Objects(versions) => versions.keys().any(is_of),
                FencedVersions::Collection(_) => true,
            };
            written || pending.deletions.iter().any(|deletion| is_of(&deletion.key))
        })
    }

    /// Forgets what has been reached, unless more was written meanwhile.
    pub(crate) fn reached(&self, cluster: &ClusterName, fence: &Fence) {
        let mut all = self.pending.lock();
        let Some(pending) = all.get_mut(cluster) else { return };
        pending.deletions.retain(|deletion| !fence.deletions.contains(deletion));
        pending.written.reached(fence.version);
        if pending.late.as_ref().is_some_and(|late| late.fence == *fence) {
            pending.late = None;
        }
        if pending.deletions.is_empty() && pending.written.is_empty() {
            all.remove(cluster);
        }
    }

    /// Remembers that a list has waited in vain.
    pub(crate) fn late(&self, cluster: &ClusterName, late: Late) {
        if let Some(pending) = self.pending.lock().get_mut(cluster) {
            pending.late.get_or_insert(late);
        }
    }

    /// Forgets a cluster: it left, or its revisions began anew.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.pending.lock().remove(cluster);
    }
}

impl ClusterFence {
    fn new() -> Self {
        let written = FencedVersions::Objects(BTreeMap::new());
        Self { written, deletions: Vec::new(), since: Instant::now(), late: None }
    }

    /// Whether it is waited for no longer.
    fn is_over(&self) -> bool {
        self.since.elapsed() >= WAITED_FOR
    }

    /// What a read of one object waits for; `None` for nothing.
    fn fence_of(&self, key: &str) -> Option<Fence> {
        let version = match &self.written {
            FencedVersions::Objects(versions) => versions.get(key).copied().unwrap_or_default(),
            FencedVersions::Collection(version) => *version,
        };
        let deletions: Vec<_> = self.deletions.iter().filter(|deletion| deletion.key == key).cloned().collect();
        (version > ResourceVersion::default() || !deletions.is_empty()).then_some(Fence { version, deletions })
    }
}

impl FencedVersions {
    fn note(&mut self, key: Option<&str>, version: ResourceVersion) {
        match (&mut *self, key) {
            (Self::Collection(highest), _) => *highest = version.max(*highest),
            (Self::Objects(versions), Some(key)) if versions.len() < FENCE_OBJECTS || versions.contains_key(key) => {
                let own = versions.entry(key.to_owned()).or_default();
                *own = version.max(*own);
            }
            (Self::Objects(_), _) => *self = Self::Collection(version.max(self.highest())),
        }
    }

    /// The highest version of all; 0 for none.
    fn highest(&self) -> ResourceVersion {
        match self {
            Self::Objects(versions) => versions.values().copied().max().unwrap_or_default(),
            Self::Collection(version) => *version,
        }
    }

    fn reached(&mut self, version: ResourceVersion) {
        match self {
            Self::Objects(versions) => versions.retain(|_, own| *own > version),
            Self::Collection(highest) if *highest <= version => *self = Self::Objects(BTreeMap::new()),
            Self::Collection(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Objects(versions) if versions.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ClusterName {
        ClusterName::new(text).unwrap()
    }

    fn deletion(key: &str) -> Deletion {
        Deletion { key: key.to_owned(), uid: "u".into(), before: None }
    }

    fn only(fences: &Fences) -> Fence {
        fences.pending().remove(0).fence
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_falls_in_the_end() {
        let (fences, cluster) = (Fences::default(), name("c"));
        fences.wrote(&cluster, Some("n/x"), ResourceVersion(5));
        tokio::time::advance(WAITED_FOR - Duration::from_secs(1)).await;
        assert_eq!(fences.pending().len(), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(fences.pending().is_empty());
        fences.wrote(&cluster, Some("n/x"), ResourceVersion(5));
        tokio::time::advance(WAITED_FOR).await;
        fences.wrote(&cluster, Some("n/y"), ResourceVersion(6));
        assert_eq!(fences.pending_of("n/x"), [], "what is over does not come back with what is written next");
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_deletions_the_last_are_remembered() {
        let (fences, cluster) = (Fences::default(), name("c"));
        fences.deleted(&cluster, (0..DELETIONS_MAX + 5).map(|number| deletion(&format!("n/{number}"))));
        let kept = only(&fences).deletions;
        assert_eq!((kept.len(), &*kept[0].key), (DELETIONS_MAX, "n/5"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_of_one_object_waits_for_its_own_writes() {
        let (fences, a, b) = (Fences::default(), name("a"), name("b"));
        fences.wrote(&a, Some("n/x"), ResourceVersion(5));
        fences.wrote(&a, Some("n/x"), ResourceVersion(4));
        fences.wrote(&a, Some("n/y"), ResourceVersion(7));
        fences.wrote(&b, Some("n/x"), ResourceVersion(9));
        fences.deleted(&b, [deletion("n/z")]);
        let fence = |version, deletions| Fence { version: ResourceVersion(version), deletions };
        assert_eq!(
            fences.pending_of("n/x"),
            [(a.clone(), fence(5, vec![])), (b.clone(), fence(9, vec![]))],
            "in whichever cluster an object of the name is"
        );
        assert_eq!(fences.pending_of("n/y"), [(a.clone(), fence(7, vec![]))]);
        assert_eq!(fences.pending_of("n/z"), [(b.clone(), fence(0, vec![deletion("n/z")]))]);
        assert_eq!(fences.pending_of("n/w"), []);
        let all: Vec<_> = fences.pending().into_iter().map(|waited| (waited.cluster, waited.fence)).collect();
        assert_eq!(all, [(a.clone(), fence(7, vec![])), (b.clone(), fence(9, vec![deletion("n/z")]))]);
        assert!(fences.concern(&a, "n") && !fences.concern(&a, "m"));
        // What has been seen up to a version is seen of all objects.
        fences.reached(&a, &fence(5, vec![]));
        assert_eq!(fences.pending_of("n/x"), [(b, fence(9, vec![]))]);
        assert_eq!(fences.pending_of("n/y"), [(a, fence(7, vec![]))]);
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_a_thousand_objects_and_one_of_no_name_stand_for_the_collection() {
        let (fences, cluster) = (Fences::default(), name("c"));
        for number in 1..=FENCE_OBJECTS as u64 {
            fences.wrote(&cluster, Some(&format!("n/{number}")), ResourceVersion(number));
        }
        assert_eq!(fences.pending_of("n/other"), []);
        fences.wrote(&cluster, Some("n/1"), ResourceVersion(2000));
        assert_eq!(fences.pending_of("n/other"), [], "an object that is told apart already is no other");
        fences.wrote(&cluster, Some("n/one-more"), ResourceVersion(1500));
        let all = Fence { version: ResourceVersion(2000), deletions: vec![] };
        assert_eq!(fences.pending_of("n/other"), [(cluster.clone(), all.clone())]);
        fences.reached(&cluster, &all);
        assert!(fences.pending().is_empty());
        fences.wrote(&cluster, None, ResourceVersion(2001));
        assert_eq!(fences.pending_of("n/other").len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_falls_when_all_of_it_is_reached() {
        let (fences, cluster) = (Fences::default(), name("c"));
        fences.wrote(&cluster, Some("n/x"), ResourceVersion(5));
        fences.deleted(&cluster, [deletion("n/a")]);
        let seen = only(&fences);
        assert_eq!(seen, Fence { version: ResourceVersion(5), deletions: vec![deletion("n/a")] });
        fences.wrote(&cluster, Some("n/x"), ResourceVersion(7));
        fences.reached(&cluster, &seen);
        assert_eq!(only(&fences), Fence { version: ResourceVersion(7), deletions: vec![] });
        fences.reached(&cluster, &Fence { version: ResourceVersion(7), deletions: vec![] });
        assert!(fences.pending().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_waited_for_in_vain_is_late_until_it_comes() {
        let (fences, cluster) = (Fences::default(), name("c"));
        fences.wrote(&cluster, Some("n/x"), ResourceVersion(5));
        let fence = only(&fences);
        let late = |fences: &Fences| fences.pending().remove(0).late.map(|late| late.fence);
        assert_eq!(late(&fences), None);
        fences.late(&cluster, Late { fence: fence.clone(), since: Instant::now() });
        fences.wrote(&cluster, Some("n/y"), ResourceVersion(9));
        fences.late(&cluster, Late { fence: only(&fences), since: Instant::now() });
        assert_eq!(late(&fences), Some(fence.clone()), "the first is waited for");
        fences.reached(&cluster, &fence);
        assert_eq!((late(&fences), only(&fences).version), (None, ResourceVersion(9)));
    }
}
