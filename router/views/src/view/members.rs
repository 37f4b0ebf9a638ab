//! Cachers of the clusters in a view.

use std::sync::{Arc, Weak};

use tokio::sync::watch;
use tributary_apimachinery::{ClusterName, ClusterSelector};
use tributary_cacher::{Cacher, CacherConfig, ObjectRetention, ReflectorTuning, StaleReason};
use tributary_fleet::topology::{Cluster, next_state};
use tributary_proxy::Transport;

use super::feed::Feed;
use super::latest_requests::LatestVersionRequests;
use super::leader::WholeViewFeed;
use super::member::{CachedMember, ViewCluster, ViewClusters};
use super::notification::LogNotification;
use super::{CacheState, CacheStates, UncachedReason, View};

impl View {
    pub(super) fn follow_leader(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        leader: WholeViewFeed,
        continues: bool,
    ) -> CachedMember {
        self.cache_state_tracker.changed();
        let WholeViewFeed { cacher, latest_requests, feed: leader, .. } = leader;
        let feed = Feed::new(&self.contents, cluster, continues);
        leader.lead(&self.namespace.as_deref().unwrap_or_default().into(), &feed);
        CachedMember {
            cluster: Arc::clone(cluster),
            inherited: None,
            renewals: cluster.renewals(),
            cacher,
            latest_requests,
            feed,
            leader: Some(leader),
            forbidden_since: None,
            reported: false,
        }
    }

    /// Starts a cacher of this view for a cluster. `before` is the previous cacher of the same objects, if there was
    /// one.
    pub(super) fn start_cacher(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        transport: Transport,
        continues: bool,
        before: Option<&Cacher>,
    ) -> CachedMember {
        self.cache_state_tracker.changed();
        let feed = Feed::new(&self.contents, cluster, continues);
        let config = CacherConfig {
            cluster: cluster.name().clone(),
            resource: self.kind.resource.clone(),
            namespace: self.namespace.clone(),
            decoder: self.decoder.clone(),
            list_permits: cluster.list_permits().clone(),
            object_memory: self.fleet.object_memory().clone(),
            precedence: cluster.precedence().clone(),
            retention: ObjectRetention::UntilDeleted,
            tuning: ReflectorTuning { collection_size_max: self.collection_bytes, ..ReflectorTuning::default() },
        };
        let cacher = Arc::new(Cacher::start_after(before, config, transport, feed.clone()));
        self.forward_states(cluster, &cacher);
        CachedMember {
            cluster: Arc::clone(cluster),
            inherited: None,
            renewals: cluster.renewals(),
            cacher,
            latest_requests: Arc::default(),
            feed,
            leader: None,
            forbidden_since: None,
            reported: false,
        }
    }

    /// Forwards each state of a cacher, and each change of its cluster's health, to the view. The task ends with the
    /// cacher.
    fn forward_states(self: &Arc<Self>, cluster: &Arc<Cluster>, cacher: &Arc<Cacher>) {
        let (view, cluster, mut health) = (Arc::downgrade(self), Arc::clone(cluster), cluster.health());
        let (of, mut states) = (Arc::downgrade(cacher), cacher.states());
        states.mark_changed();
        tokio::spawn(async move {
            while next_state(&of, &mut states, &mut health).await {
                let Some(view) = view.upgrade() else { break };
                let state = states.borrow_and_update().clone();
                if matches!(state.reason(), Some(StaleReason::NotFound)) {
                    // The cluster may no longer serve the resource, so Tributary reads its discovery again.
                    cluster.refresh();
                }
                view.state_changed(cluster.name(), &of);
            }
        });
    }

    /// Updates the state of a cluster after its cacher changed its state. Has no effect if the cacher was replaced.
    fn state_changed(&self, name: &ClusterName, of: &Weak<Cacher>) {
        let mut members = self.members.lock();
        let Some(member) = members.by_name.get_mut(name) else { return };
        if let ViewCluster::Cached(cached) = member
            && Weak::as_ptr(of) == Arc::as_ptr(&cached.cacher)
        {
            // This call only records the start of the refusal: a periodic task removes the objects.
            let _ = cached.forbidding();
            let cache_state = self.cache_state_of(name, member);
            self.update_cache_states(|cache_state_tracker| cache_state_tracker.set(name, cache_state));
        }
    }

    /// Ends the cacher of a cluster, and deletes the cluster's objects from the log.
    pub(super) fn leave(&self, members: &mut ViewClusters, name: &ClusterName) {
        let Some(member) = members.by_name.remove(name) else { return };
        self.cache_state_tracker.changed();
        self.read_your_writes.forget(name);
        if let ViewCluster::Cached(member) = member {
            let mut log = self.log.write();
            member.feed.end();
            self.warnings.set(name, &[]);
            if log.snapshot(name).is_some() {
                log.leave(name, self.age());
            }
            drop(log);
            self.watch_notifier.advance(LogNotification::Anything);
        }
    }

