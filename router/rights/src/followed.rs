//! Rights on which an open watch depends. The watch shows only objects within these rights, and ends when they change.

use std::collections::{BTreeMap, HashSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tributary_answers::termination_reason::TerminationReason;
use tributary_apimachinery::{ClusterName, ClusterSelector, or_pending};
use tributary_authorization::Visible;

use super::caller_rights::CallerRights;
use super::decision_reviews::DecisionReviews;
use super::mirror::RightsStamp;
use super::read_target::ReadTarget;
use super::readable::Readable;
use super::reviews::AccessReview;
use super::unconfirmed::Unconfirmed;
use super::visible::{WatchRights, covers};

/// Delay before gained rights end a watch. 30 s: if a team gets ten namespaces within this time, its client lists again
/// only once.
const GATHERED_FOR: Duration = Duration::from_secs(30);

/// Delay before the next decision while other clusters have not answered their reviews. 500 ms: a decision visits up to
/// a thousand clusters, and so should not run after each answer.
const ANSWERS_GATHERED_FOR: Duration = Duration::from_millis(500);

/// Waits until one of the clusters has completed all its reviews, and returns the index of this cluster. Cancellation
/// is safe.
async fn next_answer(open_reviews: &mut [(ClusterName, oneshot::Receiver<()>)]) -> usize {
    poll_fn(|context| {
        let answered = open_reviews.iter_mut().position(|(_, answered)| answered.poll_unpin(context).is_ready());
        answered.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Reason to end a watch after a change of rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeChange {
    /// The rights in clusters that the watch shows have changed: the client has to list again.
    Another,
    /// The user gained rights in clusters that the watch does not show: the client may reconnect to see them.
    Further,
    /// The user may not have any stream now.
    Terminated(TerminationReason),
}

/// Function that returns whether the dispatch policies of a cluster deny the watch.
pub type DeniedAt = Arc<dyn Fn(&ClusterName) -> bool + Send + Sync>;

/// Rights of one watch, with the decisions and reviews that keep the rights current.
pub struct FollowedRights {
    rights: CallerRights,
    target: ReadTarget,
    /// Label selector of the client for clusters. Changes of rights in unselected clusters do not matter.
    wanted: ClusterSelector,
    /// Clusters whose policies deny the watch. The watch shows no objects of these clusters.
    denied: Option<DeniedAt>,
    /// Clusters that serve the resource. A cluster that joins may be visible to the user.
    clusters: watch::Receiver<Arc<[ClusterName]>>,
    changes: watch::Receiver<u64>,
    /// Counter of rights changes at the last check. The watch compares it with the current counter, which changes even
    /// before a sleeping watch is notified.
    change_count: u64,
    before: BTreeMap<ClusterName, Visible>,
    /// Stamp of the rights at the last decision; `None` before the first decision.
    stamp: Option<RightsStamp>,
    /// Time at which the watch ends, and the reason.
    due: Option<(Instant, ScopeChange)>,
    /// Time of the next decision, at which a review result expires, or new results are used.
    until: Option<Instant>,
    /// Clusters with open reviews. The receiver of a cluster completes when the cluster has answered its reviews.
    open_reviews: Vec<(ClusterName, oneshot::Receiver<()>)>,
    unconfirmed: Unconfirmed,
    /// Time at which the last answers of a cluster that does not answer stop being valid.
    confirm_by: Option<Instant>,
}

/// Rights of a caller, with a subscription to changes that begins when this value is created. Create the value before
/// the first decision about readable objects, so that no change is missed.
pub struct SubscribedRights {
    rights: CallerRights,
    target: ReadTarget,
    wanted: ClusterSelector,
    denied: Option<DeniedAt>,
    changes: watch::Receiver<u64>,
}

impl SubscribedRights {
    /// Subscribes to changes of the caller's rights, for a watch of `target` in the `wanted` clusters. `denied` returns
    /// whether a cluster's policies deny the watch.
    pub fn new(rights: &CallerRights, target: ReadTarget, wanted: ClusterSelector, denied: Option<DeniedAt>) -> Self {
        let mut changes = rights.changes();
        // Makes the first check run at once: Tributary may have denied the user since the start of the request.
        changes.mark_changed();
        Self { rights: rights.clone(), target, wanted, denied, changes }
    }

    /// Follows the rights of a watch that shows the `readable` objects. `clusters` are the clusters that serve the
    /// resource.
    pub fn follow(self, readable: &Readable, clusters: watch::Receiver<Arc<[ClusterName]>>) -> FollowedRights {
        let Self { rights, target, wanted, denied, changes } = self;
        // The watch selects its objects by these rights. Rights from a slightly later time could contain a right that
        // the watch does not show, and then a loss of this right would go unnoticed.
        let before = readable.audience.visible().clone();
        let (stamp, due, until, open_reviews) = (None, None, None, Vec::new());
        FollowedRights {
            rights,
            target,
            wanted,
            denied,
            clusters,
            changes,
            change_count: 0,
            before,
            stamp,
            due,
            until,
            open_reviews,
            unconfirmed: Unconfirmed::default(),
            confirm_by: None,
        }
    }
}

impl FollowedRights {
    /// Returns a reason if the watch has to end. Costs two atomic loads while no right has changed.
    pub fn look(&mut self) -> Option<ScopeChange> {
        self.remove_answered();
        let mut is_another = self.is_decision_due() || self.is_overdue();
        if self.clusters.has_changed().unwrap_or(false) {
            self.clusters.mark_unchanged();
            is_another = true;
        }
        let change_count = *self.changes.borrow();
        if change_count != self.change_count || self.changes.has_changed().unwrap_or(true) {
            self.changes.mark_unchanged();
            self.change_count = change_count;
            if let Some(why) = self.rights.termination_reason() {
                self.due = Some((Instant::now(), ScopeChange::Terminated(why)));
                return Some(ScopeChange::Terminated(why));
            }
            // Most changes concern other users. Such changes leave the stamp of this user unchanged.
            let stamp = self.rights.stamp();
            if !self.stamp.as_ref().is_some_and(|own| own.is(&stamp)) {
                self.stamp = Some(stamp);
                // The changed rights may need different reviews.
                self.open_reviews.clear();
                is_another = true;
            }
        }
        if is_another {
            self.decide_again();
        }
        self.due.filter(|(at, _)| *at <= Instant::now()).map(|(_, change)| change)
    }

    /// Waits until [`look`](Self::look) may have a result. Cancellation is safe.
    pub async fn wait_for_change(&mut self) {
        let due = self.due.map(|(at, _)| at).into_iter().chain(self.until).chain(self.confirm_by).min();
        tokio::select! {
            at = next_answer(&mut self.open_reviews) => {
                drop(self.open_reviews.swap_remove(at));
                self.schedule_decision();
            }
            changed = async { self.changes.changed().await } => {
                self.changes.mark_changed();
                let _is_looked_at_either_way = changed;
            }
            changed = async { self.clusters.changed().await } => {
                self.clusters.mark_changed();
                let _is_looked_at_either_way = changed;
            }
            () = or_pending(due.map(sleep_until)) => {}
        }
    }

    /// Removes the clusters that have answered all reviews, and schedules a decision.
    fn remove_answered(&mut self) {
        let before = self.open_reviews.len();
        self.open_reviews.retain_mut(|(_, open_reviews)| matches!(open_reviews.try_recv(), Err(TryRecvError::Empty)));
        if self.open_reviews.len() < before {
            self.schedule_decision();
        }
    }

    /// Schedules a decision: immediately, or after [`ANSWERS_GATHERED_FOR`] while other clusters have not answered.
    fn schedule_decision(&mut self) {
        let wait = if self.open_reviews.is_empty() { Duration::ZERO } else { ANSWERS_GATHERED_FOR };
        let at = Instant::now() + wait;
        self.until = Some(self.until.map_or(at, |until| until.min(at)));
    }

    fn is_decision_due(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// Returns whether the last answers of a cluster that does not answer have expired.
    fn is_overdue(&self) -> bool {
        self.confirm_by.is_some_and(|by| by <= Instant::now())
    }

    /// Decides by the facts in memory, and sends the missing reviews. Until a cluster answers, its expired answers stay
    /// valid for a limited time. A loss of rights that is certain without the missing reviews ends the watch at once.
    fn decide_again(&mut self) {
        let now = Instant::now();
        let clusters = self.selected(&self.clusters.borrow());
        let (followed, DecisionReviews { open, until }) =
            self.rights.decision(|rights| rights.followed(&clusters, &self.target));
        // Delays the next decision, so that answers with similar expiry times are renewed together.
        self.until = until.map(|until| until.max(now + ANSWERS_GATHERED_FOR));
        if open.is_empty() {
            self.unconfirmed.clear();
            self.confirm_by = None;
            self.open_reviews.clear();
            self.due = self.decide(&clusters, &followed, now);
            return;
        }
        self.unconfirmed.set_missing_reviews(&open, now);
        self.confirm_by = self.unconfirmed.ends(now);
        // A refusal is a loss even while a different review has no result. So a review that never gets a result cannot
        // hide the loss.
        let last = self.rights.with_expired_answers().followed(&clusters, &self.target);
        let decisions = [&followed, &last].map(|by| self.decide(&clusters, by, now));
        let lost = decisions.into_iter().flatten().find(|(at, _)| *at <= now);
        self.due = lost.or(decisions[0]).or(self.due);
        self.send_reviews(open);
    }

    /// Sends the reviews of each cluster in a separate task, so that a slow cluster delays only its own reviews.
    fn send_reviews(&mut self, open: HashSet<(AccessReview, u64)>) {
        let mut by_cluster: BTreeMap<ClusterName, HashSet<(AccessReview, u64)>> = BTreeMap::new();
        for review in open {
            by_cluster.entry(review.0.cluster.clone()).or_default().insert(review);
        }
        by_cluster.retain(|cluster, _| !self.open_reviews.iter().any(|(reviewed, _)| reviewed == cluster));
        for (cluster, missing_reviews) in by_cluster {
            let (rights, (answered, open_reviews)) = (self.rights.clone(), oneshot::channel());
            tokio::spawn(async move {
                rights.confirm(missing_reviews).await;
                let _ = answered.send(());
            });
            self.open_reviews.push((cluster, open_reviews));
        }
    }

    fn decide(
        &self,
        clusters: &[ClusterName],
        WatchRights { watched, listed }: &WatchRights,
        now: Instant,
    ) -> Option<(Instant, ScopeChange)> {
        let is_refused = !covers(watched, listed, &self.target);
        let later = |change| Some((self.due.map_or(now + GATHERED_FOR, |(at, _)| at), change));
        // Ignores clusters that no longer serve the resource. They are no change of rights, and the event log of the
        // merged view reports them.
        let known = self.before.iter().filter(|(cluster, _)| clusters.contains(cluster));
        let (mut gains, mut losses) = (false, false);
        for (cluster, before) in known {
            let change = listed.by_name.get(cluster).map(|own| before.change(own));
            // A known refusal is a loss, even if other reviews are open.
            let is_unknown = watched.unknown.contains(cluster) || listed.unknown.contains(cluster);
            let is_as_before = is_unknown && self.unconfirmed.is_valid(cluster, now);
            losses |= change.map_or(!is_as_before, |change| change.losses);
            gains |= change.is_some_and(|change| change.gains);
        }
        let is_further = listed.by_name.keys().any(|cluster| !self.before.contains_key(cluster));
        match (losses || is_refused, gains, is_further) {
            (true, ..) => Some((now, ScopeChange::Another)),
            (false, true, _) => later(ScopeChange::Another),
            (false, false, true) => later(ScopeChange::Further),
            (false, false, false) => None,
        }
    }

    /// Returns the clusters that match the client's selector and whose policies do not deny the watch.
    fn selected(&self, clusters: &[ClusterName]) -> Vec<ClusterName> {
        let is_selected = |cluster: &&ClusterName| {
            self.wanted.matches(cluster) && !self.denied.as_ref().is_some_and(|denied| denied(cluster))
        };
        clusters.iter().filter(is_selected).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tributary_apimachinery::GroupVersionResource;
    use tributary_authentication::{User, UserInfo};
    use tributary_authorization::{Attributes, ResourceAttributes};

    use super::super::actor::Actor;
    use super::super::audience::Audience;
    use super::super::mirror::RightsMirror;
    use super::super::visible::VisibleClusters;
    use super::*;

    /// Rights of a user without roles, for a watch that shows all `shown` clusters.
    fn follows(shown: &[&ClusterName]) -> FollowedRights {
        let User { info, authority } = User::named("test", "ann");
        let rights = CallerRights::new(&RightsMirror::without_clusters(), Actor::new(info, authority, None));
        let resource = GroupVersionResource::new("", "v1", "pods");
        let target = ReadTarget { resource, namespaced: true, namespace: String::new(), name: String::new() };
        let subscribed = SubscribedRights::new(&rights, target, ClusterSelector::default(), None);
        let only: Arc<BTreeSet<_>> = Arc::new(shown.iter().copied().cloned().collect());
        let visible = only.iter().map(|cluster| (cluster.clone(), Visible::Whole)).collect();
        let readable = Readable {
            audience: Arc::new(Audience::new(Arc::clone(&only), visible)),
            only,
            by_namespace: None,
            only_watched: Arc::default(),
            has_unknown: false,
        };
        let (_told, clusters) = watch::channel(Arc::from([eu()]));
        subscribed.follow(&readable, clusters)
    }

    fn eu() -> ClusterName {
        ClusterName::new("eu").unwrap()
    }

    /// A right may be gained after the subscription and lost again before the first decision.
    #[tokio::test]
    async fn watch_that_shows_a_forbidden_cluster_ends_when_first_checked() {
        assert_eq!(follows(&[&eu()]).look(), Some(ScopeChange::Another));
        assert_eq!(follows(&[]).look(), None);
    }

    /// One review of the cluster never completes.
    #[tokio::test]
    async fn denial_by_a_cluster_ends_a_watch_despite_an_unanswered_review() {
        let mut followed = follows(&[&eu()]);
        let user = Arc::new(UserInfo { username: "ann".to_owned(), ..UserInfo::default() });
        let attributes = ResourceAttributes { verb: "list", resource: "pods", ..ResourceAttributes::default() };
        let review = AccessReview::new(&eu(), &user, &Attributes::Resource(attributes));
        let now = Instant::now();
        followed.unconfirmed.set_missing_reviews(&HashSet::from([(review, 0)]), now);
        let unknown = || VisibleClusters { unknown: [eu()].into(), ..VisibleClusters::default() };
        let decide = |by: WatchRights| followed.decide(&[eu()], &by, now);
        assert_eq!(decide(WatchRights { watched: unknown(), listed: unknown() }), None, "it is asked");
        assert_eq!(decide(WatchRights::default()), Some((now, ScopeChange::Another)));
    }
}
