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

/// Time of one wait for a version that a client has and this process does not. The caller repeats the wait, because a
/// cacher waits for a limited time. One hour is the longest watch without an explicit timeout.
const AHEAD_WITHIN: Duration = Duration::from_secs(60 * 60);

/// Time for which a read waits for a version (kube-apiserver's `blockTimeout` in `watch_cache.go`).
pub(super) const VERSION_WITHIN: Duration = Duration::from_secs(3);

/// Reason for which the cache cannot reach a version that a client sent.
#[derive(Clone, Debug)]
pub enum Unreached {
    /// A cluster of the version is configured but not known yet, or is not configured.
    Missing(Refusal),
    /// The cache did not reach the version within 3 s.
    TooNew(VersionRefusal),
    /// The member itself has not reached the version: its revisions decreased after the version was issued.
    WentBack {
        /// Member whose revisions decreased.
        cluster: ClusterName,
        /// Component of the version.
        version: CollectionVersion,
        /// The member's latest version.
        latest: ResourceVersion,
    },
}

/// The 504 for a cluster that has not reached a version within 3 s.
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

    /// Returns the refusal of a list or watch. It is a 410, because only a 410 makes a client list again and drop the
    /// undone changes.
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

/// Answers of a member that prove that the member has not reached a version.
#[derive(Clone, Copy)]
pub(super) enum Heard {
    /// All answers count, because the cacher was started after the version was issued.
    Always,
    /// Only answers to requests from now on count. For a view that begins to follow the view of all namespaces, earlier
    /// answers to that view's cacher may be older than the version.
    FromNow,
}

async fn come_to(
    cacher: &Cacher,
    version: CollectionVersion,
    heard: Heard,
    within: Duration,
) -> Result<Snapshot, NotReached> {
    match heard {
        Heard::Always => cacher.wait_for_known(version, within).await,
        Heard::FromNow => cacher.wait_for(version, within).await,
    }
}

impl View {
    /// Waits until each cluster of a composite version has reached its component.
    ///
    /// # Errors
    /// [`Unreached`]: 504 `ResourceVersionTooLarge` after 3 s; 429 if a configured cluster is not known yet; 410 if a
    /// cluster is not configured, because a client that still has its objects must list again.
    pub async fn reached(&self, vector: &CompositeResourceVersion) -> Result<(), Unreached> {
        let waits = vector.iter().map(|(cluster, version)| self.cluster_reached(cluster, version));
        join_all(waits).await.into_iter().collect()
    }

    /// As [`reached`](Self::reached), but ignores clusters that are no longer configured: the log still has the states
    /// from before they left.
    ///
    /// # Errors
    /// As [`reached`](Self::reached).
    pub async fn reached_by_members(&self, vector: &CompositeResourceVersion) -> Result<(), Unreached> {
        let named = vector.iter().filter(|(cluster, _)| self.board.has(cluster));
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

    /// Waits until the shown objects of a cluster contain a version. `None` if the cluster has left meanwhile.
    pub(super) async fn shown(
        &self,
        cluster: &ClusterName,
        cacher: Arc<Cacher>,
        version: CollectionVersion,
    ) -> Option<Result<(), NotReached>> {
        let deadline = Instant::now() + VERSION_WITHIN;
        let wait = |cacher: Arc<Cacher>, heard| async move {
            let left = deadline.saturating_duration_since(Instant::now());
            come_to(&cacher, version, heard, left).await
        };
        let reached = self.in_feeding_cacher(cluster, cacher, deadline, wait).await?;
        self.catch_up(cluster);
        Some(reached.map(drop))
    }

    /// Waits in the cacher that feeds the shown objects of a cluster, and returns the result. If the cacher is replaced
    /// during the wait, the result is discarded, because the cacher's objects are not shown, and the wait is repeated
    /// in the next cacher. `None` if the cluster has left, or has no feeding cacher by the deadline.
    pub(super) async fn in_feeding_cacher<T, F: Future<Output = T>>(
        &self,
        cluster: &ClusterName,
        first: Arc<Cacher>,
        deadline: Instant,
        wait: impl Fn(Arc<Cacher>, Heard) -> F,
    ) -> Option<T> {
        let mut changes = self.board.changes();
        let (mut cacher, mut heard) = (first, Heard::FromNow);
        loop {
            let value = wait(Arc::clone(&cacher), heard).await;
            if self.is_fed_by(cluster, &cacher) {
                return Some(value);
            }
            let next = timeout_at(deadline, self.other_cacher(cluster, &cacher, &mut changes)).await;
            (cacher, heard) = next.ok().flatten()?;
        }
    }

    /// Waits for the clusters in which a client's version is ahead of this process. Idle cachers request progress from
    /// their members meanwhile. Returns the refusal if a member itself has not reached the version. Cancellation is
    /// safe.
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
        let mut changes = self.board.changes();
        // After a change of configuration, a new cacher has to learn the member's version again.
        let (mut cacher, mut heard) = (cacher, Heard::FromNow);
        loop {
            let other = tokio::select! {
                biased;
                reached = come_to(&cacher, version, heard, AHEAD_WITHIN) => {
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
                    // The result of a replaced cacher is discarded, because its objects are not shown.
                    self.other_cacher(&cluster, &cacher, &mut changes).await
                }
                other = self.other_cacher(&cluster, &cacher, &mut changes) => other,
            };
            // The log contains the departure of a cluster that has left.
            let Some(other) = other else { return Ok(()) };
            (cacher, heard) = other;
        }
    }

    /// Waits until a cluster has a different cacher, or none. Returns the new cacher, and the answers that count for a
    /// version that was awaited in the previous cacher.
    async fn other_cacher(
        &self,
        cluster: &ClusterName,
        cacher: &Arc<Cacher>,
        changes: &mut watch::Receiver<u64>,
    ) -> Option<(Arc<Cacher>, Heard)> {
        loop {
            let (now, is_own) = self.cacher_and_whose(cluster)?;
            if !Arc::ptr_eq(&now, cacher) || changes.changed().await.is_err() {
                return Some((now, if is_own { Heard::Always } else { Heard::FromNow }));
            }
        }
    }

    /// Returns the refusal of a version that names an unknown cluster: 429 while the cluster is still being read, and
    /// 410 if the cluster will not become known, so that the client lists again.
    pub fn missing(&self, cluster: &ClusterName) -> Refusal {
        let (resource, cluster) = (self.kind.resource.clone(), cluster.clone());
        match self.standings().standing_of(&cluster) {
            None => VersionRefusal::ClusterNotServing { cluster, resource }.into(),
            Some(standing) if standing.is_forbidden() => VersionRefusal::ClusterForbids { cluster, resource }.into(),
            Some(_) => ClusterRefusal::unread(&resource, vec![cluster], 1).into(),
        }
    }
}
