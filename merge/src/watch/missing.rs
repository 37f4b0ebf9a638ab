//! The clusters that a resumed client has never seen: their objects come first.

use std::sync::Arc;

use tributary_apimachinery::{ClusterName, Object, Snapshot};

use super::event::{EventVersion, Turn};
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
    current: Option<Current>,
}

/// The cluster that is being told.
struct Current {
    cluster: ClusterName,
    snapshot: Snapshot,
    /// Its matching objects in descending native version.
    objects: Vec<Arc<Object>>,
}

impl MissingClusters {
    /// The clusters of the log's head that a vector lacks, if there are any.
    pub(crate) fn new(log: &Log, from: &CompositeResourceVersion) -> Option<Self> {
        let missing = log.head().iter().rev().filter(|(cluster, _)| from.get(cluster).is_none());
        let clusters: Vec<_> = missing.cloned().collect();
        (!clusters.is_empty()).then(|| Self { vector: from.clone(), clusters, current: None })
    }

    /// Whether any of it is told.
    pub(crate) fn wants(&self, filter: &impl ObjectFilter) -> bool {
        self.clusters.iter().any(|(cluster, _)| filter.wants_cluster(cluster))
    }

    /// What is written so far, as a version.
    pub(crate) fn vector(&self) -> Arc<CompositeResourceVersion> {
        Arc::new(self.vector.clone())
    }

    /// Gives out the next ones, and says whether these are all.
    pub(crate) fn next(&mut self, filter: &impl ObjectFilter, turn: &mut Turn<'_>) -> bool {
        loop {
            while let Some(current) = &mut self.current {
                let Some(object) = current.objects.pop() else {
                    self.vector.set(&current.cluster, current.snapshot.resource_version());
                    self.current = None;
                    continue;
                };
                let whole = current.snapshot.resource_version();
                let last = current.objects.is_empty();
                let component = if last { whole } else { object.resource_version().min(whole) };
                self.vector.set(&current.cluster, component);
                turn.push(added(&current.cluster, object, EventVersion::Vector(Arc::new(self.vector.clone()))));
                if turn.is_over() {
                    return false;
                }
            }
            let Some((cluster, snapshot)) = self.clusters.pop() else { return true };
            if !filter.wants_cluster(&cluster) {
                self.vector.set(&cluster, snapshot.resource_version());
                continue;
            }
            let matching = snapshot.range(&filter.scope(), None).filter(|object| filter.matches(&cluster, object));
            let mut objects: Vec<_> = matching.cloned().collect();
            objects.sort_by_key(|object| std::cmp::Reverse(object.resource_version()));
            self.current = Some(Current { cluster, snapshot, objects });
        }
    }
}
