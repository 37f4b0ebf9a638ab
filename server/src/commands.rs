//! The commands, one file each.

pub mod check;
pub mod completion;
#[cfg(feature = "demo")]
pub mod demo;
pub mod join;
pub mod kubeconfig;
mod member;
pub mod plugin;
pub mod rv;
pub mod serve;
pub mod status;
