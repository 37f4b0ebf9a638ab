//! What a decision had to know of clusters that are asked, and what has to be asked before it can be made.

use std::collections::HashSet;

use tokio::time::Instant;

use super::reviews::Question;

/// What a decision had to know of clusters that are asked.
#[derive(Debug, Default)]
pub(super) struct Needed {
    /// What is to be asked before it can be made, with the generation of the user's rights in that cluster.
    pub(super) open: HashSet<(Question, u64)>,
    /// Until when it holds, where answers were used.
    pub(super) until: Option<Instant>,
}
