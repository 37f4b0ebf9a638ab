//! Semaphore whose permits clients share fairly.

pub use tributary_limiters::{Exceeded, ShareMetrics};

use crate::flow::holder::Holder;

/// Semaphore whose permits clients share fairly.
pub type FairSemaphore = tributary_limiters::FairSemaphore<Holder>;

/// Permits of one request, whose number can grow.
pub type Portion = tributary_limiters::Portion<Holder>;
