//! The merged log of a resource: the changes in all clusters, in a single order for all watches. The log is a plain
//! value.
//!
//! ```text
//!   oldest                                                                   head
//!     │ 17 a MODIFIED │ 18 b ADDED │ 20 c Join │ 21 a DELETED │ 23 b Relist │ ◀─ append
//!     └───────────────┴────────────┴───────────┴──────────────┴─────────────┘
//!  marks  a: 17→105, 21→106      b: 18→9, (19→12), 23→40      c: 20→77         (…) progress without a change
//!  head   a: Snapshot@106        b: Snapshot@40               c: Snapshot@77
//! ```
//!
//! *Entries* contain the changes. The entry of a change contains the object before the change and after it. A join, a
//! leave, a relist and a reset of a cluster are one entry each, a *boundary*. A boundary contains the cluster's
//! previous state, and the differences that the cluster did not send as events. All watches read the same differences.
//!
//! *Marks* are, per cluster, the positions of its events and its version after each event. The composite version at a
//! position consists of each cluster's newest mark before the position, so entries store no composite version. The log
//! evicts old entries per cluster: a relist or a burst of changes of one cluster never evicts the history of another
//! cluster.
//!
//! A *position* is the number of the next entry: a point between two entries.

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
use entry::{Departure, EntryKind, OtherObject, OtherObjects};
use history::{DeletionCountScope, History, Mark};
use names::Names;
pub use past::PastState;

/// Each cluster's latest snapshot, in the order of the clusters' names. Cloning only increments a reference count.
pub type ClusterSnapshots = Arc<Vec<(ClusterName, Snapshot)>>;

/// The limits of each cluster's history in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The maximum size of the objects in a cluster's history, in bytes. 32 MiB hold 6,000 changes of 5 KB: five
    /// minutes at 20 changes a second. The size of a change is the larger of the object before it and the object after
    /// it. The size of a boundary (a join, leave, relist or reset) is the size of the objects that it replaced.
    ///
    /// The sum leaves out the largest boundary, and the newest boundary is stored at any size. So connected clients can
    /// read a large boundary instead of listing again, even if small boundaries follow it, such as the return of a
    /// cluster.
    pub history_bytes_max: usize,
    /// The maximum age of an entry. 5 minutes: a client that lost its connection reconnects within seconds, and a
    /// client that is being redeployed within minutes. etcd's default compaction interval is five minutes too.
    pub history_age_max: Duration,
    /// The minimum number of a cluster's changes that are stored even if they are old, or occupy up to twice
    /// [`history_bytes_max`](Self::history_bytes_max). A join, leave, relist or reset that exceeds the limits of age or
    /// size is evicted together with all earlier changes, even below this minimum.
    ///
    /// Without this minimum, a client that lost its connection would have to list again after a few changes of objects
    /// near etcd's limit of 1.5 MiB, and after any hour without changes. The watch cache of kube-apiserver never
    /// shrinks below 100 entries either.
    pub history_entries_min: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { history_bytes_max: 32 << 20, history_age_max: Duration::from_secs(300), history_entries_min: 100 }
    }
}

/// A version at a point in the log. It includes all entries before `position`, and the changes up to `component` of the
/// entry at `position`. Equal values of one log have equal composite versions, so this value is the cache key of the
/// encoded text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogVersion {
    pub(crate) position: u64,
    pub(crate) component: Option<CollectionVersion>,
}

/// The error for a version from which a watch cannot resume: the log lacks changes of one cluster after that version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version of cluster {cluster}: {requested} ({})", oldest.unwrap_or_default())]
pub struct TooOld {
    /// The cluster whose component is too old.
    pub cluster: ClusterName,
    /// The cluster's component in the requested version.
    pub requested: CollectionVersion,
    /// The oldest component from which a watch can resume. `None` if the log does not contain the cluster.
    pub oldest: Option<CollectionVersion>,
}

/// The reason why the log has no snapshot at a composite version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The past state has been evicted. The response is 410.
    #[error(transparent)]
    Expired(#[from] TooOld),
    /// The cluster has not reached the version. The caller waits, or answers 504.
    #[error("too large resource version of cluster {cluster}: {requested}, current: {current}")]
    TooNew {
        /// The cluster whose component is too new.
        cluster: ClusterName,
        /// The cluster's component in the requested version.
        requested: CollectionVersion,
        /// The cluster's current component.
        current: CollectionVersion,
    },
}

