//! Read-your-writes: the writes through this process for which a read must wait.
//!
//! *Pending writes* are the resourceVersions from a member's responses to writes, for each written object. A read with
//! an unset resourceVersion waits until the member's cacher has reached these versions. A read of one object waits for
//! the pending writes of this object, and a read of a collection waits for all pending writes. So a member with a late
//! watch delays only the reads of objects that were written in this member. Each user waits only for their own writes.
//! Otherwise a user who constantly writes to a late member would delay all other users.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, ResourceVersion};

use tributary_sharing::flow::share_key::ShareKey;
use tributary_sharing::limits::PENDING_WRITE_OBJECTS;

/// Writes of one resource that are not visible in the cache yet, by writer (`Caller::writer` of the router) and
/// cluster.
#[derive(Debug, Default)]
pub struct ReadYourWrites {
    pending: Mutex<ByWriter>,
}

#[derive(Debug, Default)]
struct ByWriter(HashMap<ShareKey, WriterPendingWrites>);

/// Selects the writers for whose writes a request waits.
#[derive(Clone, Copy, Debug)]
pub enum WriterSelector {
    /// One writer (`Caller::writer`). Used by reads, because users must see their own writes.
    One(ShareKey),
    /// All writers. Used by writes: a write must find the cluster of an object that any user has just created.
    AnyWriter,
}

/// Pending writes of one writer, by cluster. The map is never empty.
type WriterPendingWrites = BTreeMap<ClusterName, ClusterPendingWrites>;

#[derive(Debug)]
struct ClusterPendingWrites {
    written: PendingVersions,
    deletions: Vec<Deletion>,
    since: Instant,
    late: Option<LateWrites>,
}

#[derive(Debug)]
enum PendingVersions {
    /// Highest written version of each object, by key.
    Objects(BTreeMap<String, ResourceVersion>),
    /// Highest written version of the whole collection. Used if many objects were written, or if Tributary does not
    /// know which object was written.
    Collection(ResourceVersion),
}

/// Pending writes in one cluster for which a read waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingWrites {
    /// Highest version in the responses to the writes.
    pub version: ResourceVersion,
    /// Deletions whose response had no version.
    pub deletions: Vec<Deletion>,
}

/// Pending writes for which a list has waited until its time limit, but which the cache did not reach.
#[derive(Clone, Debug)]
pub struct LateWrites {
    /// The pending writes that the cache did not reach in time.
    pub pending_writes: PendingWrites,
    /// Time at which the list began to wait.
    pub since: Instant,
}

/// Pending writes in one cluster for which a read of a collection waits.
#[derive(Clone, Debug)]
pub struct AwaitedWrites {
    pub cluster: ClusterName,
    /// All writes in the cluster that are not visible yet.
    pub pending_writes: PendingWrites,
    /// The pending writes for which a list has already waited until its time limit.
    pub late: Option<LateWrites>,
}

/// A deletion whose response did not contain the resourceVersion of the deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Key of the object.
    pub key: String,
    /// Uid of the object. The deletion is complete when no object with the key has this uid.
    pub uid: String,
    /// Version of the object before the deletion, if finalizers or a grace period may delay the removal. A newer
    /// version then shows that the deletion has started. `None` if the response shows that the object is removed.
    pub before: Option<ResourceVersion>,
}

/// Maximum number of stored deletions for each cluster. Above the maximum, the oldest deletions are dropped. A cacher
/// usually sees a deletion within milliseconds. The limit matters only if the member's watch is late, or after the
/// deletion of a large collection. In both cases reads wait only for the most recent deletions.
const DELETIONS_MAX: usize = 1024;

/// Time after which reads ignore a write. 30 s, ten times the timeout of a read. If a healthy cacher has not seen a
/// version by then, the version may belong to a different etcd than the collection, and reads must not fail forever.
const WAITED_FOR: Duration = Duration::from_secs(30);

/// Maximum number of writers with pending writes. If a writer does not read, its pending writes stay for 30 s. Above
/// the limit, the pending writes of the least recent writers are dropped. 1,024 writers of one resource within 30 s
/// need some hundred bytes each.
const WRITERS_MAX: usize = 1024;

impl ReadYourWrites {
    /// Records the resourceVersion in the response to a write. `key` is `None` if Tributary does not know which object
    /// was written.
    pub fn record_write(&self, writer: ShareKey, cluster: &ClusterName, key: Option<&str>, version: ResourceVersion) {
        self.update_pending_writes(writer, cluster, |pending| pending.written.add_version(key, version));
    }