    pub(super) fn cache_state_of(&self, name: &ClusterName, member: &ViewCluster) -> CacheState {
        match member {
            ViewCluster::Undiscovered(cluster) => CacheState::of_undiscovered(cluster, &self.kind.resource),
            ViewCluster::Cached(member) => match member.cache_state() {
                // If a cluster begins to forbid reads, the objects of the previous cacher stay cached for a while. In
                // this time, the cluster is stale.
                CacheState::Unknown { since, reason: Some(reason), uncached_reason: UncachedReason::Forbidden }
                    if self.version_of(name).is_some() =>
                {
                    let since = member.inherited.map_or(since, |before| before.since);
                    CacheState::Stale { since, reason, forbidden: true }
                }
                cache_state => cache_state,
            },
        }
    }

    /// Returns the state of each cluster that serves the resource. Only clones a reference, unless a state has changed.
    pub fn cache_states(&self) -> Arc<CacheStates> {
        self.cache_state_tracker.cache_states()
    }

    /// Subscribes to the names of the clusters in this view. Clusters that do not serve the resource, or that the
    /// registry leaves out, are absent.
    pub fn cluster_names(&self) -> watch::Receiver<Arc<[ClusterName]>> {
        self.cache_state_tracker.names()
    }

    /// Returns the state of each wanted cluster.
    pub fn cache_states_of(&self, wanted: &ClusterSelector) -> Arc<CacheStates> {
        self.cache_states().of_wanted(wanted)
    }

    /// Returns the cacher of one cluster.
    pub fn cacher(&self, name: &ClusterName) -> Option<Arc<Cacher>> {
        Some(self.cacher_and_whose(name)?.0)
    }

    /// Returns the cacher of one cluster, and whether the cacher belongs to this view.
    pub(super) fn cacher_and_whose(&self, name: &ClusterName) -> Option<(Arc<Cacher>, bool)> {
        match self.members.lock().by_name.get(name) {
            Some(ViewCluster::Cached(member)) => Some((Arc::clone(&member.cacher), member.leader.is_none())),
            _ => None,
        }
    }

    /// Returns whether `cacher` still supplies the objects of a cluster. If the cacher belongs to the view of all
    /// namespaces, checks both views, because this view learns of a replaced cacher a moment later.
    pub(super) fn is_fed_by(&self, name: &ClusterName, cacher: &Arc<Cacher>) -> bool {
        let follows = match self.members.lock().by_name.get(name) {
            Some(ViewCluster::Cached(member)) if Arc::ptr_eq(&member.cacher, cacher) => member.leader.is_some(),
            _ => return false,
        };
        !follows || self.whole().is_none_or(|whole| whole.is_fed_by(name, cacher))
    }

    /// Returns the cacher of one cluster, and the shared requests for the cluster's latest version of the collection.
    pub(super) fn latest_requests(&self, name: &ClusterName) -> Option<(Arc<Cacher>, Arc<LatestVersionRequests>)> {
        match self.members.lock().by_name.get(name) {
            Some(ViewCluster::Cached(member)) => {
                Some((Arc::clone(&member.cacher), Arc::clone(&member.latest_requests)))
            }
            _ => None,
        }
    }

    /// Returns the feed of a cluster. A view of one namespace can get the cluster's objects from this feed.
    pub(super) fn leader(&self, name: &ClusterName) -> Option<WholeViewFeed> {
        match self.members.lock().by_name.get(name) {
            Some(ViewCluster::Cached(member)) => Some(WholeViewFeed {
                cacher: Arc::clone(&member.cacher),
                latest_requests: Arc::clone(&member.latest_requests),
                feed: Arc::clone(&member.feed),
                stale_since: member.stale_since(),
            }),
            _ => None,
        }
    }

    /// Copies the current version of a cluster from the view of all namespaces to this view of one namespace. Until an
    /// object in the namespace changes, this view gets newer versions only through this call.
    pub(super) fn catch_up(&self, name: &ClusterName) {
        let feeds = match self.members.lock().by_name.get(name) {
            Some(ViewCluster::Cached(member)) => member.leader.clone().zip(Some(Arc::clone(&member.feed))),
            _ => None,
        };
        if let (Some((leader, feed)), Some(namespace)) = (feeds, &self.namespace) {
            leader.send_progress(namespace, &feed);
        }
    }
}
