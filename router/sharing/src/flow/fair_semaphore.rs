//! The semaphore whose amount clients share.

pub use tributary_limiters::{Exceeded, ShareMetrics};

use crate::flow::holder::Holder;

/// A bounded amount that clients share.
pub type FairSemaphore = tributary_limiters::FairSemaphore<Holder>;

/// Amount of one request.
pub type Portion = tributary_limiters::Portion<Holder>;
