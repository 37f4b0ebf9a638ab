//! The public handle of a cacher: starts the reflector's task and reads the collection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;
use tributary_apimachinery::{CollectionVersion, Object, ResourceVersion, Snapshot};

use crate::Transport;
use crate::config::CacherConfig;
use crate::member_health::MemberHealth;
use crate::reflector::Reflector;
use crate::request::{self, LatestError};
use crate::shared::ReflectorShared;
use crate::state::{CacherState, Continuity};
use crate::stats::Stats;
use crate::update::UpdateObserver;
use crate::wait::{NotReached, StillExists, VersionWaiter};

/// Keeps one resource of one cluster in memory, with a list and a watch in a task of its own.
///
/// Dropping the `Cacher` ends the task and cancels the task's request to the member. Snapshots of the collection stay
/// valid.
pub struct Cacher {
    shared: Arc<ReflectorShared>,
    transport: Transport,
    task: tokio::task::AbortHandle,
}

impl Cacher {
    /// Starts to list and watch the collection. Must be called within a tokio runtime.
    ///
    /// The observer receives each update, beginning with the first complete list; [`UpdateObserver`] documents its
    /// guarantees.
    pub fn start(config: CacherConfig, transport: Transport, observer: Arc<dyn UpdateObserver>) -> Self {
        Self::start_after(None, config, transport, observer)
    }

    /// Starts a cacher. If `before` is given, the new cacher replaces the cacher `before` of the same collection.
    ///
    /// The memory reservation of `before` moves to the new cacher, so the new cacher has memory even if other
    /// collections have used up the memory limit. The caller must then drop `before`, which has no reservation any
    /// more. Objects that have not changed are shared with the snapshot of `before`, so they are neither stored twice
    /// nor reported as replaced. If `before` has no complete collection yet, they are shared with the snapshot of the
    /// predecessor of `before`. The observer still receives [`Synced`](crate::Update::Synced).
    pub fn start_after(
        before: Option<&Self>,
        config: CacherConfig,
        transport: Transport,
        observer: Arc<dyn UpdateObserver>,
    ) -> Self {
        let span = tracing::info_span!(
            "cacher",
            cluster = %config.cluster,
            resource = %config.resource,
            namespace = config.namespace.as_deref(),
        );
        let handed_over = before.and_then(|before| {
            let mut object_memory = before.shared.object_memory.lock();
            object_memory.belongs_to(&config.object_memory).then(|| object_memory.hand_over())
        });
        let object_memory = handed_over.unwrap_or_else(|| config.object_memory.new_collection());
        // If the decoders differ, no objects are shared, because two decoders may index different fields of the same
        // JSON text.
        let predecessor_snapshot =
            before.filter(|before| before.config().decoder == config.decoder).and_then(Self::served);
        let shared = Arc::new(ReflectorShared::new(config, object_memory, predecessor_snapshot));
        let reflector = Reflector::new(shared.clone(), transport.clone(), observer);
        let task = tokio::spawn(reflector.run().instrument(span)).abort_handle();
        Self { shared, transport, task }
    }

    /// Returns the configuration of this cacher.
    pub fn config(&self) -> &CacherConfig {
        &self.shared.config
    }

