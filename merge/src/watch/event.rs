//! The events of a watch.

use std::sync::Arc;

use tributary_apimachinery::{Change, ChangeType, ClusterName, Filter, Object, ResourceVersion};

use crate::log::{LogVersion, TooOld};
use crate::{CompositeResourceVersion, ObjectFilter};

/// The maximum cost of evaluating the filter in one call, in bytes ([`ObjectFilter::cost`]), for each event that the
/// call may return: 16 objects for a simple filter. So an expensive filter, or a filter that matches few objects, does
/// not lock the log for long.
const FILTER_COST_PER_EVENT: usize = 16 * Filter::COST_PER_OBJECT;

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// An object was added, modified or deleted.
    Object(ObjectEvent),
    /// The bookmark with the annotation `k8s.io/initial-events-end`: the initial events are complete.
    InitialEventsEnd(EventVersion),
}

/// An object that entered the selection of the filter, changed within it, or left it.
#[derive(Clone, Debug)]
pub struct ObjectEvent {
    /// The type of the event.
    pub change_type: ChangeType,
    /// The object. For an object that left the selection, its last state within the selection.
    pub object: Arc<Object>,
    /// The cluster of the object.
    pub cluster: ClusterName,
    /// The native version of the event, from which the integer form is computed.
    pub native_version: ResourceVersion,
    /// The version that the object carries in the watch.
    pub version: EventVersion,
    /// Whether the object is unchanged and only sent again, because a different cluster's object with the same name was
    /// deleted. Its `native_version` may be far below that of earlier events.
    pub is_repeat: bool,
    /// The cache key of the event's encoded bytes; `None` if the bytes differ between clients.
    pub shared: Option<SharedKey>,
}

/// The resourceVersion that an event carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventVersion {
    /// The version of a single object, in the item form, for an initial event. A watch cannot resume from this version.
    Item(ResourceVersion),
    /// A point in the log; [`Log::vector`](crate::Log::vector) returns its composite version. Equal values have the
    /// same text.
    Log(LogVersion),
    /// A composite version that only this client receives.
    Vector(Arc<CompositeResourceVersion>),
}

/// The cache key of an encoded event. The cache has one entry per key and content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedKey {
    pub(crate) position: u64,
    pub(crate) part: usize,
    /// If the event sends an unchanged object of a different cluster again: the index of this object.
    pub(crate) other: Option<usize>,
    pub(crate) change_type: ChangeType,
    pub(crate) version: LogVersion,
}

/// The result of a call of [`Watcher::next`](super::Watcher::next).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOutcome {
    /// The state of the watch after the call.
    pub progress: Progress,
    /// The position before which the watch sent an event with a private version; 0 if there was no such event. The
    /// version of an event is private if the client may already have more events than the log contains before the
    /// event.
    ///
    /// A caller may let clients resume behind single events ([`Watcher::after_event`](super::Watcher::after_event)).
    /// Such a caller stores the maximum over all watches of the log, before a client receives the events. A client may
    /// not resume behind such an event, because the event's native version does not describe all events that the client
    /// has.
    pub private_before: u64,
}

/// The state of a watch after a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The call has returned all events in the log. The caller waits for new entries.
    CaughtUp,
    /// More events may follow immediately.
    More,
    /// The client was too slow, and its next events have been evicted. The caller ends the response.
    Lagged,
    /// The log cannot continue from the client's version. The caller sends an ERROR event with 410, and ends the
    /// response.
    Expired(TooOld),
}

pub(crate) struct WatchBatch<'a> {
    events: &'a mut Vec<WatchEvent>,
    events_left: usize,
    filter_cost_left: usize,
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

    /// Records that an event before this position carries a private version.
    pub(crate) fn record_private(&mut self, before: u64) {
        self.private_before = self.private_before.max(before);
    }

    pub(crate) fn outcome(self, progress: Progress) -> BatchOutcome {
        BatchOutcome { progress, private_before: self.private_before }
    }
}

/// Returns the event type and the object that a watch with this filter sends for a change. If the object leaves the
/// selection, the event has the object's last state within the selection (kube-apiserver's
/// `pkg/storage/cacher/cache_watcher.go`).
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
