//! Access to paths about all clusters, for example `/metrics`.

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::ClusterName;
use tributary_authorization::{Attributes, FleetRights};

use super::actor::Whom;
use super::basis::Decides;
use super::caller_rights::CallerRights;
use super::existence::Existence;
use super::impersonation::{LetsBe, lets_be};

impl CallerRights {
    /// Returns whether the caller may read paths about all clusters: metrics, the report, a detailed health check. Each
    /// cluster with known rules has to allow `get` of the path, and the rules of at least one cluster have to be known.
    /// Rights that are unknown because of too many bindings count as denied, because a user can create them.
    pub fn may_visit(&self, path: &str) -> bool {
        let asked = Attributes::NonResource { verb: "get", path: path.into() };
        let fleet = self.mirror.compiled();
        let acting = self.judged(&fleet, Whom::Acting);
        let (mut is_one_known, mut is_allowed) = (false, true);
        for cluster in &self.clusters() {
            let existence = self.existence(&fleet, cluster);
            match existence {
                Existence::Unknown => is_allowed &= self.may_visit_unknown(&fleet, cluster, &asked),
                Existence::Nowhere => is_allowed = false,
                Existence::There | Existence::ThereFor(_) => {
                    match self.there_for(&fleet, cluster, &asked, || acting.allows(cluster, &asked)) {
                        Some(allowed) => {
                            is_one_known = true;
                            is_allowed &= allowed;
                        }
                        // A `Live` cluster that has not answered has no known rights and is skipped. For a silent
                        // cluster that decides by access reviews, the mirrored roles are still known.
                        None if self.mirror.decides(cluster) == Some(Decides::Live) => {}
                        None => is_allowed &= self.may_visit_by_roles(&fleet, existence, cluster, &asked),
                    }
                }
            }
        }
        is_one_known && is_allowed
    }

    /// Returns 403 because the clusters deny a path about all clusters.
    pub fn forbids_visit(&self, path: String) -> Refusal {
        self.forbids_path(&self.clusters(), path)
    }

    /// Returns whether the caller may read the path although the visibility of a cluster is unknown. If the caller has
    /// too many bindings, the answer is no, because the caller may have created them.
    fn may_visit_unknown(&self, fleet: &FleetRights, cluster: &ClusterName, asked: &Attributes<'_>) -> bool {
        let [user, acting] = [Whom::User, Whom::Acting].map(|whom| self.actor.judged_by(cluster, whom));
        match self.mirror.decides(cluster) {
            None => !self.mirror.is_too_large(cluster),
            // A `Live` cluster that has not answered has no known rights.
            Some(Decides::Live) => true,
            // The roles are known, although the cluster has not answered the review of the impersonation.
            Some(Decides::Rules | Decides::Reviews) => {
                let is_beyond = [user, acting].into_iter().any(|user| fleet.rights_are_unknown(cluster, user));
                let existence = match self.actor.impersonated_user() {
                    None => Some(LetsBe::Anything),
                    Some(given) => {
                        let filter = self.mirror.impersonation_filter(cluster);
                        lets_be(given, filter, |asked| Some(fleet.allows(cluster, user, asked)))
                    }
                };
                let existence = existence.map_or(Existence::Unknown, Existence::from);
                !is_beyond && self.may_visit_by_roles(fleet, existence, cluster, asked)
            }
        }
    }

    /// Returns whether a cluster's roles and bindings allow the path, if the cluster is visible.
    fn may_visit_by_roles(
        &self,
        fleet: &FleetRights,
        existence: Existence,
        cluster: &ClusterName,
        asked: &Attributes<'_>,
    ) -> bool {
        let [user, acting] = [Whom::User, Whom::Acting].map(|whom| self.actor.judged_by(cluster, whom));
        let is_there = match existence {
            Existence::There => true,
            Existence::ThereFor(mode) => fleet.allows(cluster, user, &asked.with_verb(&mode.on(asked.verb()))),
            Existence::Nowhere | Existence::Unknown => false,
        };
        is_there && fleet.allows(cluster, acting, asked)
    }
}