/// The merged log of a resource in all clusters.
#[derive(Default)]
pub struct Log {
    config: LogConfig,
    latest: ClusterSnapshots,
    entries: BTreeMap<u64, LogEntry>,
    next: u64,
    /// The position after the newest entry. At later positions, clusters have only reached new versions without a
    /// change.
    quiet_since: u64,
    histories: BTreeMap<ClusterName, History>,
    names: Names,
    /// The number of keys (`namespace/name`) that exist in several clusters.
    repeated_names: usize,
    /// The position behind the newest of all evicted events.
    evicted_before: u64,
    /// The position behind the newest event of all clusters that have left and that the log no longer contains.
    dropped_before: u64,
    /// The number of clusters that have left and that the log no longer contains.
    drops: u64,
    /// The namespaces of the deletions that a client's version counts: only those of this log, or all namespaces.
    deletion_count_scope: DeletionCountScope,
}

// The methods of this block read the log.

/// The maximum number of changes that a search for a deleted object visits. 10,000 changes take well below a
/// millisecond and cover the last seconds of a busy fleet. Writes that refer to a deleted object arrive within that
/// time.
const DELETION_SEARCH_MAX: usize = 10_000;

impl Log {
    /// Creates an empty log without clusters.
    pub fn new(config: LogConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Creates an empty log of a single namespace. Its clients may have versions from a log of all namespaces, in this
    /// process or at a different replica.
    ///
    /// A version may contain a number: how many deletions of a revision the client has received. In a version from a
    /// log of all namespaces, this number includes the deletions in all namespaces, so a number of two may mean two
    /// deletions outside of this log's namespace. This log therefore sends all deletions of that revision again, even a
    /// single deletion. The opposite case is safe: the number of deletions in one namespace is never higher than the
    /// number in all namespaces.
    pub fn for_namespace(config: LogConfig) -> Self {
        Self { deletion_count_scope: DeletionCountScope::AllNamespaces, ..Self::new(config) }
    }

    /// Returns each cluster's latest snapshot, in the order of the clusters' names.
    pub fn latest(&self) -> &ClusterSnapshots {
        &self.latest
    }

    /// Returns a cluster's latest snapshot.
    pub fn snapshot(&self, cluster: &ClusterName) -> Option<&Snapshot> {
        self.latest.binary_search_by(|(name, _)| name.cmp(cluster)).ok().map(|at| &self.latest[at].1)
    }

    /// Returns the position after the last entry. The position grows with each event; watches wait for a higher
    /// position.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Returns the position behind the newest change, join, leave, relist or reset. Between this position and
    /// [`position`](Self::position), clusters have only reached new versions without changes, so watches have no event
    /// to send.
    pub fn quiet_since(&self) -> u64 {
        self.quiet_since
    }

    /// Returns the composite version of the latest snapshots.
    pub fn resource_version(&self) -> CompositeResourceVersion {
        CompositeResourceVersion::from_snapshots(&self.latest)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the log has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the size of the history of all clusters, in bytes. The size includes objects that may exist only in the
    /// history.
    pub fn history_bytes(&self) -> usize {
        self.histories.values().map(|history| history.bytes).sum()
    }

    /// Returns the number of objects in all clusters.
    pub fn objects(&self) -> usize {
        self.names.len()
    }

    /// Returns the number of keys (`namespace/name`) that exist in several clusters.
    pub fn repeated_names(&self) -> usize {
        self.repeated_names
    }

    /// Returns the objects with this key (`namespace/name`) and their clusters, in the order of the clusters' names.
    ///
    /// Cost: one lookup in an index over all clusters, and one in the snapshot of each cluster that has the key.
    pub fn find(&self, key: &str) -> Vec<(ClusterName, Arc<Object>)> {
        let candidates = self.names.candidates(key).into_iter();
        candidates.filter_map(|cluster| Some((cluster.clone(), self.snapshot(cluster)?.get(key)?.clone()))).collect()
    }

    /// Returns the last state of a deleted object, and its cluster: the newest deletion of this key for which
    /// `matches` returns true.
    ///
    /// Cost: O(changes in the search), at most the last 10,000 changes.
    pub fn find_deleted(&self, key: &str, matches: impl Fn(&Object) -> bool) -> Option<(ClusterName, Arc<Object>)> {
        let changes =
            self.entries.values().rev().flat_map(|entry| entry.changes().iter().map(|it| (&entry.cluster, it)));
        let mut deletions = changes.take(DELETION_SEARCH_MAX).filter(|(_, change)| {
            change.change_type == ChangeType::Deleted && change.object.key().as_str() == key && matches(&change.object)
        });
        deletions.next().map(|(cluster, change)| (cluster.clone(), change.object.clone()))
    }

    /// Returns the composite version at a point in the log; `None` if the entries at that point have been evicted.
    ///
    /// Cost: O(clusters) near the head.
    pub fn vector(&self, version: LogVersion) -> Option<CompositeResourceVersion> {
        if version.position < self.evicted_before {
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

    /// Returns whether a cluster left at or after this position. If so, earlier components of a cluster's name may
    /// belong to a different cluster than the present one.
    ///
    /// Cost: O(clusters).
    pub fn has_leave_from(&self, position: u64) -> bool {
        let is_leave = |mark: &Mark| {
            let boundary = self.entry(mark.position).and_then(LogEntry::boundary);
            boundary.is_some_and(|boundary| boundary.kind == BoundaryKind::Leave)
        };
        let newer = |history: &History| {
            history.boundaries.iter().rev().take_while(|mark| mark.position >= position).any(is_leave)
        };
        self.histories.values().any(newer)
    }

    /// Iterates over the entries from a position on. Each item has the entry and its position.
    pub(crate) fn entries_from(&self, position: u64) -> impl Iterator<Item = (u64, &LogEntry)> {
        self.entries.range(position..).map(|(position, entry)| (*position, entry))
    }

    pub(crate) fn entry(&self, position: u64) -> Option<&LogEntry> {
        self.entries.get(&position)
    }

    /// Iterates over all clusters in the log, including clusters that left recently.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.histories.keys()
    }

    /// Returns whether the log contains an entry or a version of a cluster.
    pub(crate) fn knows(&self, cluster: &ClusterName) -> bool {
        self.histories.contains_key(cluster)
    }

    pub(crate) fn component_before(&self, cluster: &ClusterName, position: u64) -> Option<CollectionVersion> {
        self.histories.get(cluster)?.component_before(position)
    }

    /// Returns whether a cluster has an event, evicted or not, in the positions `from..to`.
    pub(crate) fn has_events(&self, cluster: &ClusterName, from: u64, to: u64) -> bool {
        self.histories.get(cluster).is_some_and(|history| history.has_events(from, to))
    }

    /// Returns the position after a cluster's newest event, evicted or not, in `from..to`.
    pub(crate) fn events_end(&self, cluster: &ClusterName, from: u64, to: u64) -> Option<u64> {
        self.histories.get(cluster)?.events_end(from, to)
    }

    /// Returns the position behind the newest event of all clusters that have left and that the log no longer contains.
    pub(crate) fn dropped_before(&self) -> u64 {
        self.dropped_before
    }

    pub(crate) fn drops(&self) -> u64 {
        self.drops
    }

    /// Returns the clusters with evicted events at or after this position, each with the position after its newest
    /// evicted event.
    ///
    /// `drops` is the number of dropped clusters that the caller read earlier. Returns `None` if the log has dropped a
    /// cluster since then: that cluster may have left at or after this position, and its events are unknown.
    pub(crate) fn evicted_from(&self, position: u64, drops: u64) -> Option<Vec<(&ClusterName, u64)>> {
        if position >= self.evicted_before {
            return Some(Vec::new());
        }
        if position < self.dropped_before && drops != self.drops {
            return None;
        }
        let clusters = self.histories.iter().map(|(cluster, history)| (cluster, history.evicted_before()));
        Some(clusters.filter(|(_, before)| *before > position).collect())
    }
}

impl LogVersion {
    /// Returns the position in the log. The version includes all entries before this position.
    pub fn position(self) -> u64 {
        self.position
    }
}

// The methods of this block change the log.

impl Log {
    /// Adds a cluster. Open watches receive the cluster's objects as ADDED. If the log already contains the cluster,
    /// the call is a relist.
    pub fn join(&mut self, cluster: &ClusterName, snapshot: Snapshot, now: Duration) {
        if self.snapshot(cluster).is_some() {
            return self.relist(cluster, snapshot, now);
        }
        let departure = self.departure(cluster, |before, at| match snapshot.undoes(before) {
            true => Departure::Undone(at),
            false => Departure::At(at),
        });
        self.push_boundary(cluster, BoundaryKind::Join(departure), Some(snapshot), now);
    }

    /// Adds a different cluster under the name of a cluster that has [left](Self::leave). Clients cannot resume from
    /// versions of the cluster that left.
    pub fn join_successor(&mut self, cluster: &ClusterName, snapshot: Snapshot, now: Duration) {
        if self.snapshot(cluster).is_some() {
            return self.reset(cluster, snapshot, now);
        }
        let departure = self.departure(cluster, |_, at| Departure::Undone(at));
        self.push_boundary(cluster, BoundaryKind::Join(departure), Some(snapshot), now);
    }

    /// Returns the version at which a cluster left, which is recorded in the entry of its return. `how` computes the
    /// result from the cluster's last state and component. `None` if the cluster never left, or if the entry of its
    /// leave has been evicted.
    fn departure(
        &self,
        cluster: &ClusterName,
        how: impl FnOnce(&Snapshot, CollectionVersion) -> Departure,
    ) -> Option<Departure> {
        let leave = self.entry(self.histories.get(cluster)?.boundaries.back()?.position)?.boundary()?;
        Some(how(&leave.before, leave.component_before?))
    }

    /// Appends changes of a cluster in the cluster's order, and sets the cluster's snapshot after the changes.
    ///
    /// The versions of the objects must not decrease. Deletions may share a version. The previous object of a change
    /// must be the same allocation as in the previous snapshot, or as in an earlier change of the object. Otherwise the
    /// history's size would not include the memory of the second allocation.
    ///
    /// If the snapshot is newer than the last change, the cluster has also reached the snapshot's version. After a
    /// deletion, such a snapshot means that all changes of the revision have arrived.
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
        self.set_latest(cluster, Some(snapshot));
        self.progress(cluster, version, now);
        self.evict_surplus(cluster, now);
    }

    /// Appends the differences between the cluster's snapshot and a new list, deletions first. The caller has checked
    /// that revisions did not go back ([`Snapshot::undoes`]). A list with a lower version makes the call a
    /// [`reset`](Self::reset).
    pub fn relist(&mut self, cluster: &ClusterName, after: Snapshot, now: Duration) {
        match self.snapshot(cluster).map(Snapshot::resource_version) {
            None => self.join(cluster, after, now),
            Some(before) if after.resource_version() < before => self.reset(cluster, after, now),
            Some(_) => self.push_boundary(cluster, BoundaryKind::Relist, Some(after), now),
        }
    }

    /// Records that a cluster's revisions went back, or that the cluster was replaced. Open watches receive the
    /// differences, and clients cannot resume from earlier versions.
    pub fn reset(&mut self, cluster: &ClusterName, after: Snapshot, now: Duration) {
        if self.snapshot(cluster).is_none() {
            return self.join(cluster, after, now);
        }
        self.push_boundary(cluster, BoundaryKind::Reset, Some(after), now);
    }

    /// Removes a cluster. Open watches receive DELETED for the cluster's objects. The last DELETED removes the
    /// cluster's component from the composite version.
    pub fn leave(&mut self, cluster: &ClusterName, now: Duration) {
        if self.snapshot(cluster).is_some() {
            self.push_boundary(cluster, BoundaryKind::Leave, None, now);
        }
    }

    /// Records that a cluster reached a version without a change.
    pub fn progress(&mut self, cluster: &ClusterName, version: impl Into<CollectionVersion>, now: Duration) {
        let version = version.into();
        let Ok(at) = self.latest.binary_search_by(|(name, _)| name.cmp(cluster)) else { return };
        let component_before = self.component_before(cluster, self.next);
        if self.latest[at].1.resource_version() < version {
            Arc::make_mut(&mut self.latest)[at].1.set_resource_version(version);
        }
        if component_before < Some(version)
            && let Some(history) = self.histories.get_mut(cluster)
        {
            let (position, component) = (self.next, Some(version));
            history.progress.queue.push_back(Mark { position, component, at: now, bytes: 0, is_boundary: false });
            self.next += 1;
        }
    }

    /// Evicts entries that are too old. Call this function every few seconds. Appends evict entries that exceed the
    /// size limits.
    pub fn trim(&mut self, now: Duration) {
        for history in self.histories.values_mut() {
            forget(&self.config, history, &mut self.entries, now);
            self.evicted_before = self.evicted_before.max(history.evicted_before());
        }
        self.drop_departed();
    }

    /// Appends a boundary (a join, leave, relist or reset) from the cluster's present state to the state `after`.
    /// `None` removes the cluster.
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
        self.set_latest(cluster, after);
        let boundary = Boundary { kind, before, differences, component_before, component };
        let entry = LogEntry { cluster: cluster.clone(), kind: EntryKind::Boundary(Box::new(boundary)), others };
        self.push(entry, component, now);
        self.evict_surplus(cluster, now);
    }

    fn evict_surplus(&mut self, cluster: &ClusterName, now: Duration) {
        if let Some(history) = self.histories.get_mut(cluster) {
            forget(&self.config, history, &mut self.entries, now);
            self.evicted_before = self.evicted_before.max(history.evicted_before());
        }
    }

    fn push(&mut self, entry: LogEntry, component: Option<CollectionVersion>, now: Duration) {
        let bytes = entry.bytes();
        let is_boundary = matches!(entry.kind, EntryKind::Boundary(_));
        let mark = Mark { position: self.next, component, at: now, bytes, is_boundary };
        self.histories.entry(entry.cluster.clone()).or_default().push_event(mark);
        self.entries.insert(mark.position, entry);
        self.next += 1;
        self.quiet_since = self.next;
    }

    fn set_latest(&mut self, cluster: &ClusterName, snapshot: Option<Snapshot>) {
        let latest = Arc::make_mut(&mut self.latest);
        match (latest.binary_search_by(|(name, _)| name.cmp(cluster)), snapshot) {
            (Ok(at), Some(snapshot)) => latest[at].1 = snapshot,
            (Ok(at), None) => drop(latest.remove(at)),
            (Err(at), Some(snapshot)) => latest.insert(at, (cluster.clone(), snapshot)),
            (Err(_), None) => {}
        }
    }

    fn index(&mut self, cluster: &ClusterName, change: &Change) {
        let key = change.object.key().as_str();
        match (change.change_type, &change.previous) {
            (ChangeType::Deleted, _) => {
                self.repeated_names -= usize::from(self.is_in_one_other_cluster(cluster, key));
                self.names.remove(cluster, key);
            }
            (_, None) => {
                self.repeated_names += usize::from(self.is_in_one_other_cluster(cluster, key));
                self.names.insert(cluster, key);
            }
            (_, Some(_)) => {}
        }
    }

    /// Returns whether exactly one other cluster has an object with the key. Cost: two lookups, even if many clusters
    /// have the key.
    fn is_in_one_other_cluster(&self, cluster: &ClusterName, key: &str) -> bool {
        let has = |other: &&ClusterName| self.snapshot(other).is_some_and(|snapshot| snapshot.get(key).is_some());
        self.names.clusters_with_key(cluster, key).filter(has).take(2).count() == 1
    }

    /// Returns the same-named objects of other clusters, for those changes that may remove an object from a watch's
    /// selection.
    fn same_names_elsewhere(&self, cluster: &ClusterName, changes: &[Change]) -> OtherObjects {
        let leaving = changes.iter().filter(|change| difference::may_leave_selection(change));
        let objects = leaving.flat_map(|change| {
            let found = self.find(change.object.key().as_str()).into_iter().filter(move |(other, _)| other != cluster);
            found.map(move |(other, object)| OtherObject {
                named: change.object.clone(),
                cluster: other,
                object: Arc::downgrade(&object),
            })
        });
        OtherObjects::new(objects.collect())
    }

    /// Drops the clusters that left and whose entries have all been evicted. A watch that was opened before such a
    /// cluster left has lost its events and must end ([`evicted_from`](Self::evicted_from)). From then on, a client's
    /// version with the cluster is refused. A client whose version lacks the cluster has none of its objects.
    fn drop_departed(&mut self) {
        let (dropped_before, drops, names) = (&mut self.dropped_before, &mut self.drops, &mut self.names);
        self.histories.retain(|cluster, history| {
            let is_unused =
                history.events.queue.is_empty() && history.events.base.is_some_and(|base| base.component.is_none());
            if is_unused {
                *dropped_before = (*dropped_before).max(history.evicted_before());
                *drops += 1;
                names.forget(cluster);
            }
            !is_unused
        });
    }
}

/// Evicts a cluster's oldest entries, while they are too old or too large.
fn forget(config: &LogConfig, history: &mut History, entries: &mut BTreeMap<u64, LogEntry>, now: Duration) {
    let old = |mark: &Mark| now.saturating_sub(mark.at) > config.history_age_max;
    while let Some(oldest) = history.events.queue.front().copied() {
        // A boundary (a join, leave, relist or reset) keeps a whole snapshot in memory, so it expires together with all
        // entries before it. The sums leave out the largest boundary, and not the newest: after a cluster left and
        // returned, the newest boundary is the join, which replaced no objects, and the large leave before the join
        // would be evicted.
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
        entries.remove(&oldest.position);
    }
    while history.progress.queue.front().is_some_and(old) {
        history.progress.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quiet cluster keeps its few changes forever. These old changes must not prevent the eviction of later clusters
    /// that joined and left.
    #[test]
    fn event_log_evicts_the_changes_of_a_thousand_joined_and_left_clusters() {
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
