//! Watches that resume from a version that is newer than the version in memory. Either a different process had a newer
//! state, or the cluster's revisions went back after a restore.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::{ClusterName, CollectionVersion};
use tributary_cacher::Cacher;
use tributary_merge::CompositeResourceVersion;

use tributary_views::view::{CacheState, View};

/// Cluster of which the client has a newer version than memory, the client's version, and the cacher that has to reach
/// this version.
pub(super) type Ahead = (ClusterName, CollectionVersion, Arc<Cacher>);

/// Returns the components of a resumed version that are newer than memory. Either the events are still in transit, or
/// the cluster has lost the revisions.
///
/// # Errors
/// 429 for a configured cluster that is still unknown, for example after a restart of Tributary: the client waits for
/// the cluster.
pub(super) fn members_behind(view: &View, version: &CompositeResourceVersion) -> Result<Vec<Ahead>, Refusal> {
    let mut ahead = Vec::new();
    for (cluster, component) in version.iter() {
        let own = view.version_of(cluster);
        let known = view.cacher(cluster).filter(|cacher| own.is_some() || cacher.snapshot().is_some());
        let Some(cacher) = known else {
            // The first list or the discovery of the cluster is pending, so its events may still arrive. A cluster that
            // is not configured, or forbids the read, sends no events, so the log refuses the version.
            let missing = view.missing(cluster);
            if missing.is_unread() {
                return Err(missing);
            }
            continue;
        };
        if own.is_none_or(|own| is_behind(own, component)) {
            // The cached objects of a cluster that forbids the read do not advance. A watch that waits for them would
            // delay the events of all clusters until memory drops these objects.
            if view.cache_states().cache_state_of(cluster).is_some_and(CacheState::is_forbidden) {
                return Err(ClusterRefusal::unread(&view.kind.resource, vec![cluster.clone()], Some(1)).into());
            }
            ahead.push((cluster.clone(), component, cacher));
        }
    }
    Ok(ahead)
}

/// Returns whether the state of a cluster in memory is older than a client's component. One revision may change several
/// objects, and the client or memory may have only a part of these changes. For a component that is such a part, the
/// whole revision of memory is compared: the client then gets the whole revision again. Otherwise, a part in memory is
/// older: only the member knows whether this part is already complete, and until it reports so, the watch waits.
fn is_behind(own: CollectionVersion, component: CollectionVersion) -> bool {
    (if component.is_part() { own.completed() } else { own }) < component
}

/// Task that waits until memory has the client's version of each cluster. A task runs even while the client does not
/// read. Dropping the value aborts the task.
pub(super) struct CatchingUp(AbortOnDropHandle<Option<Refusal>>);

impl CatchingUp {
    /// Starts the task; `None` if `ahead` is empty.
    pub(super) fn start(view: &Arc<View>, ahead: Vec<Ahead>) -> Option<Self> {
        let view = Arc::clone(view);
        (!ahead.is_empty()).then(|| Self(AbortOnDropHandle::new(tokio::spawn(view.caught_up(ahead)))))
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for the end of the task. Returns a refusal if a member will not reach the client's version. Cancellation
    /// is safe. Must not be called again after the end.
    pub(super) async fn wait_until_caught_up(&mut self) -> Option<Refusal> {
        // The task neither panics nor is aborted before this value is dropped.
        (&mut self.0).await.unwrap_or_default()
    }
}
