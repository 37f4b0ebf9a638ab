//! The health of a member, as known outside a single collection.

use std::sync::Arc;

use tokio::time::Instant;

/// The health of a member, from the observations of all collections and probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberHealth {
    /// Set while the member is unreachable.
    pub lost: Option<MemberLoss>,
    /// The last time at which the member was ready, set while the member reports not to be ready. In this state, only
    /// received data proves that a collection is fresh.
    pub unready_since: Option<Instant>,
    /// The number of recoveries. When it grows, waits after failures end.
    pub recoveries: u64,
}

/// The loss of an unreachable member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLoss {
    /// The time of the member's last sign of life, to which the age of its collections is dated back.
    pub heard: Instant,
    /// The reason why the member is unreachable, for people.
    pub reason: Arc<str>,
}
