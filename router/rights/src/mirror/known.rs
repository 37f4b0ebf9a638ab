//! Known rights of users in each cluster at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

use crate::basis::Decides;
use crate::confirmation::Confirmation;
use crate::decider::Decider;
use crate::mirror_state::MirrorState;

/// State of the mirrors.
#[derive(Default)]
pub(super) struct MirrorStates {
    pub(super) by_name: BTreeMap<ClusterName, KnownRights>,
    /// Clusters with constrained impersonation.
    pub(super) constrained: BTreeSet<ClusterName>,
    /// Time at which the next rights stop to count.
    pub(super) until: Option<Instant>,
}

/// Known rights of users in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownRights {
    pub(super) state: MirrorState,
    pub(super) decider: Decider,
    /// State of the confirmation; `None` without a mirror.
    pub(super) confirmation: Option<Arc<Confirmation>>,
    /// Whether the cluster gets no questions.
    pub(super) is_frozen: bool,
}

impl KnownRights {
    /// Of a cluster that is not mirrored.
    pub(super) fn none(state: MirrorState) -> Self {
        Self { state, decider: Decider::Undecided, confirmation: None, is_frozen: false }
    }

    /// Method at a moment; `None` if unknown.
    pub(super) fn decides(&self, now: Instant) -> Option<Decides> {
        if self.state == MirrorState::Live {
            return Some(Decides::Live);
        }
        match self.counts(now).then_some(&self.decider)? {
            Decider::Rbac => Some(Decides::Rules),
            Decider::Review(_) => Some(Decides::Reviews),
            Decider::Undecided => None,
        }
    }

    /// Whether roles and bindings are up to date.
    pub(super) fn is_of_now(&self) -> bool {
        self.state == MirrorState::Current && self.confirmation.as_ref().is_some_and(|own| own.counts_now())
    }

    /// Whether the rights count at a moment.
    pub(super) fn counts(&self, now: Instant) -> bool {
        self.state.holds(now) && self.decider != Decider::Undecided
    }
}

/// Stamp of rights. Equal stamps mean equal rights.
#[derive(Clone)]
pub(crate) struct RightsStamp {
    /// Generation of each user of the decision.
    pub(super) generations: [u64; 2],
    pub(super) mirrors: Arc<MirrorStates>,
}

impl RightsStamp {
    /// Whether nothing has changed up to `now`.
    pub(crate) fn is(&self, now: &Self) -> bool {
        let holds = self.mirrors.until.is_none_or(|until| Instant::now() < until);
        self.generations == now.generations && Arc::ptr_eq(&self.mirrors, &now.mirrors) && holds
    }
}
