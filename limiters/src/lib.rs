//! The three limiters of the project: a rule for fair shares, a semaphore that applies it, and a token bucket.
//!
//! [`FairShare`] decides how much of a bounded amount one holder may take, and [`Shares`] counts the amounts of all
//! holders. [`FairSemaphore`] puts both behind a lock and gives each taker a [`Portion`], which returns its amount when
//! dropped. [`SpentTokens`] is the state of a token bucket.

mod fair_semaphore;
mod fair_share;
mod token_bucket;

pub use fair_semaphore::{Exceeded, FairSemaphore, Portion, ShareMetrics};
pub use fair_share::{FairShare, ShareHolder, Shares, Shortage};
pub use token_bucket::{SpentTokens, TokenRate};
