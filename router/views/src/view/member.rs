//! State of one cluster in a view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_cacher::{Cacher, CacherState, StaleReason};
use tributary_fleet::topology::Cluster;

use super::cache_state::{CacheState, RelistReason};
use super::feed::Feed;
use super::latest_requests::LatestVersionRequests;
use super::leader::WholeViewFeed;
use super::uncached_reason::UncachedReason;

#[derive(Default)]
pub(super) struct ViewClusters {
    pub(super) by_name: BTreeMap<ClusterName, ViewCluster>,
}

pub(super) enum ViewCluster {
    /// The cluster may serve the resource: its discovery is missing, or the aggregated API server for this API version
    /// does not answer.
    Undiscovered(Arc<Cluster>),
    Cached(CachedMember),
}

pub(super) struct CachedMember {
    /// The cluster for which the feed was started. A changed configuration creates a new [`Cluster`].
    pub(super) cluster: Arc<Cluster>,
    pub(super) cacher: Arc<Cacher>,
    pub(super) latest_requests: Arc<LatestVersionRequests>,
    pub(super) feed: Arc<Feed>,
    /// Set if the view of all namespaces caches the cluster: its feed, which sends updates to `feed`. In this case
    /// `cacher` also belongs to the view of all namespaces.
    pub(super) leader: Option<Arc<Feed>>,
    /// Set if the feed inherited the objects of the previous feed. These objects are served until the new cacher's
    /// first list is complete.
    pub(super) inherited: Option<InheritedObjects>,
    /// Number of credential renewals that were complete when the cacher last reopened its watch.
    pub(super) renewals: u64,
    /// Time since which the cluster forbids reads of the collection.
    pub(super) forbidden_since: Option<Instant>,
    /// Whether a problem that concerns only this collection was logged.
    pub(super) reported: bool,
}

/// Origin of cached objects that an earlier cacher read: the time since which they may be outdated, and the reason for
/// the new cacher.
#[derive(Clone, Copy)]
pub(super) struct InheritedObjects {
    pub(super) since: Instant,
    pub(super) why: RelistReason,
}

/// Time for which Tributary serves the cached objects of a collection after the cluster forbids reads, with a Warning.
/// 60 s: if rights were removed by mistake, or while a role was rewritten, they are usually back by this time, and
/// clients do not see thousands of deletions. After an intended removal, clients see the objects for up to about 140 s:
/// 60 s until the refusal is noticed, 60 s of this limit, and up to 20 s until the cacher has asked once more.
const FORBIDDEN_SERVED_FOR: Duration = Duration::from_secs(60);

/// A cluster's refusal to let Tributary read a collection, and the consequence for the cached objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forbidding {
    /// The cluster does not refuse, or refuses only for a time within the limit. The cached objects are still served.
    No,
    /// The last answer was a refusal, and the time limit has passed. The refusal may be half a minute old, and the
    /// rights may be back, so Tributary must ask the cluster again.
    Unconfirmed,
    /// The cluster has refused again after the time limit, so the cached objects must be removed.
    ForLong,
}

impl Forbidding {
    /// Returns the decision about a cluster that has refused reads since `since`. The last refusal was received at
    /// `said`.
    fn from_times(since: Instant, failed_at: Option<Instant>, now: Instant) -> Self {
        let served_until = since + FORBIDDEN_SERVED_FOR;
        match failed_at {
            _ if now < served_until => Self::No,
            Some(failed_at) if failed_at >= served_until => Self::ForLong,
            _ => Self::Unconfirmed,
        }
    }
}

/// Time after which a problem of a single collection is logged while its cluster answers. 30 s: if the cause is a
/// problem of the whole cluster, Tributary has found it by this time, and logs it once for all collections.
const REPORTED_AFTER: Duration = Duration::from_secs(30);

