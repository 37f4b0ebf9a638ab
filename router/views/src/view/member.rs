//! One cluster of a view, and how it stands.

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

/// The clusters of a view, by name.
#[derive(Default)]
pub(super) struct ViewClusters {
    pub(super) by_name: BTreeMap<ClusterName, ViewCluster>,
}

/// One cluster of a view.
pub(super) enum ViewCluster {
    /// Whether it serves the resource is not known: it has not told what it serves, or the aggregated server behind
    /// this version does not answer.
    Undiscovered(Arc<Cluster>),
    /// Its objects are held.
    Cached(CachedMember),
}

pub(super) struct CachedMember {
    /// Which cluster it was started for: a cluster whose configuration changes is another one.
    pub(super) cluster: Arc<Cluster>,
    pub(super) cacher: Arc<Cacher>,
    pub(super) questions: Arc<LatestVersionRequests>,
    pub(super) feed: Arc<Feed>,
    /// Of a cluster whose objects of all namespaces are held by another view: what feeds `feed`.
    /// The cacher is that view's then.
    pub(super) leader: Option<Arc<Feed>>,
    /// Of one that began with objects that are held already: its own are not there yet,
    /// and until then those are served.
    pub(super) takes_over: Option<TakenOver>,
    /// How often the credentials had been renewed when the cacher was last told.
    pub(super) renewals: u64,
    /// Since when the member forbids the collection, as far as it was reached.
    pub(super) forbidden_since: Option<Instant>,
    /// Whether the log has a line that this collection alone is in trouble.
    pub(super) reported: bool,
}

/// Objects of a cluster that were there before the cacher that is to hold them.
#[derive(Clone, Copy)]
pub(super) struct TakenOver {
    /// Since when they may be old.
    pub(super) since: Instant,
    pub(super) why: WhyAnew,
}

/// How long what is held of a collection is served, with a Warning, after its member forbids to read it. A minute:
/// rights that are taken away by mistake, or of a role that is being written anew, are back by then, and nobody is told
/// thousands of deletions for it. Whoever took them away on purpose waits little more than two minutes:
/// one until it is noticed, one until it goes, and up to 20 s until the member has been asked once more.
const FORBIDDEN_HELD_FOR: Duration = Duration::from_secs(60);

/// Whether a member forbids a collection, and what becomes of what is held of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forbidding {
    /// It does not, or has not for long: what is held is served on.
    No,
    /// It did when it was last asked, and what is held has been served for long enough. But that may be half a minute
    /// ago, and the rights may be back: it is to be asked again.
    Unconfirmed,
    /// It has said so again since: what is held has to go.
    ForLong,
}

impl Forbidding {
    /// Of a member that forbids it since then, and said so last at that moment.
    fn from_times(since: Instant, said: Option<Instant>, now: Instant) -> Self {
        let held_until = since + FORBIDDEN_HELD_FOR;
        match said {
            _ if now < held_until => Self::No,
            Some(said) if said >= held_until => Self::ForLong,
            _ => Self::Unconfirmed,
        }
    }
}

/// How long a collection may be in trouble, though its cluster answers, before that is worth a line in the log. 30 s:
/// by then it is known whether the whole cluster is in trouble, which is said once and for all collections.
const REPORTED_AFTER: Duration = Duration::from_secs(30);

impl CachedMember {
    /// Whether it has its objects from where they are to come from.
    pub(super) fn comes_from(&self, cluster: &Arc<Cluster>, leader: Option<&WholeViewFeed>) -> bool {
        match (&self.leader, leader) {
            (None, None) => Arc::ptr_eq(&self.cluster, cluster),
            (Some(own), Some(leader)) => Arc::ptr_eq(own, &leader.feed),
            _ => false,
        }
    }

    /// How its cluster stands.
    pub(super) fn standing(&self) -> Standing {
        let state = self.cacher.state();
        match (Standing::from_state(&state), self.takes_over) {
            // Whoever forbids to read all of it is asked in another way.
            (Standing::Unknown { reason, obstacle, .. }, Some(TakenOver { since, why }))
                if obstacle != CollectionObstacle::Forbidden && self.cacher.snapshot().is_none() =>
            {
                let problem = reason.or_else(|| self.cluster.problem().map(Arc::from));
                Standing::taken_over(since, why, problem.as_deref())
            }
            // The first attempt need not fail as well for this to be said: that may take half a minute.
            (Standing::Unknown { since, reason: None, obstacle }, _) => {
                Standing::Unknown { since, reason: self.cluster.problem().map(Arc::from), obstacle }
            }
            (standing, _) => standing,
        }
    }

    /// Since when what is held of it may be old, for who takes its place.
    pub(super) fn stale_since(&self) -> Instant {
        match (self.standing(), self.takes_over) {
            (Standing::Stale { since, .. }, _) | (Standing::Unknown { .. }, Some(TakenOver { since, .. })) => since,
            _ => Instant::now(),
        }
    }

    /// Takes note whether the member forbids the collection, and says whether it has for so long that what is held of
    /// it has to go. That it was out of reach meanwhile gives nothing back.
    pub(super) fn forbidding(&mut self) -> Forbidding {
        // Before the state: that is of this moment, or newer.
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

    /// Says when this collection is in trouble though its cluster is not, and when it no longer is. What is wrong with
    /// a single collection by its nature, its cacher has said at once. Called every few seconds.
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
    fn what_is_held_goes_once_the_member_has_forbidden_it_again_after_the_minute() {
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
