//! Waits until the cache reaches a version.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tributary_answers::refusal::{ClusterRefusal, Refusal, VersionRefusal};
use tributary_apimachinery::{ClusterName, CollectionVersion, ResourceVersion, Snapshot};
use tributary_cacher::{Cacher, NotReached};
use tributary_merge::CompositeResourceVersion;

use super::View;
use super::uncached_reason::UncachedReason;

/// Timeout of one wait in a cacher for a version that a client has and that this process has not reached. A cacher
/// requires a timeout. After the timeout, the wait is repeated. One hour, the longest watch without an explicit
/// timeout.
const AHEAD_WITHIN: Duration = Duration::from_secs(60 * 60);

/// Time for which a read waits until the cache reaches a version (kube-apiserver's `blockTimeout` in `watch_cache.go`).
pub(super) const VERSION_WITHIN: Duration = Duration::from_secs(3);

/// Reason why the cache cannot reach a version that a client sent.
#[derive(Clone, Debug)]
pub enum Unreached {
    /// A cluster in the version is not configured, or its objects are unknown.
    Missing(Refusal),
    /// The cache did not reach the version within 3 s.
    TooNew(VersionRefusal),
    /// The member's current version is lower than the client's version, because the member's revisions decreased after
    /// the client's version was issued.
    WentBack {
        /// Member whose revisions decreased.
        cluster: ClusterName,
        /// Component of the member in the version that the client sent.
        version: CollectionVersion,
        /// The member's latest version of the collection.
        latest: ResourceVersion,
    },
}

/// Returns a 504 because a cluster has not reached a version within 3 s.
pub(super) fn not_reached(
    cluster: &ClusterName,
    version: CollectionVersion,
    current: CollectionVersion,
) -> VersionRefusal {
    VersionRefusal::NotReached { cluster: cluster.clone(), version, current, within: VERSION_WITHIN }
}

impl Unreached {
    fn from_error(cluster: &ClusterName, version: CollectionVersion, error: NotReached) -> Self {
        match error {
            NotReached::TooNew { current, .. } => {
                Self::TooNew(not_reached(cluster, version, current.unwrap_or_default()))
            }
            NotReached::Beyond { latest, .. } => Self::WentBack { cluster: cluster.clone(), version, latest },
        }
    }

    /// Returns the refusal of a list or watch. The refusal is a 410: on any other status, a client would not list
    /// again, and would keep the changes that the member has undone.
    pub fn of_collection(self) -> Refusal {
        match self {
            Self::Missing(refusal) => refusal,
            Self::TooNew(refusal) => refusal.into(),
            Self::WentBack { cluster, version, latest } => {
                VersionRefusal::CollectionWentBack { cluster, version, latest }.into()
            }
        }
    }

    /// Returns the refusal of a get, with kube-apiserver's text.
    pub fn of_object(self) -> Refusal {
        match self {
            Self::Missing(refusal) => refusal,
            Self::TooNew(refusal) => refusal.into(),
            Self::WentBack { cluster, version, latest } => {
                VersionRefusal::ObjectWentBack { cluster, version, latest }.into()
            }
        }
    }
}

/// Selects the answers of a member that can prove that the member has not reached a version. An answer from before the
/// version was issued proves nothing.
#[derive(Clone, Copy)]
pub(super) enum AcceptedAnswers {
    /// Accepts all answers, because the cacher was started after the version was issued.
    Always,
    /// Accepts only answers to requests that are sent from now on. When a view begins to follow the view of all
    /// namespaces, that view's cacher may have received an answer before the version was issued.
    FromNow,
}

async fn wait_for_version(
    cacher: &Cacher,
    version: CollectionVersion,
    accepted: AcceptedAnswers,
    within: Duration,
) -> Result<Snapshot, NotReached> {
    match accepted {
        AcceptedAnswers::Always => cacher.wait_for_earlier_version(version, within).await,
        AcceptedAnswers::FromNow => cacher.wait_for(version, within).await,
    }
}

impl View {
    /// Waits until the cache has reached the component of each cluster in a composite version.
    ///
    /// # Errors
    /// [`Unreached`]: 504 `ResourceVersionTooLarge` after 3 s; 429 if the objects of a configured cluster are still
    /// unknown; 410 if a cluster is not configured, because a client that still has objects of the cluster must list
    /// again.
    pub async fn reached(&self, vector: &CompositeResourceVersion) -> Result<(), Unreached> {
        let waits = vector.iter().map(|(cluster, version)| self.cluster_reached(cluster, version));
        join_all(waits).await.into_iter().collect()
    }

    /// As [`reached`](Self::reached), but ignores clusters that are no longer configured. The log still contains their
    /// states from the time before they left.
    ///
    /// # Errors
    /// As [`reached`](Self::reached).
    pub async fn reached_by_members(&self, vector: &CompositeResourceVersion) -> Result<(), Unreached> {
        let named = vector.iter().filter(|(cluster, _)| self.cache_state_tracker.has(cluster));
        let waits = named.map(|(cluster, version)| self.cluster_reached(cluster, version));
        join_all(waits).await.into_iter().collect()
    }

    async fn cluster_reached(&self, cluster: &ClusterName, version: CollectionVersion) -> Result<(), Unreached> {
        if self.version_of(cluster).is_some_and(|own| own >= version) {
            return Ok(());
        }
        let known = self.cacher(cluster).filter(|cacher| cacher.snapshot().is_some());
        let missing = || Unreached::Missing(self.missing(cluster));
        let reached = self.shown(cluster, known.ok_or_else(missing)?, version).await.ok_or_else(missing)?;
        reached.map_err(|error| Unreached::from_error(cluster, version, error))
    }

