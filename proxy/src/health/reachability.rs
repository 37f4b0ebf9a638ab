//! Reachability of a cluster or an endpoint, as requests and `/readyz` probes show.

use std::sync::Arc;

use tokio::time::Instant;

use crate::failure_class::FailureClass;

/// Reachability of a cluster or an endpoint.
#[derive(Clone, Debug)]
pub struct Reachability {
    /// Whether the cluster or endpoint is reachable.
    pub state: ReachabilityState,
    /// Start time of the state.
    pub since: Instant,
    /// Time of the last received bytes before `since`; `None` if there were none.
    pub heard: Option<Instant>,
    /// Time of the last 200 response to `/readyz`, if no ready response has come for more than 10 s. The most ready
    /// endpoint counts for a cluster.
    pub unready_since: Option<Instant>,
    /// Number of recoveries: the cluster became reachable or ready. Waiting requests may try again when the number
    /// grows.
    pub recoveries: u64,
}

/// State of a [`Reachability`].
#[derive(Clone, Debug)]
pub enum ReachabilityState {
    /// No connection attempt, request or probe has ended yet.
    Unknown,
    /// The last connection attempt, request or probe was successful.
    Reachable,
    /// The cluster is unreachable: the last connection attempt failed, a connection or a probe timed out without any
    /// received bytes, or the cluster rejects the credentials.
    Unreachable {
        /// The reason in one line, for people.
        reason: Arc<str>,
        /// Class of the failure, for `tributary status`.
        failure_class: FailureClass,
    },
}

impl Reachability {
    /// Returns true after a response; false after a failure, and before the first attempt.
    pub fn is_reachable(&self) -> bool {
        matches!(self.state, ReachabilityState::Reachable)
    }
}
