//! Candidates: clusters to which a request may go. Clusters that are hidden from the caller are not candidates, so no
//! review and no message concerns a hidden cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use tributary_apimachinery::{AUTHENTICATED_GROUP, ClusterName, ClusterSelector, GroupVersionResource, UserInfo};
use tributary_authorization::{Attributes, FleetRights, ResourceAttributes};

use super::actor::UserSelector;
use super::allowed_facts::DecisionMethod;
use super::caller_rights::CallerRights;
use super::cluster_visibility::{ClusterVisibility, allows_in_mode, and_known};
use super::hidden_names::names_hidden;
use super::impersonation::ImpersonationMode;

/// Clusters to which a request may go.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// The candidates. `None` if all clusters are candidates, as in personal mode.
    only: Option<Arc<BTreeSet<ClusterName>>>,
    /// Clusters in which the caller's rights are unknown. They may be candidates, but no message names them. `None` if
    /// there are none.
    unknown: Option<Arc<BTreeSet<ClusterName>>>,
}

impl Candidates {
    pub(super) fn these(only: BTreeSet<ClusterName>, unknown: BTreeSet<ClusterName>) -> Self {
        Self { only: Some(Arc::new(only)), unknown: (!unknown.is_empty()).then(|| Arc::new(unknown)) }
    }

    /// Returns the clusters that are candidates in both sets.
    pub fn within(&self, others: &Self) -> Self {
        let only = match (&self.only, &others.only) {
            (Some(own), Some(other)) => Some(Arc::new(own.intersection(other).cloned().collect())),
            (own, other) => own.as_ref().or(other.as_ref()).cloned(),
        };
        let unknown = match (&self.unknown, &others.unknown) {
            (Some(own), Some(other)) => Some(Arc::new(own.union(other).cloned().collect())),
            (own, other) => own.as_ref().or(other.as_ref()).cloned(),
        };
        Self { only, unknown }
    }

    /// Returns the candidates among the clusters `all` for which `is_taken_out` is false.
    pub fn except<'a>(
        &self,
        all: impl Iterator<Item = &'a ClusterName>,
        is_taken_out: impl Fn(&ClusterName) -> bool,
    ) -> Self {
        let only = all.filter(|cluster| self.has(cluster) && !is_taken_out(cluster)).cloned().collect();
        Self { only: Some(Arc::new(only)), unknown: self.unknown.clone() }
    }

    /// Returns whether a cluster is a candidate.
    pub fn has(&self, cluster: &ClusterName) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(cluster))
    }

    /// Returns whether no cluster is a candidate.
    pub fn is_empty(&self) -> bool {
        self.only.as_ref().is_some_and(|only| only.is_empty())
    }

    /// Returns whether the caller's rights are unknown in at least one cluster.
    pub fn has_unknown(&self) -> bool {
        self.unknown.is_some()
    }

    /// Returns whether the rights are unknown in at least one cluster for which `is_wanted` is true.
    pub fn is_one_unknown_among(&self, is_wanted: impl FnMut(&ClusterName) -> bool) -> bool {
        self.unknown.as_ref().is_some_and(|unknown| unknown.iter().any(is_wanted))
    }

    /// Returns whether the rights are unknown in at least one cluster for which `is_possible` is true and that the
    /// selector `wanted` matches. A selector that names a cluster outside the candidates matches all clusters here. So
    /// a hidden cluster and a misspelled cluster name give the same answer.
    pub fn is_one_unknown_of(&self, wanted: &ClusterSelector, is_possible: impl Fn(&ClusterName) -> bool) -> bool {
        let wants_all = names_hidden(wanted, |cluster| self.has(cluster));
        self.is_one_unknown_among(|cluster| is_possible(cluster) && (wants_all || wanted.matches(cluster)))
    }

    /// Returns a selector that matches only the candidates.
    pub fn selector(&self) -> ClusterSelector {
        match &self.only {
            Some(only) => ClusterSelector::default().within(Arc::clone(only)),
            None => ClusterSelector::default(),
        }
    }
}

impl CallerRights {
    /// Returns the clusters in which the caller may make one of the `requested` requests.
    pub fn candidates<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        requested: &[Attributes<'_>],
    ) -> Candidates {
        self.where_allowed(clusters, requested, None)
    }

    /// Returns the clusters to which Tributary sends an access review of a client. In each of these clusters, the
    /// caller may make one of the `requested` requests, and the cluster is visible to the caller for the review itself
    /// (`request`).
    pub fn candidates_for_review<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        requested: &[Attributes<'_>],
        request: &Attributes<'_>,
    ) -> Candidates {
        self.where_allowed(clusters, requested, Some(request))
    }

    fn where_allowed<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        requested: &[Attributes<'_>],
        request: Option<&Attributes<'_>>,
    ) -> Candidates {
        let fleet = self.mirror.compiled();
        let allowing = fleet.allowing(self.actor.rbac_user(UserSelector::Acting), requested);
        let [user, acting] =
            [UserSelector::User, UserSelector::Acting].map(|user_selector| self.decisions(&fleet, user_selector));
        self.filter_visible(&fleet, clusters, |cluster, mode| {
            let is_allowed = match (self.mirror.decision_method(cluster)?, mode) {
                (DecisionMethod::Rules, None) if self.actor.is_verified_by(cluster) => {
                    Some(requested.iter().any(|requested| fleet.allows(cluster, acting.user(cluster), requested)))
                }
                (DecisionMethod::Rules, None) => Some(allowing.contains(cluster)),
                (DecisionMethod::Reviews | DecisionMethod::Live, None) => {
                    any(requested.iter().map(|requested| acting.review_result(cluster, requested)))
                }
                (_, Some(mode)) => any(requested.iter().map(|requested| {
                    let does = allows_in_mode(&user, mode, cluster, requested);
                    and_known(does, acting.allows(cluster, requested))
                })),
            };
            match request {
                Some(request) => and_known(self.is_visible_in(&fleet, cluster, mode, request), is_allowed),
                None => is_allowed,
            }
        })
    }

