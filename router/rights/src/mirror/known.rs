//! State of the mirror of each cluster at one time: how rights are decided, and whether they are known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

use crate::allowed_facts::DecisionMethod;
use crate::confirmation::Confirmation;
use crate::decider::Decider;
use crate::mirror_state::MirrorState;

#[derive(Default)]
pub(super) struct MirrorStates {
    pub(super) by_name: BTreeMap<ClusterName, KnownRights>,
    pub(super) constrained: BTreeSet<ClusterName>,
    /// Time at which the first outdated rights stop being valid.
    pub(super) expires_at: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownRights {
    pub(super) state: MirrorState,
    pub(super) decider: Decider,
    /// Confirmation of the cachers after lost contact with the cluster. `None` without a mirror.
    pub(super) confirmation: Option<Arc<Confirmation>>,
    pub(super) is_frozen: bool,
}

impl KnownRights {
    pub(super) fn none(state: MirrorState) -> Self {
        Self { state, decider: Decider::Undecided, confirmation: None, is_frozen: false }
    }

    pub(super) fn decision_method(&self, now: Instant) -> Option<DecisionMethod> {
        if self.state == MirrorState::Live {
            return Some(DecisionMethod::Live);
        }
        match self.is_valid(now).then_some(&self.decider)? {
            Decider::Rbac => Some(DecisionMethod::Rules),
            Decider::Review(_) => Some(DecisionMethod::Reviews),
            Decider::Undecided => None,
        }
    }

    pub(super) fn is_of_now(&self) -> bool {
        self.state == MirrorState::Current && self.confirmation.as_ref().is_some_and(|own| own.counts_now())
    }

    pub(super) fn is_valid(&self, now: Instant) -> bool {
        self.state.holds(now) && self.decider != Decider::Undecided
    }
}

/// Stamp of a user's rights. Equal stamps mean equal rights.
#[derive(Clone)]
pub(crate) struct RightsStamp {
    /// Generations of the rights of the acting user and of the sender. A generation is a number that changes with the
    /// rights.
    pub(super) generations: [u64; 2],
    pub(super) mirrors: Arc<MirrorStates>,
}

impl RightsStamp {
    /// Returns whether no right has changed or expired between this stamp and `now`.
    pub(crate) fn is(&self, now: &Self) -> bool {
        let holds = self.mirrors.expires_at.is_none_or(|until| Instant::now() < until);
        self.generations == now.generations && Arc::ptr_eq(&self.mirrors, &now.mirrors) && holds
    }
}
