//! Limits that clients share, permits to use a part of a limit, and bodies.

pub mod body;
pub mod flow;
pub mod gauges;
pub mod limits;
