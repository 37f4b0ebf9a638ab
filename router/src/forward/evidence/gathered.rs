//! What was found out for a ground on which a write means a cluster.

use crate::grounds::Evidence;
use crate::refusal::Trouble;

/// What speaks for clusters, and what keeps some from telling more.
#[derive(Default)]
pub(in crate::forward) struct Gathered {
    pub(in crate::forward) evidence: Evidence,
    /// Of those of which it is not known, as far as more is known than of the clusters as such.
    pub(in crate::forward) told: Vec<Trouble>,
}

impl From<Evidence> for Gathered {
    fn from(evidence: Evidence) -> Self {
        Self { evidence, told: Vec::new() }
    }
}
