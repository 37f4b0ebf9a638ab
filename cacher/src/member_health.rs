//! The health of a whole member, as opposed to the state of one collection.

use std::sync::Arc;

use tokio::time::Instant;

/// The health of a member, from the observations of all its collections and of probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberHealth {
    /// The loss of contact with the member. `None` while the member is reachable.
    pub loss: Option<MemberLoss>,
    /// The last time at which the member was ready; `None` while the member is ready. While the member is not ready,
    /// only received data proves that a collection is current.
    pub unready_since: Option<Instant>,
    /// The number of recoveries of the member. When the number grows, a cacher that waits after a failure sends its
    /// next request soon.
    pub recoveries: u64,
}

/// The loss of contact with an unreachable member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLoss {
    /// The time at which the member's last data or response arrived. Collections that lose contact with this member are
    /// stale since this time.
    pub last_data_at: Instant,
    /// The human-readable reason why the member is unreachable.
    pub reason: Arc<str>,
}