    /// Records the deletions of objects whose responses contain no version of the deletion.
    pub fn record_deletions(
        &self,
        writer: ShareKey,
        cluster: &ClusterName,
        deletions: impl IntoIterator<Item = Deletion>,
    ) {
        self.update_pending_writes(writer, cluster, |pending| {
            pending.deletions.extend(deletions);
            let beyond = pending.deletions.len().saturating_sub(DELETIONS_MAX);
            pending.deletions.drain(..beyond);
        });
    }

    fn update_pending_writes(
        &self,
        writer: ShareKey,
        cluster: &ClusterName,
        change: impl FnOnce(&mut ClusterPendingWrites),
    ) {
        let mut all = self.pending.lock();
        if all.0.len() >= WRITERS_MAX && !all.0.contains_key(&writer) {
            all.evict_writer();
        }
        let own = all.0.entry(writer).or_default();
        let pending = own.entry(cluster.clone()).or_insert_with(ClusterPendingWrites::new);
        if pending.is_over() {
            *pending = ClusterPendingWrites::new();
        }
        pending.since = Instant::now();
        change(pending);
    }

    /// Returns the writes for which a read of the collection waits, by cluster. With [`WriterSelector::AnyWriter`],
    /// each writer has separate entries. Costs one lock. Allocates nothing if there are no such writes.
    pub fn pending(&self, by: WriterSelector) -> Vec<AwaitedWrites> {
        let waited = |(cluster, pending): (&ClusterName, &ClusterPendingWrites)| AwaitedWrites {
            cluster: cluster.clone(),
            pending_writes: PendingWrites { version: pending.written.highest(), deletions: pending.deletions.clone() },
            late: pending.late.clone(),
        };
        self.pending.lock().by(by).map(waited).collect()
    }

    /// Returns the writes for which a read of one object waits, by cluster. With [`WriterSelector::AnyWriter`], each
    /// writer has separate entries. Costs one lock and a visit of each cluster with such writes.
    pub fn pending_of(&self, by: WriterSelector, key: &str) -> Vec<(ClusterName, PendingWrites)> {
        let of_key = |(cluster, pending): (&ClusterName, &ClusterPendingWrites)| {
            Some((cluster.clone(), pending.pending_writes_of(key)?))
        };
        self.pending.lock().by(by).filter_map(of_key).collect()
    }

    /// Returns whether a cluster has a write in a namespace that is not visible in the cache yet.
    pub fn has_pending_in(&self, cluster: &ClusterName, namespace: &str) -> bool {
        let all = self.pending.lock();
        let mut of_cluster = all.by(WriterSelector::AnyWriter).filter(|(own, _)| *own == cluster);
        let is_of = |key: &String| key.split_once('/').is_some_and(|(own, _)| own == namespace);
        of_cluster.any(|(_, pending)| {
            let written = match &pending.written {
                PendingVersions::Objects(versions) => versions.keys().any(is_of),
                PendingVersions::Collection(_) => true,
            };
            written || pending.deletions.iter().any(|deletion| is_of(&deletion.key))
        })
    }

    /// Removes pending writes that the cache has reached. The writes are removed for all writers, because all users see
    /// the same cached state. Later pending writes stay.
    pub fn remove_reached(&self, cluster: &ClusterName, pending_writes: &PendingWrites) {
        self.change(cluster, |pending| {
            pending.deletions.retain(|deletion| !pending_writes.deletions.contains(deletion));
            pending.written.reached(pending_writes.version);
            if pending.late.as_ref().is_some_and(|late| late.pending_writes == *pending_writes) {
                pending.late = None;
            }
            !(pending.deletions.is_empty() && pending.written.is_empty())
        });
    }

    /// Records that a list has waited for its writer's pending writes until its time limit.
    pub fn record_late(&self, by: WriterSelector, cluster: &ClusterName, late: LateWrites) {
        let WriterSelector::One(writer) = by else { return };
        if let Some(pending) = self.pending.lock().0.get_mut(&writer).and_then(|own| own.get_mut(cluster)) {
            pending.late.get_or_insert(late);
        }
    }

    /// Removes all pending writes of a cluster that left, or whose revisions decreased.
    pub fn forget(&self, cluster: &ClusterName) {
        self.change(cluster, |_| false);
    }

