//! The merged log of one resource: what happened in all clusters, in one order for all watchers. A value.
//!
//! ```text
//!   oldest                                                                   head
//!     │ 17 a MODIFIED │ 18 b ADDED │ 20 c Join │ 21 a DELETED │ 23 b Relist │ ◀─ append
//!     └───────────────┴────────────┴───────────┴──────────────┴─────────────┘
//!  marks  a: 17→105, 21→106      b: 18→9, (19→12), 23→40      c: 20→77         (…) progress without a change
//!  head   a: Snapshot@106        b: Snapshot@40               c: Snapshot@77
//! ```
//!
//! *Entries* hold what happened. A change holds its object before and after. A join, a leave, a relist and a reset
//! are one entry each, a *boundary*, with the state before it and the changes that no member sent; every watcher
//! reads the same ones.
//!
//! *Marks* say, per cluster, at which places it stands and at which version. The vector at a place is each cluster's
//! newest mark before it, so entries store none. Each cluster forgets its own old entries, and an entry that is
//! forgotten leaves a hole that nobody else notices: one cluster's relist or storm never pushes another's history
//! out.
//!
//! A *position* is the number of the entry that comes next; it is a place between two entries.

mod difference;
mod entry;
mod history;
mod names;
mod past;
mod resume;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tributary_apimachinery::{Change, ChangeType, ClusterName, CollectionVersion, Object, Snapshot};

use crate::CompositeResourceVersion;
pub(crate) use entry::{Boundary, BoundaryKind, LogEntry};
use entry::{EntryKind, Left, OtherObject, Others};
use history::{DeletionCountScope, History, Mark};
use names::Names;
pub use past::Past;

/// Each cluster's latest snapshot, in the order of the clusters' names. A clone is one reference count.
pub type Heads = Arc<Vec<(ClusterName, Snapshot)>>;

/// How much of each cluster's history is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// What the objects of one cluster's history may occupy, in bytes. 32 MiB hold 6,000 changes of 5 KB: five
    /// minutes at 20 a second. A change counts with the larger one of the object before it and the one after; a
    /// boundary with what it replaced. The largest boundary that is kept is not counted: whoever is connected is to be
    /// told of it, and not to list everything again, though small ones come behind it, as a cluster's return does. So
    /// the newest one is kept, too, however large it is.
    pub history_bytes_max: usize,
    /// How long an entry is kept. A client that lost its stream is back within seconds, a rolled-out one within
    /// minutes; etcd's default compaction interval is five minutes too.
    pub history_age_max: Duration,
    /// How many changes of a cluster are kept even if they occupy up to twice as much, or are old; boundaries apart,
    /// of which the older ones have no more than [`history_bytes_max`](Self::history_bytes_max).
    /// Without it a few objects near etcd's limit of 1.5 MiB, or a quiet hour, would make every client that lost its
    /// stream relist. kube-apiserver's watch cache never shrinks below 100 either.
    pub history_entries_min: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { history_bytes_max: 32 << 20, history_age_max: Duration::from_secs(300), history_entries_min: 100 }
    }
}

/// A place in the log as a version: everything before `position`, and of the entry that stands there the part up to
/// `component`. Equal values of one log stand for equal vectors, so their text can be cached under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogVersion {
    pub(crate) position: u64,
    pub(crate) component: Option<CollectionVersion>,
}

/// A version that cannot be resumed from: the changes since are not known here. Judged per cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version of cluster {cluster}: {requested} ({})", oldest.unwrap_or_default())]
pub struct TooOld {
    /// The cluster.
    pub cluster: ClusterName,
    /// Its component.
    pub requested: CollectionVersion,
    /// The oldest component that could be resumed from; `None` if the cluster is gone.
    pub oldest: Option<CollectionVersion>,
}

