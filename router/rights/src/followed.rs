//! Rights of an open watch: the watch shows objects within its rights, and ends when the rights change.

use std::collections::{BTreeMap, HashSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tributary_answers::stream_over::StreamOver;
use tributary_apimachinery::{ClusterName, ClusterSelector, or_never};
use tributary_authorization::Visible;

use super::caller_rights::CallerRights;
use super::mirror::RightsStamp;
use super::needed::Needed;
use super::read_place::ReadPlace;
use super::readable::Readable;
use super::reviews::Question;
use super::unconfirmed::Unconfirmed;
use super::visible::{WatchRights, covers};

/// Time for which gained rights are collected before a watch ends. 30 s: a team that gets ten namespaces one after the
/// other lists once.
const GATHERED_FOR: Duration = Duration::from_secs(30);

/// Time for which answers are collected before the next decision, while other questions are open. Half a second: with a
/// thousand clusters, each decision looks at every one.
const ANSWERS_GATHERED_FOR: Duration = Duration::from_millis(500);

/// Waits for the next answered question and returns its index. Cancellation is safe.
async fn next_answer(asking: &mut [(ClusterName, oneshot::Receiver<()>)]) -> usize {
    poll_fn(|context| {
        let answered = asking.iter_mut().position(|(_, answered)| answered.poll_unpin(context).is_ready());
        answered.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Result of a change of rights for a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeChange {
    /// The rights in shown clusters have changed: the client has to list again.
    Another,
    /// The watch may show further clusters to a client that comes again.
    Further,
    /// The stream is over for the user.
    Over(StreamOver),
}

/// Returns true for a cluster whose dispatch policies deny the watch.
pub type DeniedAt = Arc<dyn Fn(&ClusterName) -> bool + Send + Sync>;

/// The rights of one watch.
pub struct FollowedRights {
    rights: CallerRights,
    place: ReadPlace,
    /// Clusters of the client's selector. Changes in other clusters do not matter.
    wanted: ClusterSelector,
    /// Clusters with policies that deny the watch. Their objects are no part of the watch.
    denied: Option<DeniedAt>,
    /// Clusters of the resource. A new one may become visible.
    clusters: watch::Receiver<Arc<[ClusterName]>>,
    changes: watch::Receiver<u64>,
    /// Counter of changes at the last check. A sleeping watch may wake a moment later.
    counted: u64,
    /// Visible objects of each cluster.
    before: BTreeMap<ClusterName, Visible>,
    /// Stamp of the last decision; `None` before the first one.
    stamp: Option<RightsStamp>,
    /// Pending result and its time.
    due: Option<(Instant, ScopeChange)>,
    /// Time of the next decision: answers expire then, or new ones have come.
    until: Option<Instant>,
    /// Open questions; each ends with its answer.
    asking: Vec<(ClusterName, oneshot::Receiver<()>)>,
    /// Clusters that have not answered.
    unconfirmed: Unconfirmed,
    /// Time at which the last answer of a cluster stops to count.
    confirm_by: Option<Instant>,
}

/// Rights of a caller from a moment on. Made before the first decision about readable objects, so that no change is
/// missed.
pub struct NotedRights {
    rights: CallerRights,
    place: ReadPlace,
    wanted: ClusterSelector,
    denied: Option<DeniedAt>,
    changes: watch::Receiver<u64>,
}

impl NotedRights {
    /// Rights at this moment, for a place and the wanted clusters, without those whose policies deny the watch.
    pub fn new(rights: &CallerRights, place: ReadPlace, wanted: ClusterSelector, denied: Option<DeniedAt>) -> Self {
        let mut changes = rights.changes();
        // The user may have been denied since they were let in.
        changes.mark_changed();
        Self { rights: rights.clone(), place, wanted, denied, changes }
    }

    /// Follows the rights of a watch that shows `readable`, of these clusters, which come and go.
    pub fn follow(self, readable: &Readable, clusters: watch::Receiver<Arc<[ClusterName]>>) -> FollowedRights {
        let Self { rights, place, wanted, denied, changes } = self;
        // The shown objects, not the rights a moment before or after: a right that was gained in between would be
        // shown, and its loss would be missed.
        let before = readable.audience.visible().clone();
        let (stamp, due, until, asking) = (None, None, None, Vec::new());
        FollowedRights {
            rights,
            place,
            wanted,
            denied,
            clusters,
            changes,
            counted: 0,
            before,
            stamp,
            due,
            until,
            asking,
            unconfirmed: Unconfirmed::default(),
            confirm_by: None,
        }
    }
}

impl FollowedRights {
    /// Returns the result if the watch has to end. Costs two loads while nothing has changed.
    pub fn look(&mut self) -> Option<ScopeChange> {
        self.note_answers();
        let mut is_another = self.is_to_be_judged() || self.is_overdue();
        if self.clusters.has_changed().unwrap_or(false) {
            self.clusters.mark_unchanged();
            is_another = true;
        }
        let counted = *self.changes.borrow();
        if counted != self.counted || self.changes.has_changed().unwrap_or(true) {
            self.changes.mark_unchanged();
            self.counted = counted;
            if let Some(why) = self.rights.over() {
                self.due = Some((Instant::now(), ScopeChange::Over(why)));
                return Some(ScopeChange::Over(why));
            }
            // Most changes concern other users.
            let stamp = self.rights.stamp();
            if !self.stamp.as_ref().is_some_and(|own| own.is(&stamp)) {
                self.stamp = Some(stamp);
                // Other answers may be needed now.
                self.asking.clear();
                is_another = true;
            }
        }
        if is_another {
            self.judge_anew();
        }
        self.due.filter(|(at, _)| *at <= Instant::now()).map(|(_, change)| change)
    }

    /// Ends when there may be something to [look](Self::look) at. Cancelling is safe.
    pub async fn news(&mut self) {
        let due = self.due.map(|(at, _)| at).into_iter().chain(self.until).chain(self.confirm_by).min();
        tokio::select! {
            at = next_answer(&mut self.asking) => {
                drop(self.asking.swap_remove(at));
                self.judge_soon();
            }
            changed = async { self.changes.changed().await } => {
                self.changes.mark_changed();
                let _is_looked_at_either_way = changed;
            }
            changed = async { self.clusters.changed().await } => {
                self.clusters.mark_changed();
                let _is_looked_at_either_way = changed;
            }
            () = or_never(due.map(sleep_until)) => {}
        }
    }

    /// Records the clusters that have just answered.
    fn note_answers(&mut self) {
        let before = self.asking.len();
        self.asking.retain_mut(|(_, asking)| matches!(asking.try_recv(), Err(TryRecvError::Empty)));
        if self.asking.len() < before {
            self.judge_soon();
        }
    }

    /// Schedules a decision: with the next check, or soon after it if further answers are due.
    fn judge_soon(&mut self) {
        let wait = if self.asking.is_empty() { Duration::ZERO } else { ANSWERS_GATHERED_FOR };
        let at = Instant::now() + wait;
        self.until = Some(self.until.map_or(at, |until| until.min(at)));
    }

    /// Whether a decision is due.
    fn is_to_be_judged(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// Whether a cluster has not answered for so long that its last answer does not count any more.
    fn is_overdue(&self) -> bool {
        self.confirm_by.is_some_and(|by| by <= Instant::now())
    }

    /// Decides by the known facts, or asks clusters first. Until they answer, their last answers count for a while. A
    /// loss that other facts show counts at once.
    fn judge_anew(&mut self) {
        let now = Instant::now();
        let clusters = self.selected(&self.clusters.borrow());
        let (followed, Needed { open, until }) = self.rights.decided(|rights| rights.followed(&clusters, &self.place));
        // Expired answers are collected like new ones.
        self.until = until.map(|until| until.max(now + ANSWERS_GATHERED_FOR));
        if open.is_empty() {
            self.unconfirmed.clear();
            self.confirm_by = None;
            self.asking.clear();
            self.due = self.judge(&clusters, &followed, now);
            return;
        }
        self.unconfirmed.set_open_questions(&open, now);
        self.confirm_by = self.unconfirmed.ends(now);
        // A no is a loss even if a different question is open; otherwise a permanently open question would hide it.
        let last = self.rights.by_last_word().followed(&clusters, &self.place);
        let judged = [&followed, &last].map(|by| self.judge(&clusters, by, now));
        let lost = judged.into_iter().flatten().find(|(at, _)| *at <= now);
        self.due = lost.or(judged[0]).or(self.due);
        self.ask_clusters(open);
    }

    /// Asks each cluster in a task of its own: a slow cluster delays only its own questions.
    fn ask_clusters(&mut self, open: HashSet<(Question, u64)>) {
        let mut by_cluster: BTreeMap<ClusterName, HashSet<(Question, u64)>> = BTreeMap::new();
        for question in open {
            by_cluster.entry(question.0.cluster.clone()).or_default().insert(question);
        }
        by_cluster.retain(|cluster, _| !self.asking.iter().any(|(asked, _)| asked == cluster));
        for (cluster, questions) in by_cluster {
            let (rights, (answered, asking)) = (self.rights.clone(), oneshot::channel());
            tokio::spawn(async move {
                rights.confirm(questions).await;
                // The watch may have ended.
                let _ = answered.send(());
            });
            self.asking.push((cluster, asking));
        }
    }

    fn judge(
        &self,
        clusters: &[ClusterName],
        WatchRights { watched, listed }: &WatchRights,
        now: Instant,
    ) -> Option<(Instant, ScopeChange)> {
        let is_refused = !covers(watched, listed, &self.place);
        let later = |change| Some((self.due.map_or(now + GATHERED_FOR, |(at, _)| at), change));
        // The log reports a cluster that left.
        let known = self.before.iter().filter(|(cluster, _)| clusters.contains(cluster));
        let (mut gains, mut losses) = (false, false);
        for (cluster, before) in known {
            let change = listed.by_name.get(cluster).map(|own| before.change(own));
            // A known no is a loss, whatever other questions are open.
            let is_unknown = watched.unknown.contains(cluster) || listed.unknown.contains(cluster);
            let is_as_before = is_unknown && self.unconfirmed.counts(cluster, now);
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

    /// Clusters of the client's selector whose policies do not deny the watch.
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
    use tributary_authorization::{Attributes, RbacUser as Subjects, ResourceAttributes};

    use super::super::actor::Actor;
    use super::super::audience::Audience;
    use super::super::mirror::RightsMirror;
    use super::super::subject::Subject;
    use super::super::user::User;
    use super::super::visible::VisibleClusters;
    use super::*;

    /// Rights of a user without any role, in a watch that shows all of these clusters.
    fn follows(shown: &[&ClusterName]) -> FollowedRights {
        let User { info, authority } = User::named("test", "ann");
        let rights = CallerRights::new(&RightsMirror::without_clusters(), Actor::new(info, authority, None));
        let resource = GroupVersionResource::new("", "v1", "pods");
        let place = ReadPlace { resource, namespaced: true, namespace: String::new(), name: String::new() };
        let noted = NotedRights::new(&rights, place, ClusterSelector::default(), None);
        let only: Arc<BTreeSet<_>> = Arc::new(shown.iter().copied().cloned().collect());
        let visible = only.iter().map(|cluster| (cluster.clone(), Visible::Whole)).collect();
        let readable = Readable {
            audience: Arc::new(Audience::new(Arc::clone(&only), visible)),
            only,
            by_namespace: None,
            only_watched: Arc::default(),
            is_one_unknown: false,
        };
        let (_told, clusters) = watch::channel(Arc::from([eu()]));
        noted.follow(&readable, clusters)
    }

    fn eu() -> ClusterName {
        ClusterName::new("eu").unwrap()
    }

    /// A right may be gained between the first notification and the first decision.
    #[tokio::test]
    async fn watch_that_shows_a_forbidden_cluster_ends_at_the_first_look() {
        assert_eq!(follows(&[&eu()]).look(), Some(ScopeChange::Another));
        assert_eq!(follows(&[]).look(), None);
    }

    /// One question to the cluster is always open.
    #[tokio::test]
    async fn denied_cluster_ends_a_watch_although_a_question_is_open() {
        let mut followed = follows(&[&eu()]);
        let who = Arc::new(Subject::from(Subjects { name: "ann", groups: &[] }));
        let asked = ResourceAttributes { verb: "list", resource: "pods", ..ResourceAttributes::default() };
        let question = Question::new(&eu(), &who, &Attributes::Resource(asked));
        let now = Instant::now();
        followed.unconfirmed.set_open_questions(&HashSet::from([(question, 0)]), now);
        let unknown = || VisibleClusters { unknown: [eu()].into(), ..VisibleClusters::default() };
        let judged = |by: WatchRights| followed.judge(&[eu()], &by, now);
        assert_eq!(judged(WatchRights { watched: unknown(), listed: unknown() }), None, "it is asked");
        assert_eq!(judged(WatchRights::default()), Some((now, ScopeChange::Another)));
    }
}
