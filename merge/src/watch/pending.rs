//! The clusters in which a resumed client has seen more than the log's reading position.

use std::collections::BTreeMap;

use tributary_apimachinery::{ClusterName, CollectionVersion, Snapshot};

use crate::log::{BoundaryKind, Log, LogEntry, LogVersion, TooOld};
use crate::{CompositeResourceVersion, ObjectFilter};

/// What a resumed client has of each cluster that the log has not passed yet.
#[derive(Debug, Default)]
pub(crate) struct UnpassedClusters {
    clusters: BTreeMap<ClusterName, ClientProgress>,
    /// The log's head when clusters were last looked up.
    head: u64,
    /// Before this position stood events of clusters that left and were dropped. Others were told what stands there
    /// with those clusters' components; this client has nothing of them. 0 once it has been passed.
    dropped_before: u64,
}

#[derive(Clone, Copy, Debug)]
struct ClientProgress {
    /// The first place of the cluster that the client lacks; `None` while the client is ahead: it has seen more than
    /// the log's head, at another replica.
    start: Option<u64>,
    /// Up to where the client has it: behind `start` where it is told something again.
    has: u64,
    /// The client's component; `None` for a cluster that left before the client came.
    component: Option<CollectionVersion>,
    /// Whether the client has all of a revision of which the log has a part as yet: what the log has, and some more
    /// deletions, nobody knows which. So nothing of the cluster is told until the log has all of it, and what it says
    /// of an object may be undone.
    is_midway: bool,
}

/// A cluster of which the client has seen more than a place in the log.
pub(crate) struct Further<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) component: Option<CollectionVersion>,
    /// Up to where the client has it.
    pub(crate) has: u64,
    /// Whether it has some more deletions, which the log does not know.
    pub(crate) is_midway: bool,
}

impl ClientProgress {
    /// What a client has of a cluster whose component this is. It is ahead where that is newer than the log's head.
    /// Whoever has all of the revision of which the head has a part is not: nothing of the cluster is unknown here but
    /// some deletions. Nor is who has another part of it: it is told of all of that revision again.
    ///
    /// One that stands for two states may be of a client that has what was undone.
    /// It is refused once a list would give another one.
    fn at(log: &Log, cluster: &ClusterName, component: CollectionVersion) -> Result<Self, TooOld> {
        let head = log.snapshot(cluster).map(Snapshot::resource_version);
        let seen = |start, has, is_midway| Self { start, has, component: Some(component), is_midway };
        if head.is_some_and(|head| head.completed() < component) {
            return Ok(seen(None, log.position(), false));
        }
        if log.undone(cluster, component).is_some_and(|undone| head > Some(undone)) {
            return Err(TooOld { cluster: cluster.clone(), requested: component, oldest: log.oldest(cluster) });
        }
        let has = log.resume_at(cluster, component)?;
        let start = log.go_on_at(cluster, component, has)?;
        let is_midway = !component.is_part() && head.is_some_and(|head| head < component);
        Ok(seen(Some(start), has, is_midway))
    }

    /// What a client has that wants nothing of a cluster, or is told all of it first.
    fn up_to_now(log: &Log, component: Option<CollectionVersion>) -> Self {
        Self { start: Some(log.position()), has: log.position(), component, is_midway: false }
    }
}

impl UnpassedClusters {
    /// What a client at `from` has, and the position where its reading starts: the earliest entry that it lacks.
    ///
    /// A cluster of which the client wants nothing counts as seen up to now, whatever is known of it, and its component
    /// does not go back.
    pub(crate) fn new(
        log: &Log,
        from: &CompositeResourceVersion,
        filter: &impl ObjectFilter,
    ) -> Result<(Self, u64), TooOld> {
        let mut clusters = BTreeMap::new();
        for (cluster, component) in from.iter() {
            let seen = match filter.wants_cluster(cluster) {
                true => ClientProgress::at(log, cluster, component)?,
                false => ClientProgress::up_to_now(log, Some(component)),
            };
            clusters.insert(cluster.clone(), seen);
        }
        for cluster in log.clusters().filter(|cluster| from.get(cluster).is_none()) {
            let component = log.snapshot(cluster).map(|snapshot| snapshot.resource_version());
            clusters.insert(cluster.clone(), ClientProgress::up_to_now(log, component));
        }
        let position = clusters.values().filter_map(|seen| seen.start).min().unwrap_or(log.position());
        let dropped_before = log.dropped_before();
        Ok((Self { clusters, head: log.position(), dropped_before }, position))
    }

