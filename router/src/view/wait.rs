//! What readers wait for: that clusters are known, that a write is seen, that a version is reached.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, timeout_at};
use tributary_apimachinery::{ClusterName, ResourceVersion, Status};

use super::standing::{self, Partial, Standing};
use super::{Fence, View};

/// How long lists and watches wait for clusters that are not known yet (DESIGN.md §3.2).
pub const KNOWN_WITHIN: Duration = Duration::from_secs(30);

/// How long a read waits for a version (kube-apiserver's `blockTimeout` in `watch_cache.go`).
const VERSION_WITHIN: Duration = Duration::from_secs(3);

impl View {
    /// Waits until the clusters are known: all of them where a partial answer is denied; where it is allowed, until the first
    /// attempt at each has succeeded or failed. Gives how each stands.
    ///
    /// # Errors
    /// 429 naming the clusters that are unknown at the deadline, where a partial answer is denied.
    pub async fn known(&self, partial: Partial, deadline: Instant) -> Result<Vec<(ClusterName, Standing)>, Status> {
        let mut changes = self.standing.subscribe();
        loop {
            changes.borrow_and_update();
            let standings = self.standings();
            let ready = match partial {
                Partial::Deny => standings.iter().all(|(_, standing)| standing.is_known()),
                Partial::Allow => !standings.iter().any(|(_, standing)| standing.is_under_way()),
            };
            if ready {
                return Ok(standings);
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return match (partial, standing::refusal(&self.kind.resource, &standings)) {
                    (Partial::Deny, Some(status)) => Err(status),
                    _ => Ok(standings),
                };
            }
        }
    }

    /// Waits until what was written through this process is seen.
    ///
    /// # Errors
    /// 504 after 3 s. A cluster that is unknown or stale is not waited for: its warning says what is missing.
    pub async fn own_writes_seen(&self) -> Result<(), Status> {
        let pending = self.fences.pending();
        if pending.is_empty() {
            return Ok(());
        }
        let waits = pending.iter().map(|(cluster, fence)| self.fence_reached(cluster, fence));
        join_all(waits).await.into_iter().collect()
    }

    async fn fence_reached(&self, cluster: &ClusterName, fence: &Fence) -> Result<(), Status> {
        let Some(cacher) = self.cacher(cluster) else {
            self.fences.forget(cluster);
            return Ok(());
        };
        if !matches!(Standing::of(&cacher.state()), Standing::Fresh) {
            return Ok(());
        }
        let deadline = Instant::now() + VERSION_WITHIN;
        let current = match cacher.wait_for(fence.version, VERSION_WITHIN).await {
            Ok(_) => None,
            Err(error) => Some(error.current.unwrap_or_default()),
        };
        let mut late = current;
        for (key, uid) in &fence.gone {
            let within = deadline.saturating_duration_since(Instant::now());
            if let Err(error) = cacher.wait_until_gone(key, uid, within).await {
                tracing::debug!(%cluster, resource = %self.kind.resource, %error, "a deletion is not seen yet");
                late.get_or_insert_default();
            }
        }
        match late {
            None => {
                self.fences.reached(cluster, fence);
                Ok(())
            }
            Some(_) if !matches!(Standing::of(&cacher.state()), Standing::Fresh) => Ok(()),
            Some(current) => Err(Status::too_large_resource_version(fence.version, current)),
        }
    }

    /// Waits until each named cluster has reached its version.
    ///
    /// # Errors
    /// 504 `ResourceVersionTooLarge` after 3 s; 429 where a cluster that is configured is not known yet; 410 where a cluster is
    /// not configured at all, for then its objects must be listed anew by who still holds some.
    pub async fn reached(
        self: &Arc<Self>,
        versions: impl IntoIterator<Item = (ClusterName, ResourceVersion)>,
    ) -> Result<(), Status> {
        let waits = versions.into_iter().map(|(cluster, version)| async move {
            if self.version_of(&cluster).is_some_and(|own| own >= version) {
                return Ok(());
            }
            let Some(cacher) = self.cacher(&cluster) else { return Err(self.missing(&cluster)) };
            if cacher.snapshot().is_none() {
                return Err(self.missing(&cluster));
            }
            let reached = cacher.wait_for(version, VERSION_WITHIN).await;
            reached
                .map(drop)
                .map_err(|error| Status::too_large_resource_version(version, error.current.unwrap_or_default()))
        });
        join_all(waits).await.into_iter().collect()
    }

    /// Why a version cannot be honoured that names this cluster.
    pub fn missing(&self, cluster: &ClusterName) -> Status {
        if self.standings().iter().any(|(name, _)| name == cluster) {
            Status::clusters_unknown(&self.kind.resource, std::slice::from_ref(cluster), 1)
        } else {
            Status::expired(format!(
                "the resourceVersion names cluster {cluster}, which does not serve {} here",
                self.kind.resource
            ))
        }
    }
}
