//! Whether a cluster is there for a caller: it is told who acts, and lets the user act as whom they ask to be.

use tributary_apimachinery::ClusterName;
use tributary_authorization::FleetRights;

use super::actor::Whom;
use super::caller_rights::CallerRights;

/// Whether a cluster is there for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    /// It is told who acts, and lets them act as whom they ask to be.
    There,
    /// It is not, or does not.
    Nowhere,
    /// What it allows is not known.
    Unknown,
}

impl CallerRights {
    /// Whether a cluster is there for the caller, by what is known of its rights.
    pub(super) fn existence(&self, fleet: &FleetRights, cluster: &ClusterName) -> Existence {
        if self.actor.reaches(cluster).is_err() {
            return Existence::Nowhere;
        }
        let users = [Whom::Acting, Whom::User].map(|whom| self.actor.judged_by(cluster, whom));
        if self.mirror.decides(cluster).is_none() || users.into_iter().any(|user| fleet.is_beyond(cluster, user)) {
            return Existence::Unknown;
        }
        match self.lets_be(fleet, cluster) {
            Some(true) => Existence::There,
            Some(false) => Existence::Nowhere,
            None => Existence::Unknown,
        }
    }

    /// Whether a cluster lets the user act as whom they ask to be; `None` where that is not known. It is asked first
    /// who that is, and the rest of it together once that is allowed: who may be nobody costs it one question.
    fn lets_be(&self, fleet: &FleetRights, cluster: &ClusterName) -> Option<bool> {
        let (user, mut is_known) = (self.judged(fleet, Whom::User), true);
        for (place, asked) in self.actor.asks_to_be().enumerate() {
            match user.allows(cluster, &asked) {
                Some(true) => {}
                Some(false) => return Some(false),
                None if place == 0 => return None,
                None => is_known = false,
            }
        }
        is_known.then_some(true)
    }
}
