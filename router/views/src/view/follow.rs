//! How a view follows the fleet: which clusters it has, and where their objects come from.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_cacher::{Cacher, StaleReason};
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::topology::Cluster;

use super::board::Board;
use super::leader::{ClusterFeed, WholeViewFeed};
use super::member::{CachedMember, Forbidding, TakenOver, ViewCluster, ViewClusters};
use super::standing::WhyAnew;
use super::{CollectionObstacle, Standing, View};

/// Within which time watches are opened anew after the credentials were renewed. With the 10 s after which a renewal is
/// seen at the latest that is a minute: short enough for who took rights away, long enough that a renewal which
/// concerns all clusters is not felt by any.
const REOPENED_WITHIN: Duration = Duration::from_secs(50);

impl View {
    /// Makes the cachers fit the fleet as it is now: starts the missing ones, ends those of clusters that left or no
    /// longer serve the resource.
    pub fn follow_fleet(self: &Arc<Self>) {
        let _of_members = self.fleet.enter();
        let policies = self.policies.load_full();
        let policy = policies.policy_for(&self.kind.resource);
        // Locked first: a cluster that is forgotten meanwhile is not followed again.
        let mut members = self.members.lock();
        let clusters = self.fleet.clusters();
        let held = |name: &ClusterName| clusters.contains_key(name) && policy.selects(name);
        let gone: Vec<_> = members.by_name.keys().filter(|name| !held(name)).cloned().collect();
        for name in gone {
            self.leave(&mut members, &name);
        }
        for (name, cluster) in clusters.iter().filter(|(name, _)| policy.selects(name)) {
            self.follow(&mut members, name, cluster);
        }
        let standings = members.by_name.iter().map(|(name, member)| (name, self.standing_of(name, member)));
        self.update_board(|board| board.set_all(standings));
    }

    /// Makes the cachers fit the fleet where a cluster is missing that serves the resource, as clusters were asked anew
    /// a moment ago. Cost: as of [`standings`](Self::standings), where none is missing.
    pub fn follow_serving_clusters(self: &Arc<Self>, served: &ServedResource) {
        let standings = self.standings();
        if standings.len() >= served.cacheable.len() {
            return;
        }
        let policies = self.policies.load();
        let policy = policies.policy_for(&self.kind.resource);
        if served.cacheable.iter().any(|name| policy.selects(name) && standings.standing_of(name).is_none()) {
            self.follow_fleet();
        }
    }

    /// Notes how clusters stand. Where one forbids by now to read all, those who watch a single namespace have to look:
    /// another view takes over.
    pub(super) fn update_board(&self, change: impl FnOnce(&Board)) {
        let forbids = || {
            let before = self.board.times_forbidden();
            change(&self.board);
            self.board.times_forbidden() > before
        };
        if self.handovers.during(forbids, || self.log().resource_version()) {
            self.wake();
        }
    }

    /// Makes what the view has of a cluster fit what the cluster serves.
    fn follow(self: &Arc<Self>, members: &mut ViewClusters, name: &ClusterName, cluster: &Arc<Cluster>) {
        match self.service(cluster) {
            ServingState::Unknown => {
                // It may have been known before its configuration changed: then what is held is served on.
                if !matches!(members.by_name.get(name), Some(ViewCluster::Cached(_))) {
                    members.by_name.insert(name.clone(), ViewCluster::Undiscovered(Arc::clone(cluster)));
                }
            }
            ServingState::No => self.leave(members, name),
            ServingState::Yes => self.follow_serving(members, name, cluster),
        }
    }

    /// Whether a cluster serves what is shown here.
    fn service(&self, cluster: &Cluster) -> ServingState {
        let Some(discovery) = cluster.discovery() else { return ServingState::Unknown };
        if cluster.twin().is_some() {
            return ServingState::No;
        }
        let serves = discovery
            .find(&self.kind.resource)
            .is_some_and(|own| own.has_verb("list") && own.has_verb("watch") && own.nature() == self.kind.nature());
        match serves {
            true => ServingState::Yes,
            // An aggregated server that does not answer just now takes its resources out of discovery; their objects
            // live.
            false if discovery.undescribed(&self.kind.resource.group_version()).is_some() => ServingState::Unknown,
            false => ServingState::No,
        }
    }

