//! Views: each resource of all clusters, cached in memory.

pub mod view;
pub mod views;
