//! What is known of a member beside what one collection of it shows.

use std::sync::Arc;

use tokio::time::Instant;

/// Whether a member is well, as all who talk to it know together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberHealth {
    /// Set while it cannot be reached.
    pub lost: Option<MemberLoss>,
    /// Set while it says that it is not ready: when it last was. What is held is as fresh then as what it brings.
    pub unready_since: Option<Instant>,
    /// How often it has become well. When this grows, a failure is no longer waited out.
    pub recoveries: u64,
}

/// A member that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLoss {
    /// When it last said anything: what is held is as of then.
    pub heard: Instant,
    /// Why it cannot be reached, for people.
    pub reason: Arc<str>,
}
