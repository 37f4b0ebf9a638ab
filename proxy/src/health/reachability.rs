//! Whether a member, or one of its endpoints, can be reached, as its own traffic and its `/readyz` show it.

use std::sync::Arc;

use tokio::time::Instant;

use crate::obstacle::Obstacle;

/// What is known of a member.
#[derive(Clone, Debug)]
pub struct Reachability {
    /// The state.
    pub state: ReachabilityState,
    /// When the state was entered.
    pub since: Instant,
    /// When it last said anything before that; `None` if it never has.
    pub heard: Option<Instant>,
    /// When it last said that it is ready, once that is more than 10 s ago and it says that it is not. A member is as
    /// ready as its readiest endpoint.
    pub unready_since: Option<Instant>,
    /// How often it has become well: it could be reached again, or was ready again. Whoever waits out a failure need
    /// not wait any longer when this has grown.
    pub recoveries: u64,
}

/// The state of a [`Reachability`].
#[derive(Clone, Debug)]
pub enum ReachabilityState {
    /// Nothing has been asked of it yet.
    Unknown,
    /// The last dial, request or question for `/readyz` got an answer.
    Reachable,
    /// The last dial failed, a connection went silent, `/readyz` was not answered and nothing else came, or the member
    /// rejects our credentials.
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
