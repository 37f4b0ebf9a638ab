//! The clusters that a resumed client has never seen: their objects come first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, Object, ResourceVersion, Snapshot};

use super::event::{EventVersion, WatchBatch};
use super::initial::added;
use crate::log::Log;
use crate::{CompositeResourceVersion, ObjectFilter};

/// The synthetic ADDED events that are still to come, cluster by cluster, each in ascending native version. Every
/// event sets its cluster's component to its own version, the last to the snapshot's; so a cut in the middle resumes
/// with what is newer.
pub(crate) struct MissingClusters {
    /// What is written so far.
    vector: CompositeResourceVersion,
    /// Those to come, in descending order of names.
    clusters: Vec<(ClusterName, Snapshot)>,
    current: Option<CurrentCluster>,
    /// The log's position when the client came. What it lacks of the clusters that it has seen may
    /// stand anywhere before.
    until: u64,
}

/// The cluster that is being told.
struct CurrentCluster {
    cluster: ClusterName,
    snapshot: Snapshot,
    /// The last key that was looked at; `None` before the first.
    after: Option<Box<str>>,
    /// Whether all objects have been looked at.
    gathered: bool,
    /// Its matching objects, the lowest native version first. A heap, because it is built and taken apart step by step,
    /// where a sort of them all would be one long one.
    objects: BinaryHeap<ByVersion>,
}

/// An object, greater than those of higher versions.
struct ByVersion(Arc<Object>);

impl ByVersion {
    /// Of one version the first by key comes first.
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

    /// Looks for matching objects until the turn is over; whether all have been looked at.
    fn gather(&mut self, filter: &impl ObjectFilter, turn: &mut WatchBatch<'_>) -> bool {
        let Self { cluster, snapshot, after, gathered, objects } = self;
        if *gathered {
            return true;
        }
        for object in snapshot.range(&filter.scope(), after.as_deref()) {
            turn.add_filter_cost(filter.cost(object));
            if filter.matches(cluster, object) {
                objects.push(ByVersion(object.clone()));
            }
            if turn.is_over() {
                *after = Some(object.key().as_str().into());
                return false;
            }
        }
        *gathered = true;
        true
    }
}

impl MissingClusters {
    /// The clusters of the log's head that a vector lacks, if there are any.
    pub(crate) fn new(log: &Log, from: &CompositeResourceVersion) -> Option<Self> {
        let missing = log.head().iter().rev().filter(|(cluster, _)| from.get(cluster).is_none());
        let clusters: Vec<_> = missing.cloned().collect();
        (!clusters.is_empty()).then(|| Self { vector: from.clone(), clusters, current: None, until: log.position() })
    }

    /// What is written so far, as a version.
    pub(crate) fn vector(&self) -> Arc<CompositeResourceVersion> {
        Arc::new(self.vector.clone())
    }

    /// Gives out the next ones, and says whether these are all.
    pub(crate) fn next(&mut self, filter: &impl ObjectFilter, turn: &mut WatchBatch<'_>) -> bool {
        loop {
            while let Some(current) = &mut self.current {
                if !current.gather(filter, turn) {
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
                turn.told_own(self.until);
                turn.push(added(&current.cluster, object, EventVersion::Vector(Arc::new(self.vector.clone()))));
                if turn.is_over() {
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
