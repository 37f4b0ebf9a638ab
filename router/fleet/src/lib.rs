//! The member clusters: their discovery, OpenAPI documents, identity, health, metrics and reports.

pub mod aggregated_group;
pub mod cluster_status;
pub mod discovery;
pub mod foreign_groups;
pub mod foreign_member;
pub mod last_heard;
pub mod metrics;
pub mod openapi;
pub mod policy;
pub mod report;
mod specification_version;
pub mod topology;
