//! The reachability of a cluster, or of an endpoint, as traffic and `/readyz` show it.

use std::sync::Arc;

use tokio::time::Instant;

use crate::obstacle::Obstacle;

/// Known state of a cluster.
#[derive(Clone, Debug)]
pub struct Reachability {
    /// State of the cluster now.
    pub state: ReachabilityState,
    /// Begin of the state.
    pub since: Instant,
    /// The time of the last sign of life before `since`; `None` if there was none.
    pub heard: Option<Instant>,
    /// Time of the last `/readyz` with 200, if all answers for more than 10 s were different. A cluster is as ready as
    /// its readiest endpoint.
    pub unready_since: Option<Instant>,
    /// Number of recoveries: the cluster became reachable, or ready. A waiter may try again when it grows.
    pub recoveries: u64,
}

/// The state of a [`Reachability`].
#[derive(Clone, Debug)]
pub enum ReachabilityState {
    /// No dial, request or question for `/readyz` has ended yet.
    Unknown,
    /// The last dial, request or question for `/readyz` got an answer.
    Reachable,
    /// The last dial failed, a connection went silent, `/readyz` was not answered and nothing else came, or the cluster
    /// rejects the credentials.
    Unreachable {
        /// Why, in one line, for people.
        reason: Arc<str>,
        /// The class of the failure, for `tributary status`.
        obstacle: Obstacle,
    },
}

impl Reachability {
    /// True after an answer, false after a failure and before the first try.
    pub fn is_reachable(&self) -> bool {
        matches!(self.state, ReachabilityState::Reachable)
    }
}
