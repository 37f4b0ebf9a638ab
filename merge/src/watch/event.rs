//! The events of a watcher.

use std::sync::Arc;

use tributary_apimachinery::{Change, ChangeType, ClusterName, Filter, Object, ResourceVersion};

use crate::log::{LogVersion, TooOld};
use crate::{CompositeResourceVersion, ObjectFilter};

/// The cost that one call may spend on the filter for each event of its maximum, in bytes ([`ObjectFilter::cost`]): 16
/// objects for a simple filter. A filter that is long, or matches few objects, therefore does not hold the log for
/// long.
const FILTER_COST_PER_EVENT: usize = 16 * Filter::LOOK_COST;

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// An object appeared, changed or was removed.
    Object(ObjectEvent),
    /// The initial events are complete: the bookmark with the annotation `k8s.io/initial-events-end`.
    InitialEventsEnd(EventVersion),
}

/// An object that entered the filter's selection, changed within it or left it.
#[derive(Clone, Debug)]
pub struct ObjectEvent {
    /// The type of the event.
    pub change_type: ChangeType,
    /// The object; for an object that left the selection, its last state within the selection.
    pub object: Arc<Object>,
    /// The cluster of the object.
    pub cluster: ClusterName,
    /// The native version of the event, for the integer form.
    pub native_version: ResourceVersion,
    /// The version that the object carries in the stream.
    pub version: EventVersion,
    /// True if the object is unchanged and only announced again, behind the DELETED of a different cluster's object of
    /// that name. Its `native_version` may be far older than earlier events of the stream.
    pub is_repeat: bool,
    /// Present exactly if all watchers that receive an event with this key receive the same bytes.
    pub shared: Option<SharedKey>,
}

/// The version that an event carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventVersion {
    /// The item form with the object's cluster: an initial event, which is no resume point.
    Item(ResourceVersion),
    /// A point in the log; [`Log::vector`](crate::Log::vector) returns its vector. Equal values have the same text.
    Log(LogVersion),
    /// A vector that is private to this client.
    Vector(Arc<CompositeResourceVersion>),
}

/// The cache key of an encoded event, per content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedKey {
    pub(crate) position: u64,
    pub(crate) part: usize,
    /// The index of a different cluster's object that is announced again.
    pub(crate) other: Option<usize>,
    pub(crate) change_type: ChangeType,
    pub(crate) version: LogVersion,
}

/// The result of a call of [`Watcher::next`](super::Watcher::next).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOutcome {
    /// The state of the watcher after the call.
    pub progress: Progress,
    /// The position before which the watcher sent an event with a private version, because its client had, or may have
    /// had, more than the log before the event; 0 if there was none.
    ///
    /// A caller that lets clients resume behind single events ([`Watcher::after_event`](super::Watcher::after_event))
    /// keeps the maximum over all watchers of the log, and records it before the client sees the events: the native
    /// version of such an event says less than the client has.
    pub private_before: u64,
}

/// The state of a watcher after a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All events up to the head have been returned: wait for the head to move.
    CaughtUp,
    /// More events may follow immediately.
    More,
    /// The watcher was too slow, and its next events have been forgotten: end the stream with EOF.
    Lagged,
    /// The client's version lies in a gap: send ERROR 410, then EOF.
    Expired(TooOld),
}

/// The remaining budget of a call.
pub(crate) struct WatchBatch<'a> {
    events: &'a mut Vec<WatchEvent>,
    events_left: usize,
    /// The remaining cost for the filter, in bytes.
    filter_cost_left: usize,
    /// See [`BatchOutcome::private_before`].
    private_before: u64,
}

impl<'a> WatchBatch<'a> {
    pub(crate) fn new(events_max: usize, events: &'a mut Vec<WatchEvent>) -> Self {
        let events_left = events_max.max(1);
        Self {
            events,
            events_left,
            filter_cost_left: events_left.saturating_mul(FILTER_COST_PER_EVENT),
            private_before: 0,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.events_left == 0 || self.filter_cost_left == 0
    }

    pub(crate) fn add_filter_cost(&mut self, cost: usize) {
        self.filter_cost_left = self.filter_cost_left.saturating_sub(cost);
    }

    pub(crate) fn push(&mut self, event: WatchEvent) {
        self.events.push(event);
        self.events_left = self.events_left.saturating_sub(1);
    }

    /// Records that an event is sent to a client that has, or may have, something before this position.
    pub(crate) fn record_private(&mut self, before: u64) {
        self.private_before = self.private_before.max(before);
    }

    pub(crate) fn outcome(self, progress: Progress) -> BatchOutcome {
        BatchOutcome { progress, private_before: self.private_before }
    }
}

/// Returns the event type of a change for a watcher with this filter, and the object to send. An object that leaves the
/// selection is sent in its last state within it (kube-apiserver `pkg/storage/cacher/cache_watcher.go`).
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
