//! Synchronization of a view with the fleet: starts and ends the transfer of each cluster's objects.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_cacher::{Cacher, StaleReason};
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::topology::Cluster;

use super::cache_state::RelistReason;
use super::cache_state_tracker::CacheStateTracker;
use super::leader::{ClusterFeed, WholeViewFeed};
use super::member::{CachedMember, Forbidding, InheritedObjects, ViewCluster, ViewClusters};
use super::{CacheState, UncachedReason, View};

/// Period over which the watches in a cluster are reopened after Tributary's credentials for it are renewed. Together
/// with up to 10 s until the renewal is noticed, all watches are reopened within a minute. A minute is short enough
/// after rights were revoked, and long enough to spread the load if the credentials of all clusters are renewed.
const REOPENED_WITHIN: Duration = Duration::from_secs(50);

impl View {
    /// Synchronizes the cachers with the current fleet: starts missing cachers, and ends the cachers of clusters that
    /// left or no longer serve the resource.
    pub fn follow_fleet(self: &Arc<Self>) {
        let _of_members = self.fleet.enter();
        let policies = self.policies.load_full();
        let policy = policies.policy_for(&self.kind.resource);
        // The lock is taken before the clusters are read. So a cluster that is removed meanwhile is not added again.
        let mut members = self.members.lock();
        let clusters = self.fleet.clusters();
        let is_followed = |name: &ClusterName| clusters.contains_key(name) && policy.selects(name);
        let removed: Vec<_> = members.by_name.keys().filter(|name| !is_followed(name)).cloned().collect();
        for name in removed {
            self.leave(&mut members, &name);
        }
        for (name, cluster) in clusters.iter().filter(|(name, _)| policy.selects(name)) {
            self.follow(&mut members, name, cluster);
        }
        let cache_states = members.by_name.iter().map(|(name, member)| (name, self.cache_state_of(name, member)));
        self.update_cache_states(|cache_state_tracker| cache_state_tracker.set_all(cache_states));
    }

    /// Starts the missing cachers of clusters that serve the resource according to new discovery documents. Costs as
    /// much as [`cache_states`](Self::cache_states) if no cacher is missing.
    pub fn follow_serving_clusters(self: &Arc<Self>, served: &ServedResource) {
        let cache_states = self.cache_states();
        if cache_states.len() >= served.cacheable.len() {
            return;
        }
        let policies = self.policies.load();
        let policy = policies.policy_for(&self.kind.resource);
        if served.cacheable.iter().any(|name| policy.selects(name) && cache_states.cache_state_of(name).is_none()) {
            self.follow_fleet();
        }
    }

    /// Updates the states of clusters. If a cluster begins to forbid reads of all namespaces, the function wakes the
    /// watches of single namespaces, because each of them continues in a view of its namespace.
    pub(super) fn update_cache_states(&self, change: impl FnOnce(&CacheStateTracker)) {
        let forbids = || {
            let before = self.cache_state_tracker.times_forbidden();
            change(&self.cache_state_tracker);
            self.cache_state_tracker.times_forbidden() > before
        };
        if self.handovers.during(forbids, || self.log().resource_version()) {
            self.wake();
        }
    }

    /// Starts, keeps or ends the cacher of one cluster according to the cluster's discovery documents.
    fn follow(self: &Arc<Self>, members: &mut ViewClusters, name: &ClusterName, cluster: &Arc<Cluster>) {
        match self.service(cluster) {
            ServingState::Unknown => {
                // Objects that were cached before a change of the cluster's configuration stay cached.
                if !matches!(members.by_name.get(name), Some(ViewCluster::Cached(_))) {
                    members.by_name.insert(name.clone(), ViewCluster::Undiscovered(Arc::clone(cluster)));
                }
            }
            ServingState::No => self.leave(members, name),
            ServingState::Yes => self.follow_serving(members, name, cluster),
        }
    }

    /// Returns whether a cluster serves the resource of this view, with the same kind and scope.
    fn service(&self, cluster: &Cluster) -> ServingState {
        let Some(discovery) = cluster.discovery() else { return ServingState::Unknown };
        if cluster.duplicate().is_some() {
            return ServingState::No;
        }
        let serves = discovery
            .find(&self.kind.resource)
            .is_some_and(|own| own.has_verb("list") && own.has_verb("watch") && own.nature() == self.kind.nature());
        match serves {
            true => ServingState::Yes,
            // Discovery lacks the resources of an aggregated API server that does not answer, but their objects still
            // exist.
            false if discovery.undescribed(&self.kind.resource.group_version()).is_some() => ServingState::Unknown,
            false => ServingState::No,
        }
    }

