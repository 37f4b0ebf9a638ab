//! What readers wait for: that clusters are known, that a write is seen, that a version is reached.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tributary_apimachinery::{
    ClusterName, ClusterSelector, CollectionVersion, ObjectKey, Partial, ResourceVersion, Snapshot,
};
use tributary_cacher::{Cacher, NotReached};
use tributary_merge::CompositeResourceVersion;

use super::View;
use super::fences::{Deletion, Fence, Late, Waited};
use super::standing::{self, Standing, Standings};
use crate::refusal::{ClusterRefusal, Refusal, VersionRefusal};

/// How long lists and watches wait for clusters that are not known yet.
pub(crate) const KNOWN_WITHIN: Duration = Duration::from_secs(30);

/// How long at a time is waited for a version that a watch has and this process has not. A cacher waits for a limited
/// time; whoever still waits then asks again. An hour: the longest watch whose client does not ask for more.
const AHEAD_WITHIN: Duration = Duration::from_secs(60 * 60);

/// How long a read waits for a version (kube-apiserver's `blockTimeout` in `watch_cache.go`).
pub(super) const VERSION_WITHIN: Duration = Duration::from_secs(3);

/// Why a version that a client named cannot be reached.
#[derive(Clone, Debug)]
pub(crate) enum Unreached {
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
fn not_reached(cluster: &ClusterName, version: CollectionVersion, current: CollectionVersion) -> VersionRefusal {
    VersionRefusal::NotReached { cluster: cluster.clone(), version, current, within: VERSION_WITHIN }
}

impl Unreached {
    fn of(cluster: &ClusterName, version: CollectionVersion, error: NotReached) -> Self {
        match error {
            NotReached::TooNew { current, .. } => {
                Self::TooNew(not_reached(cluster, version, current.unwrap_or_default()))
            }
            NotReached::Beyond { latest, .. } => Self::WentBack { cluster: cluster.clone(), version, latest },
        }
    }

    /// The refusal of a list or watch: a client that knows of undone changes is to list anew,
    /// which it does on a 410 alone.
    pub(crate) fn of_collection(self) -> Refusal {
        match self {
            Self::Missing(refusal) => refusal,
            Self::TooNew(refusal) => refusal.into(),
            Self::WentBack { cluster, version, latest } => {
                VersionRefusal::CollectionWentBack { cluster, version, latest }.into()
            }
        }
    }

    /// The refusal of a get, as kube-apiserver words it.
    pub(crate) fn of_object(self) -> Refusal {
        match self {
            Self::Missing(refusal) => refusal,
            Self::TooNew(refusal) => refusal.into(),
            Self::WentBack { cluster, version, latest } => {
                VersionRefusal::ObjectWentBack { cluster, version, latest }.into()
            }
        }
    }
}

/// What a read of a collection found of what was written through this process.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    /// Whether there was something to wait for: how clusters stand may have changed meanwhile.
    pub waited: bool,
    /// The clusters of which it is not seen, and since when.
    pub late: Vec<(ClusterName, Instant)>,
}

impl OwnWrites {
    /// Of two views that one read is made of.
    fn and(mut self, other: Self) -> Self {
        self.waited |= other.waited;
        for (cluster, since) in other.late {
            if self.late.iter().all(|(known, _)| *known != cluster) {
                self.late.push((cluster, since));
            }
        }
        self
    }
}

/// Which of a member's answers to a cacher say that it has not come to a version.
#[derive(Clone, Copy)]
enum Heard {
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
    /// Waits until the clusters that are wanted are known: all of them where a partial answer is denied; where it is
    /// allowed, until the first attempt at each has succeeded or failed. Gives how each stands.
    ///
    /// # Errors
    /// 429 naming the clusters that are unknown at the deadline, where a partial answer is denied.
    pub(crate) async fn known(
        &self,
        partial: Partial,
        wanted: &ClusterSelector,
        deadline: Instant,
    ) -> Result<Arc<Standings>, Refusal> {
        let mut changes = self.board.enough_changes(wanted);
        loop {
            changes.look();
            if let Some(standings) = self.board.enough(partial, wanted) {
                return Ok(standings);
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                let standings = self.standings_of(wanted);
                return match (partial, standing::refusal(&self.kind.resource, &standings)) {
                    (Partial::Deny, Some(refusal)) => Err(refusal.into()),
                    _ => Ok(standings),
                };
            }
        }
    }

