//! Resources of all clusters. A check of the configuration needs them, to find names of resources that do not exist.

use std::sync::Arc;

use tributary_apimachinery::{GroupVersionResource, ResourcePattern};
use tributary_fleet::discovery::MergedDiscovery;
use tributary_fleet::discovery::model::STALE;

use crate::Router;

/// Resources of all clusters. Available once each cluster's discovery is known.
#[derive(Clone, Debug)]
pub struct ServedResources(Arc<MergedDiscovery>);

impl ServedResources {
    /// Returns whether a cluster serves a resource that the pattern matches. Cost: linear in the number of resources.
    pub fn has(&self, pattern: &ResourcePattern) -> bool {
        self.0.resources().any(|served| pattern.matches(&served.resource))
    }

    /// Returns the resources, each with singular name, kind and short names.
    pub fn iter(&self) -> impl Iterator<Item = (&GroupVersionResource, impl Iterator<Item = &str>)> {
        self.0.resources().map(|served| {
            let own = &served.description;
            let others = own.short_names.iter().map(String::as_str);
            (&served.resource, others.chain([&*own.singular_resource, own.kind()]))
        })
    }
}

impl Router {
    /// Returns the resources of the clusters. `None` while a cluster's discovery is incomplete: the cluster has not
    /// answered since it was configured, or an aggregated server's part is missing. Cost: linear in the number of
    /// groups of all clusters.
    pub fn served_resources(&self) -> Option<ServedResources> {
        let (clusters, merged_discovery) = (self.fleet.clusters(), self.fleet.merged_discovery());
        let is_known = clusters.values().all(|cluster| {
            let Some(discovery) = cluster.discovery() else { return false };
            let mut versions = discovery.named.items.iter().flat_map(|group| &group.versions);
            merged_discovery.has_discovery_of(cluster.name()) && !versions.any(|version| version.freshness == STALE)
        });
        (is_known && !clusters.is_empty()).then_some(ServedResources(merged_discovery))
    }
}
