//! Personal mode's source: the contexts of kubeconfig files.

use crate::contexts::{ContextSelection, ContextsError};
use crate::kubeconfig::{ContextProblem, KubeconfigFiles, Kubeconfigs, LoadError};

use super::{ClusterSpec, Configuration};

/// Why a kubeconfig gives no clusters.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigSourceError {
    /// A file cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The selection does not fit the contexts.
    #[error("{files}")]
    Contexts {
        /// The files.
        files: KubeconfigFiles,
        /// What does not fit.
        #[source]
        source: ContextsError,
    },
    /// What chosen contexts say cannot be used; all faults at once, one per line.
    #[error("{}\n(or leave these contexts out: --contexts names the ones to serve)", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Problems(Vec<ContextProblem>),
}

/// Reads kubeconfig files and makes a cluster of each chosen context.
#[derive(Clone, Debug)]
pub struct KubeconfigSource {
    /// The files.
    pub files: KubeconfigFiles,
    /// Which contexts, and their names.
    pub selection: ContextSelection,
}

impl KubeconfigSource {
    /// Reads everything anew.
    ///
    /// # Errors
    /// [`KubeconfigSourceError`]: one context that cannot be used refuses the whole, so that no cluster is left out
    /// silently.
    pub async fn read(&self) -> Result<Configuration, KubeconfigSourceError> {
        let configs = Kubeconfigs::load(&self.files)?;
        let selected = self
            .selection
            .select(&configs.context_names())
            .map_err(|source| KubeconfigSourceError::Contexts { files: self.files.clone(), source })?;
        let mut configuration = Configuration { files: self.files.paths().to_vec(), ..Configuration::default() };
        let mut problems = Vec::new();
        for chosen in selected {
            match configs.target(&chosen.context).await {
                Ok(target) => {
                    configuration.files.extend(target.files);
                    configuration.clusters.push(ClusterSpec {
                        name: chosen.cluster,
                        origin: format!("context {:?}", chosen.context),
                        config: target.config,
                        fingerprint: target.fingerprint,
                        index: None,
                    });
                }
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(configuration) } else { Err(KubeconfigSourceError::Problems(problems)) }
    }
}
