//! Rounds of questions about a cluster's method: interval, endpoints, and the time for which results count without an
//! answer.

use std::time::Duration;

use tributary_proxy::{EndpointStatus, ReachabilityState};

use super::mirror_state::BEHIND_MAX;

/// Interval of the questions. A minute: authorizers of a kube-apiserver can be reloaded while it runs, without new
/// connections.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

/// Interval of checks for new connections, which may lead to a different server. 5 s: connections come in bursts, and
/// each round sends some twenty questions.
pub(super) const CONNECTIONS_INTERVAL: Duration = Duration::from_secs(5);

/// Time for which the result for a reachable cluster counts without an answer: as long as rights that are not followed.
pub(super) const UNANSWERED_MAX: Duration = BEHIND_MAX;

/// The endpoints that requests go to.
pub(super) fn well(endpoints: &[EndpointStatus]) -> Vec<usize> {
    let is_well = |endpoint: &EndpointStatus| {
        endpoint.is_ready && !matches!(endpoint.reachability.state, ReachabilityState::Unreachable { .. })
    };
    let all = || endpoints.iter().enumerate();
    let well: Vec<_> = all().filter(|(_, endpoint)| is_well(endpoint)).map(|(place, _)| place).collect();
    if well.is_empty() { all().map(|(place, _)| place).collect() } else { well }
}
