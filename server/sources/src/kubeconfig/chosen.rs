//! The context that a command uses.

use std::path::Path;

use super::contexts_of::{ContextProblem, ContextTarget, KubeconfigLoadError, Kubeconfigs};
use super::files::{KubeconfigFiles, NoKubeconfig};

/// The reason why no context can be used.
#[derive(Debug, thiserror::Error)]
pub enum NotChosen {
    /// No file is named anywhere.
    #[error(transparent)]
    NoKubeconfig(#[from] NoKubeconfig),
    /// The files cannot be read.
    #[error(transparent)]
    Load(#[from] KubeconfigLoadError),
    /// No context is named, and none is the current one.
    #[error("{0} has no current context; name one by --context")]
    NoCurrent(KubeconfigFiles),
    /// There is no such context.
    #[error("{files} has no context {context:?}; it has: {known}")]
    Unknown {
        /// Name of the context.
        context: String,
        /// Files of the kubeconfig.
        files: KubeconfigFiles,
        /// Names of the existing contexts.
        known: String,
    },
    /// The context cannot be used.
    #[error(transparent)]
    Problem(#[from] ContextProblem),
}

/// A context of the user's kubeconfig.
pub struct ChosenContext {
    /// The files that were read.
    pub files: KubeconfigFiles,
    /// Name of the context.
    pub context: String,
    /// Client configuration of the context.
    pub target: ContextTarget,
}

impl ChosenContext {
    /// The named context, or the current one, of the named file, or of `$KUBECONFIG` or `~/.kube/config`.
    ///
    /// # Errors
    /// [`NotChosen`].
    pub async fn open(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, NotChosen> {
        let (environment, home) = (std::env::var_os("KUBECONFIG"), std::env::home_dir());
        let files = KubeconfigFiles::resolve(kubeconfig, environment.as_deref(), home.as_deref())?;
        let configs = Kubeconfigs::load(&files)?;
        let Some(context) = context.or(configs.current_context()).map(str::to_owned) else {
            return Err(NotChosen::NoCurrent(files));
        };
        let known: Vec<&str> = configs.all_context_names().collect();
        if !known.contains(&&*context) {
            return Err(NotChosen::Unknown { known: known.join(", "), context, files });
        }
        let target = configs.target(&context).await?;
        Ok(Self { files, context, target })
    }
}
