//! Clients whose version of a cluster is newer than this process's: another process has a newer state, or the cluster's
//! revisions went back.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::{ClusterName, CollectionVersion};
use tributary_cacher::Cacher;
use tributary_merge::CompositeResourceVersion;

use tributary_views::view::{Standing, View};

/// A cluster in which the client is ahead of this process, the client's version, and the cacher that has to reach it.
pub(super) type Ahead = (ClusterName, CollectionVersion, Arc<Cacher>);

/// The components of a resumed version that are above ours. Their events are on the way, or their revisions no longer
/// exist.
///
/// # Errors
/// 429 for a cluster that is configured but unknown, after our restart for example: the client waits for it.
pub(super) fn members_behind(view: &View, version: &CompositeResourceVersion) -> Result<Vec<Ahead>, Refusal> {
    let mut ahead = Vec::new();
    for (cluster, component) in version.iter() {
        let own = view.version_of(cluster);
        let known = view.cacher(cluster).filter(|cacher| own.is_some() || cacher.snapshot().is_some());
        let Some(cacher) = known else {
            // The cluster's events may come: it is not listed yet, or was not asked for discovery yet. A cluster that
            // is not configured, or forbids the read, has no events; the log refuses it.
            let missing = view.missing(cluster);
            if missing.is_unread() {
                return Err(missing);
            }
            continue;
        };
        if own.is_none_or(|own| is_behind(own, component)) {
            // The held objects of a forbidding cluster do not advance. The watch would hold back the events of all
            // clusters until these objects are dropped.
            if view.standings().standing_of(cluster).is_some_and(Standing::is_forbidden) {
                return Err(ClusterRefusal::unread(&view.kind.resource, vec![cluster.clone()], 1).into());
            }
            ahead.push((cluster.clone(), component, cacher));
        }
    }
    Ok(ahead)
}

/// Returns whether the state of a cluster in memory has not reached a client's component. If memory has a part of a
/// revision, only the member knows whether the part is complete. Until then objects that the member may have deleted
/// are held back. A client with another part gets the whole revision again.
fn is_behind(own: CollectionVersion, component: CollectionVersion) -> bool {
    (if component.is_part() { own.completed() } else { own }) < component
}

/// A task that follows the clusters in which the client is ahead. As a task it hears members even while the client does
/// not read. Dropping the value ends the task.
pub(super) struct CatchingUp(AbortOnDropHandle<Option<Refusal>>);

impl CatchingUp {
    /// Starts the task; `None` without such clusters.
    pub(super) fn start(view: &Arc<View>, ahead: Vec<Ahead>) -> Option<Self> {
        let view = Arc::clone(view);
        (!ahead.is_empty()).then(|| Self(AbortOnDropHandle::new(tokio::spawn(view.caught_up(ahead)))))
    }

    /// Returns whether the task has ended.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// Ends with the task, with a refusal if a member will not reach the client's version. Cancelling is safe. Must not
    /// be called again after its end.
    pub(super) async fn over(&mut self) -> Option<Refusal> {
        // The task neither panics nor is aborted before this value is dropped.
        (&mut self.0).await.unwrap_or_default()
    }
}
