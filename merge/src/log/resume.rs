//! Where in the log a version lies, and which state it stands for.

use std::sync::Arc;

use tributary_apimachinery::{Change, ClusterName, CollectionVersion, Object, ResourceVersion, Snapshot};

use super::difference::same_version;
use super::entry::{Boundary, BoundaryKind, BoundarySide, EntryKind, Left};
use super::history::{History, Mark};
use super::past::{Past, held_before};
use super::{Log, SnapshotError, TooOld};
use crate::CompositeResourceVersion;

impl Log {
    /// The first place of a cluster that a version does not cover, or the head.
    ///
    /// Goes back from boundary to boundary until one is covered: from there to the next the versions only go up.
    pub(crate) fn resume_at(&self, cluster: &ClusterName, version: CollectionVersion) -> Result<u64, TooOld> {
        let too_old = || TooOld { cluster: cluster.clone(), requested: version, oldest: self.oldest(cluster) };
        let history = self.histories.get(cluster).ok_or_else(too_old)?;
        let mut end = self.next;
        for Mark { seq, .. } in history.boundaries.iter().rev() {
            let boundary = self.boundary(*seq).ok_or_else(too_old)?;
            match boundary.place(version) {
                BoundarySide::Covered => return Ok(history.first_newer(seq + 1, end, version)),
                BoundarySide::Before => end = *seq,
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

    /// Where a client goes on after a version whose [first uncovered place](Self::resume_at) is this: there, or, where
    /// it is a part of a revision that several deletions share, or may share, at the first of those.
    pub(crate) fn go_on_at(
        &self,
        cluster: &ClusterName,
        version: CollectionVersion,
        place: u64,
    ) -> Result<u64, TooOld> {
        let history = self.histories.get(cluster);
        let place = history.and_then(|history| history.first_of_revision(place, version, self.counts));
        place.ok_or_else(|| TooOld { cluster: cluster.clone(), requested: version, oldest: self.oldest(cluster) })
    }

    /// The oldest version of a cluster that its present history can be resumed from.
    pub fn oldest(&self, cluster: &ClusterName) -> Option<CollectionVersion> {
        let history = self.histories.get(cluster)?;
        let begin = history.boundaries.iter().rev().filter_map(|mark| self.boundary(mark.seq)).find_map(|boundary| {
            match boundary.kind {
                BoundaryKind::Join(_) | BoundaryKind::Reset => boundary.component,
                BoundaryKind::Leave | BoundaryKind::Relist => None,
            }
        });
        begin.or_else(|| history.events.base.and_then(|base| base.component))
    }

    /// Whether a cluster left or came at a position or later, or its revisions went back, or may have:
    /// what stood there is forgotten.
    pub(crate) fn is_another_since(&self, cluster: &ClusterName, position: u64) -> bool {
        self.may_have_met(cluster, position, |kind| kind != BoundaryKind::Relist)
    }

    /// Whether a cluster's revisions went back at a position or later, or may have: what stood there is forgotten.
    pub(crate) fn went_back_since(&self, cluster: &ClusterName, position: u64) -> bool {
        let is_back = |kind| matches!(kind, BoundaryKind::Reset | BoundaryKind::Join(Some(Left::Undone(_))));
        self.may_have_met(cluster, position, is_back)
    }

    /// Whether a boundary of such a kind stands at a position or later, or may have stood there.
    fn may_have_met(&self, cluster: &ClusterName, position: u64, is_such: impl Fn(BoundaryKind) -> bool) -> bool {
        let Some(history) = self.histories.get(cluster) else { return false };
        if history.forgotten_before() > position {
            return true;
        }
        let newest_first = history.boundaries.iter().rev().take_while(|mark| mark.seq >= position);
        newest_first.filter_map(|mark| self.boundary(mark.seq)).any(|boundary| is_such(boundary.kind))
    }

    /// The place of the change that gave an object this native version, if it is still in the log: where a watch
    /// that names one event of one cluster goes on.
    ///
    /// None if another event may carry this version, or a client that names it may have been told more
    /// than what stands up to there:
    ///
    /// * several deletions share it;
    /// * the cluster came or left since, or its revisions went back: its objects were told again under
    ///   the versions that they had;
    /// * the cluster was listed anew right behind it, and what was found gone carries this version;
    /// * a client that had more was told it, or what follows, with a version of its own: it stands before `own_before`.
    pub(crate) fn place_of_change(
        &self,
        own_before: u64,
        cluster: &ClusterName,
        version: ResourceVersion,
    ) -> Option<u64> {
        let history = self.histories.get(cluster)?;
        let newest_first = history.events.queue.iter().rev();
        let own = CollectionVersion::begun(version);
        let mut marks = newest_first.take_while(|mark| mark.component >= Some(own)).filter(|mark| {
            mark.component.map(CollectionVersion::revision) == Some(version)
                && self.change(mark.seq).is_some_and(|change| change.resource_version() == version)
        });
        let (mark, None) = (marks.next()?, marks.next()) else { return None };
        let since = history.boundaries.iter().rev().take_while(|boundary| boundary.seq > mark.seq);
        let carries_another = |boundary: &Boundary| {
            let before = boundary.component_before.map(CollectionVersion::revision);
            let has_early_ones = !boundary.differences.early().is_empty() && before == Some(version);
            boundary.kind != BoundaryKind::Relist || has_early_ones
        };
        let is_another =
            since.filter_map(|boundary| self.boundary(boundary.seq)).any(carries_another) || mark.seq < own_before;
        (!is_another).then_some(mark.seq)
    }

    /// The version of the collection that one event's stands for, where it is a whole vector: all of its revision, if
    /// that gave an object its state here. Otherwise it may be of a deletion of which others share the revision.
    ///
    /// Cost: O(entries since).
    pub fn version_of_item(&self, cluster: &ClusterName, version: ResourceVersion) -> CollectionVersion {
        let (part, whole) = (CollectionVersion::part(version, 1), CollectionVersion::whole(version));
        let marks = self.histories.get(cluster).into_iter().flat_map(|history| history.events.queue.iter().rev());
        let mut own = marks.take_while(|mark| mark.component.is_none_or(|component| component >= part));
        let is_put = |mark: &Mark| mark.component == Some(whole) && self.change(mark.seq).is_some();
        if own.any(is_put) { whole } else { part }
    }

    /// The exact past state at a vector: one snapshot for each of its clusters, which may have left since, and none
    /// of the clusters that it does not name.
    ///
    /// Cost: O(entries since), per cluster; none for a cluster that is still at its component.
    ///
    /// # Errors
    /// [`SnapshotError`]: nothing partial is returned. A version that may be from before a cluster's revisions went
    /// back is expired as long as that is in the log.
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

    /// What it takes to rebuild the exact past state of one cluster at a version, as [`snapshot_at`](Self::snapshot_at)
    /// has it. For who reads the log under a lock: this is done with the lock held, and [`Past::rebuild`] without it.
    ///
    /// Cost: a look at each entry of the cluster since; none if it is still at the version.
    ///
    /// # Errors
    /// As [`snapshot_at`](Self::snapshot_at).
    pub fn past(&self, cluster: &ClusterName, version: CollectionVersion) -> Result<Past, SnapshotError> {
        if self.undone(cluster, version).is_some() {
            return Err(TooOld { cluster: cluster.clone(), requested: version, oldest: self.oldest(cluster) }.into());
        }
        if let Some(head) = self.snapshot(cluster) {
            let current = head.resource_version();
            if current == version {
                return Ok(Past { version, later: head.clone(), since: Vec::new() });
            }
            if current < version {
                return Err(SnapshotError::TooNew { cluster: cluster.clone(), requested: version, current });
            }
        }
        let place = self.resume_at(cluster, version)?;
        if self.is_more(place, version) {
            return Err(TooOld { cluster: cluster.clone(), requested: version, oldest: self.oldest(cluster) }.into());
        }
        Ok(self.since(cluster, place, version))
    }

    /// Whether a version is more than what stands before its first uncovered place: whoever is behind a part of a
    /// revision when that is listed anew, or leaves, has more of it, of what this process never heard.
    fn is_more(&self, place: u64, version: CollectionVersion) -> bool {
        let component_before = self.boundary(place).and_then(|boundary| boundary.component_before);
        component_before.is_some_and(|before| before < version)
    }

    /// Whether who has a version certainly has an object that stands before its first uncovered place. Where the
    /// version is [more](Self::is_more), that may be what it deleted, unless the object is still there
    /// behind that place.
    pub(crate) fn is_held(
        &self,
        cluster: &ClusterName,
        version: CollectionVersion,
        place: u64,
        object: &Object,
    ) -> bool {
        let is_same = |after: Arc<Object>| same_version(object, &after);
        !self.is_more(place, version)
            || self.object_before(cluster, object.key().as_str(), place + 1).is_some_and(is_same)
    }

    /// The newest version that was undone when a cluster's revisions went back, if this version stands for two states:
    /// one of before, and one of after. A list may be refused then, because its client begins anew; a watch only once
    /// the cluster has passed what was undone, or it would be refused again.
    pub(crate) fn undone(&self, cluster: &ClusterName, version: CollectionVersion) -> Option<CollectionVersion> {
        let boundaries = self.histories.get(cluster).into_iter().flat_map(|history| &history.boundaries);
        boundaries.filter_map(|mark| self.boundary(mark.seq)?.undone(version)).max()
    }

    /// A cluster's state before a place, which stands for a version. Everything of the cluster from
    /// there on must still be in the log.
    fn since(&self, cluster: &ClusterName, place: u64, version: CollectionVersion) -> Past {
        let Some(history) = self.histories.get(cluster) else {
            return Past { version, later: Snapshot::default(), since: Vec::new() };
        };
        let (later, end) = match self.next_boundary(history, place) {
            Some((seq, boundary)) => (boundary.before.clone(), seq),
            None => (self.snapshot(cluster).cloned().unwrap_or_default(), self.next),
        };
        let marks = history.events.from(place).take_while(|mark| mark.seq < end);
        let since = marks.filter_map(|mark| self.change(mark.seq).cloned()).collect();
        Past { version, later, since }
    }

    /// A cluster's object of one key before a place, under the same condition. Cost: O(the cluster's entries since).
    pub(crate) fn object_before(&self, cluster: &ClusterName, key: &str, place: u64) -> Option<Arc<Object>> {
        let history = self.histories.get(cluster)?;
        for mark in history.events.from(place) {
            match &self.entries.get(&mark.seq)?.kind {
                EntryKind::Change(change) if change.object.key().as_str() == key => {
                    return held_before(change).cloned();
                }
                EntryKind::Change(_) => {}
                EntryKind::Boundary(boundary) => return boundary.before.get(key).cloned(),
            }
        }
        self.snapshot(cluster)?.get(key).cloned()
    }

    fn next_boundary(&self, history: &History, place: u64) -> Option<(u64, &Boundary)> {
        let seq = history.boundaries.iter().find(|mark| mark.seq >= place)?.seq;
        Some((seq, self.boundary(seq)?))
    }

    fn boundary(&self, seq: u64) -> Option<&Boundary> {
        self.entry(seq)?.boundary()
    }

    fn change(&self, seq: u64) -> Option<&Change> {
        match &self.entries.get(&seq)?.kind {
            EntryKind::Change(change) => Some(change),
            EntryKind::Boundary(_) => None,
        }
    }
}
