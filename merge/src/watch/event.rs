//! What a watcher gives out.

use std::sync::Arc;

use tributary_apimachinery::{Change, ChangeType, ClusterName, Filter, Object, ResourceVersion};

use crate::log::{LogVersion, TooOld};
use crate::{CompositeResourceVersion, ObjectFilter};

/// What a call may spend on asking the filter for each event that it may give out, in bytes ([`ObjectFilter::cost`]),
/// so that a filter that matches little, or is long, does not hold the log for long: 16 objects for a simple one.
const ASKING_PER_EVENT: usize = 16 * Filter::LOOK_COST;

/// One event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// An object appeared, changed or went away.
    Object(ObjectEvent),
    /// The initial events are complete; the bookmark annotated `k8s.io/initial-events-end`.
    InitialEventsEnd(EventVersion),
}

/// An object that appeared, changed or went away, as far as this watcher's filter goes.
#[derive(Clone, Debug)]
pub struct ObjectEvent {
    /// What happened.
    pub change_type: ChangeType,
    /// The object; where it left the selection, its last state within.
    pub object: Arc<Object>,
    /// The object's cluster.
    pub cluster: ClusterName,
    /// The member's version of the event, for the integer form.
    pub native_version: ResourceVersion,
    /// The version that the object carries in the stream.
    pub version: EventVersion,
    /// Whether this is no news but an object told again, behind the DELETED of another cluster's object of that name.
    /// Its `native_version` may be far older than what the stream told before.
    pub again: bool,
    /// Present exactly if every watcher that is given an event with this key is given the same bytes.
    pub shared: Option<SharedKey>,
}

/// The version that an event carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventVersion {
    /// The item form of the event's cluster: an initial event, which is no resume point.
    Item(ResourceVersion),
    /// A place in the log; [`Log::vector`](crate::Log::vector) gives the vector. Equal ones have the same text.
    Log(LogVersion),
    /// A vector of this client's own.
    Vector(Arc<CompositeResourceVersion>),
}

/// What an event is cached under, per content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedKey {
    pub(crate) position: u64,
    pub(crate) part: usize,
    /// The object of another cluster that is announced again.
    pub(crate) other: Option<usize>,
    pub(crate) change_type: ChangeType,
    pub(crate) version: LogVersion,
}

/// What one call of [`Watcher::next`](super::Watcher::next) came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOutcome {
    /// How the watcher stands now.
    pub progress: Progress,
    /// The watcher was told an event before this position with a version of its own, because it had, or may have had,
    /// more than what stands up to there; 0 if it was not.
    ///
    /// Whoever lets clients go on after single events ([`Watcher::after_event`](super::Watcher::after_event)) keeps the
    /// highest one of all watchers of the log, and takes note of it before the client sees the events: the number of
    /// such an event says less than its client has.
    pub own_before: u64,
}

/// How a watcher stands after a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything up to the head was given out: wait for it to move.
    CaughtUp,
    /// There may be more at once.
    More,
    /// The watcher was too slow and what comes next has been forgotten: end the stream by EOF.
    Lagged,
    /// The client's version turned out to lie in a gap: ERROR 410, then EOF.
    Expired(TooOld),
}

/// What one call may still do.
pub(crate) struct WatchBatch<'a> {
    events: &'a mut Vec<WatchEvent>,
    events_left: usize,
    /// What may still be spent on asking the filter, in bytes.
    asking_left: usize,
    /// See [`BatchOutcome::own_before`].
    own_before: u64,
}

impl<'a> WatchBatch<'a> {
    pub(crate) fn new(events_max: usize, events: &'a mut Vec<WatchEvent>) -> Self {
        let events_left = events_max.max(1);
        Self { events, events_left, asking_left: events_left.saturating_mul(ASKING_PER_EVENT), own_before: 0 }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.events_left == 0 || self.asking_left == 0
    }

    /// Notes that a filter was asked of something, at this cost.
    pub(crate) fn add_filter_cost(&mut self, cost: usize) {
        self.asking_left = self.asking_left.saturating_sub(cost);
    }

    pub(crate) fn push(&mut self, event: WatchEvent) {
        self.events.push(event);
        self.events_left = self.events_left.saturating_sub(1);
    }

    /// Notes that an event is told to a client that has, or may have, something that stands before this position.
    pub(crate) fn told_own(&mut self, before: u64) {
        self.own_before = self.own_before.max(before);
    }

    /// What the call came to.
    pub(crate) fn outcome(self, progress: Progress) -> BatchOutcome {
        BatchOutcome { progress, own_before: self.own_before }
    }
}

/// What a change is to a watcher with this filter, and the object to show. An object that leaves the selection is
/// shown as it was within (kube-apiserver `pkg/storage/cacher/cache_watcher.go`).
pub(crate) fn classify<'a>(
    filter: &impl ObjectFilter,
    cluster: &ClusterName,
    change: &'a Change,
) -> Option<(ChangeType, &'a Arc<Object>)> {
    let deleted = change.change_type == ChangeType::Deleted;
    let last = if deleted { change.previous.as_ref().or(Some(&change.object)) } else { change.previous.as_ref() };
    let before = last.filter(|last| filter.matches(cluster, last));
    let after = !deleted && filter.matches(cluster, &change.object);
    match (before, after) {
        (None, false) => None,
        (None, true) => Some((ChangeType::Added, &change.object)),
        (Some(_), true) => Some((ChangeType::Modified, &change.object)),
        (Some(_), false) if deleted => Some((ChangeType::Deleted, &change.object)),
        (Some(last), false) => Some((ChangeType::Deleted, last)),
    }
}
