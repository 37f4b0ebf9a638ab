//! Kubeconfigs: their files, their contexts, and the kubeconfig for clients of this endpoint.

mod chosen;
mod context_checks;
pub mod entries;
pub mod files;
mod mark;
pub mod proxies;
mod referenced;
pub mod users_file;
pub mod write;

pub use chosen::{ChosenContext, ContextChoiceError};
pub use context_checks::{ContextProblem, ContextTarget, KubeconfigLoadError, Kubeconfigs};
pub use files::{KubeconfigFiles, NoKubeconfig};
pub(crate) use referenced::Referenced;
