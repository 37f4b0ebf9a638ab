//! The line logs, such as the audit log and the access log: a rotated file or standard output, behind a bounded queue.

mod batch;
mod file;
mod losses;
mod output;

pub(crate) use batch::Batch;
pub use file::Rotation;
pub(crate) use file::open_target;
pub(crate) use losses::Losses;
pub(crate) use output::{Output, Target};

/// The unit of the flags for the size of a file, in bytes, as in lumberjack.
pub const MEGABYTE: u64 = 1 << 20;

#[cfg(test)]
pub(crate) use file::unbuffered;
