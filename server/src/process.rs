//! The process and its operating system: signals, limits, memory, threads and metrics.

pub mod core_dumps;
pub mod descriptors;
pub mod memory;
pub(crate) mod metrics;
pub mod signals;
pub mod threads;
