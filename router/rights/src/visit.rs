//! Who may see what is told of all clusters at once.

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::ClusterName;
use tributary_authorization::{Attributes, FleetRights};

use super::actor::Whom;
use super::basis::Decides;
use super::caller_rights::CallerRights;
use super::existence::Existence;
use super::impersonation::{LetsBe, lets_be};

impl CallerRights {
    /// Whether the caller may see what is told of all clusters at once: metrics, the report, a detailed health check.
    /// It names each, so each whose rules are known must let them `get` its path, and one must be known. That rights
    /// are not known is no permission where users can bring it about.
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
                        // Nothing is known of one that answers itself, and does not answer. Another is asked, and does
                        // not answer: its roles are known.
                        None if self.mirror.decides(cluster) == Some(Decides::Live) => {}
                        None => is_allowed &= self.may_visit_by_roles(&fleet, existence, cluster, &asked),
                    }
                }
            }
        }
        is_one_known && is_allowed
    }

    /// 403: the clusters do not let the caller see what is at this path, which tells of all of them.
    pub fn forbids_visit(&self, path: String) -> Refusal {
        self.forbids_path(&self.clusters(), path)
    }

    /// Whether the caller may see that although it is not known whether a cluster is there for them. Of one that gives
    /// them so much that nobody looks at it, or has so many bindings, that may be their own doing.
    fn may_visit_unknown(&self, fleet: &FleetRights, cluster: &ClusterName, asked: &Attributes<'_>) -> bool {
        let [user, acting] = [Whom::User, Whom::Acting].map(|whom| self.actor.judged_by(cluster, whom));
        match self.mirror.decides(cluster) {
            None => !self.mirror.is_too_large(cluster),
            // Nothing is known of one that answers itself, and does not answer.
            Some(Decides::Live) => true,
            // Its roles are known, though it does not say whom it lets the user be.
            Some(Decides::Rules | Decides::Reviews) => {
                let is_beyond = [user, acting].into_iter().any(|user| fleet.is_beyond(cluster, user));
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

    /// Whether a cluster's roles and bindings let the caller see it, where the cluster is there for them so far.
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
