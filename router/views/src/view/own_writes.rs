//! Waiting until what was written through this process is seen.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use tributary_answers::refusal::VersionRefusal;
use tributary_apimachinery::{ClusterName, ClusterSelector, CollectionVersion, ObjectKey, Partial};
use tributary_cacher::{Cacher, NotReached};

use super::View;
use super::fences::{Deletion, Fence, Late, Waited, WrittenBy};
use super::standing::Standing;
use super::wait::{VERSION_WITHIN, not_reached};

/// What a read of a collection found of what was written through this process.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
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

impl View {
    /// Waits until what was written to clusters that are wanted is seen. Where a partial answer is
    /// allowed, a cluster for which a list has waited in vain is not waited for again until it has come that far.
    ///
    /// # Errors
    /// 504 after 3 s. A cluster that is unknown or stale is not waited for: its warning says what is missing.
    pub(super) async fn own_writes_seen(
        &self,
        by: WrittenBy,
        wanted: &ClusterSelector,
        partial: Partial,
    ) -> Result<OwnWrites, VersionRefusal> {
        // What the view of all feeds this one with may have been written when this one was not there yet.
        let Some(whole) = self.whole() else { return self.noted_writes_seen(by, wanted, partial).await };
        let (of_all, own) = tokio::try_join!(
            whole.noted_writes_seen(by, wanted, partial),
            self.noted_writes_seen(by, wanted, partial)
        )?;
        Ok(of_all.and(own))
    }

    /// As [`own_writes_seen`](Self::own_writes_seen), of the writes that this view has noted.
    async fn noted_writes_seen(
        &self,
        by: WrittenBy,
        wanted: &ClusterSelector,
        partial: Partial,
    ) -> Result<OwnWrites, VersionRefusal> {
        let mut pending = self.fences.pending(by);
        pending.retain(|waited| wanted.matches(&waited.cluster));
        if pending.is_empty() {
            return Ok(OwnWrites::default());
        }
        let waits = pending.iter().map(|waited| self.writes_seen(by, waited, partial));
        let late = join_all(waits).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(OwnWrites { waited: true, late: late.into_iter().flatten().collect() })
    }

    /// As [`own_writes_seen`](Self::own_writes_seen), of one cluster. Gives the cluster, and since when, where its
    /// writes are not seen and that is allowed.
    async fn writes_seen(
        &self,
        by: WrittenBy,
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
                self.fences.late(by, cluster, Late { fence: fence.clone(), since });
                // It lags all the time: once is enough to be told so by an error.
                if may_be_late.is_some() { Ok(Some((cluster.clone(), since))) } else { Err(refusal) }
            }
        }
    }

    /// Waits until what was written to one object is seen, in whichever of the wanted clusters it was, and says whether
    /// there was something to wait for: how clusters stand may have changed meanwhile. What was written to other
    /// objects is not waited for, unless that is too much to be told apart.
    ///
    /// # Errors
    /// As `own_writes_seen`, wherever a partial answer is denied or allowed.
    pub async fn writes_of_seen(
        &self,
        by: WrittenBy,
        wanted: &ClusterSelector,
        key: &ObjectKey,
    ) -> Result<bool, VersionRefusal> {
        let Some(whole) = self.whole() else { return self.noted_writes_of_seen(by, wanted, key).await };
        let (of_all, own) =
            tokio::try_join!(whole.noted_writes_of_seen(by, wanted, key), self.noted_writes_of_seen(by, wanted, key))?;
        Ok(of_all || own)
    }

    async fn noted_writes_of_seen(
        &self,
        by: WrittenBy,
        wanted: &ClusterSelector,
        key: &ObjectKey,
    ) -> Result<bool, VersionRefusal> {
        let mut pending = self.fences.pending_of(by, key.as_str());
        pending.retain(|(cluster, _)| wanted.matches(cluster));
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
        if self.standings().standing_of(cluster) != Some(&Standing::Fresh) {
            return Ok(());
        }
        let deadline = Instant::now() + within;
        let wait = |cacher: Arc<Cacher>, _| async move { self.lacks(&cacher, fence, deadline).await };
        let late = self.in_feeding_cacher(cluster, cacher, deadline, wait).await;
        match (late, self.standings().standing_of(cluster)) {
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
}
