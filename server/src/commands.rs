//! The commands of the program. Each command has a file.

pub mod check;
pub mod completion;
pub mod convert;
#[cfg(feature = "demo")]
pub mod demo;
pub mod join;
pub mod kubeconfig;
mod member;
pub mod plugin;
pub mod policy;
mod running_server;
pub mod rv;
pub mod serve;
pub mod status;
