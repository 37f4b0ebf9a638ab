//! Read-your-writes: what a read must wait for after a write through this process.
//!
//! A fence holds the versions that a member's answers to writes carried, by the objects that were written. Until the
//! owner's cacher has them, reads with an unset resourceVersion wait: of one object for the fences that name it, of a
//! collection for all. So a member whose watch lags holds up those who read what was written there, and nobody else.
//! Where there are many users, each waits for their own writes alone: otherwise one who writes all the time where a
//! member lags would keep all the others waiting.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, ResourceVersion};

use tributary_sharing::flow::holder::Holder;
use tributary_sharing::limits::FENCE_OBJECTS;

/// What reads of one resource wait for, per writer ([`Caller::writer`](crate::caller::Caller::writer)) and cluster.
#[derive(Debug, Default)]
pub struct Fences {
    pending: Mutex<ByWriter>,
}

#[derive(Debug, Default)]
struct ByWriter(HashMap<Holder, WriterFences>);

/// Whose writes are waited for.
#[derive(Clone, Copy, Debug)]
pub enum WrittenBy {
    /// A read shows a writer their own (`Caller::writer`).
    One(Holder),
    /// A write must not go to the wrong cluster, whoever wrote there a moment ago.
    Anybody,
}

/// What one writer's reads wait for, per cluster. Never empty.
type WriterFences = BTreeMap<ClusterName, ClusterFence>;

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
pub struct Fence {
    /// The highest version that a write was answered with.
    pub version: ResourceVersion,
    /// Deletions that no version was answered for.
    pub deletions: Vec<Deletion>,
}

/// What a list has waited for in vain.
#[derive(Clone, Debug)]
pub struct Late {
    /// What did not come.
    pub fence: Fence,
    /// When the wait began.
    pub since: Instant,
}

/// What reads of a collection wait for in one cluster.
#[derive(Clone, Debug)]
pub struct Waited {
    /// The cluster.
    pub cluster: ClusterName,
    /// All that was written there.
    pub fence: Fence,
    /// What of it was waited for in vain.
    pub late: Option<Late>,
}

/// A deletion that was answered without the version that it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
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

/// Whose writes are remembered at once. Writers who do not read what they wrote leave theirs behind for 30 s; beyond
/// this many, those who wrote longest ago are forgotten. 1,024: as many users as write to one resource within 30 s,
/// at some hundred bytes each.
const WRITERS_MAX: usize = 1024;

impl Fences {
    /// Remembers the version of an object that a write was answered with.
    /// `key` is `None` where it is not known which object it is.
    pub fn wrote(&self, writer: Holder, cluster: &ClusterName, key: Option<&str>, version: ResourceVersion) {
        self.update_fence(writer, cluster, |pending| pending.written.add_version(key, version));
    }

    /// Remembers that objects were deleted.
    pub fn deleted(&self, writer: Holder, cluster: &ClusterName, deletions: impl IntoIterator<Item = Deletion>) {
        self.update_fence(writer, cluster, |pending| {
            pending.deletions.extend(deletions);
            let beyond = pending.deletions.len().saturating_sub(DELETIONS_MAX);
            pending.deletions.drain(..beyond);
        });
    }

    fn update_fence(&self, writer: Holder, cluster: &ClusterName, change: impl FnOnce(&mut ClusterFence)) {
        let mut all = self.pending.lock();
        if all.0.len() >= WRITERS_MAX && !all.0.contains_key(&writer) {
            all.make_room();
        }
        let own = all.0.entry(writer).or_default();
        let pending = own.entry(cluster.clone()).or_insert_with(ClusterFence::new);
        if pending.is_over() {
            *pending = ClusterFence::new();
        }
        pending.since = Instant::now();
        change(pending);
    }

    /// What a read of the collection waits for, per cluster, and per writer where anybody's writes count. Cost: one
    /// lock; nothing is allocated where nothing is pending.
    pub fn pending(&self, by: WrittenBy) -> Vec<Waited> {
        let waited = |(cluster, pending): (&ClusterName, &ClusterFence)| Waited {
            cluster: cluster.clone(),
            fence: Fence { version: pending.written.highest(), deletions: pending.deletions.clone() },
            late: pending.late.clone(),
        };
        self.pending.lock().by(by).map(waited).collect()
    }

