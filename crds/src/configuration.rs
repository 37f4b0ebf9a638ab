//! The configuration objects of a source.

use std::collections::BTreeMap;

use crate::{ClusterSource, MergedEndpoint, Origin, ResourceRegistry, UpstreamCluster};

/// The objects of one source: a file, a directory or a hub cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfigurationObjects {
    /// The clusters, one object for each member.
    pub clusters: Vec<UpstreamCluster>,
    /// The registered resources and their settings.
    pub registries: Vec<ResourceRegistry>,
    /// The policies of the merged view. A valid configuration has at most one MergedEndpoint.
    pub merged_endpoints: Vec<MergedEndpoint>,
    /// The lists of clusters in foreign systems. Only a hub has the items of the lists.
    pub sources: Vec<ClusterSource>,
    /// The documents that define each object, by kind and name (`UpstreamCluster "eu"`). Empty for an object that does
    /// not come from a file.
    pub origins: BTreeMap<String, Vec<Origin>>,
}

/// Formats kind and name of an object: `UpstreamCluster "eu"`.
pub(crate) fn object_text(kind: &str, name: &str) -> String {
    format!("{kind} {name:?}")
}

impl ConfigurationObjects {
    /// Returns whether the configuration has no objects.
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty()
            && self.registries.is_empty()
            && self.merged_endpoints.is_empty()
            && self.sources.is_empty()
    }

    /// Returns the reason why the objects cannot be used without a hub, with the remedy.
    pub fn need_of_a_hub(&self) -> Option<String> {
        let name = self.sources.first()?.metadata.name.as_deref().unwrap_or_default();
        let object = object_text("ClusterSource", name);
        let origin = self.origins.get(&object).and_then(|origins| origins.first());
        let place = origin.map(|origin| format!("{origin}: ")).unwrap_or_default();
        Some(format!(
            "{place}{object}: the list of a ClusterSource is in a hub; add --hub-kubeconfig or --hub-in-cluster, or \
             remove the object"
        ))
    }

    /// Returns the cluster with this name.
    pub fn cluster(&self, name: &str) -> Option<&UpstreamCluster> {
        self.clusters.iter().find(|cluster| cluster.metadata.name.as_deref() == Some(name))
    }
}
