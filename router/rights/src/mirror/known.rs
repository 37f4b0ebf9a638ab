//! What is known of what users may do in each cluster, at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

use crate::basis::Decides;
use crate::confirmation::Confirmation;
use crate::decider::Decider;
use crate::mirror_state::MirrorState;

/// How far the mirrors are.
#[derive(Default)]
pub(super) struct MirrorStates {
    pub(super) by_name: BTreeMap<ClusterName, KnownRights>,
    /// The clusters of which it is known that they have constrained impersonation.
    pub(super) constrained: BTreeSet<ClusterName>,
    /// When one of them next ceases to hold.
    pub(super) until: Option<Instant>,
}

/// What is known of what users may do in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownRights {
    pub(super) state: MirrorState,
    pub(super) decider: Decider,
    /// Whether what is mirrored is of now; `None` where nothing is.
    pub(super) confirmation: Option<Arc<Confirmation>>,
    /// Whether the cluster is asked nothing.
    pub(super) is_frozen: bool,
}

impl KnownRights {
    /// Of a cluster that is not mirrored.
    pub(super) fn none(state: MirrorState) -> Self {
        Self { state, decider: Decider::Undecided, confirmation: None, is_frozen: false }
    }

    /// By what it is decided at a moment what users may do in the cluster; `None` where that is not known.
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

    /// Whether its roles and bindings are known as they are now.
    pub(super) fn is_of_now(&self) -> bool {
        self.state == MirrorState::Current && self.confirmation.as_ref().is_some_and(|own| own.counts_now())
    }

    /// Whether it counts at a moment.
    pub(super) fn counts(&self, now: Instant) -> bool {
        self.state.holds(now) && self.decider != Decider::Undecided
    }
}

/// What tells what somebody may do at one moment from what they may at another.
#[derive(Clone)]
pub(crate) struct RightsStamp {
    /// Of each of those by whose rights it is judged.
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
