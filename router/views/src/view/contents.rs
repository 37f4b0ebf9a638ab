//! The contents of a view: the merged log, and the data that its readers share. Feeds write it; it knows no cachers.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, CollectionVersion, ObjectDecoder, Snapshot};
use tributary_fleet::discovery::ResourceKind;
use tributary_fleet::metrics::{Metrics, ResourceLabels, WatchCounters};
use tributary_fleet::topology::{ClusterMark, Fleet};
use tributary_merge::{CompositeResourceVersion, Heads, Log, SnapshotError};
use tributary_proxy::Peer;
use tributary_sharing::limits::Limits;

use super::bookmarks::Bookmarks;
use super::encodings::Encodings;
use super::fences::Fences;
use super::head::{Head, HeadWaiter};
use super::news::News;
use super::past::PastStates;
use super::warnings::Warnings;

/// The number of changes to undo before the task yields. 256 take about 0.4 ms.
const CHANGES_PER_TURN: usize = 256;

/// The resource of a view.
pub struct ViewedResource {
    /// The resource, its kind and its printer.
    pub kind: ResourceKind,
    /// The only cached namespace, or `None` for all.
    pub namespace: Option<String>,
    /// The decoder of the objects, with their selectable fields.
    pub decoder: ObjectDecoder,
}

/// The cached objects of one resource over all clusters, or of one namespace of it.
pub struct Contents {
    /// The resource.
    pub kind: ResourceKind,
    /// The only cached namespace, or `None` for all.
    pub namespace: Option<String>,
    /// The decoder of the objects, with their selectable fields.
    pub decoder: ObjectDecoder,
    /// Encoded events, shared by the watchers.
    pub encodings: Encodings,
    /// The bookmark, shared by the watchers.
    pub bookmarks: Bookmarks,
    /// The writes that reads must wait for.
    pub fences: Fences,
    /// Warnings that members add to every answer.
    pub warnings: Warnings,
    /// The counters of this resource, looked up once because a watch uses them in each turn.
    pub counters: WatchCounters,
    pub(super) fleet: Arc<Fleet>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) log: RwLock<Log>,
    pub(super) past: PastStates,
    pub(super) head: Head,
    started: Instant,
}

impl Contents {
    /// Empty contents for a resource or for one namespace of it.
    pub(super) fn new(resource: ViewedResource, fleet: Arc<Fleet>, metrics: Arc<Metrics>, limits: &Limits) -> Self {
        let ViewedResource { kind, namespace, decoder } = resource;
        let labels = ResourceLabels::from_resource(&kind.resource);
        let head = Head::default();
        let log = if namespace.is_some() { Log::of_namespace(limits.log()) } else { Log::new(limits.log()) };
        Self {
            kind,
            namespace,
            decoder,
            encodings: Encodings::new(limits.encodings_bytes),
            bookmarks: Bookmarks::default(),
            fences: Fences::default(),
            warnings: Warnings::default(),
            counters: metrics.watch_counters(&labels),
            fleet,
            metrics,
            log: RwLock::new(log),
            past: PastStates::default(),
            head,
            started: Instant::now(),
        }
    }

    /// The merged log. Hold the lock briefly, and never across an await.
    pub fn log(&self) -> RwLockReadGuard<'_, Log> {
        self.log.read()
    }

    /// The version of a cluster in the log; `None` until the cluster is known.
    pub fn version_of(&self, cluster: &ClusterName) -> Option<CollectionVersion> {
        self.log.read().snapshot(cluster).map(Snapshot::resource_version)
    }

    /// A waiter for new events in the log, for a watcher on the connection of `peer`. Progress of members wakes no
    /// waiter: it is only sent in bookmarks, and the writer of a bookmark reads it from the log.
    pub fn wait(&self, peer: Option<Peer>) -> HeadWaiter {
        self.head.wait(peer)
    }

    /// The mark for a cluster's objects, ready to be spliced in. A cluster that has just left still has objects to
    /// delete.
    pub fn mark(&self, cluster: &ClusterName) -> Arc<ClusterMark> {
        self.fleet.mark(cluster)
    }

    /// Wakes all watchers without an event: the state of the view has changed.
    pub fn wake(&self) {
        self.head.advance(News::Anything);
    }

    /// The age of the view.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The exact state at a past vector: one snapshot for each of its clusters, sorted by name.
    ///
    /// Locks the log for one cluster at a time, and only to read the changes; undoes them without the lock. Cancel:
    /// safe.
    ///
    /// # Errors
    /// As [`Log::snapshot_at`](tributary_merge::Log::snapshot_at).
    pub async fn state_at(&self, vector: &CompositeResourceVersion) -> Result<Heads, SnapshotError> {
        if let Some(found) = self.past.find(vector) {
            return Ok(found);
        }
        let forgotten = self.past.forgotten();
        let (mut state, mut undone) = (Vec::with_capacity(vector.len()), 0);
        for (cluster, version) in vector.iter() {
            let past = self.log().past(cluster, version)?;
            undone += past.changes();
            state.push((cluster.clone(), past.rebuild()));
            if undone >= CHANGES_PER_TURN {
                undone = 0;
                tokio::task::yield_now().await;
            }
        }
        let state = Arc::new(state);
        self.past.remember(Arc::clone(&state), forgotten);
        Ok(state)
    }
}
