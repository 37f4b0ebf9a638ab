//! The state of one cluster in a view.

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

/// The state of a cluster in a view.
pub(super) enum ViewCluster {
    /// A cluster that may or may not serve the resource: it has no discovery yet, or the aggregated server behind
    /// this version does not answer.
    Undiscovered(Arc<Cluster>),
    /// The objects of the cluster are cached.
    Cached(CachedMember),
}

pub(super) struct CachedMember {
    /// The cluster for which the member was started. A changed configuration makes another `Cluster`.
    pub(super) cluster: Arc<Cluster>,
    pub(super) cacher: Arc<Cacher>,
    pub(super) questions: Arc<LatestVersionRequests>,
    pub(super) feed: Arc<Feed>,
    /// The feed of the view of all namespaces that updates `feed`, if that view caches the cluster. Then `cacher`
    /// belongs to that view.
    pub(super) leader: Option<Arc<Feed>>,
    /// Set if the member began with objects of its predecessor. They are served until its own list is complete.
    pub(super) takes_over: Option<TakenOver>,
    /// The number of renewals of the credentials when the cacher was last told.
    pub(super) renewals: u64,
    /// The time since which the member forbids the collection.
    pub(super) forbidden_since: Option<Instant>,
    /// Whether a problem of this collection alone was logged.
    pub(super) reported: bool,
}

/// Cached objects of a cluster from before the current cacher.
#[derive(Clone, Copy)]
pub(super) struct TakenOver {
    /// The time since which the objects may be outdated.
    pub(super) since: Instant,
    pub(super) why: WhyAnew,
}

/// The time for which the cached objects of a collection are served, with a Warning, after its member began to forbid
/// reading it. A minute: rights that were removed by mistake, or by rewriting a role, are back by then, and clients are
/// spared thousands of deletions. After an intended removal, clients see the objects for a little more than two
/// minutes: one until the refusal is noticed, one of this limit, and up to 20 s until the member has been asked once
/// more.
const FORBIDDEN_HELD_FOR: Duration = Duration::from_secs(60);

/// Whether a member forbids a collection, and the consequence for the cached objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forbidding {
    /// The member does not, or only for a short time: the cached objects are still served.
    No,
    /// The member did when it was last asked, and the time limit has passed. That answer may be half a minute old, and
    /// the rights may be back: it must be asked again.
    Unconfirmed,
    /// The member has refused again after the time limit: the cached objects must be dropped.
    ForLong,
}

impl Forbidding {
    /// Decides for a member that has refused since `since`, and most recently at `said`.
    fn from_times(since: Instant, said: Option<Instant>, now: Instant) -> Self {
        let held_until = since + FORBIDDEN_HELD_FOR;
        match said {
            _ if now < held_until => Self::No,
            Some(said) if said >= held_until => Self::ForLong,
            _ => Self::Unconfirmed,
        }
    }
}

/// The time for which a collection may have a problem, while its cluster answers, before a line is logged. 30 s: by
/// then it is known whether the whole cluster has a problem, which is logged once for all collections.
const REPORTED_AFTER: Duration = Duration::from_secs(30);

impl CachedMember {
    /// Whether the member gets its objects from this source.
    pub(super) fn comes_from(&self, cluster: &Arc<Cluster>, leader: Option<&WholeViewFeed>) -> bool {
        match (&self.leader, leader) {
            (None, None) => Arc::ptr_eq(&self.cluster, cluster),
            (Some(own), Some(leader)) => Arc::ptr_eq(own, &leader.feed),
            _ => false,
        }
    }

    /// The standing of the cluster.
    pub(super) fn standing(&self) -> Standing {
        let state = self.cacher.state();
        match (Standing::from_state(&state), self.takes_over) {
            // A member that forbids reading all namespaces is asked in another way.
            (Standing::Unknown { reason, obstacle, .. }, Some(TakenOver { since, why }))
                if obstacle != CollectionObstacle::Forbidden && self.cacher.snapshot().is_none() =>
            {
                let problem = reason.or_else(|| self.cluster.problem().map(Arc::from));
                Standing::taken_over(since, why, problem.as_deref())
            }
            // Reported without waiting for the first attempt to fail too, which may take half a minute.
            (Standing::Unknown { since, reason: None, obstacle }, _) => {
                Standing::Unknown { since, reason: self.cluster.problem().map(Arc::from), obstacle }
            }
            (standing, _) => standing,
        }
    }

    /// The time since which its objects may be outdated, for its successor.
    pub(super) fn stale_since(&self) -> Instant {
        match (self.standing(), self.takes_over) {
            (Standing::Stale { since, .. }, _) | (Standing::Unknown { .. }, Some(TakenOver { since, .. })) => since,
            _ => Instant::now(),
        }
    }

    /// Records whether the member forbids the collection, and decides about the cached objects. An outage in between
    /// does not reset the time.
    pub(super) fn forbidding(&mut self) -> Forbidding {
        // Read before the state, so that the state is not older.
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

    /// Logs when this collection has a problem although its cluster answers, and when the problem ends. The cacher
    /// itself logs permanent problems of a single collection. Called every few seconds.
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
