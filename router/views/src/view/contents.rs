//! What a view contains: the merged log, and what its readers share. Feeds write it; it knows no cacher.

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

/// How many changes are undone before others get their turn. 256 take about 0.4 ms.
const CHANGES_PER_TURN: usize = 256;

/// What is held of one resource over all clusters, or of one namespace of it.
pub struct Contents {
    /// What the resource is.
    pub kind: ResourceKind,
    /// The one namespace that is held, or `None` for all.
    pub namespace: Option<String>,
    /// Makes its objects; knows its selectable fields.
    pub decoder: ObjectDecoder,
    /// Encoded events that watchers share.
    pub encodings: Encodings,
    /// The bookmark that watchers share.
    pub bookmarks: Bookmarks,
    /// What reads wait for after writes.
    pub fences: Fences,
    /// What members warn of in every answer.
    pub warnings: Warnings,
    /// This resource's own counters, looked up once: a watch counts each turn.
    pub counters: WatchCounters,
    pub(super) fleet: Arc<Fleet>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) log: RwLock<Log>,
    pub(super) past: PastStates,
    pub(super) head: Head,
    started: Instant,
}

impl Contents {
    /// Nothing yet, of a resource or of one namespace of it.
    pub(super) fn new(
        kind: ResourceKind,
        namespace: Option<String>,
        decoder: ObjectDecoder,
        fleet: Arc<Fleet>,
        metrics: Arc<Metrics>,
        limits: &Limits,
    ) -> Self {
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

    /// The merged log. Hold it briefly, and never across an await.
    pub fn log(&self) -> RwLockReadGuard<'_, Log> {
        self.log.read()
    }

    /// A cluster's version in the log; `None` until it is known.
    pub fn version_of(&self, cluster: &ClusterName) -> Option<CollectionVersion> {
        self.log.read().snapshot(cluster).map(Snapshot::resource_version)
    }

    /// Tells when the log has grown by an event, to a watcher that this connection brought. Members' progress wakes
    /// nobody: it is told in bookmarks, and who writes one looks.
    pub fn wait(&self, peer: Option<Peer>) -> HeadWaiter {
        self.head.wait(peer)
    }

    /// What marks a cluster's objects, prepared for splicing. A cluster that just left still has some to be deleted.
    pub fn mark(&self, cluster: &ClusterName) -> Arc<ClusterMark> {
        self.fleet.mark(cluster)
    }

    /// Wakes all watchers though nothing has happened: they have to look at something else.
    pub fn wake(&self) {
        self.head.advance(News::Anything);
    }

    /// How long there has been this view.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The exact past state at a vector: one snapshot for each of its clusters, by name.
    ///
    /// The log is locked for a look at each change of one cluster at a time; the changes are undone without it.
    /// Cancelling is safe.
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
