//! The initial events of a watch: ADDED for each object in key order, then a bookmark.

use std::sync::Arc;

use tributary_apimachinery::{ChangeType, ClusterName, Object};

use super::event::{EventVersion, ObjectEvent, WatchBatch, WatchEvent};
use crate::log::Log;
use crate::{ClusterSnapshots, CompositeResourceVersion, ObjectFilter};

/// The remaining initial events, stored as snapshots and a position in them.
pub(crate) struct InitialEvents {
    snapshots: ClusterSnapshots,
    vector: Arc<CompositeResourceVersion>,
    bookmark: bool,
    /// The index of the current snapshot, and its last visited key.
    at: usize,
    after: Option<Box<str>>,
    /// The last object that the walk found. It is sent only when the walk has found the next object, because without a
    /// bookmark the last event must carry the composite version.
    pending_object: Option<(usize, Arc<Object>)>,
}

impl InitialEvents {
    pub(crate) fn new(log: &Log, bookmark: bool) -> Self {
        let vector = Arc::new(log.resource_version());
        Self { snapshots: log.latest().clone(), vector, bookmark, at: 0, after: None, pending_object: None }
    }

    /// Sends the next initial events. Returns whether the initial events are complete.
    pub(crate) fn next(&mut self, filter: &impl ObjectFilter, batch: &mut WatchBatch<'_>) -> bool {
        let snapshots = self.snapshots.clone();
        while let Some((cluster, snapshot)) = snapshots.get(self.at) {
            if !filter.wants_cluster(cluster) {
                self.at += 1;
                continue;
            }
            for object in snapshot.range(&filter.scope(), self.after.as_deref()) {
                if filter.matches(cluster, object)
                    && let Some((at, pending_object)) = self.pending_object.replace((self.at, object.clone()))
                {
                    let version = EventVersion::Item(pending_object.resource_version());
                    batch.push(added(&snapshots[at].0, pending_object, version));
                }
                batch.add_filter_cost(filter.cost(object));
                if batch.is_over() {
                    self.after = Some(object.key().as_str().into());
                    return false;
                }
            }
            self.at += 1;
            self.after = None;
        }
        self.end(batch);
        true
    }

    fn end(&mut self, batch: &mut WatchBatch<'_>) {
        if let Some((at, pending_object)) = self.pending_object.take() {
            let item = EventVersion::Item(pending_object.resource_version());
            let version = if self.bookmark { item } else { EventVersion::Vector(self.vector.clone()) };
            batch.push(added(&self.snapshots[at].0, pending_object, version));
        }
        if self.bookmark {
            batch.push(WatchEvent::InitialEventsEnd(EventVersion::Vector(self.vector.clone())));
        }
    }
}

pub(crate) fn added(cluster: &ClusterName, object: Arc<Object>, version: EventVersion) -> WatchEvent {
    WatchEvent::Object(ObjectEvent {
        change_type: ChangeType::Added,
        native_version: object.resource_version(),
        object,
        cluster: cluster.clone(),
        version,
        is_repeat: false,
        shared: None,
    })
}
