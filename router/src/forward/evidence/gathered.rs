//! What was found out for a ground on which a write means a cluster.

use tributary_answers::refusal::{Refusal, Trouble};

use crate::grounds::Evidence;

/// What speaks for clusters, and what keeps some from telling more.
#[derive(Default)]
pub(in crate::forward) struct Gathered {
    pub(in crate::forward) evidence: Evidence,
    /// Of those of which it is not known, as far as more is known than of the clusters as such.
    pub(in crate::forward) told: Vec<Trouble>,
    /// Why one of those was not asked, where that is this process's own want of room: 429.
    pub(in crate::forward) not_put: Option<Refusal>,
}

impl From<Evidence> for Gathered {
    fn from(evidence: Evidence) -> Self {
        Self { evidence, ..Self::default() }
    }
}
