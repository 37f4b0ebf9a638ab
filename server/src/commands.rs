//! The commands, one file each.

pub mod check;
#[cfg(feature = "demo")]
pub mod demo;
pub mod rv;
pub mod serve;