/// Why there is no snapshot at a vector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The past state is not known any more: 410.
    #[error(transparent)]
    Expired(#[from] TooOld),
    /// The cluster has not come so far: wait, or 504.
    #[error("too large resource version of cluster {cluster}: {requested}, current: {current}")]
    TooNew {
        /// The cluster.
        cluster: ClusterName,
        /// Its component.
        requested: CollectionVersion,
        /// Where the cluster stands.
        current: CollectionVersion,
    },
}

/// The merged log of one resource.
#[derive(Default)]
pub struct Log {
    config: LogConfig,
    head: Heads,
    entries: BTreeMap<u64, LogEntry>,
    /// The number of the next entry.
    next: u64,
    /// The position behind the newest entry: what stands between is progress.
    quiet_since: u64,
    histories: BTreeMap<ClusterName, History>,
    names: Names,
    /// How many keys have objects in several clusters.
    repeated_names: usize,
    /// Some event before this position has been forgotten.
    forgotten_before: u64,
    /// Some event of a cluster that left, and of which nothing is kept, stood before this position.
    dropped_before: u64,
    /// How often clusters were dropped.
    drops: u64,
    /// What the count of a revision's deletions says in versions that clients come with.
    counts: DeletionCountScope,
}

// What it says

/// How many changes a search for a deleted object looks at. 10,000 take well below a millisecond, and are the last
/// seconds of a busy fleet: whoever writes about an object that is gone does so at once.
const DELETIONS_LOOKED_AT: usize = 10_000;

impl Log {
    /// An empty log, without any cluster.
    pub fn new(config: LogConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// An empty log of one namespace. Its clients may come from a log of all, here or at another replica.
    ///
    /// A log of all counts the deletions of a revision in all namespaces, and who has the first two of them may have
    /// none of this one. Here what is told again after a part of a revision is all that there is of it, even if that is
    /// one deletion. The other way round a count is safe: so many of one namespace are as many of all, or more, as far
    /// as that namespace goes.
    pub fn of_namespace(config: LogConfig) -> Self {
        Self { counts: DeletionCountScope::OfOthers, ..Self::new(config) }
    }

    /// Each cluster's latest snapshot, by name.
    pub fn head(&self) -> &Heads {
        &self.head
    }

    /// A cluster's latest snapshot.
    pub fn snapshot(&self, cluster: &ClusterName) -> Option<&Snapshot> {
        self.head.binary_search_by(|(name, _)| name.cmp(cluster)).ok().map(|at| &self.head[at].1)
    }

    /// The position after the last entry. It grows with everything that happens; watchers wait for it to move.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The position behind the newest change or boundary. From there on up to [`position`](Self::position) members have
    /// said how far they are, and nothing has happened that a watcher is told of.
    pub fn quiet_since(&self) -> u64 {
        self.quiet_since
    }

    /// The vector of the head: of everything that happened.
    pub fn resource_version(&self) -> CompositeResourceVersion {
        CompositeResourceVersion::from_snapshots(&self.head)
    }

    /// How many entries are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many bytes the history of all clusters occupies, with the objects that it alone may keep.
    pub fn history_bytes(&self) -> usize {
        self.histories.values().map(|history| history.bytes).sum()
    }

    /// How many objects the clusters have together.
    pub fn objects(&self) -> usize {
        self.names.len()
    }

    /// How many keys (`namespace/name`) have objects in several clusters.
    pub fn repeated_names(&self) -> usize {
        self.repeated_names
    }

    /// The clusters that have an object of this key (`namespace/name`), by name, and the objects.
    ///
    /// Cost: one look into an index over all clusters, and one into the snapshot of each that has it.
    pub fn find(&self, key: &str) -> Vec<(ClusterName, Arc<Object>)> {
        let candidates = self.names.candidates(key).into_iter();
        candidates.filter_map(|cluster| Some((cluster.clone(), self.snapshot(cluster)?.get(key)?.clone()))).collect()
    }

    /// An object that is gone, as it was last, and its cluster: the newest deletion of this key that `is_meant` accepts
    /// among the last changes.
    ///
    /// Cost: O(changes looked at), 10,000 at most.
    pub fn find_deleted(&self, key: &str, is_meant: impl Fn(&Object) -> bool) -> Option<(ClusterName, Arc<Object>)> {
        let changes =
            self.entries.values().rev().flat_map(|entry| entry.changes().iter().map(|it| (&entry.cluster, it)));
        let mut deletions = changes.take(DELETIONS_LOOKED_AT).filter(|(_, change)| {
            change.change_type == ChangeType::Deleted && change.object.key().as_str() == key && is_meant(&change.object)
        });
        deletions.next().map(|(cluster, change)| (cluster.clone(), change.object.clone()))
    }

    /// The vector that a place in the log stands for; `None` if that part of the log has been forgotten.
    ///
    /// Cost: O(clusters) near the head.
    pub fn vector(&self, version: LogVersion) -> Option<CompositeResourceVersion> {
        if version.position < self.forgotten_before {
            return None;
        }
        let components = self
            .histories
            .iter()
            .filter_map(|(cluster, history)| Some((cluster.clone(), history.component_before(version.position)?)));
        let mut vector: CompositeResourceVersion = components.collect();
        if let Some(component) = version.component {
            vector.set(&self.entry(version.position)?.cluster, component);
        }
        Some(vector)
    }

    /// The entries from a position on, with their numbers.
    pub(crate) fn entries_from(&self, position: u64) -> impl Iterator<Item = (u64, &LogEntry)> {
        self.entries.range(position..).map(|(seq, entry)| (*seq, entry))
    }

    /// The entry at a place, if it is kept.
    pub(crate) fn entry(&self, seq: u64) -> Option<&LogEntry> {
        self.entries.get(&seq)
    }

    /// All clusters that the log knows, those that left lately included.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.histories.keys()
    }