    /// What a read of one object waits for, per cluster where an object of that key was written, and per writer where
    /// anybody's writes count. Cost: one lock, and a look at each cluster where something is pending.
    pub fn pending_of(&self, by: WrittenBy, key: &str) -> Vec<(ClusterName, Fence)> {
        let of_key =
            |(cluster, pending): (&ClusterName, &ClusterFence)| Some((cluster.clone(), pending.fence_of(key)?));
        self.pending.lock().by(by).filter_map(of_key).collect()
    }

    /// Whether anybody wrote or deleted an object of a namespace in a cluster, as far as reads wait for it.
    pub fn concern(&self, cluster: &ClusterName, namespace: &str) -> bool {
        let all = self.pending.lock();
        let mut of_cluster = all.by(WrittenBy::Anybody).filter(|(own, _)| *own == cluster);
        let is_of = |key: &String| key.split_once('/').is_some_and(|(own, _)| own == namespace);
        of_cluster.any(|(_, pending)| {
            let written = match &pending.written {
                FencedVersions::Objects(versions) => versions.keys().any(is_of),
                FencedVersions::Collection(_) => true,
            };
            written || pending.deletions.iter().any(|deletion| is_of(&deletion.key))
        })
    }

    /// Forgets what has been reached, unless more was written meanwhile: of all writers, since what is seen is seen by
    /// all.
    pub fn reached(&self, cluster: &ClusterName, fence: &Fence) {
        self.change(cluster, |pending| {
            pending.deletions.retain(|deletion| !fence.deletions.contains(deletion));
            pending.written.reached(fence.version);
            if pending.late.as_ref().is_some_and(|late| late.fence == *fence) {
                pending.late = None;
            }
            !(pending.deletions.is_empty() && pending.written.is_empty())
        });
    }

    /// Remembers that a list has waited in vain for its writer's own.
    pub fn late(&self, by: WrittenBy, cluster: &ClusterName, late: Late) {
        let WrittenBy::One(writer) = by else { return };
        if let Some(pending) = self.pending.lock().0.get_mut(&writer).and_then(|own| own.get_mut(cluster)) {
            pending.late.get_or_insert(late);
        }
    }

    /// Forgets a cluster: it left, or its revisions began anew.
    pub fn forget(&self, cluster: &ClusterName) {
        self.change(cluster, |_| false);
    }

    /// Changes what is pending in a cluster, for each writer; it is kept where `change` says so.
    fn change(&self, cluster: &ClusterName, mut change: impl FnMut(&mut ClusterFence) -> bool) {
        self.pending.lock().0.retain(|_, own| {
            if own.get_mut(cluster).is_some_and(|pending| !change(pending)) {
                own.remove(cluster);
            }
            !own.is_empty()
        });
    }
}

impl ByWriter {
    /// What is still waited for.
    fn by(&self, by: WrittenBy) -> impl Iterator<Item = (&ClusterName, &ClusterFence)> {
        let (one, all) = match by {
            WrittenBy::One(writer) => (self.0.get(&writer), None),
            WrittenBy::Anybody => (None, Some(self.0.values())),
        };
        one.into_iter().chain(all.into_iter().flatten()).flatten().filter(|(_, pending)| !pending.is_over())
    }

