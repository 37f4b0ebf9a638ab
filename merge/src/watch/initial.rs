//! The initial events of a watch: every object as ADDED, in key order, then one end bookmark.

use std::sync::Arc;

use tributary_apimachinery::{ChangeType, ClusterName, Object};

use super::event::{EventVersion, ObjectEvent, WatchBatch, WatchEvent};
use crate::log::Log;
use crate::{CompositeResourceVersion, Heads, ObjectFilter};

/// The initial events that are still to come: the snapshots and a position, no event.
pub(crate) struct InitialEvents {
    heads: Heads,
    vector: Arc<CompositeResourceVersion>,
    bookmark: bool,
    /// The snapshot that is being read, and its last key done.
    at: usize,
    after: Option<Box<str>>,
    /// The event found last. It waits for the next, because the very last carries the vector if there is no bookmark.
    held: Option<(usize, Arc<Object>)>,
}

impl InitialEvents {
    pub(crate) fn new(log: &Log, bookmark: bool) -> Self {
        let vector = Arc::new(log.resource_version());
        Self { heads: log.head().clone(), vector, bookmark, at: 0, after: None, held: None }
    }

    /// Gives out the next ones, and says whether these are all.
    pub(crate) fn next(&mut self, filter: &impl ObjectFilter, turn: &mut WatchBatch<'_>) -> bool {
        let heads = self.heads.clone();
        while let Some((cluster, snapshot)) = heads.get(self.at) {
            if !filter.wants_cluster(cluster) {
                self.at += 1;
                continue;
            }
            for object in snapshot.range(&filter.scope(), self.after.as_deref()) {
                if filter.matches(cluster, object)
                    && let Some((at, held)) = self.held.replace((self.at, object.clone()))
                {
                    let version = EventVersion::Item(held.resource_version());
                    turn.push(added(&heads[at].0, held, version));
                }
                turn.add_filter_cost(filter.cost(object));
                if turn.is_over() {
                    self.after = Some(object.key().as_str().into());
                    return false;
                }
            }
            self.at += 1;
            self.after = None;
        }
        self.end(turn);
        true
    }

    fn end(&mut self, turn: &mut WatchBatch<'_>) {
        if let Some((at, held)) = self.held.take() {
            let item = EventVersion::Item(held.resource_version());
            let version = if self.bookmark { item } else { EventVersion::Vector(self.vector.clone()) };
            turn.push(added(&self.heads[at].0, held, version));
        }
        if self.bookmark {
            turn.push(WatchEvent::InitialEventsEnd(EventVersion::Vector(self.vector.clone())));
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
        again: false,
        shared: None,
    })
}
