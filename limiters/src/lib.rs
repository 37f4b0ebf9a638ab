//! Limiters: a rule for fair shares, a semaphore with this rule, and a token bucket.
//!
//! [`FairShare`] decides how much of a bounded total one holder may take. [`Shares`] stores the amounts of all holders.
//! [`FairSemaphore`] combines both behind a lock, and gives out a [`FairPermit`] for each acquisition. A permit returns
//! its amount to the semaphore when dropped. [`SpentTokens`] is the state of a token bucket.

mod fair_semaphore;
mod fair_share;
mod share_key;
mod token_bucket;

pub use fair_semaphore::{Exceeded, FairPermit, FairSemaphore, ShareMetrics};
pub use fair_share::{FairShare, GroupedShareKey, Shares, Shortage};
pub use share_key::ShareKey;
pub use token_bucket::{SpentTokens, TokenRate};
