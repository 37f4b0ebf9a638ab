//! Tests of writes, and of the cluster that each write affects.

pub(crate) mod forwarding;
pub(crate) mod grounds;
pub(crate) mod lasting;
pub(crate) mod patches;
pub(crate) mod placement;
pub(crate) mod quorum;
pub(crate) mod releases;
pub(crate) mod versions;
pub(crate) mod yaml_bodies;
