//! Finds the position of a version in the merged log, and rebuilds the past state at a version.

use std::sync::Arc;

use tributary_apimachinery::{Change, ClusterName, CollectionVersion, Object, ResourceVersion, Snapshot};

use super::difference::same_version;
use super::entry::{Boundary, BoundaryKind, BoundarySide, Departure, EntryKind};
use super::history::{History, Mark};
use super::past::{PastState, content_before};
use super::{Log, SnapshotError, TooOld};
use crate::CompositeResourceVersion;

impl Log {
    /// Returns the position of a cluster's first event that a version does not include, or the end of the log.
    ///
    /// The search goes back over the boundaries (joins, leaves, relists and resets) until the version includes one of
    /// them: between two boundaries, versions only increase.
    pub(crate) fn first_uncovered(&self, cluster: &ClusterName, version: CollectionVersion) -> Result<u64, TooOld> {
        let too_old = || TooOld { cluster: cluster.clone(), requested: version, oldest: self.oldest(cluster) };
        let history = self.histories.get(cluster).ok_or_else(too_old)?;
        let mut end = self.next;
        for Mark { position, .. } in history.boundaries.iter().rev() {
            let boundary = self.boundary(*position).ok_or_else(too_old)?;
            match boundary.side_of(version) {
                BoundarySide::Covered => return Ok(history.first_newer(position + 1, end, version)),
                BoundarySide::Before => end = *position,
                BoundarySide::Gap => return Err(too_old()),
            }
        }
        let floor = history.events.base.and_then(|base| base.component);
        if floor.is_some_and(|floor| floor <= version) {
            Ok(history.first_newer(0, end, version))
        } else {
            Err(too_old())
        }
    }

    /// Returns the position from which a client resumes. `position` is the version's [first uncovered
    /// position](Self::first_uncovered).
    ///
    /// The result is `position`, except for a version that includes only some deletions of its revision. If several
    /// deletions share, or may share, that revision, the result is the position of the first of them.
    pub(crate) fn resume_position(
        &self,
        cluster: &ClusterName,
        version: CollectionVersion,
        position: u64,
    ) -> Result<u64, TooOld> {
        let history = self.histories.get(cluster);
        let position =
            history.and_then(|history| history.first_of_revision(position, version, self.deletion_count_scope));
        position.ok_or_else(|| TooOld { cluster: cluster.clone(), requested: version, oldest: self.oldest(cluster) })
    }

    /// Returns the oldest version of a cluster from which a client can resume.
    pub fn oldest(&self, cluster: &ClusterName) -> Option<CollectionVersion> {
        let history = self.histories.get(cluster)?;
        let begin =
            history.boundaries.iter().rev().filter_map(|mark| self.boundary(mark.position)).find_map(|boundary| {
                match boundary.kind {
                    BoundaryKind::Join(_) | BoundaryKind::Reset => boundary.component,
                    BoundaryKind::Leave | BoundaryKind::Relist => None,
                }
            });
        begin.or_else(|| history.events.base.and_then(|base| base.component))
    }

    /// Returns whether a cluster may have left, joined or gone back to earlier revisions at or after a position. True
    /// if the events at the position have been evicted.
    pub(crate) fn may_differ_since(&self, cluster: &ClusterName, position: u64) -> bool {
        self.may_have_boundary(cluster, position, |kind| kind != BoundaryKind::Relist)
    }

    /// Returns whether a cluster's revisions may have gone back at or after a position. True if the events at the
    /// position have been evicted.
    pub(crate) fn may_have_gone_back_since(&self, cluster: &ClusterName, position: u64) -> bool {
        let is_back = |kind| matches!(kind, BoundaryKind::Reset | BoundaryKind::Join(Some(Departure::Undone(_))));
        self.may_have_boundary(cluster, position, is_back)
    }

    /// Returns whether a join, leave, relist or reset for which `matches` is true may be at or after a position. True
    /// if an event at or after the position has been evicted.
    fn may_have_boundary(&self, cluster: &ClusterName, position: u64, matches: impl Fn(BoundaryKind) -> bool) -> bool {
        let Some(history) = self.histories.get(cluster) else { return false };
        if history.evicted_before() > position {
            return true;
        }
        let newest_first = history.boundaries.iter().rev().take_while(|mark| mark.position >= position);
        newest_first.filter_map(|mark| self.boundary(mark.position)).any(|boundary| matches(boundary.kind))
    }

