//! A view of one namespace in addition to the view of all namespaces, for clusters that forbid Tributary to read all
//! namespaces.
//!
//! ```text
//!                    ┌─ Feed ─▶ log of all namespaces
//! cacher c1 (all) ───┤
//!                    └─ namespace only ────▶ Feed ─┐
//! cacher c2 (all): forbidden                       ├─▶ log of the namespace
//! cacher c2 (namespace) ──────────────────▶ Feed ──┘
//! ```
//!
//! Only clusters that forbid reads of all namespaces have a cacher for the namespace. The objects of the other clusters
//! come from the cachers of all namespaces, update by update, and share their memory. Readers use the log of the
//! namespace like the log of all namespaces.

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
    /// Returns the source of a cluster's objects. `has_own` is whether this view has its own cacher for the cluster.
    /// The own cacher stays until the view of all namespaces has reached the same version, even during an outage of the
    /// cluster.
    pub(super) fn source(&self, cluster: &ClusterName, has_own: bool) -> ClusterFeed {
        let Some(whole) = &self.whole else { return ClusterFeed::Own };
        let Some(leader) = whole.view.leader(cluster) else { return ClusterFeed::NotYet };
        // The view of all namespaces cannot supply the namespace's objects while the cluster forbids reads of all
        // namespaces.
        if leader.cacher.state().reason() == Some(&StaleReason::Forbidden) {
            return ClusterFeed::Own;
        }
        let all = || leader.cacher.snapshot().map(|all| all.resource_version());
        // Only completed revisions are compared: this view may have seen one part of a revision's changes, and the view
        // of all namespaces a different part.
        let own = || self.version_of(cluster).map(CollectionVersion::completed);
        if has_own && all() < own() { ClusterFeed::Own } else { ClusterFeed::Leader(leader) }
    }

    /// Starts this view with the objects that the view of all namespaces still has of a cluster. The cluster now
    /// forbids reads of all namespaces. The objects stay until the list of the namespace is complete. Returns the time
    /// since which they may be outdated.
    pub(super) fn begin_with_inherited(self: &Arc<Self>, cluster: &Cluster) -> Option<Instant> {
        let leader = self.whole()?.leader(cluster.name())?;
        let namespace = self.namespace.as_ref()?;
        let feed = Feed::new(&self.contents, cluster, false);
        leader.feed.lead(&namespace.as_str().into(), &feed);
        let log = self.log.write();
        feed.end();
        log.snapshot(cluster.name()).map(|_| leader.stale_since)
    }

    /// Follows the states of the clusters in the view of all namespaces, until this view is dropped.
    pub(super) fn follow_whole(self: &Arc<Self>) {
        let Some(whole) = &self.whole else { return };
        let (view, mut changes) = (Arc::downgrade(self), whole.view.cache_state_tracker.changes());
        let following = tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let Some(view) = view.upgrade() else { break };
                view.follow_fleet();
            }
        });
        *whole.following.lock() = Some(AbortOnDropHandle::new(following));
    }

    pub(super) fn whole(&self) -> Option<&Arc<Self>> {
        self.whole.as_ref().map(|whole| &whole.view)
    }

    pub(crate) fn is_namespace_view_of(&self, whole: &Arc<Self>) -> bool {
        self.whole.as_ref().is_some_and(|own| Arc::ptr_eq(&own.view, whole))
    }

    /// Returns whether this is a view of one namespace that uses a view of all namespaces.
    pub fn is_namespace_view(&self) -> bool {
        self.whole.is_some()
    }

    /// Returns whether a different view may have sent this version of a cluster to a watch of the namespace. The
    /// different view is the view of all namespaces, or a different view of this namespace. Call this function before
    /// you lock the log.
    pub fn is_sent_elsewhere(&self, namespace: &str, cluster: &ClusterName, version: ResourceVersion) -> bool {
        match self.whole() {
            Some(whole) => whole.handovers.include(namespace, true, cluster, version),
            None => self.handovers.include(namespace, false, cluster, version),
        }
    }

    /// Returns whether, in some cluster, a separate view of the namespace may have had a newer version than this view
    /// of all namespaces.
    pub fn had_namespace_view(&self, namespace: &str) -> bool {
        self.handovers.had_namespace_view(namespace)
    }

    /// Records that this view of all namespaces continues a watch of one namespace with cached objects, until the guard
    /// is dropped.
    pub fn continue_watch(self: &Arc<Self>, namespace: &str) -> ContinuedWatch {
        self.handovers.begin_continued_watch(namespace);
        ContinuedWatch { view: Arc::clone(self), namespace: namespace.to_owned() }
    }

    pub(super) fn register_namespace_view(&self) {
        if let (Some(whole), Some(namespace)) = (self.whole(), &self.namespace) {
            whole.handovers.begin(namespace);
        }
    }

    /// Removes the registration of this view, and records the versions that this view may have sent.
    pub(super) fn unregister_namespace_view(&self) {
        if let (Some(whole), Some(namespace)) = (self.whole(), &self.namespace) {
            // The recorded version is the maximum of both views. In clusters for which this view has its own cacher,
            // this view may have a newer version than the view of all namespaces.
            let mut sent_version = self.log().resource_version();
            sent_version.join(&whole.log().resource_version());
            whole.handovers.end(namespace, &sent_version);
        }
    }
}

/// Guard of a watch of one namespace. The view of all namespaces continues the watch although a cluster forbids reads
/// of all namespaces.
pub struct ContinuedWatch {
    view: Arc<View>,
    namespace: String,
}

impl Drop for ContinuedWatch {
    fn drop(&mut self) {
        let sent_version = self.view.log().resource_version();
        self.view.handovers.end_continued_watch(&self.namespace, &sent_version);
    }
}
