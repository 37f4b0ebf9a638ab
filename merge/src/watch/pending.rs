//! The clusters in which a client that resumed has received more events than the watch has passed in the log.

use std::collections::BTreeMap;

use tributary_apimachinery::{ClusterName, CollectionVersion, Snapshot};

use crate::log::{BoundaryKind, Log, LogEntry, LogVersion, TooOld};
use crate::{CompositeResourceVersion, ObjectFilter};

/// The client's state in each cluster where the watch has not yet passed all events that the client has.
#[derive(Debug, Default)]
pub(crate) struct UnpassedClusters {
    clusters: BTreeMap<ClusterName, ClientProgress>,
    /// The log's position when this state was last compared with the log.
    head: u64,
    /// The position after the last event of dropped clusters; 0 once the watch has passed it. Before this position, the
    /// versions of other clients may have components of dropped clusters. This client has no objects of those clusters,
    /// so its versions differ.
    dropped_before: u64,
}

#[derive(Clone, Copy, Debug)]
struct ClientProgress {
    /// The position of the cluster's first event that the client lacks. `None` while the client is ahead of the log: a
    /// different replica has sent the client more events than this log has.
    start: Option<u64>,
    /// The position up to which the client has the cluster's events. It is above `start` if the watch sends some events
    /// again.
    received_until: u64,
    /// The client's component; `None` for a cluster that left before the client connected.
    component: Option<CollectionVersion>,
    /// Whether the client has all deletions of a revision of which the log has only some. No event of the cluster is
    /// sent until the log has the whole revision. Until then, an object in the log may be deleted at the client.
    has_more_of_revision: bool,
}

/// A cluster of which the client has received events after the watch's present position in the log.
pub(crate) struct SeenBeyond<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) component: Option<CollectionVersion>,
    /// The position up to which the client has the cluster's events.
    pub(crate) received_until: u64,
    /// Whether the client may have deletions that the log lacks.
    pub(crate) has_more_of_revision: bool,
}

impl ClientProgress {
    /// Returns the state of a client with this component.
    ///
    /// The client is ahead if its component is above the log's version. If the log has only some deletions of a
    /// revision, a client with the whole revision is not ahead: the log lacks only deletions. A client with a different
    /// part of that revision is not ahead either, and receives all deletions of the revision again.
    ///
    /// After a reset, a component may belong to two states, one before the reset and one after. The client may have the
    /// older state. Such a component is refused as soon as a list returns a different version.
    fn at(log: &Log, cluster: &ClusterName, component: CollectionVersion) -> Result<Self, TooOld> {
        let head = log.snapshot(cluster).map(Snapshot::resource_version);
        let progress = |start, received_until, has_more_of_revision| Self {
            start,
            received_until,
            component: Some(component),
            has_more_of_revision,
        };
        if head.is_some_and(|head| head.completed() < component) {
            return Ok(progress(None, log.position(), false));
        }
        if log.undone(cluster, component).is_some_and(|undone| head > Some(undone)) {
            return Err(TooOld { cluster: cluster.clone(), requested: component, oldest: log.oldest(cluster) });
        }
        let received_until = log.first_uncovered(cluster, component)?;
        let start = log.resume_position(cluster, component, received_until)?;
        let has_more_of_revision = !component.is_part() && head.is_some_and(|head| head < component);
        Ok(progress(Some(start), received_until, has_more_of_revision))
    }

    /// Returns the state of a client that needs no earlier events of a cluster: its filter excludes the cluster, or the
    /// watch first sends all objects of the cluster.
    fn up_to_now(log: &Log, component: Option<CollectionVersion>) -> Self {
        Self { start: Some(log.position()), received_until: log.position(), component, has_more_of_revision: false }
    }
}

impl UnpassedClusters {
    /// Returns the client's state at the version `from`, and the position of the first entry that the client lacks.
    ///
    /// If the client's filter excludes a cluster, the client is treated as if it had all events of that cluster, even
    /// events that the log lacks. The cluster's component in the client's versions does not decrease.
    pub(crate) fn new(
        log: &Log,
        from: &CompositeResourceVersion,
        filter: &impl ObjectFilter,
    ) -> Result<(Self, u64), TooOld> {
        let mut clusters = BTreeMap::new();
        for (cluster, component) in from.iter() {
            let progress = match filter.wants_cluster(cluster) {
                true => ClientProgress::at(log, cluster, component)?,
                false => ClientProgress::up_to_now(log, Some(component)),
            };
            clusters.insert(cluster.clone(), progress);
        }
        for cluster in log.clusters().filter(|cluster| from.get(cluster).is_none()) {
            let component = log.snapshot(cluster).map(|snapshot| snapshot.resource_version());
            clusters.insert(cluster.clone(), ClientProgress::up_to_now(log, component));
        }
        let position = clusters.values().filter_map(|progress| progress.start).min().unwrap_or(log.position());
        let dropped_before = log.dropped_before();
        Ok((Self { clusters, head: log.position(), dropped_before }, position))
    }