    /// Returns the clusters that are visible to the caller for a request.
    pub fn existing<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        request: &Attributes<'_>,
    ) -> Candidates {
        let fleet = self.mirror.compiled();
        self.filter_visible(&fleet, clusters, |cluster, mode| self.is_visible_in(&fleet, cluster, mode, request))
    }

    /// Returns whether a cluster is visible for the request. Without a `mode` of constrained impersonation, it always
    /// is. With a `mode`, the mode must allow the request. `None` if unknown.
    fn is_visible_in(
        &self,
        fleet: &FleetRights,
        cluster: &ClusterName,
        mode: Option<ImpersonationMode>,
        request: &Attributes<'_>,
    ) -> Option<bool> {
        mode.map_or(Some(true), |mode| {
            allows_in_mode(&self.decisions(fleet, UserSelector::User), mode, cluster, request)
        })
    }

    /// Returns the clusters that grant the caller more rules in a namespace than they grant all authenticated users.
    /// Uses the mirrored roles and bindings even for a cluster that decides by access reviews, because a
    /// SelfSubjectRulesReview lists only the rules of its sender, Tributary.
    pub fn with_rules<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        namespace: &str,
        request: &Attributes<'_>,
    ) -> Candidates {
        let (fleet, everybody) = (self.mirror.compiled(), [AUTHENTICATED_GROUP.to_owned()]);
        let anybody = &UserInfo::with_groups("", &everybody);
        let rules = |cluster: &ClusterName, user| fleet.rules(cluster, user, namespace).len();
        self.filter_visible(&fleet, clusters, |cluster, mode| {
            let acting = self.actor.rbac_user_in(cluster, UserSelector::Acting);
            let has_own = rules(cluster, acting) > rules(cluster, anybody);
            let has_own_known = match self.mirror.decision_method(cluster)? {
                DecisionMethod::Rules => Some(has_own),
                // Roles can only prove a right here: a second authorizer of the cluster may grant rights without roles.
                DecisionMethod::Reviews | DecisionMethod::Live => has_own.then_some(true),
            };
            and_known(self.is_visible_in(&fleet, cluster, mode, request), has_own_known)
        })
    }

    /// Returns the clusters whose existence the caller may learn. Such a cluster is visible to the caller. In addition,
    /// it either grants the caller a rule in some namespace, or allows the caller to `get` the object of `resource`
    /// that is named after the cluster. The second alternative covers authorizers other than RBAC, and rules for all
    /// authenticated users.
    pub fn known_clusters<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        resource: &GroupVersionResource,
    ) -> Candidates {
        let GroupVersionResource { group, version, resource } = resource;
        let fleet = self.mirror.compiled();
        let acting = self.decisions(&fleet, UserSelector::Acting);
        self.filter_visible(&fleet, clusters, |cluster, mode| {
            let (verb, subresource, namespace, name) = ("get", "", "", cluster.as_str());
            let requested = ResourceAttributes { verb, group, version, resource, subresource, namespace, name };
            let requested = Attributes::Resource(requested);
            self.mirror.decision_method(cluster)?;
            let is_known = match fleet.has_own_grants(cluster, acting.user(cluster)) {
                true => Some(true),
                false => acting.allows(cluster, &requested),
            };
            and_known(self.is_visible_in(&fleet, cluster, mode, &requested), is_known)
        })
    }

    /// Returns the visible clusters for which `is_wanted` is true. If a cluster is visible only in one mode of
    /// constrained impersonation, `is_wanted` gets this mode.
    fn filter_visible<'a>(
        &self,
        fleet: &FleetRights,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        is_wanted: impl Fn(&ClusterName, Option<ImpersonationMode>) -> Option<bool>,
    ) -> Candidates {
        let (mut only, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        for cluster in clusters {
            let is_wanted = match self.cluster_visibility(fleet, cluster) {
                ClusterVisibility::Unknown => None,
                ClusterVisibility::Hidden => Some(false),
                ClusterVisibility::Visible => is_wanted(cluster, None),
                ClusterVisibility::VisibleInMode(mode) => is_wanted(cluster, Some(mode)),
            };
            match is_wanted {
                None => drop(unknown.insert(cluster.clone())),
                Some(true) => drop(only.insert(cluster.clone())),
                Some(false) => {}
            }
        }
        Candidates::these(only, unknown)
    }
}

/// Returns whether one of the answers is yes. `None` if no answer is yes and an answer is unknown.
fn any(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    // Evaluates all answers before the result, so that all missing reviews are sent together.
    let answers: Vec<_> = answers.collect();
    match answers.contains(&Some(true)) {
        true => Some(true),
        false => (!answers.contains(&None)).then_some(false),
    }
}
