//! Visibility of a cluster for a caller. A cluster is visible if two conditions hold: the cluster may see the user, and
//! it allows the impersonation. The cluster allows the impersonation for all requests, or only for requests in one mode
//! of constrained impersonation.

use tributary_apimachinery::ClusterName;
use tributary_authorization::{Attributes, FleetRights};

use super::actor::Whom;
use super::basis::Basis;
use super::caller_rights::CallerRights;
use super::impersonation::{ImpersonationMode, LetsBe, lets_be};
use super::judged::Judged;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    /// The cluster may see the caller, and the cluster allows the impersonation for all requests.
    There,
    /// The cluster is visible for the requests that the sender itself may make [in this mode](does_in) of constrained
    /// impersonation.
    ThereFor(ImpersonationMode),
    /// The cluster may not see the caller, or the cluster denies the impersonation.
    Nowhere,
    Unknown,
}

impl From<LetsBe> for Existence {
    fn from(lets_be: LetsBe) -> Self {
        match lets_be {
            LetsBe::Anything => Self::There,
            LetsBe::InMode(mode) => Self::ThereFor(mode),
            LetsBe::Nothing => Self::Nowhere,
        }
    }
}

impl CallerRights {
    pub(super) fn existence(&self, fleet: &FleetRights, cluster: &ClusterName) -> Existence {
        if self.actor.reaches(cluster).is_err() {
            return Existence::Nowhere;
        }
        let is_undecided = self.basis.decides(&self.mirror, cluster).is_none();
        // Review results count even if the mirrored bindings exceed a limit.
        let is_by_word = matches!(self.basis, Basis::Asked(_));
        if is_undecided || (!is_by_word && self.is_beyond(fleet, cluster)) {
            return Existence::Unknown;
        }
        self.lets_be(fleet, cluster).map_or(Existence::Unknown, Existence::from)
    }

    /// Returns whether the rights are unknown because the cluster, or the caller, has more roles or bindings than
    /// Tributary reads. An administrator of a namespace can create that many.
    pub(super) fn is_unknown_by_excess(&self, fleet: &FleetRights, cluster: &ClusterName) -> bool {
        match self.basis.decides(&self.mirror, cluster) {
            None => self.mirror.is_too_large(cluster),
            Some(_) => self.is_beyond(fleet, cluster),
        }
    }

    /// Returns whether the sender, or the impersonated user, has more bindings than Tributary reads.
    fn is_beyond(&self, fleet: &FleetRights, cluster: &ClusterName) -> bool {
        let users = [Whom::Acting, Whom::User].map(|whom| self.actor.judged_by(cluster, whom));
        users.into_iter().any(|user| fleet.rights_are_unknown(cluster, user))
    }

    /// Returns whether a cluster is visible for a request and `is_so` returns true. `None` if unknown. Calls `is_so`
    /// only if the cluster allows the impersonation.
    pub(super) fn there_for(
        &self,
        fleet: &FleetRights,
        cluster: &ClusterName,
        request: &Attributes<'_>,
        is_so: impl FnOnce() -> Option<bool>,
    ) -> Option<bool> {
        match self.existence(fleet, cluster) {
            Existence::There => is_so(),
            // Evaluates both operands, so that both reviews are sent together.
            Existence::ThereFor(mode) => {
                both(does_in(&self.judged(fleet, Whom::User), mode, cluster, request), is_so())
            }
            Existence::Nowhere => Some(false),
            Existence::Unknown => None,
        }
    }

    /// Requests for which a cluster allows the caller's impersonation. `None` if unknown.
    fn lets_be(&self, fleet: &FleetRights, cluster: &ClusterName) -> Option<LetsBe> {
        let Some(given) = self.actor.impersonated_user() else { return Some(LetsBe::Anything) };
        let user = self.judged(fleet, Whom::User);
        lets_be(given, self.mirror.impersonation_filter(cluster), |asked| user.allows(cluster, asked))
    }
}

/// Returns whether a cluster allows the sender itself a request in a mode of constrained impersonation. `None` if
/// unknown. For the impersonated request, the cluster must also allow the request to the impersonated user.
pub(super) fn does_in(
    user: &Judged<'_>,
    mode: ImpersonationMode,
    cluster: &ClusterName,
    request: &Attributes<'_>,
) -> Option<bool> {
    user.allows(cluster, &request.with_verb(&mode.on(request.verb())))
}

/// Logical AND of two answers, where `None` is unknown. `None` if the known answer does not decide alone.
pub(super) fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}
