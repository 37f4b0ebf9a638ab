//! Needs of a decision: answers of clusters, and open questions.

use std::collections::HashSet;

use tokio::time::Instant;

use super::reviews::Question;

/// Needs of a decision: answers of clusters, and open questions.
#[derive(Debug, Default)]
pub(super) struct Needed {
    /// Open questions, with the generation of the user's rights in the cluster.
    pub(super) open: HashSet<(Question, u64)>,
    /// Until when it holds, where answers were used.
    pub(super) until: Option<Instant>,
}