    /// Waits until the first attempt at each of these clusters has succeeded or failed, or the time is up,
    /// and gives how all stand.
    pub(crate) async fn attempted(&self, clusters: &[ClusterName], deadline: Instant) -> Arc<Standings> {
        let mut changes = self.board.changes();
        // Each is asked about until it has been tried once, and no more:
        // they may be a thousand, and so may the changes.
        let mut waited_for = clusters.iter().peekable();
        loop {
            changes.mark_unchanged();
            let standings = self.standings();
            let is_tried = |cluster: &&ClusterName| !standings.of(cluster).is_some_and(Standing::is_under_way);
            while waited_for.next_if(is_tried).is_some() {}
            if waited_for.peek().is_none() {
                return standings;
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return self.standings();
            }
        }
    }

    /// Waits until what was written through this process to clusters that are wanted is seen. Where a partial answer is
    /// allowed, a cluster for which a list has waited in vain is not waited for again until it has come that far.
    ///
    /// # Errors
    /// 504 after 3 s. A cluster that is unknown or stale is not waited for: its warning says what is missing.
    pub(super) async fn own_writes_seen(
        &self,
        wanted: &ClusterSelector,
        partial: Partial,
    ) -> Result<OwnWrites, VersionRefusal> {
        // What the view of all feeds this one with may have been written when this one was not there yet.
        let Some(whole) = self.whole() else { return self.noted_writes_seen(wanted, partial).await };
        let (of_all, own) =
            tokio::try_join!(whole.noted_writes_seen(wanted, partial), self.noted_writes_seen(wanted, partial))?;
        Ok(of_all.and(own))
    }

    /// As [`own_writes_seen`](Self::own_writes_seen), of the writes that this view has noted.
    async fn noted_writes_seen(&self, wanted: &ClusterSelector, partial: Partial) -> Result<OwnWrites, VersionRefusal> {
        let mut pending = self.fences.pending();
        pending.retain(|waited| wanted.matches(&waited.cluster));
        if pending.is_empty() {
            return Ok(OwnWrites::default());
        }
        let waits = pending.iter().map(|waited| self.writes_seen(waited, partial));
        let late = join_all(waits).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(OwnWrites { waited: true, late: late.into_iter().flatten().collect() })
    }

    /// As [`own_writes_seen`](Self::own_writes_seen), of one cluster. Gives the cluster, and since when, where its
    /// writes are not seen and that is allowed.
    async fn writes_seen(
        &self,
        waited: &Waited,
        partial: Partial,
    ) -> Result<Option<(ClusterName, Instant)>, VersionRefusal> {
        let Waited { cluster, fence, late } = waited;
        let may_be_late = late.as_ref().filter(|_| partial == Partial::Allow);
        if let Some(Late { fence, since }) = may_be_late
            && self.fence_reached(cluster, fence, Duration::ZERO).await.is_err()
        {
            return Ok(Some((cluster.clone(), *since)));
        }
        let since = Instant::now();
        match self.fence_reached(cluster, fence, VERSION_WITHIN).await {
            Ok(()) => Ok(None),
            Err(refusal) => {
                self.fences.late(cluster, Late { fence: fence.clone(), since });
                // It lags all the time: once is enough to be told so by an error.
                if may_be_late.is_some() { Ok(Some((cluster.clone(), since))) } else { Err(refusal) }
            }
        }
    }

    /// Waits until what was written through this process to one object is seen, in whichever clusters it was, and says
    /// whether there was something to wait for: how clusters stand may have changed meanwhile. What was written to
    /// other objects is not waited for, unless that is too much to be told apart.
    ///
    /// # Errors
    /// As [`own_writes_seen`](Self::own_writes_seen), wherever a partial answer is denied or allowed.
    pub(crate) async fn own_writes_of_seen(&self, key: &ObjectKey) -> Result<bool, VersionRefusal> {
        let Some(whole) = self.whole() else { return self.noted_writes_of_seen(key).await };
        let (of_all, own) = tokio::try_join!(whole.noted_writes_of_seen(key), self.noted_writes_of_seen(key))?;
        Ok(of_all || own)
    }

    async fn noted_writes_of_seen(&self, key: &ObjectKey) -> Result<bool, VersionRefusal> {
        let pending = self.fences.pending_of(key.as_str());
        let waits = pending.iter().map(|(cluster, fence)| self.fence_reached(cluster, fence, VERSION_WITHIN));
        join_all(waits).await.into_iter().collect::<Result<(), _>>()?;
        Ok(!pending.is_empty())
    }