    /// Chooses the source of a cluster's objects. Keeps the current feed if it has this source, else starts a new feed.
    fn follow_serving(self: &Arc<Self>, members: &mut ViewClusters, name: &ClusterName, cluster: &Arc<Cluster>) {
        let is_of_another = |member: &CachedMember| member.cluster.incarnation() != cluster.incarnation();
        if matches!(members.by_name.get(name), Some(ViewCluster::Cached(member)) if is_of_another(member)) {
            self.leave(members, name);
        }
        let has_own = matches!(members.by_name.get(name), Some(ViewCluster::Cached(member)) if member.leader.is_none());
        let leader = match self.source(name, has_own) {
            ClusterFeed::Own => None,
            ClusterFeed::Leader(leader) => Some(leader),
            ClusterFeed::NotYet => return,
        };
        let is_given_up = match self.retain_member(members, name, cluster, leader.as_ref()) {
            MemberRetention::Yes => return,
            MemberRetention::GivenUp => true,
            MemberRetention::No => false,
        };
        // Clients decide how many namespaces are cached. The separate transport for namespaces leaves connections for
        // requests and for cachers of whole collections.
        let transport = if self.is_namespace_view() { cluster.transport_for_namespaces() } else { cluster.transport() };
        let Ok(transport) = transport else { return };
        let Inheritance { continues, inherited, cacher } = match (members.by_name.get(name), &leader) {
            (Some(ViewCluster::Cached(before)), _) => self.replace(name, before, cluster),
            (_, Some(leader)) => Inheritance::of_leader(leader),
            (_, None) if is_given_up => Inheritance::default(),
            (_, None) => self.begin_with_inherited(cluster).map_or_else(Inheritance::default, Inheritance::of_cached),
        };
        let member = match leader {
            None => self.start_cacher(cluster, transport, continues, cacher.as_deref()),
            Some(leader) => self.follow_leader(cluster, leader, continues),
        };
        let inherited = inherited.filter(|_| self.version_of(name).is_some());
        let member = CachedMember { inherited, ..member };
        members.by_name.insert(name.clone(), ViewCluster::Cached(member));
    }

    /// Keeps the current feed if it has the right source. Removes the feed and the cluster's objects if the cluster has
    /// forbidden reads of the collection for too long.
    fn retain_member(
        &self,
        members: &mut ViewClusters,
        name: &ClusterName,
        cluster: &Arc<Cluster>,
        leader: Option<&WholeViewFeed>,
    ) -> MemberRetention {
        let Some(ViewCluster::Cached(member)) = members.by_name.get_mut(name) else { return MemberRetention::No };
        if !member.comes_from(cluster, leader) {
            return MemberRetention::No;
        }
        if leader.is_some() {
            return MemberRetention::Yes;
        }
        self.log_changes(member, cluster);
        match member.forbidding() {
            Forbidding::ForLong if self.version_of(name).is_some() => {
                self.give_up(members, name);
                MemberRetention::GivenUp
            }
            Forbidding::Unconfirmed if self.version_of(name).is_some() => {
                member.cacher.retry();
                MemberRetention::Yes
            }
            _ => MemberRetention::Yes,
        }
    }

    fn log_changes(&self, member: &mut CachedMember, cluster: &Cluster) {
        let renewals = cluster.renewals();
        if member.renewals != renewals {
            member.renewals = renewals;
            member.cacher.reopen(REOPENED_WITHIN);
        }
        member.report(&self.kind.resource);
    }