    /// Waits until the cached objects of a cluster have reached a version. `None` if the cluster has left meanwhile.
    pub(super) async fn shown(
        &self,
        cluster: &ClusterName,
        cacher: Arc<Cacher>,
        version: CollectionVersion,
    ) -> Option<Result<(), NotReached>> {
        let deadline = Instant::now() + VERSION_WITHIN;
        let wait = |cacher: Arc<Cacher>, accepted| async move {
            let remaining = deadline.saturating_duration_since(Instant::now());
            wait_for_version(&cacher, version, accepted, remaining).await
        };
        let reached = self.in_feeding_cacher(cluster, cacher, deadline, wait).await?;
        self.catch_up(cluster);
        Some(reached.map(drop))
    }

    /// Waits in the cacher that supplies the cached objects of a cluster, and returns the result of the wait. If the
    /// cacher is replaced during the wait, discards the result, because the old cacher no longer supplies the objects,
    /// and repeats the wait in the new cacher. `None` if the cluster has left, or has no such cacher by the deadline.
    pub(super) async fn in_feeding_cacher<T, F: Future<Output = T>>(
        &self,
        cluster: &ClusterName,
        first: Arc<Cacher>,
        deadline: Instant,
        wait: impl Fn(Arc<Cacher>, AcceptedAnswers) -> F,
    ) -> Option<T> {
        let mut changes = self.cache_state_tracker.changes();
        let (mut cacher, mut accepted) = (first, AcceptedAnswers::FromNow);
        loop {
            let value = wait(Arc::clone(&cacher), accepted).await;
            if self.is_fed_by(cluster, &cacher) {
                return Some(value);
            }
            let next = timeout_at(deadline, self.other_cacher(cluster, &cacher, &mut changes)).await;
            (cacher, accepted) = next.ok().flatten()?;
        }
    }

    /// Waits until this process has reached a client's version in the clusters where the client's version is newer.
    /// Meanwhile, idle cachers request progress from their members. Returns the refusal if a member itself has not
    /// reached the version. Cancellation is safe.
    pub async fn caught_up(
        self: Arc<Self>,
        ahead: Vec<(ClusterName, CollectionVersion, Arc<Cacher>)>,
    ) -> Option<Refusal> {
        let waits =
            ahead.into_iter().map(|(cluster, version, cacher)| self.cluster_caught_up(cluster, version, cacher));
        futures::future::try_join_all(waits).await.err()
    }

    async fn cluster_caught_up(
        &self,
        cluster: ClusterName,
        version: CollectionVersion,
        cacher: Arc<Cacher>,
    ) -> Result<(), Refusal> {
        let mut changes = self.cache_state_tracker.changes();
        // After a change of the cluster's configuration, a new cacher has to request the member's version again.
        let (mut cacher, mut accepted) = (cacher, AcceptedAnswers::FromNow);
        loop {
            let other = tokio::select! {
                biased;
                reached = wait_for_version(&cacher, version, accepted, AHEAD_WITHIN) => {
                    if self.is_fed_by(&cluster, &cacher) {
                        match reached {
                            Ok(_) => {}
                            Err(NotReached::TooNew { .. }) => continue,
                            Err(error @ NotReached::Beyond { .. }) => {
                                self.catch_up(&cluster);
                                return Err(Unreached::from_error(&cluster, version, error).of_collection());
                            }
                        }
                        self.catch_up(&cluster);
                        return Ok(());
                    }
                    // The result of a replaced cacher is discarded, because this cacher no longer supplies the objects.
                    self.other_cacher(&cluster, &cacher, &mut changes).await
                }
                other = self.other_cacher(&cluster, &cacher, &mut changes) => other,
            };
            // A cluster that has left needs no wait, because the log contains its departure.
            let Some(other) = other else { return Ok(()) };
            (cacher, accepted) = other;
        }
    }

    /// Waits until a cluster has a different cacher, or none. Returns the new cacher, and the kind of answers that the
    /// wait for a version must accept from it.
    async fn other_cacher(
        &self,
        cluster: &ClusterName,
        cacher: &Arc<Cacher>,
        changes: &mut watch::Receiver<u64>,
    ) -> Option<(Arc<Cacher>, AcceptedAnswers)> {
        loop {
            let (now, is_own) = self.cacher_and_whose(cluster)?;
            if !Arc::ptr_eq(&now, cacher) || changes.changed().await.is_err() {
                return Some((now, if is_own { AcceptedAnswers::Always } else { AcceptedAnswers::FromNow }));
            }
        }
    }

    /// Returns the refusal of a version with a cluster whose objects are unknown. The refusal is a 429 while Tributary
    /// is still reading the cluster. It is a 410 if Tributary will not read the cluster, so that the client lists
    /// again.
    pub fn missing(&self, cluster: &ClusterName) -> Refusal {
        let (resource, cluster) = (self.kind.resource.clone(), cluster.clone());
        match self.cache_states().cache_state_of(&cluster) {
            None => VersionRefusal::ClusterNotServing { cluster, resource }.into(),
            Some(cache_state) if cache_state.is_forbidden() => {
                VersionRefusal::ClusterForbids { cluster, resource }.into()
            }
            Some(cache_state) => {
                let is_permanent = cache_state.uncached_reason().is_some_and(UncachedReason::is_permanent);
                ClusterRefusal::unread(&resource, vec![cluster], (!is_permanent).then_some(1)).into()
            }
        }
    }
}
