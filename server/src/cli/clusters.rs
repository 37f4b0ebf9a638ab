//! The flags that select clusters, of `serve` and `check`.

use std::path::Path;

/// The values of the flags that select clusters.
#[derive(Clone, Copy, Debug)]
pub struct ClusterArguments<'a> {
    /// `--config`
    pub config: Option<&'a Path>,
    /// `--kubeconfig`
    pub kubeconfig: Option<&'a Path>,
    /// `--contexts`
    pub contexts: Option<&'a str>,
}

impl ClusterArguments<'_> {
    /// Reports whether contexts of a kubeconfig are clusters.
    pub fn has_contexts(self) -> bool {
        self.config.is_none() || self.kubeconfig.is_some() || self.contexts.is_some()
    }
}
