//! Views: in-memory caches of one resource over all clusters.

pub mod view;
pub mod views;
