//! Sources of the configuration: clusters, policies and credentials.
//!
//! ```text
//! contexts of kubeconfigs ─▶ KubeconfigSource ─┐
//!                                              ├─▶ ConfigurationSources ─▶ LoadedConfiguration ─▶ Clusters ─▶ router
//! configuration files ─────▶ FileSource ───────┘         │    ▲                                (one client each)
//!                                                        └────┴── FileWatch: which files to read again
//! ```
//!
//! A source yields a [`LoadedConfiguration`]: a value that holds everything, including the contents of referenced
//! files. Reading the value does no I/O. So an invalid new configuration is refused as a whole, and the old one stays
//! in force. [`Clusters`](clusters::Clusters) turns the clusters of a configuration into clients, and keeps the clients
//! of clusters that did not change.

pub mod clusters;
mod configuration;
pub mod contexts;
pub mod data_directory;
mod dispatch;
mod flow_control;
pub mod kubeconfig;
pub mod kubeconfig_source;
mod logging;
pub mod policies;
mod secure_serving;
pub mod upstream_clusters;
pub mod watch;
pub mod yaml;

use std::path::{Path, PathBuf};

use anyhow::Context;

pub use configuration::{ClusterSpec, LoadedConfiguration};
use contexts::ContextSelection;
pub use dispatch::dispatch_settings;
use kubeconfig::KubeconfigFiles;
use kubeconfig_source::KubeconfigSource;
use upstream_clusters::FileSource;
use watch::FileWatch;

/// The places of the configuration, as the command line gives them.
#[derive(Clone, Copy, Debug)]
pub struct ConfigurationPlaces<'a> {
    /// `--config`
    pub config: Option<&'a Path>,
    /// `--kubeconfig`
    pub kubeconfig: Option<&'a Path>,
    /// `--contexts`
    pub contexts: Option<&'a str>,
}

impl ConfigurationPlaces<'_> {
    /// Returns whether contexts of a kubeconfig are clusters.
    pub fn has_contexts(self) -> bool {
        self.config.is_none() || self.kubeconfig.is_some() || self.contexts.is_some()
    }
}

/// All sources of an endpoint.
pub struct ConfigurationSources {
    kubeconfig: Option<KubeconfigSource>,
    files: Option<FileSource>,
    watch: FileWatch,
}

impl ConfigurationSources {
    /// Chooses the sources by flags and environment, and reads none of them.
    ///
    /// # Errors
    /// A selection of contexts that does not parse, or no kubeconfig where one is needed.
    pub fn new(places: ConfigurationPlaces<'_>) -> anyhow::Result<Self> {
        let kubeconfig = match places.has_contexts() {
            false => None,
            true => Some(KubeconfigSource {
                files: KubeconfigFiles::resolve(
                    places.kubeconfig,
                    std::env::var_os("KUBECONFIG").as_deref(),
                    std::env::home_dir().as_deref(),
                )?,
                selection: match places.contexts {
                    Some(text) => ContextSelection::parse(text)?,
                    None => ContextSelection::default(),
                },
            }),
        };
        let files = places.config.map(Path::to_owned).map(FileSource::new);
        Ok(Self { kubeconfig, files, watch: FileWatch::new() })
    }

    /// Checks that a written file is not a source: the next start would read this endpoint instead of the clusters.
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
    /// The first unusable source, or a name in two sources.
    pub async fn read(&self) -> anyhow::Result<LoadedConfiguration> {
        let mut configuration = match &self.kubeconfig {
            Some(source) => source.read().await?,
            None => LoadedConfiguration::default(),
        };
        if let Some(source) = &self.files {
            // Lists each field by name, so that the compiler finds a forgotten field.
            let LoadedConfiguration { clusters, registries, dispatch, flow_control, logging, files } = source
                .read(&configuration.clusters)
                .await
                .with_context(|| format!("--config {}", source.path().display()))?;
            configuration.clusters.extend(clusters);
            configuration.registries.extend(registries);
            configuration.files.extend(files);
            configuration = LoadedConfiguration { dispatch, flow_control, logging, ..configuration };
        }
        different_names(&configuration.clusters)?;
        if configuration.clusters.is_empty() {
            anyhow::bail!(no_clusters(self.files.as_ref().map(FileSource::path)));
        }
        Ok(configuration)
    }

    /// Watches the files of the configuration that is in force, [`LoadedConfiguration::files`].
    pub fn watch_files(&mut self, files: Vec<PathBuf>) {
        self.watch.set(files);
    }

    /// Waits until a source may have another configuration. Cancel: safe.
    pub async fn changed(&mut self) {
        self.watch.changed().await;
    }
}

/// Message for a configuration without clusters.
fn no_clusters(config: Option<&Path>) -> String {
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

fn different_names(clusters: &[ClusterSpec]) -> anyhow::Result<()> {
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
