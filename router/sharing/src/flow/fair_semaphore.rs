//! Semaphore whose permits clients share fairly.

pub use tributary_limiters::{Exceeded, ShareMetrics};

use crate::flow::share_key::ShareKey;

/// Semaphore whose permits clients share fairly.
pub type FairSemaphore = tributary_limiters::FairSemaphore<ShareKey>;

/// Permits of one request, whose number can grow.
pub type FairPermit = tributary_limiters::FairPermit<ShareKey>;
