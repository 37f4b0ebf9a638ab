//! Logs of lines: a file that is rotated, or standard output, and a bounded queue before it. The audit log and the
//! access log are such.

mod batch;
mod file;
mod losses;
mod output;

pub(crate) use batch::Batch;
pub use file::Rotation;
pub(crate) use file::open_target;
pub(crate) use losses::Losses;
pub(crate) use output::{Output, Target};

/// Bytes of one megabyte of the flags that say how large a file may be, as lumberjack counts them.
pub const MEGABYTE: u64 = 1 << 20;

#[cfg(test)]
pub(crate) use file::unbuffered;
