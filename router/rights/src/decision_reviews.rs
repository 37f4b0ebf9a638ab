//! Reviews that a decision lacks, and the expiry of the review results that the decision used.

use std::collections::HashSet;

use tokio::time::Instant;

use super::reviews::AccessReview;

#[derive(Debug, Default)]
pub(super) struct DecisionReviews {
    /// Missing reviews. The number is the generation of the user's rights in the cluster, which changes with the user's
    /// roles and bindings.
    pub(super) open: HashSet<(AccessReview, u64)>,
    /// Time at which the first of the used review results expires.
    pub(super) until: Option<Instant>,
}
