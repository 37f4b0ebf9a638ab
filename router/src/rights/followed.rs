//! The rights under which a watch was opened, followed: it shows what they let it show, and ends when they do not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::{ClusterName, ClusterSelector, or_never};
use tributary_authorization::Visible;

use super::caller_rights::CallerRights;
use super::mirror::RightsStamp;
use super::needed::Needed;
use super::read_place::ReadPlace;
use super::readable::Readable;
use super::unconfirmed::Unconfirmed;
use super::visible::{VisibleClusters, covers};
use crate::dispatch::Dispatched;
use crate::stream_over::StreamOver;

/// For how long what is gained is gathered before a watch ends for it. 30 s: a team that is given ten namespaces one
/// after the other lists once, and nobody misses what they have never seen.
const GATHERED_FOR: Duration = Duration::from_secs(30);

/// What has become of the rights of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeChange {
    /// They are others in clusters that it tells of: what its client has is to be listed anew.
    Another,
    /// There are further clusters of which it may tell: whoever comes back is told of them.
    Further,
    /// It is over for the user's own sake.
    Over(StreamOver),
}

/// The rights of one watch.
pub(crate) struct FollowedRights {
    rights: CallerRights,
    place: ReadPlace,
    /// The clusters that the client asks for: what changes in others is no matter of this watch.
    wanted: ClusterSelector,
    /// What policies say of it: clusters that refuse it are none of its. Where that changes the watch ends for it.
    denied: Option<Arc<Dispatched>>,
    /// Those of which the watch may tell: what changes elsewhere is none either. One that comes to them may be a
    /// further one.
    clusters: watch::Receiver<Arc<[ClusterName]>>,
    changes: watch::Receiver<u64>,
    /// What they counted when it was last looked: somebody who sleeps may be woken a moment later.
    counted: u64,
    /// What it shows of each cluster.
    before: BTreeMap<ClusterName, Visible>,
    /// By what it was last judged; `None` before the first time.
    stamp: Option<RightsStamp>,
    /// What it ends for, and when.
    due: Option<(Instant, ScopeChange)>,
    /// When clusters are to be asked again by whose word it was last judged.
    until: Option<Instant>,
    /// Ends when what they were asked is known.
    asking: Option<oneshot::Receiver<()>>,
    /// Those that have not answered it.
    unconfirmed: Unconfirmed,
    /// When what one of them said before ceases to count.
    confirm_by: Option<Instant>,
}

/// The rights of a caller from a moment on: made before it is looked at what they may read, so that no change of it is
/// missed.
pub(crate) struct NotedRights {
    rights: CallerRights,
    place: ReadPlace,
    wanted: ClusterSelector,
    denied: Option<Arc<Dispatched>>,
    changes: watch::Receiver<u64>,
}

impl NotedRights {
    /// Those of now, of a place of these clusters, of which some may be denied by policies.
    pub(crate) fn new(
        rights: &CallerRights,
        place: ReadPlace,
        wanted: ClusterSelector,
        denied: Option<Arc<Dispatched>>,
    ) -> Self {
        let mut changes = rights.changes();
        // The user may have been denied since they were let in.
        changes.mark_changed();
        Self { rights: rights.clone(), place, wanted, denied, changes }
    }

    /// Those of a watch that shows what may be read as it was found since, and tells of these clusters, which come and
    /// go.
    pub(crate) fn follow(self, readable: &Readable, clusters: watch::Receiver<Arc<[ClusterName]>>) -> FollowedRights {
        let Self { rights, place, wanted, denied, changes } = self;
        // What it shows, and not what might be seen a moment before or after: a right that was gained between two looks
        // would be shown, and never missed once it is lost.
        let before = readable.audience.visible().clone();
        let (stamp, due, until, asking) = (None, None, None, None);
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
    /// Why it is to end, if it is. Costs two loads while nothing has changed.
    pub(crate) fn look(&mut self) -> Option<ScopeChange> {
        let mut is_another = self.is_answered() || self.is_to_be_asked() || self.is_overdue();
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
            // Most changes are others'.
            let stamp = self.rights.stamp();
            if !self.stamp.as_ref().is_some_and(|own| own.is(&stamp)) {
                self.stamp = Some(stamp);
                is_another = true;
            }
        }
        if is_another {
            self.judge_anew();
        }
        self.due.filter(|(at, _)| *at <= Instant::now()).map(|(_, change)| change)
    }

