//! The rights under which a watch was opened, followed: it shows what they let it show, and ends when they do not.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::Partial;

use super::mirror::RightsStamp;
use super::visible::{CallerRights, ReadPlace, VisibleClusters};
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
    changes: watch::Receiver<u64>,
    /// What might be listed when it began.
    before: VisibleClusters,
    /// By what it was last judged.
    stamp: RightsStamp,
    /// What it ends for, and when.
    due: Option<(Instant, ScopeChange)>,
}

impl FollowedRights {
    /// Follows them from before they are looked at: what changes from now on is noticed.
    pub(crate) fn new(rights: &CallerRights, place: ReadPlace) -> Self {
        let (mut changes, stamp) = (rights.changes(), rights.stamp());
        // The user may have been denied since they were let in.
        changes.mark_changed();
        let before = rights.visible(&rights.clusters(), "list", &place.resource);
        Self { rights: rights.clone(), place, changes, before, stamp, due: None }
    }

    /// What it is to end for now. Costs one load while nothing has changed.
    pub(crate) fn look(&mut self) -> Option<ScopeChange> {
        if self.changes.has_changed().unwrap_or(true) {
            self.changes.mark_unchanged();
            if let Some(why) = self.rights.over() {
                self.due = Some((Instant::now(), ScopeChange::Over(why)));
                return Some(ScopeChange::Over(why));
            }
            // Most changes are others'.
            let stamp = self.rights.stamp();
            if !self.stamp.is(&stamp) {
                self.stamp = stamp;
                self.due = self.judge(Instant::now());
            }
        }
        self.due.filter(|(at, _)| *at <= Instant::now()).map(|(_, change)| change)
    }

    /// Ends when there may be something to [look](Self::look) at. Cancelling is safe.
    pub(crate) async fn news(&mut self) {
        let due = self.due.map(|(at, _)| at);
        tokio::select! {
            changed = async { self.changes.changed().await } => {
                self.changes.mark_changed();
                let _is_looked_at_either_way = changed;
            }
            () = async { match due { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {}
        }
    }

    fn judge(&self, now: Instant) -> Option<(Instant, ScopeChange)> {
        let clusters = self.rights.clusters();
        let visible = self.rights.visible(&clusters, "list", &self.place.resource);
        let is_refused = || self.rights.admit(&clusters, "watch", &self.place, Partial::Allow).is_err();
        let later = |change| Some((self.due.map_or(now + GATHERED_FOR, |(at, _)| at), change));
        // A cluster that left is told of as such by the log.
        let known = self.before.by_name.iter().filter(|(cluster, _)| clusters.contains(cluster));
        let (mut gains, mut losses) = (false, false);
        for (cluster, before) in known {
            let change = visible.by_name.get(cluster).map(|own| before.change(own));
            losses |= change.is_none_or(|change| change.losses);
            gains |= change.is_some_and(|change| change.gains);
        }
        let is_further = visible.by_name.keys().any(|cluster| !self.before.by_name.contains_key(cluster));
        match (losses || is_refused(), gains, is_further) {
            (true, ..) => Some((now, ScopeChange::Another)),
            (false, true, _) => later(ScopeChange::Another),
            (false, false, true) => later(ScopeChange::Further),
            (false, false, false) => None,
        }
    }
}
