//! Contents of a view: the merged log, and the data that all readers of the view share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, CollectionVersion, ObjectDecoder, Snapshot};
use tributary_fleet::discovery::ResourceKind;
use tributary_fleet::metrics::{Metrics, ResourceLabels, WatchCounters};
use tributary_fleet::topology::{ClusterMark, Fleet};
use tributary_merge::{ClusterSnapshots, CompositeResourceVersion, Log, SnapshotError};
use tributary_sharing::limits::Limits;

use super::bookmarks::Bookmarks;
use super::encodings::Encodings;
use super::notification::LogNotification;
use super::past::PastStates;
use super::read_your_writes::ReadYourWrites;
use super::warnings::Warnings;
use super::watch_notifier::{WatchNotifier, WatchRegistration};

/// Number of changes that the rebuild of a past state undoes before the task yields. 256 changes take about 0.4 ms.
const CHANGES_PER_TURN: usize = 256;

/// Resource of a view.
pub struct ViewedResource {
    /// The resource with its kind and its printer.
    pub kind: ResourceKind,
    /// The only cached namespace. `None` for all namespaces.
    pub namespace: Option<String>,
    /// Decoder of the objects, with their selectable fields.
    pub decoder: ObjectDecoder,
}

/// Cached objects of one resource over all clusters, or of one namespace of the resource.
pub struct Contents {
    /// The cached resource.
    pub kind: ResourceKind,
    /// The only cached namespace. `None` for all namespaces.
    pub namespace: Option<String>,
    /// Decoder of the objects, with their selectable fields.
    pub decoder: ObjectDecoder,
    /// Cache of encoded events that all watches share.
    pub encodings: Encodings,
    /// Cache of the newest bookmark that all watches share.
    pub bookmarks: Bookmarks,
    /// Writes through this process that the cache may not contain yet. Reads must wait for them.
    pub read_your_writes: ReadYourWrites,
    /// Warnings that members add to each of their responses about the resource.
    pub warnings: Warnings,
    /// Metric counters of this resource. The counters are stored in the view because a watch uses them for each batch
    /// of events.
    pub counters: WatchCounters,
    pub(super) fleet: Arc<Fleet>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) log: RwLock<Log>,
    pub(super) past: PastStates,
    pub(super) watch_notifier: WatchNotifier,
    started: Instant,
}

impl Contents {
    pub(super) fn new(resource: ViewedResource, fleet: Arc<Fleet>, metrics: Arc<Metrics>, limits: &Limits) -> Self {
        let ViewedResource { kind, namespace, decoder } = resource;
        let labels = ResourceLabels::from_resource(&kind.resource);
        let watch_notifier = WatchNotifier::default();
        let log = if namespace.is_some() { Log::for_namespace(limits.log()) } else { Log::new(limits.log()) };
        Self {
            kind,
            namespace,
            decoder,
            encodings: Encodings::new(limits.encodings_bytes),
            bookmarks: Bookmarks::default(),
            read_your_writes: ReadYourWrites::default(),
            warnings: Warnings::default(),
            counters: metrics.watch_counters(&labels),
            fleet,
            metrics,
            log: RwLock::new(log),
            past: PastStates::default(),
            watch_notifier,
            started: Instant::now(),
        }
    }

    /// Locks the merged log for reading. Release the lock soon, and never keep it across an await.
    pub fn log(&self) -> RwLockReadGuard<'_, Log> {
        self.log.read()
    }

    /// Returns the version up to which the log contains a cluster's collection. `None` if the log does not contain the
    /// collection.
    pub fn version_of(&self, cluster: &ClusterName) -> Option<CollectionVersion> {
        self.log.read().snapshot(cluster).map(Snapshot::resource_version)
    }

    /// Registers a watch on the connection `peer`, so that new events in the log wake the watch. A progress report of a
    /// member wakes no watch: the progress appears only in bookmarks, whose sender reads it from the log.
    pub fn wait(&self, peer: Option<SocketAddr>) -> WatchRegistration {
        self.watch_notifier.wait(peer)
    }

    /// Returns the mark of a cluster, which Tributary inserts into the cluster's objects. A cluster that has just left
    /// still has a mark, because watches report its objects as deleted.
    pub fn mark(&self, cluster: &ClusterName) -> Arc<ClusterMark> {
        self.fleet.mark(cluster)
    }

    /// Wakes all watches without an event, because the state of the view has changed.
    pub fn wake(&self) {
        self.watch_notifier.advance(LogNotification::Anything);
    }

    /// Returns the time since the creation of the view.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the exact state at a past composite version: one snapshot for each cluster of the version, sorted by
    /// name.
    ///
    /// The log is locked for one cluster at a time, only to read the cluster's changes. The changes are undone without
    /// the lock. Cancellation is safe.
    ///
    /// # Errors
    /// As [`Log::snapshot_at`](tributary_merge::Log::snapshot_at).
    pub async fn state_at(&self, vector: &CompositeResourceVersion) -> Result<ClusterSnapshots, SnapshotError> {
        if let Some(found) = self.past.find(vector) {
            return Ok(found);
        }
        let clear_count = self.past.clear_count();
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
        self.past.remember(Arc::clone(&state), clear_count);
        Ok(state)
    }
}
