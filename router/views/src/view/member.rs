//! State of one cluster in a view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_cacher::{Cacher, CacherState, StaleReason};
use tributary_fleet::topology::Cluster;

use super::feed::Feed;
use super::leader::WholeViewFeed;
use super::obstacle::CollectionObstacle;
use super::questions::LatestVersionRequests;
use super::standing::{Standing, WhyAnew};

#[derive(Default)]
pub(super) struct ViewClusters {
    pub(super) by_name: BTreeMap<ClusterName, ViewCluster>,
}

pub(super) enum ViewCluster {
    /// The cluster may or may not serve the resource: it has no discovery yet, or the aggregated server behind this
    /// version does not answer.
    Undiscovered(Arc<Cluster>),
    Cached(CachedMember),
}

pub(super) struct CachedMember {
    /// The cluster for which the feed was started. A changed configuration creates a new [`Cluster`].
    pub(super) cluster: Arc<Cluster>,
    pub(super) cacher: Arc<Cacher>,
    pub(super) questions: Arc<LatestVersionRequests>,
    pub(super) feed: Arc<Feed>,
    /// Feed of the view of all namespaces that updates `feed`, if the view of all namespaces caches the cluster.
    /// `cacher` then belongs to that view.
    pub(super) leader: Option<Arc<Feed>>,
    /// Set if the feed inherited objects of its predecessor. They are served until the cacher's own list is complete.
    pub(super) takes_over: Option<TakenOver>,
    /// Number of credential renewals after which the cacher has reopened its watch.
    pub(super) renewals: u64,
    /// Time since which the cluster forbids reads of the collection.
    pub(super) forbidden_since: Option<Instant>,
    /// Whether a problem of this collection alone was logged.
    pub(super) reported: bool,
}

/// Cached objects of a cluster from before the current cacher.
#[derive(Clone, Copy)]
pub(super) struct TakenOver {
    pub(super) since: Instant,
    pub(super) why: WhyAnew,
}

/// Time for which the cached objects of a forbidden collection are served, with a Warning. 60 s: rights that were
/// removed by mistake, or during a rewrite of a role, are back by then, and clients do not see thousands of deletions.
/// After an intended removal, clients see the objects for up to about 140 s: 60 s until the refusal is noticed, 60 s of
/// this limit, and up to 20 s until the cacher has asked once more.
const FORBIDDEN_HELD_FOR: Duration = Duration::from_secs(60);

/// Refusal of a collection by its cluster, and the consequence for the cached objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forbidding {
    /// No refusal, or a refusal within the time limit: the cached objects are still served.
    No,
    /// The last answer was a refusal, and the time limit has passed. This answer may be half a minute old, and the
    /// rights may be back: the cluster must be asked again.
    Unconfirmed,
    /// The cluster has refused again after the time limit: the cached objects must be removed.
    ForLong,
}

impl Forbidding {
    /// Decides for a cluster that has refused since `since`, and most recently at `said`.
    fn from_times(since: Instant, said: Option<Instant>, now: Instant) -> Self {
        let held_until = since + FORBIDDEN_HELD_FOR;
        match said {
            _ if now < held_until => Self::No,
            Some(said) if said >= held_until => Self::ForLong,
            _ => Self::Unconfirmed,
        }
    }
}

/// Time after which a problem of a single collection, while its cluster answers, is logged. 30 s: by then, a problem of
/// the whole cluster is known, which is logged once for all collections.
const REPORTED_AFTER: Duration = Duration::from_secs(30);

impl CachedMember {
    pub(super) fn comes_from(&self, cluster: &Arc<Cluster>, leader: Option<&WholeViewFeed>) -> bool {
        match (&self.leader, leader) {
            (None, None) => Arc::ptr_eq(&self.cluster, cluster),
            (Some(own), Some(leader)) => Arc::ptr_eq(own, &leader.feed),
            _ => false,
        }
    }

    pub(super) fn standing(&self) -> Standing {
        let state = self.cacher.state();
        match (Standing::from_state(&state), self.takes_over) {
            // A cluster that forbids reads of all namespaces is read namespace by namespace.
            (Standing::Unknown { reason, obstacle, .. }, Some(TakenOver { since, why }))
                if obstacle != CollectionObstacle::Forbidden && self.cacher.snapshot().is_none() =>
            {
                let problem = reason.or_else(|| self.cluster.problem().map(Arc::from));
                Standing::taken_over(since, why, problem.as_deref())
            }
            // Shows the cluster's problem before the first attempt fails as well, which may take half a minute.
            (Standing::Unknown { since, reason: None, obstacle }, _) => {
                Standing::Unknown { since, reason: self.cluster.problem().map(Arc::from), obstacle }
            }
            (standing, _) => standing,
        }
    }

    /// Time since which the objects may be outdated, for the successor of this feed.
    pub(super) fn stale_since(&self) -> Instant {
        match (self.standing(), self.takes_over) {
            (Standing::Stale { since, .. }, _) | (Standing::Unknown { .. }, Some(TakenOver { since, .. })) => since,
            _ => Instant::now(),
        }
    }

    /// Records whether the cluster forbids the collection, and decides about the cached objects. An outage in between
    /// does not reset the time.
    pub(super) fn forbidding(&mut self) -> Forbidding {
        // Read before the state, so that the state is at least as new as this time.
        let said = self.cacher.failed_at();
        let state = self.cacher.state();
        if state == CacherState::Synced {
            self.forbidden_since = None;
        }
        if state.reason() != Some(&StaleReason::Forbidden) {
            return Forbidding::No;
        }
        let now = Instant::now();
        Forbidding::from_times(*self.forbidden_since.get_or_insert(now), said, now)
    }

    /// Logs a problem of this collection while its cluster answers, and the end of the problem. The cacher itself logs
    /// permanent problems of a single collection. Called every few seconds.
    pub(super) fn report(&mut self, resource: &GroupVersionResource) {
        let cluster = self.cluster.name();
        match self.cacher.state() {
            CacherState::Stale { since, reason } | CacherState::Syncing { since, reason: Some(reason) }
                if !self.reported
                    && since.elapsed().min(self.cluster.well_for()) >= REPORTED_AFTER
                    && !matches!(reason, StaleReason::Forbidden | StaleReason::NotFound) =>
            {
                tracing::warn!(%cluster, %resource, %reason, "no changes arrive, though the cluster answers");
                self.reported = true;
            }
            CacherState::Synced if self.reported => {
                tracing::info!(%cluster, %resource, "changes arrive again");
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
    fn cached_objects_are_dropped_after_a_second_refusal_past_the_limit() {
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
        for (said, now, expected) in cases {
            assert_eq!(Forbidding::from_times(since, Some(at(said)), at(now)), expected, "{said} {now}");
        }
        assert_eq!(Forbidding::from_times(since, None, at(90)), Forbidding::Unconfirmed);
    }
}
