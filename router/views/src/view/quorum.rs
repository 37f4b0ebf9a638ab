//! `consistency: Quorum`: reads that contain the complete state of the members at the time of the request.
//!
//! Tributary requests the current version of each member's collection: a list with an unset resourceVersion and a limit
//! of one object. A kube-apiserver answers this list as of "most recent", by a quorum of its etcd. Tributary answers
//! from the cache when the cacher has reached this version. So the read is linearizable for each member, even after
//! writes that bypass Tributary. The read costs a small request to the member instead of a whole list. In a changing
//! collection, the cacher has usually reached the version already. Otherwise the cacher needs a progress notification,
//! which takes a kube-apiserver 1.36 about 1.3 s.
//!
//! Reads that start while such a request is running share the next request. The answer to the running request may be
//! older than the start of these reads.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;
use tributary_answers::refusal::VersionRefusal;
use tributary_apimachinery::{ClusterName, Partial, explain};

use super::cache_state::CacheState;
use super::{EarlierCacheStates, View, cache_state};

impl View {
    /// Waits until the cache contains the current state of all clusters with cached objects. If partial answers are
    /// allowed, a cluster that does not confirm its version is treated as stale.
    ///
    /// # Errors
    /// 504 with the clusters that do not confirm their version within about 3 s, if partial answers are denied.
    pub(super) async fn wait_for_newest(&self, before: &mut EarlierCacheStates) -> Result<(), VersionRefusal> {
        let checks = before.cached_clusters().map(|(cluster, cache_state)| async move {
            let Err(reason) = self.confirmed(cluster).await else { return None };
            let since = match cache_state {
                CacheState::Stale { since, .. } => *since,
                _ => Instant::now(),
            };
            Some((cluster.clone(), since, reason))
        });
        let unconfirmed: Vec<_> = join_all(checks).await.into_iter().flatten().collect();
        let late: Vec<_> = unconfirmed.iter().map(|(cluster, _, reason)| format!("{cluster}: {reason}")).collect();
        for (cluster, since, reason) in unconfirmed {
            let reason = format!("the cluster did not confirm that this is its newest state: {reason}").into();
            before.doubt(cluster, CacheState::Stale { since, reason, forbidden: false });
        }
        if late.is_empty() || before.partial() == Partial::Allow {
            return Ok(());
        }
        let (resource, reasons) = (self.kind.resource.clone(), cache_state::shortened(&late));
        Err(VersionRefusal::NotConfirmed { resource, reasons })
    }

    /// Waits until the cached objects of one cluster include the cluster's newest revision.
    async fn confirmed(&self, cluster: &ClusterName) -> Result<(), Arc<str>> {
        let Some((cacher, latest_requests)) = self.latest_requests(cluster) else {
            return Err("the collection is no longer cached".into());
        };
        let cached = cacher.snapshot().map(|snapshot| snapshot.resource_version()).unwrap_or_default();
        let latest = latest_requests.latest(&cacher).await?;
        if cached > latest {
            // The revisions of the cluster decreased, so the cached objects belong to a state that no longer exists.
            cacher.reset();
            return Err(format!("the resourceVersions of the cluster went back from {cached} to {latest}").into());
        }
        match self.shown(cluster, cacher, latest.into()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(explain(&error).into()),
            None => Err("the collection is no longer cached".into()),
        }
    }
}
