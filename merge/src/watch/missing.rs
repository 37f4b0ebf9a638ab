//! The ADDED events for clusters that a resumed client's version lacks.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, Object, ResourceVersion, Snapshot};

use super::event::{EventVersion, WatchBatch};
use super::initial::added;
use crate::log::Log;
use crate::{CompositeResourceVersion, ObjectFilter};

/// The remaining ADDED events, cluster by cluster, each in ascending native version. Each event sets its cluster's
/// component to the event's own version. If the connection then breaks, the client resumes from this version and
/// receives the remaining objects, which are newer. The last event of a cluster sets the component to the snapshot's
/// version.
pub(crate) struct MissingClusters {
    /// The composite version of the events that have been sent.
    vector: CompositeResourceVersion,
    /// The remaining clusters, in descending order of names.
    clusters: Vec<(ClusterName, Snapshot)>,
    current: Option<CurrentCluster>,
    /// The log's position at the start of the watch. The client may lack events of other clusters at any position
    /// before `until`.
    until: u64,
}

struct CurrentCluster {
    cluster: ClusterName,
    snapshot: Snapshot,
    /// The last visited key; `None` before the first object.
    after: Option<Box<str>>,
    /// Whether all objects of the current cluster have been visited.
    gathered: bool,
    /// The matching objects, the lowest native version first. A heap can be filled and emptied in steps, while a sort
    /// would be one long step.
    objects: BinaryHeap<ByVersion>,
}

/// An object in the max-heap, ordered so that the heap returns objects with low versions first.
struct ByVersion(Arc<Object>);

impl ByVersion {
    /// Objects with equal versions are ordered by key.
    fn rank(&self) -> (Reverse<ResourceVersion>, Reverse<&str>) {
        (Reverse(self.0.resource_version()), Reverse(self.0.key().as_str()))
    }
}

impl Ord for ByVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for ByVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByVersion {}

impl CurrentCluster {
    fn new(cluster: ClusterName, snapshot: Snapshot) -> Self {
        Self { cluster, snapshot, after: None, gathered: false, objects: BinaryHeap::new() }
    }

    /// Collects matching objects until the batch is full, and returns whether all objects have been visited.
    fn gather(&mut self, filter: &impl ObjectFilter, batch: &mut WatchBatch<'_>) -> bool {
        let Self { cluster, snapshot, after, gathered, objects } = self;
        if *gathered {
            return true;
        }
        for object in snapshot.range(&filter.scope(), after.as_deref()) {
            batch.add_filter_cost(filter.cost(object));
            if filter.matches(cluster, object) {
                objects.push(ByVersion(object.clone()));
            }
            if batch.is_over() {
                *after = Some(object.key().as_str().into());
                return false;
            }
        }
        *gathered = true;
        true
    }
}

impl MissingClusters {
    /// Returns the clusters of the log that a composite version lacks, if there are any.
    pub(crate) fn new(log: &Log, from: &CompositeResourceVersion) -> Option<Self> {
        let missing = log.latest().iter().rev().filter(|(cluster, _)| from.get(cluster).is_none());
        let clusters: Vec<_> = missing.cloned().collect();
        (!clusters.is_empty()).then(|| Self { vector: from.clone(), clusters, current: None, until: log.position() })
    }

    pub(crate) fn vector(&self) -> Arc<CompositeResourceVersion> {
        Arc::new(self.vector.clone())
    }

    /// Sends the next ADDED events. Returns whether all of them have been sent.
    pub(crate) fn next(&mut self, filter: &impl ObjectFilter, batch: &mut WatchBatch<'_>) -> bool {
        loop {
            while let Some(current) = &mut self.current {
                if !current.gather(filter, batch) {
                    return false;
                }
                let Some(ByVersion(object)) = current.objects.pop() else {
                    self.vector.set(&current.cluster, current.snapshot.resource_version());
                    self.current = None;
                    continue;
                };
                let whole = current.snapshot.resource_version();
                let last = current.objects.is_empty();
                let component = if last { whole } else { whole.min(object.resource_version().into()) };
                self.vector.set(&current.cluster, component);
                batch.record_private(self.until);
                batch.push(added(&current.cluster, object, EventVersion::Vector(Arc::new(self.vector.clone()))));
                if batch.is_over() {
                    return false;
                }
            }
            let Some((cluster, snapshot)) = self.clusters.pop() else { return true };
            if filter.wants_cluster(&cluster) {
                self.current = Some(CurrentCluster::new(cluster, snapshot));
            } else {
                self.vector.set(&cluster, snapshot.resource_version());
            }
        }
    }
}
