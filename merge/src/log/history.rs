//! One cluster's part of the merged log: the positions of its events, and its version after each event.

use std::collections::VecDeque;
use std::time::Duration;

use tributary_apimachinery::CollectionVersion;

/// A position in the log at which a cluster had an event, or reached a version without a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) position: u64,
    /// The cluster's component from this position on; `None` after the cluster left.
    pub(crate) component: Option<CollectionVersion>,
    pub(crate) at: Duration,
    pub(crate) bytes: usize,
    pub(crate) is_boundary: bool,
}

/// The namespaces of the deletions that a version counts. A version may contain how many deletions of its revision the
/// client has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeletionCountScope {
    /// The namespaces of the log. A version with a count of n includes at least the first n deletions of the revision
    /// in the log.
    #[default]
    SameNamespaces,
    /// All namespaces. The counted deletions may all be outside the log's namespace.
    AllNamespaces,
}

/// Positions with versions, in ascending order. The oldest marks have been evicted.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The newest mark that has been evicted.
    pub(crate) base: Option<Mark>,
    pub(crate) queue: VecDeque<Mark>,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    /// The positions of the cluster's entries: changes, joins, leaves, relists and resets.
    pub(crate) events: Marks,
    /// The versions that the cluster reached without a change. Such versions have no entry. Because they have a queue
    /// of their own, they never evict a change, and an old change does not keep old versions in memory.
    pub(crate) progress: Marks,
    /// The joins, leaves, relists and resets among the cluster's events.
    pub(crate) boundaries: VecDeque<Mark>,
    /// The size of the cluster's events with their objects, in bytes.
    pub(crate) bytes: usize,
    /// The size of the cluster's joins, leaves, relists and resets, in bytes.
    pub(crate) boundary_bytes: usize,
    /// The sizes of the boundaries (joins, leaves, relists and resets) that are at least as large as each later
    /// boundary, in log order. The first is the largest of all.
    largest_boundaries: VecDeque<usize>,
}

impl Marks {
    fn last_before(&self, position: u64) -> Option<&Mark> {
        let after = match self.queue.back() {
            Some(newest) if newest.position < position => self.queue.len(),
            _ => self.queue.partition_point(|mark| mark.position < position),
        };
        match after.checked_sub(1) {
            Some(at) => self.queue.get(at),
            None => self.base.as_ref().filter(|base| base.position < position),
        }
    }

    pub(crate) fn from(&self, position: u64) -> impl DoubleEndedIterator<Item = &Mark> {
        self.queue.range(self.queue.partition_point(|mark| mark.position < position)..)
    }

    pub(crate) fn pop(&mut self) -> Option<Mark> {
        let oldest = self.queue.pop_front()?;
        self.base = Some(oldest);
        Some(oldest)
    }
}

impl History {
    pub(crate) fn push_event(&mut self, mark: Mark) {
        self.events.queue.push_back(mark);
        self.bytes += mark.bytes;
        if mark.is_boundary {
            self.boundaries.push_back(mark);
            self.boundary_bytes += mark.bytes;
            while self.largest_boundaries.pop_back_if(|bytes| *bytes < mark.bytes).is_some() {}
            self.largest_boundaries.push_back(mark.bytes);
        }
    }

    /// Removes the cluster's oldest event from this history.
    pub(crate) fn pop_event(&mut self) {
        let Some(oldest) = self.events.pop() else { return };
        self.bytes -= oldest.bytes;
        if oldest.is_boundary {
            self.boundaries.pop_front();
            self.boundary_bytes -= oldest.bytes;
            self.largest_boundaries.pop_front_if(|bytes| *bytes == oldest.bytes);
        }
    }

    /// Returns the size of the largest join, leave, relist or reset, in bytes. Cost: O(1).
    pub(crate) fn largest_boundary_bytes(&self) -> usize {
        self.largest_boundaries.front().copied().unwrap_or(0)
    }

