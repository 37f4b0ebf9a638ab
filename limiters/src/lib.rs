//! Limiters: a rule for fair shares, a semaphore that applies the rule, and a token bucket.
//!
//! [`FairShare`] decides how much of a bounded amount one holder may take. [`Shares`] counts the amounts of all
//! holders. [`FairSemaphore`] combines both behind a lock; each acquisition is a [`FairPermit`], which returns its
//! amount when dropped. [`SpentTokens`] is the state of a token bucket.

mod fair_semaphore;
mod fair_share;
mod share_key;
mod token_bucket;

pub use fair_semaphore::{Exceeded, FairPermit, FairSemaphore, ShareMetrics};
pub use fair_share::{FairShare, GroupedShareKey, Shares, Shortage};
pub use share_key::ShareKey;
pub use token_bucket::{SpentTokens, TokenRate};