    /// Has a cluster's objects from where they are to come from: from the member that is there, or from a new one.
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
        // Of namespaces clients may have any number held: they leave room for clients' requests and for whole
        // collections.
        let transport = if self.is_part() { cluster.transport_for_namespaces() } else { cluster.transport() };
        let Ok(transport) = transport else { return };
        let Inheritance { goes_on, takes_over, cacher } = match (members.by_name.get(name), &leader) {
            (Some(ViewCluster::Cached(before)), _) => self.replace(name, before, cluster),
            (_, Some(leader)) => Inheritance::of_leader(leader),
            (_, None) if is_given_up => Inheritance::default(),
            (_, None) => self.begin_with_held(cluster).map_or_else(Inheritance::default, Inheritance::of_held),
        };
        let member = match leader {
            None => self.start_cacher(cluster, transport, goes_on, cacher.as_deref()),
            Some(leader) => self.follow_leader(cluster, leader, goes_on),
        };
        let takes_over = takes_over.filter(|_| self.version_of(name).is_some());
        let member = CachedMember { takes_over, ..member };
        members.by_name.insert(name.clone(), ViewCluster::Cached(member));
    }

    /// Keeps the member that has its objects from where they are to come from, and tells it what is new of its cluster.
    /// What has been forbidden for long, and still is, is given up.
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
        self.tell_news(member, cluster);
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

    /// Tells a member with a cacher of its own that the credentials for its cluster are others.
    fn tell_news(&self, member: &mut CachedMember, cluster: &Cluster) {
        let renewals = cluster.renewals();
        if member.renewals != renewals {
            member.renewals = renewals;
            member.cacher.reopen(REOPENED_WITHIN);
        }
        member.report(&self.kind.resource);
    }

    /// Forgets the objects of a cluster whose name means its successor by now, or none. The successor counts as
    /// unknown.
    pub fn forget_cluster(&self, name: &ClusterName, successor: Option<&Arc<Cluster>>) {
        let policies = self.policies.load_full();
        let successor = successor.filter(|_| policies.policy_for(&self.kind.resource).selects(name));
        let mut members = self.members.lock();
        // A reader of the log without the cluster's objects must find the cluster unknown.
        if let Some(successor) = successor {
            let standing = Standing::of_undiscovered(successor, &self.kind.resource);
            self.update_board(|board| board.set(name, standing));
        }
        self.leave(&mut members, name);
        if let Some(successor) = successor {
            members.by_name.insert(name.clone(), ViewCluster::Undiscovered(Arc::clone(successor)));
        }
        let standings = members.by_name.iter().map(|(name, member)| (name, self.standing_of(name, member)));
        self.update_board(|board| board.set_all(standings));
    }

    /// Drops what was held of a collection that is forbidden.
    fn give_up(&self, members: &mut ViewClusters, name: &ClusterName) {
        tracing::info!(cluster = %name, resource = %self.kind.resource, namespace = self.namespace.as_deref(), "the collection is still forbidden; what was held of it is dropped");
        // Before the log: whoever reads that without it is to find it unknown.
        let reason = Some(StaleReason::Forbidden.to_string().into());
        let obstacle = CollectionObstacle::Forbidden;
        let standing = Standing::Unknown { since: Instant::now(), reason, obstacle };
        self.update_board(|board| board.set(name, standing));
        self.leave(members, name);
    }

    /// Ends a member whose place another one takes.
    fn replace(&self, name: &ClusterName, before: &CachedMember, cluster: &Arc<Cluster>) -> Inheritance {
        let inheritance = Inheritance::of_member(before, cluster);
        // Before the new one says anything: what the old one says afterwards is of an older state.
        let log = self.log.write();
        before.feed.end();
        self.warnings.set(name, &[]);
        drop(log);
        inheritance
    }
}

/// Whether a cluster serves a resource.
enum ServingState {
    Yes,
    No,
    /// It has not told what it serves, or the aggregated server behind the version does not answer.
    Unknown,
}

/// Whether a member is kept.
enum MemberRetention {
    Yes,
    /// There is none, or it has its objects from elsewhere.
    No,
    /// It is gone, with what it held.
    GivenUp,
}

/// What a new member has of what was held before it.
#[derive(Default)]
struct Inheritance {
    /// Whether the cluster in the log is known to be this one.
    goes_on: bool,
    takes_over: Option<TakenOver>,
    /// What held it: the new one has its room.
    cacher: Option<Arc<Cacher>>,
}

impl Inheritance {
    /// Of the member before it, of the same cluster.
    fn of_member(before: &CachedMember, cluster: &Arc<Cluster>) -> Self {
        let is_configured_alike = Arc::ptr_eq(&before.cluster, cluster);
        let why = if is_configured_alike { WhyAnew::Forbidden } else { WhyAnew::Configuration };
        let takes_over = Some(TakenOver { since: before.stale_since(), why });
        // One that another view holds goes on there.
        let cacher = before.leader.is_none().then(|| Arc::clone(&before.cacher));
        Self { goes_on: true, takes_over, cacher }
    }

    /// Of the view of all namespaces, which feeds it.
    fn of_leader(leader: &WholeViewFeed) -> Self {
        let takes_over = Some(TakenOver { since: leader.stale_since, why: WhyAnew::Configuration });
        Self { goes_on: false, takes_over, cacher: None }
    }

    /// Of what the view of all namespaces still holds, which may be old since then.
    fn of_held(since: Instant) -> Self {
        Self { goes_on: true, takes_over: Some(TakenOver { since, why: WhyAnew::Forbidden }), cacher: None }
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ResourceVersion;

    use super::*;

    #[tokio::test]
    async fn what_was_told_before_a_cluster_is_given_up_is_told_elsewhere() {
        let view = View::for_tests();
        let name = ClusterName::new("b").unwrap();
        view.join_for_tests(&name, ResourceVersion(7));
        // It was out of reach, and that it forbids it again has not been noted yet.
        let reason = "unreachable".into();
        view.board.set(&name, Standing::Stale { since: Instant::now(), reason, forbidden: false });
        view.give_up(&mut view.members.lock(), &name);
        let is_told = |version| view.is_told_elsewhere("default", &name, ResourceVersion(version));
        assert!(is_told(7) && !is_told(8));
    }
}