    /// Whether anything of a cluster is kept.
    pub(crate) fn knows(&self, cluster: &ClusterName) -> bool {
        self.histories.contains_key(cluster)
    }

    /// A cluster's component before a position.
    pub(crate) fn component_before(&self, cluster: &ClusterName, position: u64) -> Option<CollectionVersion> {
        self.histories.get(cluster)?.component_before(position)
    }

    /// Whether an event of a cluster stands, or stood, in `from..to`.
    pub(crate) fn has_events(&self, cluster: &ClusterName, from: u64, to: u64) -> bool {
        self.histories.get(cluster).is_some_and(|history| history.has_events(from, to))
    }

    /// The position after a cluster's newest event in `from..to`, if one stands, or stood, there.
    pub(crate) fn events_end(&self, cluster: &ClusterName, from: u64, to: u64) -> Option<u64> {
        self.histories.get(cluster)?.events_end(from, to)
    }

    /// The position behind the newest event of all clusters that were dropped.
    pub(crate) fn dropped_before(&self) -> u64 {
        self.dropped_before
    }

    /// How often clusters that left were dropped with all that was kept of them.
    pub(crate) fn drops(&self) -> u64 {
        self.drops
    }

    /// The clusters that have forgotten events from this position on, with the position after the newest of those.
    /// `None` if even that is forgotten: a cluster was dropped since `drops`, and it may have left
    /// behind this position.
    pub(crate) fn forgotten_from(&self, position: u64, drops: u64) -> Option<Vec<(&ClusterName, u64)>> {
        if position >= self.forgotten_before {
            return Some(Vec::new());
        }
        if position < self.dropped_before && drops != self.drops {
            return None;
        }
        let clusters = self.histories.iter().map(|(cluster, history)| (cluster, history.forgotten_before()));
        Some(clusters.filter(|(_, before)| *before > position).collect())
    }
}

// What happens to it

