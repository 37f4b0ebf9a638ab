//! Kubeconfigs: which files, what their contexts say, and the one that is written for clients.

mod contexts_of;
pub mod entries;
pub mod files;
mod layout;
mod mark;
pub mod proxies;
mod referenced;
pub mod users_file;
pub mod write;

pub use contexts_of::{ContextProblem, ContextTarget, KubeconfigLoadError, Kubeconfigs};
pub use files::{KubeconfigFiles, NoKubeconfig};
