//! Visibility of a cluster for a caller. A cluster is visible if Tributary may send the user's name to the cluster, and
//! the cluster allows the impersonation: for all requests, or only for requests in one mode of constrained
//! impersonation.

use tributary_apimachinery::ClusterName;
use tributary_authorization::{Attributes, FleetRights};

use super::actor::UserSelector;
use super::allowed_facts::AllowedFacts;
use super::caller_rights::CallerRights;
use super::impersonation::{ImpersonationMode, ImpersonationScope, impersonation_scope};
use super::user_decisions::UserDecisions;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterVisibility {
    /// Tributary may send the user's name to the cluster, and the cluster allows the impersonation for all requests.
    Visible,
    /// The cluster is visible only for requests that the sender itself may make [in this mode](allows_in_mode) of
    /// constrained impersonation.
    VisibleInMode(ImpersonationMode),
    /// Tributary may not send the user's name to the cluster, or the cluster denies the impersonation.
    Hidden,
    Unknown,
}

impl From<ImpersonationScope> for ClusterVisibility {
    fn from(impersonation_scope: ImpersonationScope) -> Self {
        match impersonation_scope {
            ImpersonationScope::Anything => Self::Visible,
            ImpersonationScope::InMode(mode) => Self::VisibleInMode(mode),
            ImpersonationScope::Nothing => Self::Hidden,
        }
    }
}

impl CallerRights {
    pub(super) fn cluster_visibility(&self, fleet: &FleetRights, cluster: &ClusterName) -> ClusterVisibility {
        if self.actor.reaches(cluster).is_err() {
            return ClusterVisibility::Hidden;
        }
        let is_undecided = self.allowed_facts.decision_method(&self.mirror, cluster).is_none();
        // If only reviews decide, the limit of bindings does not matter, because review results do not come from
        // bindings.
        let by_fresh_reviews = matches!(self.allowed_facts, AllowedFacts::ReviewedSince(_));
        if is_undecided || (!by_fresh_reviews && self.is_beyond(fleet, cluster)) {
            return ClusterVisibility::Unknown;
        }
        self.impersonation_scope(fleet, cluster).map_or(ClusterVisibility::Unknown, ClusterVisibility::from)
    }

    /// Returns whether the rights are unknown because the cluster, or the caller, has more roles or bindings than
    /// Tributary reads. A user with rights in a single namespace can cause this by creating bindings.
    pub(super) fn is_unknown_by_excess(&self, fleet: &FleetRights, cluster: &ClusterName) -> bool {
        match self.allowed_facts.decision_method(&self.mirror, cluster) {
            None => self.mirror.is_too_large(cluster),
            Some(_) => self.is_beyond(fleet, cluster),
        }
    }

    /// Returns whether the sender, or the impersonated user, has more bindings than Tributary reads.
    fn is_beyond(&self, fleet: &FleetRights, cluster: &ClusterName) -> bool {
        let users = [UserSelector::Acting, UserSelector::User]
            .map(|user_selector| self.actor.rbac_user_in(cluster, user_selector));
        users.into_iter().any(|user| fleet.has_unknown_rights(cluster, user))
    }

    /// Returns whether a cluster is visible for a request, and `is_so` returns true. `None` if unknown. Calls `is_so`
    /// only if the cluster allows the impersonation.
    pub(super) fn if_visible(
        &self,
        fleet: &FleetRights,
        cluster: &ClusterName,
        request: &Attributes<'_>,
        is_so: impl FnOnce() -> Option<bool>,
    ) -> Option<bool> {
        match self.cluster_visibility(fleet, cluster) {
            ClusterVisibility::Visible => is_so(),
            // Evaluates both operands, so that both reviews are sent together.
            ClusterVisibility::VisibleInMode(mode) => {
                and_known(allows_in_mode(&self.decisions(fleet, UserSelector::User), mode, cluster, request), is_so())
            }
            ClusterVisibility::Hidden => Some(false),
            ClusterVisibility::Unknown => None,
        }
    }

    /// Returns the requests for which a cluster allows the caller's impersonation. `None` if unknown.
    fn impersonation_scope(&self, fleet: &FleetRights, cluster: &ClusterName) -> Option<ImpersonationScope> {
        let Some(impersonated) = self.actor.impersonated_user() else { return Some(ImpersonationScope::Anything) };
        let user = self.decisions(fleet, UserSelector::User);
        impersonation_scope(impersonated, self.mirror.impersonation_filter(cluster), |requested| {
            user.allows(cluster, requested)
        })
    }
}

/// Returns whether a cluster allows the sender itself a request in a mode of constrained impersonation. `None` if
/// unknown. For the impersonated request, the cluster must also allow the request to the impersonated user.
pub(super) fn allows_in_mode(
    user: &UserDecisions<'_>,
    mode: ImpersonationMode,
    cluster: &ClusterName,
    request: &Attributes<'_>,
) -> Option<bool> {
    user.allows(cluster, &request.with_verb(&mode.on(request.verb())))
}

/// `Some(false)` if either answer is `Some(false)`, `Some(true)` if both are `Some(true)`, else `None`.
pub(super) fn and_known(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}
