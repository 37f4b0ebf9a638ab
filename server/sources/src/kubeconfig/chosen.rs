//! The kubeconfig context that a command uses.

use std::path::Path;

use super::context_checks::{ContextProblem, ContextTarget, KubeconfigLoadError, Kubeconfigs};
use super::files::{KubeconfigFiles, NoKubeconfig};

/// The reason why a command cannot use a kubeconfig context.
#[derive(Debug, thiserror::Error)]
pub enum ContextChoiceError {
    /// Neither a flag nor the environment names a kubeconfig.
    #[error(transparent)]
    NoKubeconfig(#[from] NoKubeconfig),
    /// The kubeconfig cannot be read.
    #[error(transparent)]
    Load(#[from] KubeconfigLoadError),
    /// No context is named, and the kubeconfig has no current context.
    #[error("{0} has no current context; name one by --context")]
    NoCurrent(KubeconfigFiles),
    /// The kubeconfig does not contain the named context.
    #[error("{files} has no context {context:?}; it has: {known}")]
    Unknown {
        /// Name of the unknown context.
        context: String,
        /// The files of the kubeconfig.
        files: KubeconfigFiles,
        /// The names of the kubeconfig's contexts.
        known: String,
    },
    /// The kubeconfig context is invalid.
    #[error(transparent)]
    Problem(#[from] ContextProblem),
}

/// A context of the user's kubeconfig, chosen by flags or as the current context.
pub struct ChosenContext {
    /// The files of the kubeconfig.
    pub files: KubeconfigFiles,
    /// Name of the chosen context.
    pub context: String,
    /// The client configuration of the context.
    pub target: ContextTarget,
}

impl ChosenContext {
    /// Opens the named context, or the current context. The kubeconfig is the named file, or else `$KUBECONFIG`, or
    /// else `~/.kube/config`.
    ///
    /// # Errors
    /// [`ContextChoiceError`].
    pub async fn open(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, ContextChoiceError> {
        let (environment, home) = (std::env::var_os("KUBECONFIG"), std::env::home_dir());
        let files = KubeconfigFiles::resolve(kubeconfig, environment.as_deref(), home.as_deref())?;
        let configs = Kubeconfigs::load(&files)?;
        let Some(context) = context.or(configs.current_context()).map(str::to_owned) else {
            return Err(ContextChoiceError::NoCurrent(files));
        };
        let known: Vec<&str> = configs.all_context_names().collect();
        if !known.contains(&&*context) {
            return Err(ContextChoiceError::Unknown { known: known.join(", "), context, files });
        }
        let target = configs.target(&context).await?;
        Ok(Self { files, context, target })
    }
}
