//! Key of a client's share of a limit. The listener uses the same key.

pub use tributary_limiters::ShareKey;
