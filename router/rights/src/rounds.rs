//! The rounds in which a cluster is asked what it does itself: how often, at which endpoints, and for how long it is
//! believed where it does not answer.

use std::time::Duration;

use tributary_proxy::{EndpointStatus, ReachabilityState};

use super::mirror_state::BEHIND_MAX;

/// How often a cluster is asked. A minute: authorizers of a kube-apiserver can be reloaded while it runs, and
/// connections stay.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

/// How often it is looked whether there are new connections, behind which may be another server. 5 s: they come in
/// bursts, and each round asks some twenty questions.
pub(super) const CONNECTIONS_INTERVAL: Duration = Duration::from_secs(5);

/// How long a cluster that can be reached is believed which does not answer: as long as rights that are not followed
/// hold.
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
