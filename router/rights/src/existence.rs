//! Whether a cluster is there for a caller: it is told who acts, and lets the user act as whom they ask to be, for
//! whatever that one may do or for what the user is allowed themselves in a mode of constrained impersonation.

use tributary_apimachinery::ClusterName;
use tributary_authorization::{Attributes, FleetRights};

use super::actor::Whom;
use super::basis::Basis;
use super::caller_rights::CallerRights;
use super::impersonation::{ImpersonationMode, LetsBe, lets_be};
use super::judged::Judged;

/// Whether a cluster is there for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    /// It is told who acts, and lets them act as whom they ask to be.
    There,
    /// The same, for each request that they are [allowed in this mode](does_in), too.
    ThereFor(ImpersonationMode),
    /// It is not, or does not.
    Nowhere,
    /// What it allows is not known.
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
    /// Whether a cluster is there for the caller, by what is known of its rights.
    pub(super) fn existence(&self, fleet: &FleetRights, cluster: &ClusterName) -> Existence {
        if self.actor.reaches(cluster).is_err() {
            return Existence::Nowhere;
        }
        let is_undecided = self.basis.decides(&self.mirror, cluster).is_none();
        // What a cluster says to what it is asked goes by all that it gives them.
        let is_by_word = matches!(self.basis, Basis::Asked(_));
        if is_undecided || (!is_by_word && self.is_beyond(fleet, cluster)) {
            return Existence::Unknown;
        }
        self.lets_be(fleet, cluster).map_or(Existence::Unknown, Existence::from)
    }

    /// Whether what a cluster allows is not known because it has, or gives the caller, more than is looked at. Whoever
    /// administrates a namespace there can bring that about.
    pub(super) fn is_unknown_by_excess(&self, fleet: &FleetRights, cluster: &ClusterName) -> bool {
        match self.basis.decides(&self.mirror, cluster) {
            None => self.mirror.is_too_large(cluster),
            Some(_) => self.is_beyond(fleet, cluster),
        }
    }

    /// Whether a cluster gives the user, or whom they ask to be, more than is looked at.
    fn is_beyond(&self, fleet: &FleetRights, cluster: &ClusterName) -> bool {
        let users = [Whom::Acting, Whom::User].map(|whom| self.actor.judged_by(cluster, whom));
        users.into_iter().any(|user| fleet.is_beyond(cluster, user))
    }

    /// Whether a cluster is there for a request of the caller, and something `is_so` there; `None` where that is not
    /// known. The latter is looked at only where the caller may be whom they ask to be.
    pub(super) fn there_for(
        &self,
        fleet: &FleetRights,
        cluster: &ClusterName,
        request: &Attributes<'_>,
        is_so: impl FnOnce() -> Option<bool>,
    ) -> Option<bool> {
        match self.existence(fleet, cluster) {
            Existence::There => is_so(),
            // Both are looked at, so that both are asked at once.
            Existence::ThereFor(mode) => {
                both(does_in(&self.judged(fleet, Whom::User), mode, cluster, request), is_so())
            }
            Existence::Nowhere => Some(false),
            Existence::Unknown => None,
        }
    }

    /// For what a cluster lets the user act as whom they ask to be; `None` where that is not known.
    fn lets_be(&self, fleet: &FleetRights, cluster: &ClusterName) -> Option<LetsBe> {
        let Some(given) = self.actor.impersonated_user() else { return Some(LetsBe::Anything) };
        let user = self.judged(fleet, Whom::User);
        lets_be(given, self.mirror.impersonation_filter(cluster), |asked| user.allows(cluster, asked))
    }
}

/// Whether a cluster lets a user do something in a mode of constrained impersonation; `None` where that is not known.
/// Whom they ask to be has to be allowed it as well.
pub(super) fn does_in(
    user: &Judged<'_>,
    mode: ImpersonationMode,
    cluster: &ClusterName,
    request: &Attributes<'_>,
) -> Option<bool> {
    user.allows(cluster, &request.with_verb(&mode.on(request.verb())))
}

/// Whether both are so; `None` where that depends on one that is not known.
pub(super) fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}
