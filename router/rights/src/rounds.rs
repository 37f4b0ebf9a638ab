//! Rounds in which the method and the impersonation filter of a cluster are detected: their interval, their endpoints,
//! and the time for which an old result stays valid.

use std::time::Duration;

use tributary_proxy::{EndpointStatus, ReachabilityState};

use super::mirror_state::BEHIND_MAX;

/// Interval of the detection rounds. 60 s: a running kube-apiserver can reload its authorizers without new connections.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

/// Interval of checks for new connections to the cluster, which may lead to a different server. 5 s: connections come
/// in bursts, and each round sends some twenty reviews.
pub(super) const CONNECTIONS_INTERVAL: Duration = Duration::from_secs(5);

/// Time for which a result stays valid while a reachable cluster does not answer. Rights without an open watch stay
/// valid for the same time.
pub(super) const UNANSWERED_MAX: Duration = BEHIND_MAX;

/// Returns the endpoints that are ready and reachable, or all endpoints if none is.
pub(super) fn well(endpoints: &[EndpointStatus]) -> Vec<usize> {
    let is_well = |endpoint: &EndpointStatus| {
        endpoint.is_ready && !matches!(endpoint.reachability.state, ReachabilityState::Unreachable { .. })
    };
    let all = || endpoints.iter().enumerate();
    let well: Vec<_> = all().filter(|(_, endpoint)| is_well(endpoint)).map(|(place, _)| place).collect();
    if well.is_empty() { all().map(|(place, _)| place).collect() } else { well }
}
