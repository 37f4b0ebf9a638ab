//! Limits that clients share, permits for parts of these limits, and bodies.

pub mod body;
pub mod flow;
pub mod gauges;
pub mod limits;
