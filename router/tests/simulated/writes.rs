//! Tests of writes, and of the choice of the cluster that receives a write.

pub(crate) mod forwarding;
pub(crate) mod grounds;
pub(crate) mod lasting;
pub(crate) mod patches;
pub(crate) mod placement;
pub(crate) mod quorum;
pub(crate) mod releases;
pub(crate) mod versions;
pub(crate) mod yaml_bodies;