    async fn fence_reached(
        &self,
        cluster: &ClusterName,
        fence: &Fence,
        within: Duration,
    ) -> Result<(), VersionRefusal> {
        let Some(cacher) = self.cacher(cluster) else {
            self.fences.forget(cluster);
            return Ok(());
        };
        if self.standings().of(cluster) != Some(&Standing::Fresh) {
            return Ok(());
        }
        let deadline = Instant::now() + within;
        let wait = |cacher: Arc<Cacher>, _| async move { self.lacks(&cacher, fence, deadline).await };
        let late = self.in_feeding_cacher(cluster, cacher, deadline, wait).await;
        match (late, self.standings().of(cluster)) {
            (Some(None), _) => {
                self.fences.reached(cluster, fence);
                Ok(())
            }
            // Where it has become stale meanwhile, the answer says so; where it has left, nothing is shown of it. Of
            // one that begins only now an answer would not say so.
            (_, None | Some(Standing::Stale { .. })) => Ok(()),
            (late, Some(_)) => Err(not_reached(cluster, fence.version.into(), late.flatten().unwrap_or_default())),
        }
    }

    /// Waits until a cacher has what was written, and says how far it is if it has not come to that in time.
    async fn lacks(&self, cacher: &Cacher, fence: &Fence, deadline: Instant) -> Option<CollectionVersion> {
        let left = || deadline.saturating_duration_since(Instant::now());
        // The write is alone in its revision, or with deletions that nobody asked for here:
        // once something of it is seen, it is.
        let mut late = match cacher.wait_for(CollectionVersion::begun(fence.version), left()).await {
            // Beyond what the member itself has of this collection: it was a version of something else.
            Ok(_) | Err(NotReached::Beyond { .. }) => None,
            Err(NotReached::TooNew { current, .. }) => Some(current.unwrap_or_default()),
        };
        for Deletion { key, uid, before } in &fence.deletions {
            if let Err(error) = cacher.wait_until_gone(key, uid, *before, left()).await {
                tracing::debug!(resource = %self.kind.resource, %error, "a deletion is not seen yet");
                late.get_or_insert_default();
            }
        }
        late
    }

    /// Waits until each named cluster has reached its version.
    ///
    /// # Errors
    /// [`Unreached`]: 504 `ResourceVersionTooLarge` after 3 s; 429 where a cluster that is configured is not known yet;
    /// 410 where a cluster is not configured at all, for then its objects must be listed anew by who still holds some.
    pub(crate) async fn reached(&self, vector: &CompositeResourceVersion) -> Result<(), Unreached> {
        let waits = vector.iter().map(|(cluster, version)| self.cluster_reached(cluster, version));
        join_all(waits).await.into_iter().collect()
    }

    /// As [`reached`](Self::reached), but a cluster that is not configured any more is left to the log, which still
    /// knows the states from before it left.
    ///
    /// # Errors
    /// As [`reached`](Self::reached).
    pub(crate) async fn reached_by_members(&self, vector: &CompositeResourceVersion) -> Result<(), Unreached> {
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
        reached.map_err(|error| Unreached::of(cluster, version, error))
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
    async fn in_feeding_cacher<T, F: Future<Output = T>>(
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
    pub(crate) async fn caught_up(
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
                                return Err(Unreached::of(&cluster, version, error).of_collection());
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
    pub(crate) fn missing(&self, cluster: &ClusterName) -> Refusal {
        let (resource, cluster) = (self.kind.resource.clone(), cluster.clone());
        match self.standings().of(&cluster) {
            None => VersionRefusal::ClusterNotServing { cluster, resource }.into(),
            Some(standing) if standing.is_forbidden() => VersionRefusal::ClusterForbids { cluster, resource }.into(),
            Some(_) => ClusterRefusal::unread(&resource, vec![cluster], 1).into(),
        }
    }

    /// Whether each of these clusters forbids to read what this view is to hold.
    pub(crate) fn is_forbidden_by_all(&self, clusters: &[ClusterName]) -> bool {
        let standings = self.standings();
        clusters.iter().all(|cluster| standings.of(cluster).is_some_and(Standing::is_forbidden))
    }

    /// Whether one of the clusters that are wanted forbids to read all: then a single namespace has a view of its own.
    /// Cost: one load where none forbids it.
    pub(crate) fn is_forbidden(&self, wanted: &ClusterSelector) -> bool {
        self.board.forbidden() > 0 && self.standings_of(wanted).is_one_forbidden()
    }

    /// How often a cluster came to forbid it: where that has not changed,
    /// [`is_forbidden`](Self::is_forbidden) need not be asked again.
    pub(crate) fn times_forbidden(&self) -> usize {
        self.board.times_forbidden()
    }

    /// Whether one of the clusters that are wanted forbids to read all, and what was held of it is gone. Cost: as of
    /// [`is_forbidden`](Self::is_forbidden).
    pub(crate) fn is_given_up(&self, wanted: &ClusterSelector) -> bool {
        self.board.forbidden() > 0 && self.standings_of(wanted).is_one_given_up()
    }
}
