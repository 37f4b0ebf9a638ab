//! Key of a client's share of a limit. The listener of connections uses the same type.

pub use tributary_limiters::ShareKey;