impl Log {
    /// A cluster became known: its objects are added in open streams. If it is known already this is a relist.
    pub fn join(&mut self, cluster: &ClusterName, snapshot: Snapshot, now: Duration) {
        if self.snapshot(cluster).is_some() {
            return self.relist(cluster, snapshot, now);
        }
        let left = self.left(cluster, |before, at| match snapshot.undoes(before) {
            true => Left::Undone(at),
            false => Left::At(at),
        });
        self.push_boundary(cluster, BoundaryKind::Join(left), Some(snapshot), now);
    }

    /// A different cluster of the name joined after the earlier cluster has [left](Self::leave). Versions of the earlier
    /// cluster cannot be resumed.
    pub fn join_successor(&mut self, cluster: &ClusterName, snapshot: Snapshot, now: Duration) {
        if self.snapshot(cluster).is_some() {
            return self.reset(cluster, snapshot, now);
        }
        let left = self.left(cluster, |_, at| Left::Undone(at));
        self.push_boundary(cluster, BoundaryKind::Join(left), Some(snapshot), now);
    }

    /// How a cluster left, by its state before that and its component; `None` where it was not here, or that is
    /// forgotten.
    fn left(&self, cluster: &ClusterName, how: impl FnOnce(&Snapshot, CollectionVersion) -> Left) -> Option<Left> {
        let left = self.entry(self.histories.get(cluster)?.boundaries.back()?.seq)?.boundary()?;
        Some(how(&left.before, left.component_before?))
    }

    /// Changes of one cluster in its order, and its state after them. Objects' versions must not go down;
    /// deletions may share one. The object before a change is the very one that the head has, or the change before it
    /// of the same object: what stood there is kept by that alone.
    ///
    /// A snapshot that is newer than the last change is progress as well:
    /// behind a deletion, that all of its revision is known.
    pub fn append(&mut self, cluster: &ClusterName, changes: Vec<Change>, snapshot: Snapshot, now: Duration) {
        let Some(mut component) = self.snapshot(cluster).map(Snapshot::resource_version) else {
            return self.join(cluster, snapshot, now);
        };
        for change in changes {
            component = component.with_change(&change);
            let others = self.same_names_elsewhere(cluster, std::slice::from_ref(&change));
            self.index(cluster, &change);
            let entry = LogEntry { cluster: cluster.clone(), kind: EntryKind::Change(change), others };
            self.push(entry, Some(component), now);
        }
        let version = snapshot.resource_version().max(component);
        self.set_head(cluster, Some(snapshot));
        self.progress(cluster, version, now);
        self.forget_surplus(cluster, now);
    }

    /// The cluster was listed anew: the differences go out, deletions first. Whoever calls this has seen that revisions
    /// did not go back ([`Snapshot::undoes`]); if the version did, this is a reset.
    pub fn relist(&mut self, cluster: &ClusterName, after: Snapshot, now: Duration) {
        match self.snapshot(cluster).map(Snapshot::resource_version) {
            None => self.join(cluster, after, now),
            Some(before) if after.resource_version() < before => self.reset(cluster, after, now),
            Some(_) => self.push_boundary(cluster, BoundaryKind::Relist, Some(after), now),
        }
    }

    /// The cluster's revisions went back, or it is another one now: the differences go out to open streams, and what
    /// was handed out before cannot be resumed from any more.
    pub fn reset(&mut self, cluster: &ClusterName, after: Snapshot, now: Duration) {
        if self.snapshot(cluster).is_none() {
            return self.join(cluster, after, now);
        }
        self.push_boundary(cluster, BoundaryKind::Reset, Some(after), now);
    }

    /// The cluster was removed: its objects are deleted in open streams, and with the last its component goes.
    pub fn leave(&mut self, cluster: &ClusterName, now: Duration) {
        if self.snapshot(cluster).is_some() {
            self.push_boundary(cluster, BoundaryKind::Leave, None, now);
        }
    }

