//! A view of one namespace, beside the view of all: for where a member forbids to read all.
//!
//! ```text
//!                    ┌─ Feed ─▶ log of all namespaces
//! cacher c1 (all) ───┤
//!                    └─ of the namespace ─▶ Feed ─┐
//! cacher c2 (all): forbidden                      ├─▶ log of the namespace
//! cacher c2 (namespace) ──────────────────▶ Feed ─┘
//! ```
//!
//! Only in the members that forbid it the namespace has a cacher of its own. The others' objects come from the cachers
//! that hold all of theirs, step by step, and are the same in memory. To readers the log of the
//! namespace is one like any other.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tributary_apimachinery::{ClusterName, CollectionVersion, ResourceVersion};
use tributary_cacher::StaleReason;
use tributary_fleet::topology::Cluster;

use super::View;
use super::feed::Feed;
use super::leader::ClusterFeed;

impl View {
    /// Where this view is to have a cluster's objects from. `has_own` says that it has them from a cacher of its own by
    /// now: that is kept until the view of all namespaces is as far, though the member may be out of reach meanwhile.
    pub(super) fn source(&self, cluster: &ClusterName, has_own: bool) -> ClusterFeed {
        let Some(whole) = &self.whole else { return ClusterFeed::Own };
        let Some(leader) = whole.view.leader(cluster) else { return ClusterFeed::NotYet };
        // Whether it forbade so from the beginning or forbids it by now.
        if leader.cacher.state().reason() == Some(&StaleReason::Forbidden) {
            return ClusterFeed::Own;
        }
        let all = || leader.cacher.snapshot().map(|all| all.resource_version());
        // Of a revision of which a part is known here, all namespaces' may be another one.
        let own = || self.version_of(cluster).map(CollectionVersion::completed);
        if has_own && all() < own() { ClusterFeed::Own } else { ClusterFeed::Leader(leader) }
    }

    /// Begins with what the view of all namespaces still holds of a cluster that forbids to read all by now, until the
    /// namespace's own list is there, and says since when that may be old, if it is anything.
    pub(super) fn begin_with_held(self: &Arc<Self>, cluster: &Cluster) -> Option<Instant> {
        let leader = self.whole()?.leader(cluster.name())?;
        let namespace = self.namespace.as_ref()?;
        let feed = Feed::new(&self.contents, cluster, false);
        leader.feed.lead(&namespace.as_str().into(), &feed);
        let log = self.log.write();
        feed.end();
        log.snapshot(cluster.name()).map(|_| leader.stale_since)
    }

    /// Follows how the clusters of the view of all namespaces stand, until this view is dropped.
    pub(super) fn follow_whole(self: &Arc<Self>) {
        let Some(whole) = &self.whole else { return };
        let (view, mut changes) = (Arc::downgrade(self), whole.view.board.changes());
        let following = tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let Some(view) = view.upgrade() else { break };
                view.follow_fleet();
            }
        });
        *whole.following.lock() = Some(AbortOnDropHandle::new(following));
    }

    /// The view of all namespaces, where this one is fed by it.
    pub(super) fn whole(&self) -> Option<&Arc<Self>> {
        self.whole.as_ref().map(|whole| &whole.view)
    }

    /// Whether this is the view of a namespace beside that view of all.
    pub(crate) fn is_part_of(&self, whole: &Arc<Self>) -> bool {
        self.whole.as_ref().is_some_and(|own| Arc::ptr_eq(&own.view, whole))
    }

    /// Whether this is the view of a namespace beside a view of all.
    pub fn is_part(&self) -> bool {
        self.whole.is_some()
    }

    /// Whether a cluster's event may have been told to a watch of one namespace by another view than this one: by that
    /// of all, or by one of that namespace. Ask before the log is locked.
    pub fn is_told_elsewhere(&self, namespace: &str, cluster: &ClusterName, version: ResourceVersion) -> bool {
        match self.whole() {
            Some(whole) => whole.handovers.include(namespace, true, cluster, version),
            None => self.handovers.include(namespace, false, cluster, version),
        }
    }

    /// Whether a namespace may have had a view of its own that was further in a cluster than this one, of all, is.
    pub fn had_part(&self, namespace: &str) -> bool {
        self.handovers.had_part(namespace)
    }

    /// Notes that this view of all goes on with a watch of one namespace as its objects are held, until the guard is
    /// dropped.
    pub fn serving_as_held(self: &Arc<Self>, namespace: &str) -> ServedAsHeld {
        self.handovers.begin_as_held(namespace);
        ServedAsHeld { view: Arc::clone(self), namespace: namespace.to_owned() }
    }

    /// Notes that this view is there, where it is of a namespace beside a view of all.
    pub(super) fn takes_part(&self) {
        if let (Some(whole), Some(namespace)) = (self.whole(), &self.namespace) {
            whole.handovers.begin(namespace);
        }
    }

    /// Notes what this view may have told, and that it is gone.
    pub(super) fn takes_part_no_longer(&self) {
        if let (Some(whole), Some(namespace)) = (self.whole(), &self.namespace) {
            // Of a cluster that it asks itself it may be ahead of the view of all.
            let mut told = self.log().resource_version();
            told.join(&whole.log().resource_version());
            whole.handovers.end(namespace, &told);
        }
    }
}

/// A watch of one namespace with which the view of all goes on, though a cluster forbids to read all.
pub struct ServedAsHeld {
    view: Arc<View>,
    namespace: String,
}

impl Drop for ServedAsHeld {
    fn drop(&mut self) {
        let told = self.view.log().resource_version();
        self.view.handovers.end_as_held(&self.namespace, &told);
    }
}