    /// Forgets what is over, and where that is nothing the writer who wrote longest ago. Cost: a look at every fence,
    /// at a write of somebody new while there are a thousand writers.
    fn make_room(&mut self) {
        self.0.retain(|_, own| {
            own.retain(|_, pending| !pending.is_over());
            !own.is_empty()
        });
        let last = |own: &WriterFences| own.values().map(|pending| pending.since).max();
        if self.0.len() >= WRITERS_MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, own)| last(own)).map(|(writer, _)| *writer)
        {
            self.0.remove(&oldest);
        }
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
    fn add_version(&mut self, key: Option<&str>, version: ResourceVersion) {
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

    const ME: Holder = Holder::Unknown;
    const MINE: WrittenBy = WrittenBy::One(ME);

    fn name(text: &str) -> ClusterName {
        ClusterName::new(text).unwrap()
    }

    fn deletion(key: &str) -> Deletion {
        Deletion { key: key.to_owned(), uid: "u".into(), before: None }
    }

    fn only(fences: &Fences) -> Fence {
        fences.pending(MINE).remove(0).fence
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_falls_in_the_end() {
        let (fences, cluster) = (Fences::default(), name("c"));
        fences.wrote(ME, &cluster, Some("n/x"), ResourceVersion(5));
        tokio::time::advance(WAITED_FOR - Duration::from_secs(1)).await;
        assert_eq!(fences.pending(MINE).len(), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(fences.pending(MINE).is_empty());
        fences.wrote(ME, &cluster, Some("n/x"), ResourceVersion(5));
        tokio::time::advance(WAITED_FOR).await;
        fences.wrote(ME, &cluster, Some("n/y"), ResourceVersion(6));
        assert_eq!(fences.pending_of(MINE, "n/x"), [], "what is over does not come back with what is written next");
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_deletions_the_last_are_remembered() {
        let (fences, cluster) = (Fences::default(), name("c"));
        fences.deleted(ME, &cluster, (0..DELETIONS_MAX + 5).map(|number| deletion(&format!("n/{number}"))));
        let kept = only(&fences).deletions;
        assert_eq!((kept.len(), &*kept[0].key), (DELETIONS_MAX, "n/5"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_of_one_object_waits_for_its_own_writes() {
        let (fences, a, b) = (Fences::default(), name("a"), name("b"));
        fences.wrote(ME, &a, Some("n/x"), ResourceVersion(5));
        fences.wrote(ME, &a, Some("n/x"), ResourceVersion(4));
        fences.wrote(ME, &a, Some("n/y"), ResourceVersion(7));
        fences.wrote(ME, &b, Some("n/x"), ResourceVersion(9));
        fences.deleted(ME, &b, [deletion("n/z")]);
        let fence = |version, deletions| Fence { version: ResourceVersion(version), deletions };
        assert_eq!(
            fences.pending_of(MINE, "n/x"),
            [(a.clone(), fence(5, vec![])), (b.clone(), fence(9, vec![]))],
            "in whichever cluster an object of the name is"
        );
        assert_eq!(fences.pending_of(MINE, "n/y"), [(a.clone(), fence(7, vec![]))]);
        assert_eq!(fences.pending_of(MINE, "n/z"), [(b.clone(), fence(0, vec![deletion("n/z")]))]);
        assert_eq!(fences.pending_of(MINE, "n/w"), []);
        let all: Vec<_> = fences.pending(MINE).into_iter().map(|waited| (waited.cluster, waited.fence)).collect();
        assert_eq!(all, [(a.clone(), fence(7, vec![])), (b.clone(), fence(9, vec![deletion("n/z")]))]);
        assert!(fences.concern(&a, "n") && !fences.concern(&a, "m"));
        // What has been seen up to a version is seen of all objects.
        fences.reached(&a, &fence(5, vec![]));
        assert_eq!(fences.pending_of(MINE, "n/x"), [(b, fence(9, vec![]))]);
        assert_eq!(fences.pending_of(MINE, "n/y"), [(a, fence(7, vec![]))]);
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_a_thousand_objects_and_one_of_no_name_stand_for_the_collection() {
        let (fences, cluster) = (Fences::default(), name("c"));
        for number in 1..=FENCE_OBJECTS as u64 {
            fences.wrote(ME, &cluster, Some(&format!("n/{number}")), ResourceVersion(number));
        }
        assert_eq!(fences.pending_of(MINE, "n/other"), []);
        fences.wrote(ME, &cluster, Some("n/1"), ResourceVersion(2000));
        assert_eq!(fences.pending_of(MINE, "n/other"), [], "an object that is told apart already is no other");
        fences.wrote(ME, &cluster, Some("n/one-more"), ResourceVersion(1500));
        let all = Fence { version: ResourceVersion(2000), deletions: vec![] };
        assert_eq!(fences.pending_of(MINE, "n/other"), [(cluster.clone(), all.clone())]);
        fences.reached(&cluster, &all);
        assert!(fences.pending(MINE).is_empty());
        fences.wrote(ME, &cluster, None, ResourceVersion(2001));
        assert_eq!(fences.pending_of(MINE, "n/other").len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_falls_when_all_of_it_is_reached() {
        let (fences, cluster) = (Fences::default(), name("c"));
        fences.wrote(ME, &cluster, Some("n/x"), ResourceVersion(5));
        fences.deleted(ME, &cluster, [deletion("n/a")]);
        let seen = only(&fences);
        assert_eq!(seen, Fence { version: ResourceVersion(5), deletions: vec![deletion("n/a")] });
        fences.wrote(ME, &cluster, Some("n/x"), ResourceVersion(7));
        fences.reached(&cluster, &seen);
        assert_eq!(only(&fences), Fence { version: ResourceVersion(7), deletions: vec![] });
        fences.reached(&cluster, &Fence { version: ResourceVersion(7), deletions: vec![] });
        assert!(fences.pending(MINE).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_waited_for_in_vain_is_late_until_it_comes() {
        let (fences, cluster) = (Fences::default(), name("c"));
        fences.wrote(ME, &cluster, Some("n/x"), ResourceVersion(5));
        let fence = only(&fences);
        let late = |fences: &Fences| fences.pending(MINE).remove(0).late.map(|late| late.fence);
        assert_eq!(late(&fences), None);
        fences.late(MINE, &cluster, Late { fence: fence.clone(), since: Instant::now() });
        fences.wrote(ME, &cluster, Some("n/y"), ResourceVersion(9));
        fences.late(MINE, &cluster, Late { fence: only(&fences), since: Instant::now() });
        assert_eq!(late(&fences), Some(fence.clone()), "the first is waited for");
        fences.reached(&cluster, &fence);
        assert_eq!((late(&fences), only(&fences).version), (None, ResourceVersion(9)));
    }

    /// T8: one who writes all the time where a member lags keeps nobody else waiting.
    #[tokio::test(start_paused = true)]
    async fn each_user_waits_for_their_own_writes() {
        let (fences, cluster) = (Fences::default(), name("c"));
        let (ann, eve) = (Holder::User(1), Holder::User(2));
        fences.wrote(eve, &cluster, Some("n/x"), ResourceVersion(5));
        fences.deleted(eve, &cluster, [deletion("n/y")]);
        assert!(
            fences.pending(WrittenBy::One(ann)).is_empty() && fences.pending_of(WrittenBy::One(ann), "n/x").is_empty()
        );
        assert_eq!(
            (fences.pending(WrittenBy::One(eve)).len(), fences.pending_of(WrittenBy::One(eve), "n/y").len()),
            (1, 1)
        );
        assert_eq!(fences.pending_of(WrittenBy::Anybody, "n/x").len(), 1, "a write goes by what anybody wrote");
        fences.wrote(ann, &cluster, Some("n/x"), ResourceVersion(6));
        fences.reached(&cluster, &fences.pending(WrittenBy::One(ann))[0].fence.clone());
        assert!(fences.pending(WrittenBy::One(ann)).is_empty());
        assert_eq!(fences.pending_of(WrittenBy::One(eve), "n/x"), [], "what is seen is seen by all");
        assert_eq!(fences.pending_of(WrittenBy::One(eve), "n/y").len(), 1);
        fences.forget(&cluster);
        assert!(fences.pending.lock().0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn writers_who_never_read_take_no_more_than_their_room() {
        let (fences, cluster) = (Fences::default(), name("c"));
        let write = |user: usize| fences.wrote(Holder::User(user as u64), &cluster, Some("n/x"), ResourceVersion(5));
        for user in 0..WRITERS_MAX + 5 {
            tokio::time::advance(Duration::from_millis(1)).await;
            write(user);
        }
        assert_eq!(fences.pending.lock().0.len(), WRITERS_MAX);
        let is_waited_for = |user| !fences.pending(WrittenBy::One(Holder::User(user))).is_empty();
        assert!(!is_waited_for(4) && is_waited_for(5));
        tokio::time::advance(WAITED_FOR).await;
        write(0);
        assert_eq!(fences.pending.lock().0.len(), 1);
    }
}