    /// The cluster reached a version, and nothing changed up to there.
    pub fn progress(&mut self, cluster: &ClusterName, version: impl Into<CollectionVersion>, now: Duration) {
        let version = version.into();
        let Ok(at) = self.head.binary_search_by(|(name, _)| name.cmp(cluster)) else { return };
        let known = self.component_before(cluster, self.next);
        if self.head[at].1.resource_version() < version {
            Arc::make_mut(&mut self.head)[at].1.set_resource_version(version);
        }
        if known < Some(version)
            && let Some(history) = self.histories.get_mut(cluster)
        {
            let (seq, component) = (self.next, Some(version));
            history.progress.queue.push_back(Mark { seq, component, at: now, bytes: 0, is_boundary: false });
            self.next += 1;
        }
    }

    /// Forgets what is too old. Call it every few seconds; what is too large is forgotten as it comes.
    pub fn trim(&mut self, now: Duration) {
        for history in self.histories.values_mut() {
            forget(&self.config, history, &mut self.entries, now);
            self.forgotten_before = self.forgotten_before.max(history.forgotten_before());
        }
        self.drop_gone();
    }

    /// Puts in one entry that leads from the cluster's present state to another, or to none.
    fn push_boundary(&mut self, cluster: &ClusterName, kind: BoundaryKind, after: Option<Snapshot>, now: Duration) {
        let before = self.snapshot(cluster).cloned();
        let component_before = before.as_ref().map(Snapshot::resource_version);
        let component = after.as_ref().map(Snapshot::resource_version);
        let before = before.unwrap_or_default();
        let same = if kind == BoundaryKind::Reset { difference::same_text } else { difference::same_version };
        let empty = Snapshot::default();
        let differences = difference::differences(&before, after.as_ref().unwrap_or(&empty), same);
        let others = self.same_names_elsewhere(cluster, differences.early());
        for change in differences.all() {
            self.index(cluster, change);
        }
        self.set_head(cluster, after);
        let boundary = Boundary { kind, before, differences, component_before, component };
        let entry = LogEntry { cluster: cluster.clone(), kind: EntryKind::Boundary(Box::new(boundary)), others };
        self.push(entry, component, now);
        self.forget_surplus(cluster, now);
    }

    /// Forgets what is too old, or too large, of one cluster.
    fn forget_surplus(&mut self, cluster: &ClusterName, now: Duration) {
        if let Some(history) = self.histories.get_mut(cluster) {
            forget(&self.config, history, &mut self.entries, now);
            self.forgotten_before = self.forgotten_before.max(history.forgotten_before());
        }
    }

    fn push(&mut self, entry: LogEntry, component: Option<CollectionVersion>, now: Duration) {
        let bytes = entry.bytes();
        let is_boundary = matches!(entry.kind, EntryKind::Boundary(_));
        let mark = Mark { seq: self.next, component, at: now, bytes, is_boundary };
        self.histories.entry(entry.cluster.clone()).or_default().push_event(mark);
        self.entries.insert(mark.seq, entry);
        self.next += 1;
        self.quiet_since = self.next;
    }

    fn set_head(&mut self, cluster: &ClusterName, snapshot: Option<Snapshot>) {
        let head = Arc::make_mut(&mut self.head);
        match (head.binary_search_by(|(name, _)| name.cmp(cluster)), snapshot) {
            (Ok(at), Some(snapshot)) => head[at].1 = snapshot,
            (Ok(at), None) => drop(head.remove(at)),
            (Err(at), Some(snapshot)) => head.insert(at, (cluster.clone(), snapshot)),
            (Err(_), None) => {}
        }
    }

    fn index(&mut self, cluster: &ClusterName, change: &Change) {
        let key = change.object.key().as_str();
        match (change.change_type, &change.previous) {
            (ChangeType::Deleted, _) => {
                self.repeated_names -= usize::from(self.one_other_has(cluster, key));
                self.names.remove(cluster, key);
            }
            (_, None) => {
                self.repeated_names += usize::from(self.one_other_has(cluster, key));
                self.names.insert(cluster, key);
            }
            (_, Some(_)) => {}
        }
    }

