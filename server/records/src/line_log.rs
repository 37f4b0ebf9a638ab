//! Line logs: a rotated file or standard output, with a bounded queue. The audit log and the access log use this
//! module.

mod batch;
mod file;
mod losses;
mod output;

pub(crate) use batch::Batch;
pub use file::Rotation;
pub(crate) use file::open_target;
pub(crate) use losses::Losses;
pub(crate) use output::{Output, Target};

/// The number of bytes in a megabyte, the unit of the flags for log file sizes, as in lumberjack.
pub const MEGABYTE: u64 = 1 << 20;

#[cfg(test)]
pub(crate) use file::unbuffered;