impl CachedMember {
    pub(super) fn comes_from(&self, cluster: &Arc<Cluster>, leader: Option<&WholeViewFeed>) -> bool {
        match (&self.leader, leader) {
            (None, None) => Arc::ptr_eq(&self.cluster, cluster),
            (Some(own), Some(leader)) => Arc::ptr_eq(own, &leader.feed),
            _ => false,
        }
    }

    pub(super) fn cache_state(&self) -> CacheState {
        let state = self.cacher.state();
        match (CacheState::from_state(&state), self.inherited) {
            // Does not serve the previous cacher's objects of a forbidden collection, because Tributary then reads the
            // cluster namespace by namespace.
            (CacheState::Unknown { reason, uncached_reason, .. }, Some(InheritedObjects { since, why }))
                if uncached_reason != UncachedReason::Forbidden && self.cacher.snapshot().is_none() =>
            {
                let problem = reason.or_else(|| self.cluster.problem().map(Arc::from));
                CacheState::taken_over(since, why, problem.as_deref())
            }
            // Shows the cluster's problem even before the first attempt has failed, which may take half a minute.
            (CacheState::Unknown { since, reason: None, uncached_reason }, _) => {
                CacheState::Unknown { since, reason: self.cluster.problem().map(Arc::from), uncached_reason }
            }
            (cache_state, _) => cache_state,
        }
    }

    /// Returns the time since which the objects may be outdated. The next feed inherits this time.
    pub(super) fn stale_since(&self) -> Instant {
        match (self.cache_state(), self.inherited) {
            (CacheState::Stale { since, .. }, _)
            | (CacheState::Unknown { .. }, Some(InheritedObjects { since, .. })) => since,
            _ => Instant::now(),
        }
    }

    /// Records whether the cluster forbids reads of the collection, and decides about the cached objects. An outage
    /// between two refusals does not restart the time limit.
    pub(super) fn forbidding(&mut self) -> Forbidding {
        // The time is read before the state, so that the state is at least as new as the time.
        let failed_at = self.cacher.failed_at();
        let state = self.cacher.state();
        if state == CacherState::Synced {
            self.forbidden_since = None;
        }
        if state.reason() != Some(&StaleReason::Forbidden) {
            return Forbidding::No;
        }
        let now = Instant::now();
        Forbidding::from_times(*self.forbidden_since.get_or_insert(now), failed_at, now)
    }

    /// Logs a problem of this collection while its cluster answers, and logs the end of the problem. Permanent problems
    /// of a single collection are logged by the cacher. Called every few seconds.
    pub(super) fn report(&mut self, resource: &GroupVersionResource) {
        let cluster = self.cluster.name();
        match self.cacher.state() {
            CacherState::Stale { since, reason } | CacherState::Syncing { since, reason: Some(reason) }
                if !self.reported
                    && since.elapsed().min(self.cluster.healthy_for()) >= REPORTED_AFTER
                    && !matches!(reason, StaleReason::Forbidden | StaleReason::NotFound) =>
            {
                tracing::warn!(%cluster, %resource, %reason,
                    "no changes of the resource arrive, although the cluster answers");
                self.reported = true;
            }
            CacherState::Synced if self.reported => {
                tracing::info!(%cluster, %resource, "changes of the resource arrive again");
                self.reported = false;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_objects_are_removed_after_reads_stay_forbidden_for_a_minute() {
        let since = Instant::now();
        let at = |seconds| since + Duration::from_secs(seconds);
        let cases = [
            (0, 0, Forbidding::No),
            (59, 59, Forbidding::No),
            (0, 60, Forbidding::Unconfirmed),
            (59, 89, Forbidding::Unconfirmed),
            (60, 60, Forbidding::ForLong),
            (61, 70, Forbidding::ForLong),
        ];
        for (failed_at, now, expected) in cases {
            assert_eq!(Forbidding::from_times(since, Some(at(failed_at)), at(now)), expected, "{failed_at} {now}");
        }
        assert_eq!(Forbidding::from_times(since, None, at(90)), Forbidding::Unconfirmed);
    }
}