    /// Calls `change` on the pending writes of a cluster, for each writer. If `change` returns false, the pending
    /// writes are removed.
    fn change(&self, cluster: &ClusterName, mut change: impl FnMut(&mut ClusterPendingWrites) -> bool) {
        self.pending.lock().0.retain(|_, own| {
            if own.get_mut(cluster).is_some_and(|pending| !change(pending)) {
                own.remove(cluster);
            }
            !own.is_empty()
        });
    }
}

impl ByWriter {
    fn by(&self, by: WriterSelector) -> impl Iterator<Item = (&ClusterName, &ClusterPendingWrites)> {
        let (one, all) = match by {
            WriterSelector::One(writer) => (self.0.get(&writer), None),
            WriterSelector::AnyWriter => (None, Some(self.0.values())),
        };
        one.into_iter().chain(all.into_iter().flatten()).flatten().filter(|(_, pending)| !pending.is_over())
    }

    /// Removes expired pending writes, or the pending writes of the least recent writer if none has expired. With a
    /// thousand writers, each new writer costs a visit of all pending writes.
    fn evict_writer(&mut self) {
        self.0.retain(|_, own| {
            own.retain(|_, pending| !pending.is_over());
            !own.is_empty()
        });
        let last = |own: &WriterPendingWrites| own.values().map(|pending| pending.since).max();
        if self.0.len() >= WRITERS_MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, own)| last(own)).map(|(writer, _)| *writer)
        {
            self.0.remove(&oldest);
        }
    }
}

impl ClusterPendingWrites {
    fn new() -> Self {
        let written = PendingVersions::Objects(BTreeMap::new());
        Self { written, deletions: Vec::new(), since: Instant::now(), late: None }
    }

    fn is_over(&self) -> bool {
        self.since.elapsed() >= WAITED_FOR
    }

    /// Returns the pending writes for a read of one object. `None` if no write to the object is recorded.
    fn pending_writes_of(&self, key: &str) -> Option<PendingWrites> {
        let version = match &self.written {
            PendingVersions::Objects(versions) => versions.get(key).copied().unwrap_or_default(),
            PendingVersions::Collection(version) => *version,
        };
        let deletions: Vec<_> = self.deletions.iter().filter(|deletion| deletion.key == key).cloned().collect();
        (version > ResourceVersion::default() || !deletions.is_empty()).then_some(PendingWrites { version, deletions })
    }
}

impl PendingVersions {
    fn add_version(&mut self, key: Option<&str>, version: ResourceVersion) {
        match (&mut *self, key) {
            (Self::Collection(highest), _) => *highest = version.max(*highest),
            (Self::Objects(versions), Some(key))
                if versions.len() < PENDING_WRITE_OBJECTS || versions.contains_key(key) =>
            {
                let own = versions.entry(key.to_owned()).or_default();
                *own = version.max(*own);
            }
            (Self::Objects(_), _) => *self = Self::Collection(version.max(self.highest())),
        }
    }

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

    const ME: ShareKey = ShareKey::Unknown;
    const MINE: WriterSelector = WriterSelector::One(ME);

    fn name(text: &str) -> ClusterName {
        ClusterName::new(text).unwrap()
    }

    fn deletion(key: &str) -> Deletion {
        Deletion { key: key.to_owned(), uid: "u".into(), before: None }
    }

    fn only(read_your_writes: &ReadYourWrites) -> PendingWrites {
        read_your_writes.pending(MINE).remove(0).pending_writes
    }

