//! The sources of the configuration: clusters, policies and credentials.
//!
//! ```text
//! contexts of kubeconfigs ─▶ KubeconfigSource ─┐
//!                                              ├─▶ ConfigurationSources ─▶ LoadedConfiguration ─▶ Clusters ─▶ router
//! configuration files ─────▶ FileSource ───────┘         │    ▲                                (one client each)
//!                                                        └────┴── FileWatch: which files to read again
//! ```
//!
//! A source returns a [`LoadedConfiguration`], which includes the content of all referenced files. Using the value
//! needs no I/O. So an invalid new configuration is refused as a whole, and the previous one stays in use.
//! [`Clusters`](clusters::Clusters) creates a client for each cluster of a configuration. Unchanged clusters keep their
//! clients.

pub mod clusters;
mod configuration;
pub mod contexts;
pub mod data_directory;
mod dispatch;
mod flow_control;
pub mod kubeconfig;
pub mod kubeconfig_source;
mod logging;
mod named_clusters;
pub mod policies;
mod secure_serving;
pub mod upstream_clusters;
pub mod watch;
pub mod yaml;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

pub use configuration::{ClusterSpec, LoadedConfiguration};
use contexts::ContextSelection;
pub use dispatch::dispatch_settings;
use kubeconfig::KubeconfigFiles;
use kubeconfig_source::KubeconfigSource;
use upstream_clusters::FileSource;
pub use upstream_clusters::known_clusters;
use watch::FileWatch;

/// The command line's flags that select the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ConfigurationFlags<'a> {
    /// The value of `--config`.
    pub config: Option<&'a Path>,
    /// The value of `--kubeconfig`.
    pub kubeconfig: Option<&'a Path>,
    /// The value of `--contexts`.
    pub contexts: Option<&'a str>,
    /// True in hub mode.
    pub has_hub: bool,
}

impl ConfigurationFlags<'_> {
    /// Returns whether the contexts of a kubeconfig are used as clusters.
    pub fn has_contexts(self) -> bool {
        (self.config.is_none() && !self.has_hub) || self.kubeconfig.is_some() || self.contexts.is_some()
    }
}

/// All configuration sources of an endpoint.
pub struct ConfigurationSources {
    kubeconfig: Option<KubeconfigSource>,
    files: Option<FileSource>,
    /// True if a configuration without clusters is allowed, because the hub may add clusters later.
    may_be_empty: bool,
    watch: FileWatch,
}

impl ConfigurationSources {
    /// Creates the sources that the flags and the environment select. Reads no file.
    ///
    /// # Errors
    /// `--contexts` has invalid syntax, or no kubeconfig is found although one is required.
    pub fn new(flags: ConfigurationFlags<'_>) -> anyhow::Result<Self> {
        let kubeconfig = match flags.has_contexts() {
            false => None,
            true => Some(KubeconfigSource {
                files: KubeconfigFiles::resolve(
                    flags.kubeconfig,
                    std::env::var_os("KUBECONFIG").as_deref(),
                    std::env::home_dir().as_deref(),
                )?,
                selection: match flags.contexts {
                    Some(text) => ContextSelection::parse(text)?,
                    None => ContextSelection::default(),
                },
            }),
        };
        let files = flags.config.map(Path::to_owned).map(FileSource::new);
        Ok(Self { kubeconfig, files, may_be_empty: flags.has_hub, watch: FileWatch::new() })
    }

    /// Checks that a file that this process will write is not one of its sources. Otherwise the next start would read
    /// this endpoint's kubeconfig instead of the clusters' kubeconfig.
    ///
    /// # Errors
    /// The file and the remedy.
    pub fn check_not_read(&self, written: &Path) -> anyhow::Result<()> {
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let read = self.kubeconfig.iter().flat_map(|source| source.files.paths());
        match read.into_iter().find(|path| real(path) == real(written)) {
            None => Ok(()),
            Some(path) => anyhow::bail!(
                "--write-kubeconfig {} is a kubeconfig that is read as well; write to another file, or name the clusters' \
                 own kubeconfig by --kubeconfig",
                path.display()
            ),
        }
    }

    /// Reads all sources again.
    ///
    /// # Errors
    /// The first invalid source, or a cluster name that two sources contain.
    pub async fn read(&self) -> anyhow::Result<LoadedConfiguration> {
        let mut configuration = match &self.kubeconfig {
            Some(source) => source.read().await?,
            None => LoadedConfiguration::default(),
        };
        if let Some(source) = &self.files {
            let read = source.read(&configuration.clusters).await;
            let mut read = read.with_context(|| format!("--config {}", source.path().display()))?;
            read.clusters.splice(0..0, configuration.clusters);
            read.files.splice(0..0, configuration.files);
            configuration = read;
        }
        check_distinct_names(&configuration.clusters)?;
        if let Some(problem) = configuration.objects.need_of_a_hub().filter(|_| !self.may_be_empty) {
            anyhow::bail!(problem);
        }
        if configuration.clusters.is_empty() && !self.may_be_empty {
            anyhow::bail!(no_clusters_message(self.files.as_ref().map(FileSource::path)));
        }
        Ok(configuration)
    }

    /// Watches the files of the configuration in use, [`LoadedConfiguration::files`].
    pub fn watch_files(&mut self, files: Vec<PathBuf>) {
        self.watch.set(files);
    }

    /// Waits until the content of a configuration source may have changed. Cancel: safe.
    pub async fn changed(&mut self) {
        self.watch.changed().await;
    }
}

/// Returns the message for a configuration without clusters.
fn no_clusters_message(config: Option<&Path>) -> String {
    match config {
        None => {
            "there are no clusters to serve; add contexts by --kubeconfig, or UpstreamClusters by --config".to_owned()
        }
        Some(path) => format!(
            "there are no clusters to serve: --config {} has no UpstreamCluster; write one there (tributary check --help \
             shows one), have one written by tributary join CONTEXT --config DIR, or name contexts by --contexts",
            path.display()
        ),
    }
}

fn check_distinct_names(clusters: &[Arc<ClusterSpec>]) -> anyhow::Result<()> {
    for (at, second) in clusters.iter().enumerate() {
        if let Some(first) = clusters[..at].iter().find(|first| first.name == second.name) {
            anyhow::bail!(
                "{} and {} are both cluster {}; rename one of them",
                first.origin,
                second.origin,
                second.name
            );
        }
    }
    Ok(())
}
