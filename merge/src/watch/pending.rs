//! The clusters in which a resumed client is further than the log's reading position.

use std::collections::BTreeMap;

use tributary_apimachinery::{ClusterName, ResourceVersion};

use crate::CompositeResourceVersion;
use crate::log::{Entry, EntryKind, Log, LogVersion, TooOld};

/// What a resumed client has of each cluster that the log has not passed yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    clusters: BTreeMap<ClusterName, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The cluster's entries before this place are covered.
    start: u64,
    /// The client's component; `None` for a cluster that left before the client came.
    component: Option<ResourceVersion>,
}

impl Pending {
    /// What a client at `from` has, and the position where its reading starts: the earliest entry that it lacks.
    pub(crate) fn new(log: &Log, from: &CompositeResourceVersion) -> Result<(Self, u64), TooOld> {
        let mut clusters = BTreeMap::new();
        for (cluster, component) in from.iter() {
            let start = log.resume_at(cluster, component)?;
            clusters.insert(cluster.clone(), Seen { start, component: Some(component) });
        }
        for cluster in log.clusters().filter(|cluster| from.get(cluster).is_none()) {
            let component = log.snapshot(cluster).map(|snapshot| snapshot.resource_version());
            clusters.insert(cluster.clone(), Seen { start: log.position(), component });
        }
        let position = clusters.values().map(|seen| seen.start).min().unwrap_or(log.position());
        Ok((Self { clusters }, position))
    }

    /// Whether the log has passed the client's version everywhere.
    pub(crate) fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    /// The first place of a cluster that the client may lack; `None` once the log has passed it.
    pub(crate) fn start(&self, cluster: &ClusterName) -> Option<u64> {
        self.clusters.get(cluster).map(|seen| seen.start)
    }

    /// Drops the clusters that the log has passed at a position.
    pub(crate) fn settle(&mut self, log: &Log, position: u64) {
        self.clusters
            .retain(|cluster, seen| position < seen.start || log.component_before(cluster, position) < seen.component);
    }

    /// Whether the client has seen this entry.
    pub(crate) fn skips(&self, seq: u64, entry: &Entry) -> bool {
        let Some(seen) = self.clusters.get(&entry.cluster) else { return false };
        seq < seen.start || entry.covered_by(seen.component)
    }

    /// Takes note of an entry that the client has not seen.
    ///
    /// A boundary whose differences start below the client's component tells of a state that the client never had: it saw more of
    /// the cluster elsewhere, perhaps an object that these differences would never delete.
    pub(crate) fn meet(&mut self, entry: &Entry) -> Result<(), TooOld> {
        let EntryKind::Boundary(boundary) = &entry.kind else { return Ok(()) };
        let Some(seen) = self.clusters.remove(&entry.cluster) else { return Ok(()) };
        match (seen.component, boundary.component_before) {
            (Some(component), Some(before)) if before < component => {
                Err(TooOld { cluster: entry.cluster.clone(), requested: component, oldest: boundary.component })
            }
            _ => Ok(()),
        }
    }

    /// A place in the log joined with what the client has.
    pub(crate) fn vector(&self, log: &Log, version: LogVersion) -> CompositeResourceVersion {
        let components = log.clusters().filter_map(|cluster| {
            let here = log.component_before(cluster, version.position);
            let component = match self.clusters.get(cluster) {
                Some(seen) if version.position < seen.start => seen.component,
                Some(seen) => here.max(seen.component),
                None => here,
            };
            Some((cluster.clone(), component?))
        });
        let mut vector: CompositeResourceVersion = components.collect();
        if let Some(component) = version.component
            && let Some(entry) = log.entry(version.position)
        {
            vector.set(&entry.cluster, component);
        }
        vector
    }
}
