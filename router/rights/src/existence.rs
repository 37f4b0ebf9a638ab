//! Visibility of a cluster for a caller: the cluster may see the user, and allows the impersonation, in general or for
//! the requests of a mode of constrained impersonation.

use tributary_apimachinery::ClusterName;
use tributary_authorization::{Attributes, FleetRights};

use super::actor::Whom;
use super::basis::Basis;
use super::caller_rights::CallerRights;
use super::impersonation::{ImpersonationMode, LetsBe, lets_be};
use super::judged::Judged;

/// Visibility of a cluster for a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    /// The cluster may see the caller, and allows the impersonation.
    There,
    /// The same, for each request that the user itself may make [in this mode](does_in).
    ThereFor(ImpersonationMode),
    /// The cluster may not see the caller, or denies the impersonation.
    Nowhere,
    /// The cluster's rights are unknown.
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
    /// Visibility of a cluster by the known rights.
    pub(super) fn existence(&self, fleet: &FleetRights, cluster: &ClusterName) -> Existence {
        if self.actor.reaches(cluster).is_err() {
            return Existence::Nowhere;
        }
        let is_undecided = self.basis.decides(&self.mirror, cluster).is_none();
        // Answers to questions count in full.
        let is_by_word = matches!(self.basis, Basis::Asked(_));
        if is_undecided || (!is_by_word && self.is_beyond(fleet, cluster)) {
            return Existence::Unknown;
        }
        self.lets_be(fleet, cluster).map_or(Existence::Unknown, Existence::from)
    }

    /// Whether the rights are unknown because the cluster, or the caller, has more roles or bindings than Tributary
    /// reads. An administrator of a namespace can cause that.
    pub(super) fn is_unknown_by_excess(&self, fleet: &FleetRights, cluster: &ClusterName) -> bool {
        match self.basis.decides(&self.mirror, cluster) {
            None => self.mirror.is_too_large(cluster),
            Some(_) => self.is_beyond(fleet, cluster),
        }
    }

    /// Whether the user, or the impersonated user, has more bindings than Tributary reads.
    fn is_beyond(&self, fleet: &FleetRights, cluster: &ClusterName) -> bool {
        let users = [Whom::Acting, Whom::User].map(|whom| self.actor.judged_by(cluster, whom));
        users.into_iter().any(|user| fleet.rights_are_unknown(cluster, user))
    }

    /// Whether a cluster is visible for a request, and `is_so` holds there; `None` if unknown. `is_so` is evaluated
    /// only if the impersonation is allowed.
    pub(super) fn there_for(
        &self,
        fleet: &FleetRights,
        cluster: &ClusterName,
        request: &Attributes<'_>,
        is_so: impl FnOnce() -> Option<bool>,
    ) -> Option<bool> {
        match self.existence(fleet, cluster) {
            Existence::There => is_so(),
            // Evaluates both, so that both questions are sent together.
            Existence::ThereFor(mode) => {
                both(does_in(&self.judged(fleet, Whom::User), mode, cluster, request), is_so())
            }
            Existence::Nowhere => Some(false),
            Existence::Unknown => None,
        }
    }

    /// Requests for which a cluster allows the impersonation; `None` if unknown.
    fn lets_be(&self, fleet: &FleetRights, cluster: &ClusterName) -> Option<LetsBe> {
        let Some(given) = self.actor.impersonated_user() else { return Some(LetsBe::Anything) };
        let user = self.judged(fleet, Whom::User);
        lets_be(given, self.mirror.impersonation_filter(cluster), |asked| user.allows(cluster, asked))
    }
}

/// Whether a cluster allows a request in a mode of constrained impersonation; `None` if unknown. The impersonated user
/// has to be allowed as well.
pub(super) fn does_in(
    user: &Judged<'_>,
    mode: ImpersonationMode,
    cluster: &ClusterName,
    request: &Attributes<'_>,
) -> Option<bool> {
    user.allows(cluster, &request.with_verb(&mode.on(request.verb())))
}

/// Whether both hold; `None` if an unknown one decides.
pub(super) fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}
