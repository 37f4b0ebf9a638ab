//! Access to paths that concern all clusters, for example `/metrics`.

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::ClusterName;
use tributary_authorization::{Attributes, FleetRights};

use super::actor::UserSelector;
use super::allowed_facts::DecisionMethod;
use super::caller_rights::CallerRights;
use super::cluster_visibility::ClusterVisibility;
use super::impersonation::{ImpersonationScope, impersonation_scope};

impl CallerRights {
    /// Returns whether the caller may read paths that concern all clusters: metrics, the report, a detailed health
    /// check. Each cluster whose rights are known has to allow `get` of the path, and at least one cluster must have
    /// known rights. Rights that are unknown because of too many bindings are treated as denied, because a user can
    /// create the bindings.
    pub fn may_get_non_resource_url(&self, path: &str) -> bool {
        let attributes = Attributes::NonResource { verb: "get", path: path.into() };
        let fleet = self.mirror.compiled();
        let acting = self.decisions(&fleet, UserSelector::Acting);
        let (mut is_one_known, mut is_allowed) = (false, true);
        for cluster in &self.clusters() {
            let cluster_visibility = self.cluster_visibility(&fleet, cluster);
            match cluster_visibility {
                ClusterVisibility::Unknown => {
                    is_allowed &= self.may_get_url_by_roles_of_unknown(&fleet, cluster, &attributes)
                }
                ClusterVisibility::Hidden => is_allowed = false,
                ClusterVisibility::Visible | ClusterVisibility::VisibleInMode(_) => {
                    match self.if_visible(&fleet, cluster, &attributes, || acting.allows(cluster, &attributes)) {
                        Some(allowed) => {
                            is_one_known = true;
                            is_allowed &= allowed;
                        }
                        // A `Live` cluster that has not answered has no known rights and is skipped. For a silent
                        // cluster that decides by access reviews, the mirrored roles are still known.
                        None if self.mirror.decision_method(cluster) == Some(DecisionMethod::Live) => {}
                        None => {
                            is_allowed &= self.may_get_url_by_roles(&fleet, cluster_visibility, cluster, &attributes)
                        }
                    }
                }
            }
        }
        is_one_known && is_allowed
    }

    /// Makes the 403 for a path that concerns all clusters.
    pub fn forbid_non_resource_url(&self, path: String) -> Refusal {
        self.forbids_path(&self.clusters(), path)
    }

    /// Returns whether the caller may read the path although the visibility of a cluster is unknown. If the caller has
    /// too many bindings, the answer is no, because the caller may have created them.
    fn may_get_url_by_roles_of_unknown(
        &self,
        fleet: &FleetRights,
        cluster: &ClusterName,
        attributes: &Attributes<'_>,
    ) -> bool {
        let [user, acting] = [UserSelector::User, UserSelector::Acting]
            .map(|user_selector| self.actor.rbac_user_in(cluster, user_selector));
        match self.mirror.decision_method(cluster) {
            None => !self.mirror.is_too_large(cluster),
            // A `Live` cluster that has not answered is skipped, because nothing is known about its rights.
            Some(DecisionMethod::Live) => true,
            // The roles are known, so they decide, although the cluster has not answered the review of the
            // impersonation.
            Some(DecisionMethod::Rules | DecisionMethod::Reviews) => {
                let is_beyond = [user, acting].into_iter().any(|user| fleet.has_unknown_rights(cluster, user));
                let cluster_visibility = match self.actor.impersonated_user() {
                    None => Some(ImpersonationScope::Anything),
                    Some(impersonated) => {
                        let filter = self.mirror.impersonation_filter(cluster);
                        impersonation_scope(impersonated, filter, |attributes| {
                            Some(fleet.allows(cluster, user, attributes))
                        })
                    }
                };
                let cluster_visibility = cluster_visibility.map_or(ClusterVisibility::Unknown, ClusterVisibility::from);
                !is_beyond && self.may_get_url_by_roles(fleet, cluster_visibility, cluster, attributes)
            }
        }
    }

    /// Returns whether a cluster's roles and bindings allow the path, if the cluster is visible.
    fn may_get_url_by_roles(
        &self,
        fleet: &FleetRights,
        cluster_visibility: ClusterVisibility,
        cluster: &ClusterName,
        attributes: &Attributes<'_>,
    ) -> bool {
        let [user, acting] = [UserSelector::User, UserSelector::Acting]
            .map(|user_selector| self.actor.rbac_user_in(cluster, user_selector));
        let is_there = match cluster_visibility {
            ClusterVisibility::Visible => true,
            ClusterVisibility::VisibleInMode(mode) => {
                fleet.allows(cluster, user, &attributes.with_verb(&mode.on(attributes.verb())))
            }
            ClusterVisibility::Hidden | ClusterVisibility::Unknown => false,
        };
        is_there && fleet.allows(cluster, acting, attributes)
    }
}