    /// Returns the position of the change that gave an object this native version. A watch from the version of a single
    /// event resumes at this position.
    ///
    /// Returns `None` if the change has been evicted, if a different event may carry the version, or if a client with
    /// the version may have received later events:
    ///
    /// * Several deletions share the version.
    /// * The cluster joined, left or went back later: its objects were sent again under their old versions.
    /// * The cluster was relisted directly after the change, and the deletions that the list revealed carry the
    ///   version.
    /// * The change is before `private_before`. Some client had received more events than the log contains. Its watch
    ///   may have sent the change, or a later event, with a version that no other client received.
    pub(crate) fn position_of_change(
        &self,
        private_before: u64,
        cluster: &ClusterName,
        version: ResourceVersion,
    ) -> Option<u64> {
        let history = self.histories.get(cluster)?;
        let newest_first = history.events.queue.iter().rev();
        let own = CollectionVersion::begun(version);
        let mut marks = newest_first.take_while(|mark| mark.component >= Some(own)).filter(|mark| {
            mark.component.map(CollectionVersion::revision) == Some(version)
                && self.change(mark.position).is_some_and(|change| change.resource_version() == version)
        });
        let (mark, None) = (marks.next()?, marks.next()) else { return None };
        let since = history.boundaries.iter().rev().take_while(|boundary| boundary.position > mark.position);
        let carries_another = |boundary: &Boundary| {
            let before = boundary.component_before.map(CollectionVersion::revision);
            let has_early_changes = !boundary.differences.early().is_empty() && before == Some(version);
            boundary.kind != BoundaryKind::Relist || has_early_changes
        };
        let is_another = since.filter_map(|boundary| self.boundary(boundary.position)).any(carries_another)
            || mark.position < private_before;
        (!is_another).then_some(mark.position)
    }

    /// Returns the collection version that corresponds to the version of a single event. The result is the whole
    /// revision if, in this log, the revision added or modified an object. Otherwise the event may be one of several
    /// deletions that share the revision, and the result is a part of the revision.
    ///
    /// Cost: O(later entries).
    pub fn version_of_item(&self, cluster: &ClusterName, version: ResourceVersion) -> CollectionVersion {
        let (part, whole) = (CollectionVersion::part(version, 1), CollectionVersion::whole(version));
        let marks = self.histories.get(cluster).into_iter().flat_map(|history| history.events.queue.iter().rev());
        let mut own = marks.take_while(|mark| mark.component.is_none_or(|component| component >= part));
        let is_put = |mark: &Mark| mark.component == Some(whole) && self.change(mark.position).is_some();
        if own.any(is_put) { whole } else { part }
    }

    /// Returns the exact past state at a composite version: one snapshot for each cluster of the version. Clusters that
    /// left later are included.
    ///
    /// Cost: O(later entries) per cluster; none for a cluster that is still at its component.
    ///
    /// # Errors
    /// [`SnapshotError`]; never a partial state. While a reset is in the log, a version that may be from before the
    /// reset is expired.
    pub fn snapshot_at(
        &self,
        vector: &CompositeResourceVersion,
    ) -> Result<Vec<(ClusterName, Snapshot)>, SnapshotError> {
        let snapshots = vector.iter().map(|(cluster, version)| {
            let past = self.past(cluster, version)?;
            Ok((cluster.clone(), past.rebuild()))
        });
        snapshots.collect()
    }

    /// Collects the past state of a cluster for [`PastState::rebuild`]. A caller with a lock on the log calls `past`
    /// under the lock, and `rebuild` after unlocking.
    ///
    /// Cost: O(the cluster's later entries); none if the cluster is still at the version.
    ///
    /// # Errors
    /// The errors of [`snapshot_at`](Self::snapshot_at).
    pub fn past(&self, cluster: &ClusterName, version: CollectionVersion) -> Result<PastState, SnapshotError> {
        if self.undone(cluster, version).is_some() {
            return Err(TooOld { cluster: cluster.clone(), requested: version, oldest: self.oldest(cluster) }.into());
        }
        if let Some(latest) = self.snapshot(cluster) {
            let current = latest.resource_version();
            if current == version {
                return Ok(PastState { version, later: latest.clone(), since: Vec::new() });
            }
            if current < version {
                return Err(SnapshotError::TooNew { cluster: cluster.clone(), requested: version, current });
            }
        }
        let position = self.first_uncovered(cluster, version)?;
        if self.exceeds_log(position, version) {
            return Err(TooOld { cluster: cluster.clone(), requested: version, oldest: self.oldest(cluster) }.into());
        }
        Ok(self.since(cluster, position, version))
    }

