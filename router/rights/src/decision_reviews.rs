//! Reviews that a decision lacks, and the expiry of the review results that the decision used.

use std::collections::HashSet;

use tokio::time::Instant;

use super::reviews::AccessReview;

#[derive(Debug, Default)]
pub(super) struct DecisionReviews {
    /// Missing reviews, each with the generation of the user's rights in the cluster.
    pub(super) open: HashSet<(AccessReview, u64)>,
    /// Time at which the first used review result expires.
    pub(super) until: Option<Instant>,
}