    #[tokio::test(start_paused = true)]
    async fn reads_wait_for_an_unseen_write_for_thirty_seconds() {
        let (read_your_writes, cluster) = (ReadYourWrites::default(), name("c"));
        read_your_writes.record_write(ME, &cluster, Some("n/x"), ResourceVersion(5));
        tokio::time::advance(WAITED_FOR - Duration::from_secs(1)).await;
        assert_eq!(read_your_writes.pending(MINE).len(), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(read_your_writes.pending(MINE).is_empty());
        read_your_writes.record_write(ME, &cluster, Some("n/x"), ResourceVersion(5));
        tokio::time::advance(WAITED_FOR).await;
        read_your_writes.record_write(ME, &cluster, Some("n/y"), ResourceVersion(6));
        assert_eq!(
            read_your_writes.pending_of(MINE, "n/x"),
            [],
            "an expired fence does not come back with the next write"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_deletions_that_reads_wait_for_is_limited() {
        let (read_your_writes, cluster) = (ReadYourWrites::default(), name("c"));
        read_your_writes.record_deletions(
            ME,
            &cluster,
            (0..DELETIONS_MAX + 5).map(|number| deletion(&format!("n/{number}"))),
        );
        let deletions = only(&read_your_writes).deletions;
        assert_eq!((deletions.len(), &*deletions[0].key), (DELETIONS_MAX, "n/5"));
    }

    #[tokio::test(start_paused = true)]
    async fn read_of_one_object_waits_for_writes_to_that_object() {
        let (read_your_writes, a, b) = (ReadYourWrites::default(), name("a"), name("b"));
        read_your_writes.record_write(ME, &a, Some("n/x"), ResourceVersion(5));
        read_your_writes.record_write(ME, &a, Some("n/x"), ResourceVersion(4));
        read_your_writes.record_write(ME, &a, Some("n/y"), ResourceVersion(7));
        read_your_writes.record_write(ME, &b, Some("n/x"), ResourceVersion(9));
        read_your_writes.record_deletions(ME, &b, [deletion("n/z")]);
        let pending_writes = |version, deletions| PendingWrites { version: ResourceVersion(version), deletions };
        assert_eq!(
            read_your_writes.pending_of(MINE, "n/x"),
            [(a.clone(), pending_writes(5, vec![])), (b.clone(), pending_writes(9, vec![]))],
            "in whichever cluster an object of the name is"
        );
        assert_eq!(read_your_writes.pending_of(MINE, "n/y"), [(a.clone(), pending_writes(7, vec![]))]);
        assert_eq!(read_your_writes.pending_of(MINE, "n/z"), [(b.clone(), pending_writes(0, vec![deletion("n/z")]))]);
        assert_eq!(read_your_writes.pending_of(MINE, "n/w"), []);
        let all: Vec<_> =
            read_your_writes.pending(MINE).into_iter().map(|waited| (waited.cluster, waited.pending_writes)).collect();
        assert_eq!(
            all,
            [(a.clone(), pending_writes(7, vec![])), (b.clone(), pending_writes(9, vec![deletion("n/z")]))]
        );
        assert!(read_your_writes.has_pending_in(&a, "n") && !read_your_writes.has_pending_in(&a, "m"));
        // When the cache reaches a version, the pending writes of all objects up to this version are removed.
        read_your_writes.remove_reached(&a, &pending_writes(5, vec![]));
        assert_eq!(read_your_writes.pending_of(MINE, "n/x"), [(b, pending_writes(9, vec![]))]);
        assert_eq!(read_your_writes.pending_of(MINE, "n/y"), [(a, pending_writes(7, vec![]))]);
    }

    #[tokio::test(start_paused = true)]
    async fn reads_wait_for_the_whole_collection_after_writes_to_many_objects() {
        let (read_your_writes, cluster) = (ReadYourWrites::default(), name("c"));
        for number in 1..=PENDING_WRITE_OBJECTS as u64 {
            read_your_writes.record_write(ME, &cluster, Some(&format!("n/{number}")), ResourceVersion(number));
        }
        assert_eq!(read_your_writes.pending_of(MINE, "n/other"), []);
        read_your_writes.record_write(ME, &cluster, Some("n/1"), ResourceVersion(2000));
        assert_eq!(
            read_your_writes.pending_of(MINE, "n/other"),
            [],
            "a write to a known object does not exceed the limit"
        );
        read_your_writes.record_write(ME, &cluster, Some("n/one-more"), ResourceVersion(1500));
        let all = PendingWrites { version: ResourceVersion(2000), deletions: vec![] };
        assert_eq!(read_your_writes.pending_of(MINE, "n/other"), [(cluster.clone(), all.clone())]);
        read_your_writes.remove_reached(&cluster, &all);
        assert!(read_your_writes.pending(MINE).is_empty());
        read_your_writes.record_write(ME, &cluster, None, ResourceVersion(2001));
        assert_eq!(read_your_writes.pending_of(MINE, "n/other").len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn reads_wait_only_for_writes_later_than_the_visible_writes() {
        let (read_your_writes, cluster) = (ReadYourWrites::default(), name("c"));
        read_your_writes.record_write(ME, &cluster, Some("n/x"), ResourceVersion(5));
        read_your_writes.record_deletions(ME, &cluster, [deletion("n/a")]);
        let seen = only(&read_your_writes);
        assert_eq!(seen, PendingWrites { version: ResourceVersion(5), deletions: vec![deletion("n/a")] });
        read_your_writes.record_write(ME, &cluster, Some("n/x"), ResourceVersion(7));
        read_your_writes.remove_reached(&cluster, &seen);
        assert_eq!(only(&read_your_writes), PendingWrites { version: ResourceVersion(7), deletions: vec![] });
        read_your_writes.remove_reached(&cluster, &PendingWrites { version: ResourceVersion(7), deletions: vec![] });
        assert!(read_your_writes.pending(MINE).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn overdue_write_stays_marked_until_the_cache_contains_it() {
        let (read_your_writes, cluster) = (ReadYourWrites::default(), name("c"));
        read_your_writes.record_write(ME, &cluster, Some("n/x"), ResourceVersion(5));
        let pending_writes = only(&read_your_writes);
        let late = |read_your_writes: &ReadYourWrites| {
            read_your_writes.pending(MINE).remove(0).late.map(|late| late.pending_writes)
        };
        assert_eq!(late(&read_your_writes), None);
        read_your_writes.record_late(
            MINE,
            &cluster,
            LateWrites { pending_writes: pending_writes.clone(), since: Instant::now() },
        );
        read_your_writes.record_write(ME, &cluster, Some("n/y"), ResourceVersion(9));
        read_your_writes.record_late(
            MINE,
            &cluster,
            LateWrites { pending_writes: only(&read_your_writes), since: Instant::now() },
        );
        assert_eq!(late(&read_your_writes), Some(pending_writes.clone()), "the first is waited for");
        read_your_writes.remove_reached(&cluster, &pending_writes);
        assert_eq!((late(&read_your_writes), only(&read_your_writes).version), (None, ResourceVersion(9)));
    }

    /// A user who constantly writes to a member with a late watch must not delay other users.
    #[tokio::test(start_paused = true)]
    async fn pending_writes_delay_only_reads_by_the_same_user() {
        let (read_your_writes, cluster) = (ReadYourWrites::default(), name("c"));
        let (ann, eve) = (ShareKey::User(1), ShareKey::User(2));
        read_your_writes.record_write(eve, &cluster, Some("n/x"), ResourceVersion(5));
        read_your_writes.record_deletions(eve, &cluster, [deletion("n/y")]);
        assert!(
            read_your_writes.pending(WriterSelector::One(ann)).is_empty()
                && read_your_writes.pending_of(WriterSelector::One(ann), "n/x").is_empty()
        );
        assert_eq!(
            (
                read_your_writes.pending(WriterSelector::One(eve)).len(),
                read_your_writes.pending_of(WriterSelector::One(eve), "n/y").len()
            ),
            (1, 1)
        );
        assert_eq!(
            read_your_writes.pending_of(WriterSelector::AnyWriter, "n/x").len(),
            1,
            "a write considers the writes of all users"
        );
        read_your_writes.record_write(ann, &cluster, Some("n/x"), ResourceVersion(6));
        read_your_writes
            .remove_reached(&cluster, &read_your_writes.pending(WriterSelector::One(ann))[0].pending_writes.clone());
        assert!(read_your_writes.pending(WriterSelector::One(ann)).is_empty());
        assert_eq!(
            read_your_writes.pending_of(WriterSelector::One(eve), "n/x"),
            [],
            "a reached fence is removed for all users"
        );
        assert_eq!(read_your_writes.pending_of(WriterSelector::One(eve), "n/y").len(), 1);
        read_your_writes.forget(&cluster);
        assert!(read_your_writes.pending.lock().0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_writers_with_pending_writes_is_limited() {
        let (read_your_writes, cluster) = (ReadYourWrites::default(), name("c"));
        let write = |user: usize| {
            read_your_writes.record_write(ShareKey::User(user as u64), &cluster, Some("n/x"), ResourceVersion(5))
        };
        for user in 0..WRITERS_MAX + 5 {
            tokio::time::advance(Duration::from_millis(1)).await;
            write(user);
        }
        assert_eq!(read_your_writes.pending.lock().0.len(), WRITERS_MAX);
        let is_waited_for = |user| !read_your_writes.pending(WriterSelector::One(ShareKey::User(user))).is_empty();
        assert!(!is_waited_for(4) && is_waited_for(5));
        tokio::time::advance(WAITED_FOR).await;
        write(0);
        assert_eq!(read_your_writes.pending.lock().0.len(), 1);
    }
}
