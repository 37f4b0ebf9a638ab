//! The commands, one file each.

pub mod check;
pub mod demo;
pub mod rv;
pub mod serve;