    /// Ends when there may be something to [look](Self::look) at. Cancelling is safe.
    pub(crate) async fn news(&mut self) {
        let due = self.due.map(|(at, _)| at);
        let due = match self.asking {
            None => due.into_iter().chain(self.until).min(),
            Some(_) => due.into_iter().chain(self.confirm_by).min(),
        };
        tokio::select! {
            _answered = or_never(self.asking.as_mut()) => {
                // It is judged with the next look.
                (self.asking, self.until) = (None, Some(Instant::now()));
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

    /// Whether what was asked has been answered just now.
    fn is_answered(&mut self) -> bool {
        let is_answered =
            self.asking.as_mut().is_some_and(|asking| !matches!(asking.try_recv(), Err(TryRecvError::Empty)));
        if is_answered {
            self.asking = None;
        }
        is_answered
    }

    fn is_to_be_asked(&self) -> bool {
        self.asking.is_none() && self.until.is_some_and(|until| until <= Instant::now())
    }

    /// Whether a cluster has not answered for so long that what it said before does not count any more.
    fn is_overdue(&self) -> bool {
        self.confirm_by.is_some_and(|by| by <= Instant::now())
    }

    /// Judges by what is known, or has clusters asked first: until they answer, what they said counts for a while. What
    /// others have taken away by then counts at once.
    fn judge_anew(&mut self) {
        let now = Instant::now();
        let clusters = self.selected(&self.clusters.borrow());
        let (followed, Needed { open, until }) = self.rights.decided(|rights| rights.followed(&clusters, &self.place));
        if open.is_empty() {
            self.unconfirmed.clear();
            self.confirm_by = None;
            (self.due, self.until, self.asking) = (self.judge(&clusters, &followed, now), until, None);
            return;
        }
        self.unconfirmed.note([&followed.0.unknown, &followed.1.unknown], now);
        self.confirm_by = self.unconfirmed.ends(now);
        let due = self.judge(&clusters, &followed, now);
        if due.is_some_and(|(at, _)| at <= now) {
            self.due = due;
        }
        let (rights, (answered, asking)) = (self.rights.clone(), oneshot::channel());
        tokio::spawn(async move {
            rights.confirm(open).await;
            // The watch may have ended.
            let _ = answered.send(());
        });
        self.asking = Some(asking);
    }

    fn judge(
        &self,
        clusters: &[ClusterName],
        (watched, visible): &(VisibleClusters, VisibleClusters),
        now: Instant,
    ) -> Option<(Instant, ScopeChange)> {
        let is_refused = !covers(watched, visible, &self.place);
        let later = |change| Some((self.due.map_or(now + GATHERED_FOR, |(at, _)| at), change));
        // A cluster that left is told of as such by the log.
        let known = self.before.iter().filter(|(cluster, _)| clusters.contains(cluster));
        let (mut gains, mut losses) = (false, false);
        for (cluster, before) in known {
            let change = visible.by_name.get(cluster).map(|own| before.change(own));
            losses |= change.map_or_else(|| !self.unconfirmed.counts(cluster, now), |change| change.losses);
            gains |= change.is_some_and(|change| change.gains);
        }
        let is_further = visible.by_name.keys().any(|cluster| !self.before.contains_key(cluster));
        match (losses || is_refused, gains, is_further) {
            (true, ..) => Some((now, ScopeChange::Another)),
            (false, true, _) => later(ScopeChange::Another),
            (false, false, true) => later(ScopeChange::Further),
            (false, false, false) => None,
        }
    }

    /// Those of some clusters that the client asks for, and that do not refuse it.
    fn selected(&self, clusters: &[ClusterName]) -> Vec<ClusterName> {
        let denied = self.denied.as_ref().and_then(|dispatched| dispatched.denied_clusters());
        let is_selected =
            |cluster: &&ClusterName| self.wanted.matches(cluster) && !denied.is_some_and(|denied| denied.has(cluster));
        clusters.iter().filter(is_selected).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tributary_apimachinery::GroupVersionResource;

    use super::super::actor::Actor;
    use super::super::audience::Audience;
    use super::*;
    use crate::{Router, RouterConfig, SharedMode, User};

    /// A right may be gained after it was noted what there is, and before it is looked at what may be read.
    #[tokio::test]
    async fn what_is_shown_and_may_not_be_seen_ends_a_watch_whatever_was_there_before_it_was_looked() {
        let router = Router::new(RouterConfig { shared: Some(SharedMode::default()), ..RouterConfig::default() });
        let User { info, authority } = User::named("test", "ann");
        let rights = CallerRights::new(router.rights().unwrap(), Actor::new(info, authority, None));
        let eu = ClusterName::new("eu").unwrap();
        let resource = GroupVersionResource::new("", "v1", "pods");
        let place = ReadPlace { resource, namespaced: true, namespace: String::new(), name: String::new() };
        for (shown, expected) in [(vec![eu.clone()], Some(ScopeChange::Another)), (vec![], None)] {
            let noted = NotedRights::new(&rights, place.clone(), ClusterSelector::default(), None);
            let only = Arc::new(shown.iter().cloned().collect::<BTreeSet<_>>());
            let visible = shown.into_iter().map(|cluster| (cluster, Visible::Whole)).collect();
            let readable = Readable {
                audience: Arc::new(Audience::new(Arc::clone(&only), visible)),
                only,
                by_namespace: None,
                only_watched: Arc::default(),
                is_one_unknown: false,
            };
            let (_told, clusters) = watch::channel(Arc::from([eu.clone()]));
            assert_eq!(noted.follow(&readable, clusters).look(), expected);
        }
    }
}
