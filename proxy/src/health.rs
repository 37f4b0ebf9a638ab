//! The state of an endpoint: by its answers to probes and requests, and by its connections.

pub(crate) mod breaker;
pub(crate) mod probe;
pub(crate) mod reachability;
pub(crate) mod speaker;
