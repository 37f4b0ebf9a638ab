//! The rights under which a watch was opened, followed: it shows what they let it show, and ends when they do not.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::{ClusterName, ClusterSelector, or_never};

use super::caller_rights::CallerRights;
use super::mirror::RightsStamp;
use super::needed::Needed;
use super::read_place::ReadPlace;
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

/// What rights count for that are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnknownRights {
    /// What they were: they are being asked for.
    AsBefore,
    /// Nothing.
    None,
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
    /// What might be listed when it began.
    before: VisibleClusters,
    /// By what it was last judged.
    stamp: RightsStamp,
    /// What it ends for, and when.
    due: Option<(Instant, ScopeChange)>,
    /// When clusters are to be asked again by whose word it was last judged.
    until: Option<Instant>,
    /// Ends when what they were asked is known.
    asking: Option<oneshot::Receiver<()>>,
}

impl FollowedRights {
    /// Follows them from before they are looked at: what changes from now on is noticed. `clusters` are those that the
    /// client may be told of now.
    pub(crate) async fn new(
        rights: &CallerRights,
        place: ReadPlace,
        wanted: ClusterSelector,
        clusters: Vec<ClusterName>,
        denied: Option<Arc<Dispatched>>,
    ) -> Self {
        let (mut changes, stamp) = (rights.changes(), rights.stamp());
        // The user may have been denied since they were let in.
        changes.mark_changed();
        let followed = |rights: &CallerRights| {
            let (_, before) = rights.followed(&clusters, &place);
            (before, rights.needs().1)
        };
        let (before, until) = rights.settled(followed).await;
        let (_, clusters) = watch::channel(clusters.into());
        let (rights, due, asking) = (rights.clone(), None, None);
        Self { rights, place, wanted, denied, clusters, changes, counted: 0, before, stamp, due, until, asking }
    }

    /// The same, of a watch that tells of these clusters, which come and go.
    pub(crate) fn of_view(self, mut clusters: watch::Receiver<Arc<[ClusterName]>>) -> Self {
        let now = self.selected(&clusters.borrow_and_update());
        // What came and went since the rights were looked at is judged with the next look.
        if *now != **self.clusters.borrow() {
            clusters.mark_changed();
        }
        Self { clusters, ..self }
    }

    /// Why it is to end, if it is. Costs two loads while nothing has changed.
    pub(crate) fn look(&mut self) -> Option<ScopeChange> {
        let mut is_another = self.is_answered() || self.is_to_be_asked();
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
            if !self.stamp.is(&stamp) {
                self.stamp = stamp;
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
            Some(_) => due,
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

    /// Judges by what is known, or has clusters asked first: as long as they do not answer, what they said counts. What
    /// others have taken away by then counts at once.
    fn judge_anew(&mut self) {
        let now = Instant::now();
        let clusters = self.selected(&self.clusters.borrow());
        let (followed, Needed { open, until }) = self.rights.decided(|rights| rights.followed(&clusters, &self.place));
        let judge = |unknown| self.judge(&clusters, &followed, now, unknown);
        if open.is_empty() {
            (self.due, self.until, self.asking) = (judge(UnknownRights::None), until, None);
            return;
        }
        let due = judge(UnknownRights::AsBefore);
        if due.is_some_and(|(at, _)| at <= now) {
            self.due = due;
        }
        let (rights, (answered, asking)) = (self.rights.clone(), oneshot::channel());
        tokio::spawn(async move {
            rights.ask(open).await;
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
        unknown: UnknownRights,
    ) -> Option<(Instant, ScopeChange)> {
        let is_as_before = |cluster: &ClusterName| {
            unknown == UnknownRights::AsBefore
                && (watched.unknown.contains(cluster) || visible.unknown.contains(cluster))
        };
        let is_refused = !covers(watched, visible, &self.place);
        let later = |change| Some((self.due.map_or(now + GATHERED_FOR, |(at, _)| at), change));
        // A cluster that left is told of as such by the log.
        let known = self.before.by_name.iter().filter(|(cluster, _)| clusters.contains(cluster));
        let (mut gains, mut losses) = (false, false);
        for (cluster, before) in known {
            let change = visible.by_name.get(cluster).map(|own| before.change(own));
            losses |= change.map_or_else(|| !is_as_before(cluster), |change| change.losses);
            gains |= change.is_some_and(|change| change.gains);
        }
        let is_further = visible.by_name.keys().any(|cluster| !self.before.by_name.contains_key(cluster));
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
