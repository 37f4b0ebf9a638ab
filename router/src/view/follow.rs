//! How a view follows the fleet: which clusters it has, and where their objects come from.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_cacher::Reason;

use super::board::Board;
use super::leader::Source;
use super::member::{CachedMember, Member, Members, TakenOver};
use super::standing::WhyAnew;
use super::{Standing, View};
use crate::topology::Cluster;

/// Within which time watches are opened anew after the credentials were renewed. With the 10 s after which a renewal is seen at
/// the latest that is a minute: short enough for who took rights away, long enough that a renewal which concerns all clusters
/// is not felt by any.
const REOPENED_WITHIN: Duration = Duration::from_secs(50);

impl View {
    /// Makes the cachers fit the fleet as it is now: starts the missing ones, ends those of clusters that left or no longer
    /// serve the resource.
    pub(crate) fn follow_fleet(self: &Arc<Self>) {
        let _of_members = self.fleet.enter();
        let clusters = self.fleet.clusters();
        let policies = self.policies.load_full();
        let policy = policies.of(&self.kind.resource);
        let mut members = self.members.lock();
        let held = |name: &ClusterName| clusters.contains_key(name) && policy.selects(name);
        let gone: Vec<_> = members.by_name.keys().filter(|name| !held(name)).cloned().collect();
        for name in gone {
            self.leave(&mut members, &name);
        }
        for (name, cluster) in clusters.iter().filter(|(name, _)| policy.selects(name)) {
            self.follow(&mut members, name, cluster);
        }
        let standings = members.by_name.iter().map(|(name, member)| (name, self.standing_of(name, member)));
        self.note(|board| board.set_all(standings));
    }

    /// Notes how clusters stand. Where one forbids by now to read all, those who watch a single namespace have to look: another view
    /// takes over.
    pub(super) fn note(&self, change: impl FnOnce(&Board)) {
        let forbids = || {
            let before = self.board.times_forbidden();
            change(&self.board);
            self.board.times_forbidden() > before
        };
        if self.handovers.during(forbids, || self.log().resource_version()) {
            self.wake();
        }
    }

    fn follow(self: &Arc<Self>, members: &mut Members, name: &ClusterName, cluster: &Arc<Cluster>) {
        let Some(discovery) = cluster.discovery() else {
            // It may have been known before its configuration changed: then what is held is served on.
            if !matches!(members.by_name.get(name), Some(Member::Cached(_))) {
                members.by_name.insert(name.clone(), Member::Undiscovered(Arc::clone(cluster)));
            }
            return;
        };
        if cluster.twin().is_some() {
            self.leave(members, name);
            return;
        }
        let serves = discovery
            .find(&self.kind.resource)
            .is_some_and(|own| own.has_verb("list") && own.has_verb("watch") && own.nature() == self.kind.nature());
        if !serves {
            // An aggregated server that does not answer just now takes its resources out of discovery; their objects live.
            if !discovery.is_stale(&self.kind.resource.group_version()) {
                self.leave(members, name);
            } else if !matches!(members.by_name.get(name), Some(Member::Cached(_))) {
                members.by_name.insert(name.clone(), Member::Undiscovered(Arc::clone(cluster)));
            }
            return;
        }
        let has_own = matches!(members.by_name.get(name), Some(Member::Cached(member)) if member.leader.is_none());
        let leader = match self.source(name, has_own) {
            Source::Own => None,
            Source::Leader(leader) => Some(leader),
            Source::NotYet => return,
        };
        let mut is_given_up = false;
        if let Some(Member::Cached(member)) = members.by_name.get_mut(name)
            && member.comes_from(cluster, leader.as_ref())
        {
            let uid = cluster.uid();
            if leader.is_some() {
                member.uid = uid.or(member.uid.take());
                return;
            }
            if member.uid.is_some() && uid.is_some() && member.uid != uid {
                tracing::debug!(cluster = %name, resource = %self.kind.resource, "listing another incarnation");
                // What is held is of another cluster.
                member.takes_over = None;
                member.cacher.reset();
            }
            member.uid = uid.or(member.uid.take());
            let renewals = cluster.renewals();
            if member.renewals != renewals {
                member.renewals = renewals;
                member.cacher.reopen(REOPENED_WITHIN);
            }
            member.report(&self.kind.resource);
            if !member.forbids_for_long() || self.version_of(name).is_none() {
                return;
            }
            tracing::info!(cluster = %name, resource = %self.kind.resource, namespace = self.namespace.as_deref(), "the collection is still forbidden; what was held of it is dropped");
            is_given_up = true;
            // Before the log: whoever reads that without it is to find it unknown.
            let reason = Some(Reason::Forbidden.to_string().into());
            self.board.set(name, Standing::Unknown { since: Instant::now(), reason, forbidden: true });
            self.leave(members, name);
        }
        // Of namespaces clients may have any number held: they leave room for clients' requests and for whole collections.
        let transport = if self.is_part() { cluster.transport_for_namespaces() } else { cluster.transport() };
        let Ok(transport) = transport else { return };
        let (mut goes_on, mut takes_over) = (false, None);
        let anew = |since, why| Some(TakenOver { since, why });
        if let Some(Member::Cached(before)) = members.by_name.get(name) {
            goes_on = Arc::ptr_eq(&before.cluster, cluster) || before.uid.is_some() && before.uid == cluster.uid();
            let is_same = Arc::ptr_eq(&before.cluster, cluster);
            let why = if is_same { WhyAnew::Forbidden } else { WhyAnew::Configuration };
            takes_over = anew(before.stale_since(), why).filter(|_| goes_on);
            // Before the new one says anything: what the old one says afterwards is of an older state.
            let log = self.log.write();
            before.feed.end();
            self.warnings.set(name, &[]);
            drop(log);
        } else if let Some(leader) = &leader {
            takes_over = anew(leader.stale_since, WhyAnew::Configuration);
        } else if let Some(since) = (!is_given_up).then(|| self.begin_with_held(name)).flatten() {
            (goes_on, takes_over) = (true, anew(since, WhyAnew::Forbidden));
        }
        let member = match leader {
            None => self.start_cacher(cluster, transport, goes_on),
            Some(leader) => self.follow_leader(cluster, leader, goes_on),
        };
        let takes_over = takes_over.filter(|_| self.version_of(name).is_some());
        let member = CachedMember { takes_over, ..member };
        members.by_name.insert(name.clone(), Member::Cached(member));
    }
}
