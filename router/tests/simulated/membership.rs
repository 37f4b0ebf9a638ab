//! Tests of clusters that are added, removed and changed, of their discovery, and of status reports.

pub(crate) mod cluster_objects;
pub(crate) mod clusters;
pub(crate) mod discovery;
pub(crate) mod fleet;
pub(crate) mod foreign;
pub(crate) mod kinds;
pub(crate) mod last_heard;
pub(crate) mod members;
pub(crate) mod members_property;
pub(crate) mod openapi;
pub(crate) mod renewal;
pub(crate) mod replaced;
pub(crate) mod replicas;
pub(crate) mod report;
pub(crate) mod topology;