    /// Returns the current snapshot of the collection, or `None` before the first complete list. Cost: O(1). Never
    /// waits for the task that updates the collection.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.shared.published.borrow().clone()
    }

    /// Returns the snapshot that readers receive: the cacher's own snapshot or, before the first complete list, the
    /// predecessor's.
    fn served(&self) -> Option<Snapshot> {
        // The predecessor's snapshot is read first. In the other order, a reader could find neither snapshot, because
        // the predecessor's snapshot is dropped soon after the cacher's own list is published.
        let predecessor_snapshot = self.shared.predecessor_snapshot.lock().clone();
        self.snapshot().or(predecessor_snapshot)
    }

    /// Returns whether the collection is syncing, synced or stale.
    pub fn state(&self) -> CacherState {
        self.shared.state.borrow().clone()
    }

    /// Subscribes to changes of [`state`](Self::state). The channel closes when the cacher is dropped.
    pub fn states(&self) -> watch::Receiver<CacherState> {
        self.shared.state.subscribe()
    }

    /// Subscribes to the [`Continuity`] of the collection. The cacher publishes the changes first, and then the
    /// continuity that describes them. So a reader that reads the continuity first, and then the snapshot, gets a
    /// snapshot with these changes. When the cacher ends, the last value is [`Continuity::Broken`].
    pub fn continuity(&self) -> watch::Receiver<Continuity> {
        self.shared.continuity.subscribe()
    }

    /// Returns the time at which contact with the member was last lost, or at which the last attempt to restore contact
    /// failed.
    ///
    /// The cacher publishes the [`state`](Self::state) first, and then this time. So a caller that reads the time
    /// first, and then the state, never gets a state from before the failure.
    pub fn failed_at(&self) -> Option<Instant> {
        *self.shared.failed_at.borrow()
    }

    /// Ends the wait after a failure, so that the cacher sends its next request at once. Does nothing if the cacher
    /// does not wait.
    pub fn retry(&self) {
        self.shared.retry.notify_waiters();
    }

    /// Returns the cacher's counters since its start, and the present size of the collection.
    pub fn stats(&self) -> Stats {
        self.shared.counts.stats()
    }

    /// Reports that the member was replaced by a different cluster (its kube-system uid changed). The collection is
    /// listed again, and the observer receives [`Reset`](crate::Update::Reset). Until the list is complete, the
    /// collection of the replaced cluster is served.
    pub fn reset(&self) {
        self.shared.reset.notify_one();
    }

    /// Reports that requests to the member carry different credentials from now on. The cacher reopens the watch from
    /// the current version, so that the rights of the new credentials take effect. The reopening happens at a random
    /// time within `within`. Until then the open watch continues, and no event is lost.
    pub fn reopen(&self, within: Duration) {
        let at = Instant::now() + within.mul_f64(rand::random());
        self.shared.reopen_at.send_modify(|due| *due = Some(due.map_or(at, |due| due.min(at))));
    }

    /// Sets the health of the member, which the caller derives from all collections of the member and from probes.
    ///
    /// While the member is unreachable, a collection that has lost contact becomes stale at once, and is stale since
    /// the member's last sign of life. A collection whose watch still delivers changes is not affected. When the member
    /// recovers, a cacher that waits after a failure sends its next request soon.
    pub fn set_member_health(&self, health: MemberHealth) {
        self.shared.member.send_if_modified(|current| {
            let is_news = *current != health;
            *current = health;
            is_news
        });
    }

    /// Waits until the collection contains every change up to `version`, and returns a snapshot with these changes.
    /// Several deletions can have the same revision. To wait for a single write only, pass the version
    /// [`CollectionVersion::begun`].
    ///
    /// Returns at once if the collection has reached the version. The version of an unchanged collection does not
    /// advance by itself. So after a short delay the cacher requests the member's latest version, with one request for
    /// all waiters. With a kube-apiserver 1.36, the version then arrives after about 1.2 s. Cancelling is safe.
    ///
    /// # Errors
    /// [`NotReached::Beyond`] as soon as the member reports that it has not reached the version; [`NotReached::TooNew`]
    /// if `within` passes first.
    pub async fn wait_for(
        &self,
        version: impl Into<CollectionVersion>,
        within: Duration,
    ) -> Result<Snapshot, NotReached> {
        let version = version.into();
        let now = self.snapshot();
        if let Some(snapshot) = now.filter(|snapshot| snapshot.resource_version() >= version) {
            return Ok(snapshot);
        }
        self.wait(self.shared.wanted.register(version), within).await
    }

    /// Like [`wait_for`](Self::wait_for), for a version that existed before this cacher started. So every response of
    /// the member, even its first list, can show that the member has not reached the version. `wait_for` ignores the
    /// responses to requests from before its call.
    ///
    /// # Errors
    /// The errors of [`wait_for`](Self::wait_for).
    pub async fn wait_for_earlier_version(
        &self,
        version: impl Into<CollectionVersion>,
        within: Duration,
    ) -> Result<Snapshot, NotReached> {
        self.wait(self.shared.wanted.register_known(version.into(), 0), within).await
    }

    async fn wait(&self, waiting: VersionWaiter<'_>, within: Duration) -> Result<Snapshot, NotReached> {
        let version = waiting.version();
        let reached = |snapshot: &Option<Snapshot>| snapshot.as_ref().is_some_and(|s| s.resource_version() >= version);
        let mut published = self.shared.published.subscribe();
        let found = async { published.wait_for(reached).await.ok().and_then(|snapshot| snapshot.clone()) };
        let found = tokio::select! {
            // `biased` polls the branches in order. So if the member reports a version below the awaited version, the
            // wait ends with an error, even if the collection reaches the awaited version at the same time: a restored
            // member may assign the awaited version to a different state.
            biased;
            latest = waiting.beyond() => return Err(NotReached::Beyond { wanted: version, latest }),
            found = found => found,
            () = sleep(within) => None,
        };
        let too_new = || NotReached::TooNew { wanted: version, current: self.snapshot().map(|s| s.resource_version()) };
        found.ok_or_else(too_new)
    }

    /// Waits until the object with this key and this uid no longer exists in the collection. If `or_newer_than` is
    /// given, a version of the object above it also ends the wait. Returns the snapshot that ended the wait.
    ///
    /// An object that the member has not sent yet looks deleted. So a caller that has just created the object first
    /// waits for the object's version. Cancelling is safe.
    ///
    /// # Errors
    /// [`StillExists`] if `within` passes first (finalizers, a grace period, or an unreachable member).
    pub async fn wait_until_deleted(
        &self,
        key: &str,
        uid: &str,
        or_newer_than: Option<ResourceVersion>,
        within: Duration,
    ) -> Result<Snapshot, StillExists> {
        let is_past = |object: &Arc<Object>| {
            object.uid() != uid || or_newer_than.is_some_and(|version| object.resource_version() > version)
        };
        let is_deleted =
            |snapshot: &Option<Snapshot>| snapshot.as_ref().is_some_and(|s| s.get(key).is_none_or(is_past));
        let mut published = self.shared.published.subscribe();
        let found = timeout(within, published.wait_for(is_deleted)).await;
        let snapshot = found.ok().and_then(Result::ok).and_then(|snapshot| snapshot.clone());
        snapshot.ok_or_else(|| StillExists { key: key.to_owned(), uid: uid.to_owned() })
    }

    /// Requests the member's latest version with a list of the collection with `limit=1` and without resourceVersion. A
    /// kube-apiserver answers such a list with the most recent version.
    ///
    /// The stored collection does not change. Sends one request, which takes at most the answer timeout of
    /// [`ReflectorTuning`](crate::ReflectorTuning).
    ///
    /// # Errors
    /// [`LatestError`]; cancelling is safe and cancels the request.
    pub async fn latest(&self) -> Result<ResourceVersion, LatestError> {
        request::latest(&self.shared.config, &self.transport).await
    }
}

impl std::fmt::Debug for Cacher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cacher")
            .field("cluster", &self.shared.config.cluster)
            .field("resource", &self.shared.config.resource)
            .field("namespace", &self.shared.config.namespace)
            .field("state", &*self.shared.state.borrow())
            .finish_non_exhaustive()
    }
}

impl Drop for Cacher {
    fn drop(&mut self) {
        self.task.abort();
    }
}
