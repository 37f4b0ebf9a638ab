//! All configuration objects together.

use std::collections::BTreeMap;

use crate::{MergedEndpoint, Origin, ResourceRegistry, UpstreamCluster};

/// The objects of one source: a file, a directory or a hub cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfigurationObjects {
    /// The member clusters.
    pub clusters: Vec<UpstreamCluster>,
    /// What is served of them from memory.
    pub registries: Vec<ResourceRegistry>,
    /// How requests to all clusters together are governed; valid are none and one.
    pub merged_endpoints: Vec<MergedEndpoint>,
    /// The documents of each object, by its kind and name (`UpstreamCluster "eu"`). An object of no file has none.
    pub origins: BTreeMap<String, Vec<Origin>>,
}

/// Formats kind and name of an object: `UpstreamCluster "eu"`.
pub(crate) fn object_text(kind: &str, name: &str) -> String {
    format!("{kind} {name:?}")
}

impl ConfigurationObjects {
    /// Whether there is no object at all.
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.registries.is_empty() && self.merged_endpoints.is_empty()
    }

    /// The cluster of a name.
    pub fn cluster(&self, name: &str) -> Option<&UpstreamCluster> {
        self.clusters.iter().find(|cluster| cluster.metadata.name.as_deref() == Some(name))
    }
}
