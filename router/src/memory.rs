//! Reads that Tributary answers from memory.

mod choice;
mod collection;
pub(crate) mod get;
pub(crate) mod list;
mod uncached;
pub(crate) mod watch;

pub(crate) use collection::Collection;