    /// Whether the log has passed the client's version everywhere.
    pub(crate) fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.dropped_before == 0
    }

    /// The first cluster, if any, in which the client is ahead of the log's head, and its component.
    pub(crate) fn ahead(&self) -> Option<(&ClusterName, CollectionVersion)> {
        let mut ahead = self.clusters.iter().filter(|(_, seen)| seen.start.is_none());
        ahead.find_map(|(cluster, seen)| Some((cluster, seen.component?)))
    }

    /// Whether the client has seen what stands at a place of a cluster.
    pub(crate) fn skips(&self, cluster: &ClusterName, seq: u64) -> bool {
        self.clusters.get(cluster).is_some_and(|seen| seen.start.is_none_or(|start| seq < start))
    }

    /// The clusters of which the client has seen more than up to `seq`, by name.
    pub(crate) fn further(&self, seq: u64) -> impl Iterator<Item = Further<'_>> {
        let further = self.clusters.iter().filter(move |(_, seen)| seen.start.is_some_and(|start| start > seq));
        further.map(|(cluster, &ClientProgress { component, has, is_midway, .. })| Further {
            cluster,
            component,
            has,
            is_midway,
        })
    }

    /// Up to where the client has, or may have, something that stands behind a place; `None` if it has nothing of that.
    pub(crate) fn further_until(&self, log: &Log, seq: u64, filter: &impl ObjectFilter) -> Option<u64> {
        let wanted = self.clusters.iter().filter(|(cluster, _)| filter.wants_cluster(cluster));
        let ends = wanted.filter_map(|(cluster, seen)| match seen.start {
            Some(start) => log.events_end(cluster, seq, start).max(seen.is_midway.then_some(seq + 1)),
            None => Some(seq + 1),
        });
        ends.max()
    }

    /// Looks up where the log has caught up with a client that was ahead or midway, and drops the clusters that it has
    /// passed at a position, and those of which it knows nothing any more. A reset while the client is ahead leaves its
    /// version without a meaning, as does a cluster that leaves and comes back, and so does an earlier reset, if the
    /// version may be one that it undid: nobody may have asked the member while that was still below it. Of a cluster
    /// that leaves while the client is midway it is told all deletions again.
    pub(crate) fn settle(&mut self, log: &Log, position: u64) -> Result<(), TooOld> {
        for (cluster, seen) in &mut self.clusters {
            let is_behind = seen.start.is_none() || seen.is_midway;
            let Some(requested) = seen.component.filter(|_| is_behind) else { continue };
            let now = ClientProgress::at(log, cluster, requested)?;
            let is_known = now.start.is_some() && !now.is_midway;
            let is_undone = is_known && log.undone(cluster, requested).is_some();
            let is_another = match seen.is_midway {
                true => log.went_back_since(cluster, self.head),
                false => log.is_another_since(cluster, self.head),
            };
            if is_undone || is_another {
                return Err(TooOld { cluster: cluster.clone(), requested, oldest: log.oldest(cluster) });
            }
            *seen = now;
        }
        self.head = log.position();
        if self.dropped_before <= position {
            self.dropped_before = 0;
        }
        self.clusters.retain(|cluster, seen| {
            let Some(start) = seen.start else { return true };
            if !log.knows(cluster) {
                return false;
            }
            log.has_events(cluster, position, start) || log.component_before(cluster, position) < seen.component
        });
        Ok(())
    }

    /// Takes note of an entry that is told. At a boundary the log's component takes over: what a leave ends or a
    /// reset lowers must not be joined any more. Behind a relist versions only go up, and its deletions come at the
    /// component before, which may be a part of a revision of which the client has all.
    pub(crate) fn meet(&mut self, entry: &LogEntry) {
        if entry.boundary().is_some_and(|boundary| boundary.kind != BoundaryKind::Relist) {
            self.clusters.remove(&entry.cluster);
        }
    }

    /// A place in the log joined with what the client has.
    pub(crate) fn vector(&self, log: &Log, version: LogVersion) -> CompositeResourceVersion {
        let components = log.clusters().filter_map(|cluster| {
            let here = log.component_before(cluster, version.position);
            let component = match self.clusters.get(cluster) {
                Some(seen) if seen.start.is_none_or(|start| version.position < start) => seen.component,
                Some(seen) => here.max(seen.component),
                None => here,
            };
            Some((cluster.clone(), component?))
        });
        let mut vector: CompositeResourceVersion = components.collect();
        if let Some(component) = version.component
            && let Some(entry) = log.entry(version.position)
        {
            let seen = self.clusters.get(&entry.cluster).and_then(|seen| seen.component);
            vector.set(&entry.cluster, seen.map_or(component, |seen| seen.max(component)));
        }
        vector
    }
}
