//! One cluster's part of the log: at which places it stands, and at which version.

use std::collections::VecDeque;
use std::time::Duration;

use tributary_apimachinery::CollectionVersion;

/// A place of one cluster in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) seq: u64,
    /// The cluster's component from here on; `None` once it left.
    pub(crate) component: Option<CollectionVersion>,
    pub(crate) at: Duration,
    pub(crate) bytes: usize,
    /// Whether a boundary stands there, and no change.
    pub(crate) is_boundary: bool,
}

/// What a count of a revision's deletions says to a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeletionCountScope {
    /// So many of those that the log has, the first ones, or more.
    #[default]
    Alike,
    /// So many, of which the log may have none.
    OfOthers,
}

/// Places in ascending order, the oldest of which have been forgotten.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The newest forgotten one.
    pub(crate) base: Option<Mark>,
    pub(crate) queue: VecDeque<Mark>,
}

/// One cluster's part of the log.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Changes and boundaries: what has an entry.
    pub(crate) events: Marks,
    /// Versions that the member reached without a change. They have no entry and are kept apart, so that they never
    /// push a change out, nor an old change keeps them.
    pub(crate) progress: Marks,
    /// The boundaries among the events.
    pub(crate) boundaries: VecDeque<Mark>,
    /// What the events occupy with their objects.
    pub(crate) bytes: usize,
    /// What the boundaries among them do.
    pub(crate) boundary_bytes: usize,
    /// What those boundaries occupy behind which none occupies more, in their order: the first is the largest of all.
    largest_boundaries: VecDeque<usize>,
}

impl Marks {
    /// The newest mark before a position, as far as it is known.
    fn last_before(&self, position: u64) -> Option<&Mark> {
        let after = match self.queue.back() {
            Some(newest) if newest.seq < position => self.queue.len(),
            _ => self.queue.partition_point(|mark| mark.seq < position),
        };
        match after.checked_sub(1) {
            Some(at) => self.queue.get(at),
            None => self.base.as_ref().filter(|base| base.seq < position),
        }
    }

    /// The marks from a position on.
    pub(crate) fn from(&self, position: u64) -> impl DoubleEndedIterator<Item = &Mark> {
        self.queue.range(self.queue.partition_point(|mark| mark.seq < position)..)
    }

    /// Forgets the oldest mark.
    pub(crate) fn pop(&mut self) -> Option<Mark> {
        let oldest = self.queue.pop_front()?;
        self.base = Some(oldest);
        Some(oldest)
    }
}

impl History {
    /// Puts in the newest event.
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

    /// Forgets the oldest event.
    pub(crate) fn pop_event(&mut self) {
        let Some(oldest) = self.events.pop() else { return };
        self.bytes -= oldest.bytes;
        if oldest.is_boundary {
            self.boundaries.pop_front();
            self.boundary_bytes -= oldest.bytes;
            self.largest_boundaries.pop_front_if(|bytes| *bytes == oldest.bytes);
        }
    }

    /// What the largest boundary occupies. Costs the same however many there are.
    pub(crate) fn largest_boundary_bytes(&self) -> usize {
        self.largest_boundaries.front().copied().unwrap_or(0)
    }

    /// The cluster's component before a position. Exact if no event from there on has been forgotten.
    pub(crate) fn component_before(&self, position: u64) -> Option<CollectionVersion> {
        let newer = match (self.events.last_before(position), self.progress.last_before(position)) {
            (Some(event), Some(progress)) => Some(if event.seq > progress.seq { event } else { progress }),
            (event, progress) => event.or(progress),
        };
        newer.and_then(|mark| mark.component)
    }

    /// The position after the newest forgotten event; 0 if none has been forgotten.
    pub(crate) fn forgotten_before(&self) -> u64 {
        self.events.base.map_or(0, |base| base.seq + 1)
    }

    /// Whether an event stands, or stood, in `from..to`.
    pub(crate) fn has_events(&self, from: u64, to: u64) -> bool {
        self.events_end(from, to).is_some()
    }

    /// The position after the newest event of `from..to`, if one stands, or stood, there.
    pub(crate) fn events_end(&self, from: u64, to: u64) -> Option<u64> {
        let after = self.events.queue.partition_point(|mark| mark.seq < to);
        let newest = after.checked_sub(1).and_then(|at| self.events.queue.get(at)).map(|mark| mark.seq + 1);
        let end = newest.unwrap_or_else(|| self.forgotten_before().min(to));
        (end > from).then_some(end)
    }

    /// The first event of `from..to` that is newer than a version, or `to`. Versions ascend within the range.
    pub(crate) fn first_newer(&self, from: u64, to: u64, version: CollectionVersion) -> u64 {
        let at = self.events.queue.partition_point(|mark| {
            mark.seq < from || (mark.seq < to && mark.component.is_some_and(|component| component <= version))
        });
        self.events.queue.get(at).map_or(to, |mark| mark.seq.min(to))
    }

    /// Where a client goes on that has a part of a revision up to a place: at the first of the deletions that share it.
    /// Then it is told all of them, so that nothing rests on replicas counting them alike. One that stands alone is
    /// passed over, unless the count may be of others.
    ///
    /// Where some of them have been forgotten, who has as many goes on at the first that is kept: a member sends them
    /// to everybody in the order of their transaction, so the first ones are the same at all replicas. Otherwise a
    /// list's own version could not be watched as long as nothing comes later. `None` if it may lack one of those: if
    /// it has fewer, or the count may be of others.
    ///
    /// A state in the midst of a revision counts for none of them: whoever has as much as that lacks
    /// nothing that is not told behind it.
    pub(crate) fn first_of_revision(
        &self,
        place: u64,
        version: CollectionVersion,
        counts: DeletionCountScope,
    ) -> Option<u64> {
        let shares = |mark: &&Mark| {
            let revision = |own: CollectionVersion| own.is_part() && own.revision() == version.revision();
            !mark.is_boundary && mark.component.is_some_and(revision)
        };
        if !version.is_part() {
            return Some(place);
        }
        let forgotten = self.events.base.as_ref().filter(shares);
        if forgotten.is_some_and(|newest| counts == DeletionCountScope::OfOthers || newest.component > Some(version)) {
            return None;
        }
        let marks = &self.events.queue;
        let at = marks.partition_point(|mark| mark.seq < place);
        let before = marks.range(..at).rev().take_while(shares).count();
        let behind = marks.range(at..).take_while(shares).count();
        let is_alone = counts == DeletionCountScope::Alike && forgotten.is_none() && before + behind == 1;
        let first = marks.get(at - before).filter(|_| before + behind > 0 && !is_alone);
        Some(first.map_or(place, |mark| mark.seq))
    }
}
