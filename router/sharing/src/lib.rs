//! Limits, permits to use a part of a limit, and response bodies.

pub mod body;
pub mod flow;
pub mod gauges;
pub mod limits;