    /// Returns whether the watch has passed the client's version in each cluster.
    pub(crate) fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.dropped_before == 0
    }

    /// Returns the first cluster in which the client is ahead of the log, and the client's component. `None` if there
    /// is no such cluster.
    pub(crate) fn ahead(&self) -> Option<(&ClusterName, CollectionVersion)> {
        let mut ahead = self.clusters.iter().filter(|(_, progress)| progress.start.is_none());
        ahead.find_map(|(cluster, progress)| Some((cluster, progress.component?)))
    }

    /// Returns whether the client has already received a cluster's event at a position.
    pub(crate) fn skips(&self, cluster: &ClusterName, position: u64) -> bool {
        self.clusters.get(cluster).is_some_and(|progress| progress.start.is_none_or(|start| position < start))
    }

    /// Iterates, by name, over the clusters of which the client has received events behind the position `position`.
    pub(crate) fn seen_beyond(&self, position: u64) -> impl Iterator<Item = SeenBeyond<'_>> {
        let seen_beyond =
            self.clusters.iter().filter(move |(_, progress)| progress.start.is_some_and(|start| start > position));
        seen_beyond.map(|(cluster, &ClientProgress { component, received_until, has_more_of_revision, .. })| {
            SeenBeyond { cluster, component, received_until, has_more_of_revision }
        })
    }

    /// Returns the position up to which the client has, or may have, received events. `None` if the client has no
    /// events behind the position `position`.
    pub(crate) fn seen_until(&self, log: &Log, position: u64, filter: &impl ObjectFilter) -> Option<u64> {
        let wanted = self.clusters.iter().filter(|(cluster, _)| filter.wants_cluster(cluster));
        let ends = wanted.filter_map(|(cluster, progress)| match progress.start {
            Some(start) => {
                log.events_end(cluster, position, start).max(progress.has_more_of_revision.then_some(position + 1))
            }
            None => Some(position + 1),
        });
        ends.max()
    }

    /// Updates the state of clusters in which the client was ahead of the log or has more of a revision. Removes the
    /// clusters whose events up to the client's version end before `position`.
    ///
    /// The client's version becomes unusable if the cluster is reset, or leaves and returns, while the client is ahead.
    /// An earlier reset may also have made the version invalid, if no replica noticed that the cluster's latest version
    /// was below the client's version. If a cluster leaves while the client has more of a revision, the client receives
    /// all deletions again.
    ///
    /// # Errors
    /// [`TooOld`] for a version that has become unusable.
    pub(crate) fn settle(&mut self, log: &Log, position: u64) -> Result<(), TooOld> {
        for (cluster, progress) in &mut self.clusters {
            let is_behind = progress.start.is_none() || progress.has_more_of_revision;
            let Some(requested) = progress.component.filter(|_| is_behind) else { continue };
            let now = ClientProgress::at(log, cluster, requested)?;
            let is_known = now.start.is_some() && !now.has_more_of_revision;
            let is_undone = is_known && log.undone(cluster, requested).is_some();
            let is_another = match progress.has_more_of_revision {
                true => log.may_have_gone_back_since(cluster, self.head),
                false => log.may_differ_since(cluster, self.head),
            };
            if is_undone || is_another {
                return Err(TooOld { cluster: cluster.clone(), requested, oldest: log.oldest(cluster) });
            }
            *progress = now;
        }
        self.head = log.position();
        if self.dropped_before <= position {
            self.dropped_before = 0;
        }
        self.clusters.retain(|cluster, progress| {
            let Some(start) = progress.start else { return true };
            if !log.knows(cluster) {
                return false;
            }
            log.has_events(cluster, position, start) || log.component_before(cluster, position) < progress.component
        });
        Ok(())
    }

    /// Handles an entry that is about to be sent. At a join, leave or reset, the log's version of the cluster replaces
    /// the client's version. After a leave or a reset, the client's old version must not be used again.
    ///
    /// A relist does not replace the client's version: versions only increase, and the deletions of the relist carry
    /// the version before it. The version before the relist may include only some deletions of a revision, while the
    /// client has all of them.
    pub(crate) fn apply_boundary(&mut self, entry: &LogEntry) {
        if entry.boundary().is_some_and(|boundary| boundary.kind != BoundaryKind::Relist) {
            self.clusters.remove(&entry.cluster);
        }
    }

    /// Returns the composite version at a point in the log, joined with the client's version (the component-wise
    /// maximum).
    pub(crate) fn vector(&self, log: &Log, version: LogVersion) -> CompositeResourceVersion {
        let components = log.clusters().filter_map(|cluster| {
            let here = log.component_before(cluster, version.position);
            let component = match self.clusters.get(cluster) {
                Some(progress) if progress.start.is_none_or(|start| version.position < start) => progress.component,
                Some(progress) => here.max(progress.component),
                None => here,
            };
            Some((cluster.clone(), component?))
        });
        let mut vector: CompositeResourceVersion = components.collect();
        if let Some(component) = version.component
            && let Some(entry) = log.entry(version.position)
        {
            let received = self.clusters.get(&entry.cluster).and_then(|progress| progress.component);
            vector.set(&entry.cluster, received.map_or(component, |received| received.max(component)));
        }
        vector
    }
}
