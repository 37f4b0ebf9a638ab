//! The member clusters: discovery, OpenAPI, identity, health, metrics and reports.

pub mod discovery;
pub mod last_heard;
pub mod metrics;
pub mod openapi;
pub mod policy;
pub mod report;
pub mod topology;
