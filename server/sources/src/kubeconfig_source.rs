//! The configuration source of personal mode: the contexts of kubeconfig files.

use std::sync::Arc;

use tributary_router::ClusterAddress;

use crate::contexts::{ContextSelection, ContextsError, SelectedContext};
use crate::kubeconfig::{ContextProblem, ContextTarget, KubeconfigFiles, KubeconfigLoadError, Kubeconfigs};
use crate::{ClusterSpec, LoadedConfiguration};

/// The reason why the contexts of a kubeconfig cannot be used as clusters.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigSourceError {
    /// A kubeconfig file cannot be read.
    #[error(transparent)]
    Load(#[from] KubeconfigLoadError),
    /// `--contexts` does not match the contexts of the kubeconfig.
    #[error("{files}")]
    Contexts {
        /// The files of the kubeconfig.
        files: KubeconfigFiles,
        /// The error in `--contexts`.
        #[source]
        source: ContextsError,
    },
    /// Selected contexts are invalid. Lists all errors, one per line.
    #[error(
        "{}\n(or exclude these contexts with --contexts)",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    )]
    Problems(Vec<ContextProblem>),
}

/// Reads kubeconfig files, and describes a cluster for each selected context.
#[derive(Clone, Debug)]
pub struct KubeconfigSource {
    /// The files of the kubeconfig.
    pub files: KubeconfigFiles,
    /// The selection of contexts and their cluster names.
    pub selection: ContextSelection,
}

impl KubeconfigSource {
    /// Reads all files again.
    ///
    /// # Errors
    /// [`KubeconfigSourceError`] for an invalid context that the user named, and for a kubeconfig without a valid
    /// context. An invalid context that was selected by a pattern, or as one of all contexts, becomes a cluster with an
    /// error, so that the error is visible and does not affect other clusters.
    pub async fn read(&self) -> Result<LoadedConfiguration, KubeconfigSourceError> {
        let configs = Kubeconfigs::load(&self.files)?;
        let selected = self
            .selection
            .select(&configs.context_names())
            .map_err(|source| KubeconfigSourceError::Contexts { files: self.files.clone(), source })?;
        let mut configuration =
            LoadedConfiguration { files: self.files.paths().to_vec(), ..LoadedConfiguration::default() };
        let (mut problems, mut usable, mut refuses) = (Vec::new(), 0_usize, false);
        for chosen in selected {
            match configs.target(&chosen.context).await {
                Ok(target) => {
                    usable += 1;
                    configuration.files.extend(target.files.iter().cloned());
                    configuration.clusters.push(Arc::new(spec(chosen, Ok(target))));
                }
                Err(problem) => {
                    refuses |= chosen.named;
                    configuration.clusters.push(Arc::new(spec(chosen, Err(problem.to_string()))));
                    problems.push(problem);
                }
            }
        }
        if refuses || usable == 0 { Err(KubeconfigSourceError::Problems(problems)) } else { Ok(configuration) }
    }
}

fn spec(chosen: SelectedContext, target: Result<ContextTarget, String>) -> ClusterSpec {
    let origin = format!("context {:?}", chosen.context);
    let (config, fingerprint, user_fingerprint, warnings) = match target {
        Ok(target) => (Ok(target.config), target.fingerprint, target.user_fingerprint, target.warnings),
        Err(problem) => (Err(problem), String::new(), String::new(), Vec::new()),
    };
    ClusterSpec {
        address: ClusterAddress::from_description(&fingerprint),
        user_fingerprint,
        warnings,
        ..ClusterSpec::new(chosen.cluster, origin, config)
    }
}
