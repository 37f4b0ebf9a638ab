//! Waits until the writes through this process are visible in the cache.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use tributary_answers::refusal::VersionRefusal;
use tributary_apimachinery::{ClusterName, ClusterSelector, CollectionVersion, ObjectKey, Partial};
use tributary_cacher::{Cacher, NotReached};

use super::View;
use super::cache_state::CacheState;
use super::read_your_writes::{AwaitedWrites, Deletion, LateWrites, PendingWrites, WriterSelector};
use super::wait::{VERSION_WITHIN, not_reached};

/// Result of a wait for the writes through this process, before a read of a collection.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    /// Whether there were writes to wait for. If there were, cluster states may have changed during the wait.
    pub waited: bool,
    /// Clusters whose writes are not visible in the cache yet, each with the start of the wait.
    pub late: Vec<(ClusterName, Instant)>,
}

impl OwnWrites {
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
    /// Waits until the writes in the wanted clusters are visible in the cache. If partial answers are allowed, only the
    /// first list waits until the time limit for late writes of a cluster. Later reads do not wait for the same writes
    /// again.
    ///
    /// # Errors
    /// 504 if the writes are not visible after 3 s. The function does not wait for clusters that are stale or whose
    /// objects are unknown, because the warning about them covers missing writes.
    pub(super) async fn own_writes_seen(
        &self,
        by: WriterSelector,
        wanted: &ClusterSelector,
        partial: Partial,
    ) -> Result<OwnWrites, VersionRefusal> {
        // Writes may have been recorded in the view of all namespaces before this view existed.
        let Some(whole) = self.whole() else { return self.noted_writes_seen(by, wanted, partial).await };
        let (of_all, own) = tokio::try_join!(
            whole.noted_writes_seen(by, wanted, partial),
            self.noted_writes_seen(by, wanted, partial)
        )?;
        Ok(of_all.and(own))
    }

    /// As [`own_writes_seen`](Self::own_writes_seen), for the writes recorded in this view.
    async fn noted_writes_seen(
        &self,
        by: WriterSelector,
        wanted: &ClusterSelector,
        partial: Partial,
    ) -> Result<OwnWrites, VersionRefusal> {
        let mut pending = self.read_your_writes.pending(by);
        pending.retain(|waited| wanted.matches(&waited.cluster));
        if pending.is_empty() {
            return Ok(OwnWrites::default());
        }
        let waits = pending.iter().map(|waited| self.writes_seen(by, waited, partial));
        let late = join_all(waits).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(OwnWrites { waited: true, late: late.into_iter().flatten().collect() })
    }

    /// As [`own_writes_seen`](Self::own_writes_seen), for one cluster. If partial answers are allowed and the writes
    /// are not visible, returns the cluster and the start of the wait.
    async fn writes_seen(
        &self,
        by: WriterSelector,
        waited: &AwaitedWrites,
        partial: Partial,
    ) -> Result<Option<(ClusterName, Instant)>, VersionRefusal> {
        let AwaitedWrites { cluster, pending_writes, late } = waited;
        let may_be_late = late.as_ref().filter(|_| partial == Partial::Allow);
        if let Some(LateWrites { pending_writes, since }) = may_be_late
            && self.pending_writes_reached(cluster, pending_writes, Duration::ZERO).await.is_err()
        {
            return Ok(Some((cluster.clone(), *since)));
        }
        let since = Instant::now();
        match self.pending_writes_reached(cluster, pending_writes, VERSION_WITHIN).await {
            Ok(()) => Ok(None),
            Err(refusal) => {
                self.read_your_writes.record_late(
                    by,
                    cluster,
                    LateWrites { pending_writes: pending_writes.clone(), since },
                );
                // An earlier list has already failed because of this late watch. One error suffices for the client, so
                // this list is answered with a warning.
                if may_be_late.is_some() { Ok(Some((cluster.clone(), since))) } else { Err(refusal) }
            }
        }
    }

    /// Waits until the writes to one object are visible in each wanted cluster. Returns whether the function has
    /// waited, because cluster states may have changed during a wait. Ignores writes to other objects, unless too many
    /// objects were written to distinguish them.
    ///
    /// # Errors
    /// As `own_writes_seen` if partial answers are denied.
    pub async fn writes_of_seen(
        &self,
        by: WriterSelector,
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
        by: WriterSelector,
        wanted: &ClusterSelector,
        key: &ObjectKey,
    ) -> Result<bool, VersionRefusal> {
        let mut pending = self.read_your_writes.pending_of(by, key.as_str());
        pending.retain(|(cluster, _)| wanted.matches(cluster));
        let waits = pending
            .iter()
            .map(|(cluster, pending_writes)| self.pending_writes_reached(cluster, pending_writes, VERSION_WITHIN));
        join_all(waits).await.into_iter().collect::<Result<(), _>>()?;
        Ok(!pending.is_empty())
    }

    async fn pending_writes_reached(
        &self,
        cluster: &ClusterName,
        pending_writes: &PendingWrites,
        within: Duration,
    ) -> Result<(), VersionRefusal> {
        let Some(cacher) = self.cacher(cluster) else {
            self.read_your_writes.forget(cluster);
            return Ok(());
        };
        if self.cache_states().cache_state_of(cluster) != Some(&CacheState::Fresh) {
            return Ok(());
        }
        let deadline = Instant::now() + within;
        let wait = |cacher: Arc<Cacher>, _| async move { self.lacks(&cacher, pending_writes, deadline).await };
        let late = self.in_feeding_cacher(cluster, cacher, deadline, wait).await;
        match (late, self.cache_states().cache_state_of(cluster)) {
            (Some(None), _) => {
                self.read_your_writes.remove_reached(cluster, pending_writes);
                Ok(())
            }
            // A stale cluster causes no error, because the response has a warning about it. A cluster that has left
            // causes no error, because the response has none of its objects. A cluster that is just starting must cause
            // an error: the response would contain neither a warning nor the written object.
            (_, None | Some(CacheState::Stale { .. })) => Ok(()),
            (late, Some(_)) => {
                Err(not_reached(cluster, pending_writes.version.into(), late.flatten().unwrap_or_default()))
            }
        }
    }

    /// Waits until a cacher contains the writes. Returns the cacher's version if the cacher does not contain them at
    /// the deadline.
    async fn lacks(
        &self,
        cacher: &Cacher,
        pending_writes: &PendingWrites,
        deadline: Instant,
    ) -> Option<CollectionVersion> {
        let remaining = || deadline.saturating_duration_since(Instant::now());
        // The first event of the revision suffices: the write has its own revision, or shares the revision with
        // deletions by other users.
        let mut late = match cacher.wait_for(CollectionVersion::begun(pending_writes.version), remaining()).await {
            // In the second case, the version is higher than the member's current version of the collection. So the
            // version does not belong to this collection, and no wait can reach it.
            Ok(_) | Err(NotReached::Beyond { .. }) => None,
            Err(NotReached::TooNew { current, .. }) => Some(current.unwrap_or_default()),
        };
        for Deletion { key, uid, before } in &pending_writes.deletions {
            if let Err(error) = cacher.wait_until_deleted(key, uid, *before, remaining()).await {
                tracing::debug!(resource = %self.kind.resource, %error,
                    "the watch of the cluster has not delivered a deletion yet");
                late.get_or_insert_default();
            }
        }
        late
    }
}