    /// Whether exactly one other cluster has an object of the key. Cost: as of two of them, however many there are.
    fn one_other_has(&self, cluster: &ClusterName, key: &str) -> bool {
        let has = |other: &&ClusterName| self.snapshot(other).is_some_and(|snapshot| snapshot.get(key).is_some());
        self.names.clusters_with_key(cluster, key).filter(has).take(2).count() == 1
    }

    /// The other clusters' objects of the names that may go away with these changes.
    fn same_names_elsewhere(&self, cluster: &ClusterName, changes: &[Change]) -> Others {
        let leaving = changes.iter().filter(|change| difference::may_leave_selection(change));
        let objects = leaving.flat_map(|change| {
            let found = self.find(change.object.key().as_str()).into_iter().filter(move |(other, _)| other != cluster);
            found.map(move |(other, object)| OtherObject {
                named: change.object.clone(),
                cluster: other,
                object: Arc::downgrade(&object),
            })
        });
        Others::new(objects.collect())
    }

    /// Drops the clusters that left and of which nothing is kept. Whoever was reading before they left is told so
    /// ([`forgotten_from`](Self::forgotten_from)); whoever comes later and names one is refused,
    /// and whoever names none has nothing of it.
    fn drop_gone(&mut self) {
        let (dropped_before, drops, names) = (&mut self.dropped_before, &mut self.drops, &mut self.names);
        self.histories.retain(|cluster, history| {
            let gone =
                history.events.queue.is_empty() && history.events.base.is_some_and(|base| base.component.is_none());
            if gone {
                *dropped_before = (*dropped_before).max(history.forgotten_before());
                *drops += 1;
                names.forget(cluster);
            }
            !gone
        });
    }
}

/// Forgets a cluster's oldest entries, as far as they are too old or too large.
fn forget(config: &LogConfig, history: &mut History, entries: &mut BTreeMap<u64, LogEntry>, now: Duration) {
    let old = |mark: &Mark| now.saturating_sub(mark.at) > config.history_age_max;
    while let Some(oldest) = history.events.queue.front().copied() {
        // A boundary keeps a whole snapshot in memory, so it goes in time, and with it whatever comes before. The
        // largest is not counted, and not the newest: of a cluster that left and is back that is a join, of nothing.
        let largest = history.largest_boundary_bytes();
        let boundary =
            history.boundaries.front().is_some_and(old) || history.boundary_bytes - largest > config.history_bytes_max;
        let spare = history.events.queue.len() > config.history_entries_min;
        let large = history.bytes - largest > config.history_bytes_max;
        let too_large = history.bytes - largest > config.history_bytes_max.saturating_mul(2);
        if !(boundary || too_large || spare && (old(&oldest) || large)) {
            break;
        }
        history.pop_event();
        entries.remove(&oldest.seq);
    }
    while history.progress.queue.front().is_some_and(old) {
        history.progress.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One quiet cluster keeps its few changes for ever, and must not keep the histories of all that
    /// came and left since.
    #[test]
    fn a_thousand_clusters_that_came_and_left_leave_nothing() {
        let mut log = Log::new(LogConfig::default());
        let name = |number: u32| ClusterName::new(&format!("c{number:04}")).unwrap_or_else(|error| panic!("{error}"));
        let at = |version| {
            let mut snapshot = Snapshot::default();
            snapshot.set_resource_version(tributary_apimachinery::ResourceVersion(version));
            snapshot
        };
        let mut now = Duration::ZERO;
        log.join(&name(0), at(1), now);
        for number in 1..=1000 {
            log.join(&name(number), at(7), now);
            log.leave(&name(number), now);
            now += Duration::from_secs(600);
            log.trim(now);
        }
        assert_eq!(log.clusters().collect::<Vec<_>>(), [&name(0)]);
        assert_eq!(log.names.slots(), 0, "no cluster has an object");
    }
}
