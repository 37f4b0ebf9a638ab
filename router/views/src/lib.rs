//! Each resource of all clusters in memory, as a view.

pub mod view;
pub mod views;
