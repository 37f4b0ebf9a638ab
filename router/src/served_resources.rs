//! The resources of all clusters, to check whether a named resource exists.

use std::sync::Arc;

use tributary_apimachinery::{GroupVersionResource, ResourcePattern};
use tributary_fleet::discovery::Union;
use tributary_fleet::discovery::model::STALE;

use crate::Router;

/// The resources of all clusters, once each cluster's discovery is known.
#[derive(Clone, Debug)]
pub struct ServedResources(Arc<Union>);

impl ServedResources {
    /// Returns whether a cluster serves a resource that the pattern matches. Cost: a walk over the resources.
    pub fn has(&self, pattern: &ResourcePattern) -> bool {
        self.0.resources().any(|served| pattern.matches(&served.resource))
    }

    /// The resources, each with a singular, a kind and short names.
    pub fn iter(&self) -> impl Iterator<Item = (&GroupVersionResource, impl Iterator<Item = &str>)> {
        self.0.resources().map(|served| {
            let own = &served.description;
            let others = own.short_names.iter().map(String::as_str);
            (&served.resource, others.chain([&*own.singular_resource, own.kind()]))
        })
    }
}

impl Router {
    /// The resources of the clusters; `None` while the discovery of one is incomplete: it has not answered since it was
    /// configured, or lacks the part of an aggregated server. Cost: a walk over the groups of each cluster.
    pub fn served_resources(&self) -> Option<ServedResources> {
        let (clusters, union) = (self.fleet.clusters(), self.fleet.union());
        let is_known = clusters.values().all(|cluster| {
            let Some(discovery) = cluster.discovery() else { return false };
            let mut versions = discovery.named.items.iter().flat_map(|group| &group.versions);
            union.tells_of(cluster.name()) && !versions.any(|version| version.freshness == STALE)
        });
        (is_known && !clusters.is_empty()).then_some(ServedResources(union))
    }
}
