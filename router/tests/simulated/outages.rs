//! Tests of faults of clusters and of connections.

pub(crate) mod endpoints;
pub(crate) mod faults;
pub(crate) mod liveness;
pub(crate) mod silence;
pub(crate) mod storm;