    /// Removes the objects of a cluster that left, or whose name now belongs to the cluster `successor`. The successor
    /// gets the state `Unknown`.
    pub fn forget_cluster(&self, name: &ClusterName, successor: Option<&Arc<Cluster>>) {
        let policies = self.policies.load_full();
        let successor = successor.filter(|_| policies.policy_for(&self.kind.resource).selects(name));
        let mut members = self.members.lock();
        // The cluster gets the state `Unknown` before its objects leave the log. In the other order, a reader could
        // take the cluster for one without objects.
        if let Some(successor) = successor {
            let cache_state = CacheState::of_undiscovered(successor, &self.kind.resource);
            self.update_cache_states(|cache_state_tracker| cache_state_tracker.set(name, cache_state));
        }
        self.leave(&mut members, name);
        if let Some(successor) = successor {
            members.by_name.insert(name.clone(), ViewCluster::Undiscovered(Arc::clone(successor)));
        }
        let cache_states = members.by_name.iter().map(|(name, member)| (name, self.cache_state_of(name, member)));
        self.update_cache_states(|cache_state_tracker| cache_state_tracker.set_all(cache_states));
    }

    fn give_up(&self, members: &mut ViewClusters, name: &ClusterName) {
        tracing::info!(cluster = %name, resource = %self.kind.resource, namespace = self.namespace.as_deref(), "the collection is still forbidden; its cached objects are dropped");
        // The state is updated before the log, so that a reader that no longer finds the objects in the log sees the
        // state `Unknown`.
        let reason = Some(StaleReason::Forbidden.to_string().into());
        let uncached_reason = UncachedReason::Forbidden;
        let cache_state = CacheState::Unknown { since: Instant::now(), reason, uncached_reason };
        self.update_cache_states(|cache_state_tracker| cache_state_tracker.set(name, cache_state));
        self.leave(members, name);
    }

    /// Ends the current feed of a cluster before a new feed replaces it.
    fn replace(&self, name: &ClusterName, before: &CachedMember, cluster: &Arc<Cluster>) -> Inheritance {
        let inheritance = Inheritance::of_member(before, cluster);
        // The old feed is ended before the new feed starts, because later updates of the old feed contain an older
        // state.
        let log = self.log.write();
        before.feed.end();
        self.warnings.set(name, &[]);
        drop(log);
        inheritance
    }
}

enum ServingState {
    Yes,
    No,
    /// The discovery of the cluster is missing, or the aggregated API server for this API version does not answer.
    Unknown,
}

enum MemberRetention {
    Yes,
    /// The cluster has no feed, or its feed has the wrong source.
    No,
    /// The feed was removed together with the cluster's objects.
    GivenUp,
}

#[derive(Default)]
struct Inheritance {
    /// Whether the log already contains objects of the same cluster.
    continues: bool,
    inherited: Option<InheritedObjects>,
    /// Previous cacher, whose memory budget the new cacher takes over.
    cacher: Option<Arc<Cacher>>,
}

impl Inheritance {
    fn of_member(before: &CachedMember, cluster: &Arc<Cluster>) -> Self {
        let is_configured_alike = Arc::ptr_eq(&before.cluster, cluster);
        let why = if is_configured_alike { RelistReason::Forbidden } else { RelistReason::Configuration };
        let inherited = Some(InheritedObjects { since: before.stale_since(), why });
        // A cacher of the view of all namespaces is not handed over, because it continues there.
        let cacher = before.leader.is_none().then(|| Arc::clone(&before.cacher));
        Self { continues: true, inherited, cacher }
    }

    /// Inherits the objects of the view of all namespaces, which also supplies this view from now on.
    fn of_leader(leader: &WholeViewFeed) -> Self {
        let inherited = Some(InheritedObjects { since: leader.stale_since, why: RelistReason::Configuration });
        Self { continues: false, inherited, cacher: None }
    }

    /// Inherits the objects that the view of all namespaces still has. The objects may be outdated since `since`.
    fn of_cached(since: Instant) -> Self {
        Self {
            continues: true,
            inherited: Some(InheritedObjects { since, why: RelistReason::Forbidden }),
            cacher: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ResourceVersion;

    use super::*;

    #[tokio::test]
    async fn sent_versions_are_recorded_when_a_forbidden_cluster_is_dropped() {
        let view = View::for_tests();
        let name = ClusterName::new("b").unwrap();
        view.join_for_tests(&name, ResourceVersion(7));
        // The state of an unreachable cluster does not show an earlier refusal of reads.
        let reason = "unreachable".into();
        view.cache_state_tracker.set(&name, CacheState::Stale { since: Instant::now(), reason, forbidden: false });
        view.give_up(&mut view.members.lock(), &name);
        let is_recorded = |version| view.is_sent_elsewhere("default", &name, ResourceVersion(version));
        assert!(is_recorded(7) && !is_recorded(8));
    }
}
