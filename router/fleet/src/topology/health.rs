//! Health of a cluster for the cachers of its collections. The health is one state, computed from the cluster's traffic
//! and from `/readyz`.

use std::sync::Weak;

use tokio::sync::watch;
use tributary_cacher::{Cacher, CacherState, MemberHealth, MemberLoss};
use tributary_proxy::{ClusterClient, Reachability, ReachabilityState};

/// Subscription to a cluster's health.
pub struct ClusterHealth(Option<watch::Receiver<Reachability>>);

impl ClusterHealth {
    /// Subscribes to a cluster's health, beginning with the current state. If the cluster has no client, the health
    /// never changes.
    pub(super) fn follow_client(client: Option<&ClusterClient>) -> Self {
        let mut reachability = client.map(ClusterClient::reachability);
        reachability.iter_mut().for_each(watch::Receiver::mark_changed);
        Self(reachability)
    }

    /// Waits for the next change of the health. Cancellation is safe: no change is lost.
    pub async fn changed(&mut self) -> MemberHealth {
        if let Some(reachability) = &mut self.0
            && reachability.changed().await.is_ok()
        {
            return health_of(&reachability.borrow_and_update());
        }
        std::future::pending().await
    }
}

/// Waits for the next state of a cacher, and reports the cluster's health to the cacher meanwhile. Returns false after
/// the cacher is dropped.
pub async fn next_state(
    cacher: &Weak<Cacher>,
    states: &mut watch::Receiver<CacherState>,
    health: &mut ClusterHealth,
) -> bool {
    loop {
        tokio::select! {
            changed = states.changed() => return changed.is_ok(),
            known = health.changed() => match cacher.upgrade() {
                Some(cacher) => cacher.set_member_health(known),
                None => return false,
            },
        }
    }
}

fn health_of(known: &Reachability) -> MemberHealth {
    let loss = match &known.state {
        ReachabilityState::Unreachable { reason, .. } => {
            Some(MemberLoss { last_data_at: known.last_data_at.unwrap_or(known.since), reason: reason.clone() })
        }
        ReachabilityState::Unknown | ReachabilityState::Reachable => None,
    };
    MemberHealth { loss, unready_since: known.unready_since, recoveries: known.recoveries }
}
