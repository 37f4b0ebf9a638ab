//! What the process asks of its operating system, and what that asks of it.

pub mod core_dumps;
pub mod descriptors;
pub mod memory;
pub(crate) mod metrics;
pub mod signals;
pub mod threads;
