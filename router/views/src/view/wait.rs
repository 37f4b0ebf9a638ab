//! Waiting until a version is reached.

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

/// How long at a time is waited for a version that a watch has and this process has not. A cacher waits for a limited
/// time; whoever still waits then asks again. An hour: the longest watch whose client does not ask for more.
const AHEAD_WITHIN: Duration = Duration::from_secs(60 * 60);

/// How long a read waits for a version (kube-apiserver's `blockTimeout` in `watch_cache.go`).
pub(super) const VERSION_WITHIN: Duration = Duration::from_secs(3);

/// Why a version that a client named cannot be reached.
#[derive(Clone, Debug)]
pub enum Unreached {
    /// A cluster that it names is configured and not known yet, or not configured at all.
    Missing(Refusal),
    /// It did not come within 3 s.
    TooNew(VersionRefusal),
    /// The member has not come so far itself: its revisions went back since the version was handed out.
    WentBack {
        /// The member.
        cluster: ClusterName,
        /// The version's component.
        version: CollectionVersion,
        /// The member's own latest version.
        latest: ResourceVersion,
    },
}

/// 504: a cluster has not come so far within 3 s.
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

    /// The refusal of a list or watch: a client that knows of undone changes is to list anew,
    /// which it does on a 410 alone.
    pub fn of_collection(self) -> Refusal {
        match self {
            Self::Missing(refusal) => refusal,
            Self::TooNew(refusal) => refusal.into(),
            Self::WentBack { cluster, version, latest } => {
                VersionRefusal::CollectionWentBack { cluster, version, latest }.into()
            }
        }
    }

    /// The refusal of a get, as kube-apiserver words it.
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

/// Which of a member's answers to a cacher say that it has not come to a version.
#[derive(Clone, Copy)]
pub(super) enum Heard {
    /// All of them: the cacher was started when the version was known already.
    Always,
    /// Those to what is asked from now on. That of all namespaces may be older than the wait of a view that comes to
    /// follow it.
    FromNow,
}

/// Waits until a cacher has come to a version.
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
    /// Waits until each named cluster has reached its version.
    ///
    /// # Errors
    /// [`Unreached`]: 504 `ResourceVersionTooLarge` after 3 s; 429 where a cluster that is configured is not known yet;
    /// 410 where a cluster is not configured at all, for then its objects must be listed anew by who still holds some.
    pub async fn reached(&self, vector: &CompositeResourceVersion) -> Result<(), Unreached> {
        let waits = vector.iter().map(|(cluster, version)| self.cluster_reached(cluster, version));
        join_all(waits).await.into_iter().collect()
    }

    /// As [`reached`](Self::reached), but a cluster that is not configured any more is left to the log, which still
    /// knows the states from before it left.
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

    /// Waits until what is shown of a cluster contains a version. `None` where the cluster has left meanwhile.
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

    /// Waits in the cacher that feeds what is shown of a cluster, and gives what came of it. What one has seen that was
    /// replaced meanwhile nobody is shown: then it is waited for in the next one. `None` where the cluster has left, or
    /// is not fed again by the deadline.
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

    /// Follows the clusters in which a version is ahead of this process until they have come to it: an idle cacher asks
    /// its member for progress meanwhile. Gives the refusal once a member says that it has not come so far itself.
    /// Cancelling is safe.
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
        // A cluster whose configuration changes has another cacher from then on,
        // which learns anew how far the member is.
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
                    // What one has seen that was replaced meanwhile nobody is shown.
                    self.other_cacher(&cluster, &cacher, &mut changes).await
                }
                other = self.other_cacher(&cluster, &cacher, &mut changes) => other,
            };
            // Of a cluster that left the log says so.
            let Some(other) = other else { return Ok(()) };
            (cacher, heard) = other;
        }
    }

    /// Ends when a cluster has another cacher than this one, or none. Gives it, and which of the answers to it count
    /// for a version that was waited for in this one.
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

    /// Why a version cannot be honoured that names this cluster: 429 where it is waited for, and 410 where nothing will
    /// come, so that the client lists what there is.
    pub fn missing(&self, cluster: &ClusterName) -> Refusal {
        let (resource, cluster) = (self.kind.resource.clone(), cluster.clone());
        match self.standings().standing_of(&cluster) {
            None => VersionRefusal::ClusterNotServing { cluster, resource }.into(),
            Some(standing) if standing.is_forbidden() => VersionRefusal::ClusterForbids { cluster, resource }.into(),
            Some(_) => ClusterRefusal::unread(&resource, vec![cluster], 1).into(),
        }
    }
}