    /// Returns the cluster's component before a position. The result is exact only if no event at or after the position
    /// has been evicted.
    pub(crate) fn component_before(&self, position: u64) -> Option<CollectionVersion> {
        let newer = match (self.events.last_before(position), self.progress.last_before(position)) {
            (Some(event), Some(progress)) => Some(if event.position > progress.position { event } else { progress }),
            (event, progress) => event.or(progress),
        };
        newer.and_then(|mark| mark.component)
    }

    /// Returns the position after the newest evicted event; 0 if no event has been evicted.
    pub(crate) fn evicted_before(&self) -> u64 {
        self.events.base.map_or(0, |base| base.position + 1)
    }

    /// Returns whether the cluster has an event, evicted or not, in the positions `from..to`.
    pub(crate) fn has_events(&self, from: u64, to: u64) -> bool {
        self.events_end(from, to).is_some()
    }

    /// Returns the position after the cluster's newest event, evicted or not, in `from..to`.
    pub(crate) fn events_end(&self, from: u64, to: u64) -> Option<u64> {
        let after = self.events.queue.partition_point(|mark| mark.position < to);
        let newest = after.checked_sub(1).and_then(|at| self.events.queue.get(at)).map(|mark| mark.position + 1);
        let end = newest.unwrap_or_else(|| self.evicted_before().min(to));
        (end > from).then_some(end)
    }

    /// Returns the position of the first event in `from..to` that is newer than a version; `to` if there is no such
    /// event. Versions ascend within the range.
    pub(crate) fn first_newer(&self, from: u64, to: u64, version: CollectionVersion) -> u64 {
        let at = self.events.queue.partition_point(|mark| {
            mark.position < from || (mark.position < to && mark.component.is_some_and(|component| component <= version))
        });
        self.events.queue.get(at).map_or(to, |mark| mark.position.min(to))
    }

    /// Returns the position from which a client resumes if its version includes only some deletions of a revision: the
    /// first deletion of the revision. The client receives all deletions of the revision, so replicas need not count
    /// them in the same order. A deletion that is alone in its revision is skipped, unless the count includes other
    /// namespaces.
    ///
    /// There is one exception: if some of the deletions have been evicted, and the client's count includes at least
    /// that many, the client resumes at the first remaining deletion. Without this exception, no watch could start from
    /// the version of a list until a later change. The exception is safe, because a cluster sends the deletions of a
    /// transaction to all watches in the same order. So the first deletions are the same at all replicas. Returns
    /// `None` if the client may lack an evicted deletion, because its count is lower or includes other namespaces.
    ///
    /// A snapshot in the middle of a revision counts as no deletion: a client with the snapshot's version has all
    /// deletions that are not sent after it.
    pub(crate) fn first_of_revision(
        &self,
        position: u64,
        version: CollectionVersion,
        deletion_count_scope: DeletionCountScope,
    ) -> Option<u64> {
        let shares = |mark: &&Mark| {
            let revision = |own: CollectionVersion| own.is_part() && own.revision() == version.revision();
            !mark.is_boundary && mark.component.is_some_and(revision)
        };
        if !version.is_part() {
            return Some(position);
        }
        let evicted = self.events.base.as_ref().filter(shares);
        if evicted.is_some_and(|newest| {
            deletion_count_scope == DeletionCountScope::AllNamespaces || newest.component > Some(version)
        }) {
            return None;
        }
        let marks = &self.events.queue;
        let at = marks.partition_point(|mark| mark.position < position);
        let before = marks.range(..at).rev().take_while(shares).count();
        let behind = marks.range(at..).take_while(shares).count();
        let is_alone =
            deletion_count_scope == DeletionCountScope::SameNamespaces && evicted.is_none() && before + behind == 1;
        let first = marks.get(at - before).filter(|_| before + behind > 0 && !is_alone);
        Some(first.map_or(position, |mark| mark.position))
    }
}