    /// Returns whether a version includes events that this log never received. `position` is the version's first
    /// uncovered position. The log lacks such events if the cluster was relisted, or left, while the log had only some
    /// deletions of the version's revision.
    fn exceeds_log(&self, position: u64, version: CollectionVersion) -> bool {
        let component_before = self.boundary(position).and_then(|boundary| boundary.component_before);
        component_before.is_some_and(|before| before < version)
    }

    /// Returns whether a client at this version certainly has `object`, which the log has before `position`, the
    /// version's first uncovered position. If the version [exceeds the log](Self::exceeds_log), the client may have
    /// received the object's deletion. In this case the result is true only if the object still exists after
    /// `position`.
    pub(crate) fn certainly_has(
        &self,
        cluster: &ClusterName,
        version: CollectionVersion,
        position: u64,
        object: &Object,
    ) -> bool {
        let is_same = |after: Arc<Object>| same_version(object, &after);
        !self.exceeds_log(position, version)
            || self.object_before(cluster, object.key().as_str(), position + 1).is_some_and(is_same)
    }

    /// If `version` belongs to two states, one before a reset and one after, returns the newest version that the reset
    /// made invalid. A list at such a version may be refused at once, because its client then lists without a version.
    /// A watch is refused only after the cluster has passed the invalid version. If the watch were refused earlier, a
    /// new list would return a version in the same invalid range, and the client would be refused again.
    pub(crate) fn undone(&self, cluster: &ClusterName, version: CollectionVersion) -> Option<CollectionVersion> {
        let boundaries = self.histories.get(cluster).into_iter().flat_map(|history| &history.boundaries);
        boundaries.filter_map(|mark| self.boundary(mark.position)?.undone(version)).max()
    }

    /// Returns a cluster's state before the position `position`, as the state at `version`. All later entries of the
    /// cluster must still be in the log.
    fn since(&self, cluster: &ClusterName, position: u64, version: CollectionVersion) -> PastState {
        let Some(history) = self.histories.get(cluster) else {
            return PastState { version, later: Snapshot::default(), since: Vec::new() };
        };
        let (later, end) = match self.next_boundary(history, position) {
            Some((position, boundary)) => (boundary.before.clone(), position),
            None => (self.snapshot(cluster).cloned().unwrap_or_default(), self.next),
        };
        let marks = history.events.from(position).take_while(|mark| mark.position < end);
        let since = marks.filter_map(|mark| self.change(mark.position).cloned()).collect();
        PastState { version, later, since }
    }

    /// Returns a cluster's object with a key, as it was before a position. All later entries of the cluster must still
    /// be in the log. Cost: O(the cluster's later entries).
    pub(crate) fn object_before(&self, cluster: &ClusterName, key: &str, position: u64) -> Option<Arc<Object>> {
        let history = self.histories.get(cluster)?;
        for mark in history.events.from(position) {
            match &self.entries.get(&mark.position)?.kind {
                EntryKind::Change(change) if change.object.key().as_str() == key => {
                    return content_before(change).cloned();
                }
                EntryKind::Change(_) => {}
                EntryKind::Boundary(boundary) => return boundary.before.get(key).cloned(),
            }
        }
        self.snapshot(cluster)?.get(key).cloned()
    }

    fn next_boundary(&self, history: &History, position: u64) -> Option<(u64, &Boundary)> {
        let position = history.boundaries.iter().find(|mark| mark.position >= position)?.position;
        Some((position, self.boundary(position)?))
    }

    fn boundary(&self, position: u64) -> Option<&Boundary> {
        self.entry(position)?.boundary()
    }

    fn change(&self, position: u64) -> Option<&Change> {
        match &self.entries.get(&position)?.kind {
            EntryKind::Change(change) => Some(change),
            EntryKind::Boundary(_) => None,
        }
    }
}
