//! Clients that know more of a cluster than this process: another process is further, or the cluster's revisions went
//! back.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::{ClusterName, CollectionVersion};
use tributary_cacher::Cacher;
use tributary_merge::CompositeResourceVersion;

use tributary_views::view::{Standing, View};

/// A cluster in which a client is ahead of this process, the client's version and the cacher that is to reach it.
pub(super) type Ahead = (ClusterName, CollectionVersion, Arc<Cacher>);

/// The components of a version that is to be resumed which are above ours: they are on their way, or of revisions that
/// no longer exist.
///
/// # Errors
/// 429 for a cluster that is configured but unknown, after our restart for example: the client waits for it.
pub(super) fn members_behind(view: &View, version: &CompositeResourceVersion) -> Result<Vec<Ahead>, Refusal> {
    let mut ahead = Vec::new();
    for (cluster, component) in version.iter() {
        let own = view.version_of(cluster);
        let known = view.cacher(cluster).filter(|cacher| own.is_some() || cacher.snapshot().is_some());
        let Some(cacher) = known else {
            // Its events may come: it has not been listed yet, or not been asked what it serves. One that is not
            // configured, or forbids to be read, has none; the log says so.
            let missing = view.missing(cluster);
            if missing.is_unread() {
                return Err(missing);
            }
            continue;
        };
        if own.is_none_or(|own| is_behind(own, component)) {
            // What is held of one that forbids it goes no further: what the others do would wait until that is dropped.
            if view.standings().standing_of(cluster).is_some_and(Standing::is_forbidden) {
                return Err(ClusterRefusal::unread(&view.kind.resource, vec![cluster.clone()], 1).into());
            }
            ahead.push((cluster.clone(), component, cacher));
        }
    }
    Ok(ahead)
}

/// Whether what is held of a cluster has not come to a client's component. Whether a part that we have is all of its
/// revision, the member is to say: until then objects are held back that it may have deleted there. Whoever has another
/// part is told all of it again.
fn is_behind(own: CollectionVersion, component: CollectionVersion) -> bool {
    (if component.is_part() { own.completed() } else { own }) < component
}

/// Follows the clusters in which a client is ahead. It is a task, so that what a member says is heard while the client
/// does not read; it ends when this is dropped.
pub(super) struct CatchingUp(AbortOnDropHandle<Option<Refusal>>);

impl CatchingUp {
    /// Begins to follow them; `None` where there are none.
    pub(super) fn start(view: &Arc<View>, ahead: Vec<Ahead>) -> Option<Self> {
        let view = Arc::clone(view);
        (!ahead.is_empty()).then(|| Self(AbortOnDropHandle::new(tokio::spawn(view.caught_up(ahead)))))
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// Ends when it is over, with a refusal where a member will not come to the client's version. Cancelling is safe;
    /// not to be called once it has ended.
    pub(super) async fn over(&mut self) -> Option<Refusal> {
        // It neither panics nor is aborted while it is looked at.
        (&mut self.0).await.unwrap_or_default()
    }
}
