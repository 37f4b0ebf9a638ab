//! All configuration objects together.

use crate::{ResourceRegistry, UpstreamCluster};

/// The objects of one source: a file, a directory or a hub cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfigurationObjects {
    /// The member clusters.
    pub clusters: Vec<UpstreamCluster>,
    /// What is served of them from memory.
    pub registries: Vec<ResourceRegistry>,
}

impl ConfigurationObjects {
    /// The cluster of a name.
    pub fn cluster(&self, name: &str) -> Option<&UpstreamCluster> {
        self.clusters.iter().find(|cluster| cluster.metadata.name.as_deref() == Some(name))
    }
}
