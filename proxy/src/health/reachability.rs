//! Reachability of a cluster or an endpoint. Requests and `/readyz` probes determine the reachability.

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
    /// Time at which bytes last arrived before `since`. `None` if no bytes had arrived.
    pub last_data_at: Option<Instant>,
    /// Time of the last status 200 of `/readyz`. Set only if that time is more than 10 s ago. For a cluster, the most
    /// recent time of all endpoints counts.
    pub unready_since: Option<Instant>,
    /// Number of recoveries: the cluster became reachable or ready again. Waiting requests may be tried again when the
    /// number grows.
    pub recoveries: u64,
}

/// State of a cluster or endpoint: reachable, unreachable or unknown.
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
