//! Validation of a configuration: each object alone, then all objects together.

mod governance;
mod merged_endpoint;
mod resource_registry;
mod upstream_cluster;

use std::collections::BTreeMap;
use std::fmt;

use tributary_apimachinery::{ItemResourceVersions, ResourcePattern};

use crate::configuration::object_text;
use crate::upstream_cluster::CLUSTER_UID;
use crate::{ConfigurationObjects, Origin, ResourceRegistry};

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The problem does not prevent the use of the configuration.
    Warning,
    /// The problem prevents the use of the configuration.
    Error,
}

/// A problem in the configuration. The message never contains secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationProblem {
    /// Whether the problem prevents the use of the configuration.
    pub severity: Severity,
    /// The kind and name of the object: `UpstreamCluster "eu"`.
    pub object: String,
    /// The path of the field: `spec.endpoints[1]`.
    pub field: String,
    /// The value, the problem, the allowed values and the remedy.
    pub message: String,
    /// The documents that define the object: several for a repeated name, none for an object that does not come from a
    /// file.
    pub origins: Vec<Origin>,
}

impl fmt::Display for ValidationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, origin) in self.origins.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{origin}")?;
        }
        if !self.origins.is_empty() {
            f.write_str(": ")?;
        }
        write!(f, "{}: {}: {}", self.object, self.field, self.message)
    }
}

struct Problems<'a> {
    object: String,
    found: &'a mut Vec<ValidationProblem>,
}

impl Problems<'_> {
    fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push(Severity::Error, field.into(), message.into());
    }

    fn warning(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push(Severity::Warning, field.into(), message.into());
    }

    fn push(&mut self, severity: Severity, field: String, message: String) {
        let object = self.object.clone();
        self.found.push(ValidationProblem { severity, object, field, message, origins: Vec::new() });
    }
}

impl ConfigurationObjects {
    /// Returns all problems of the configuration. The configuration can be used unless one of them is a
    /// [`Severity::Error`].
    ///
    /// Names of clusters are looked up in [`ConfigurationObjects::clusters`]. The caller must first add clusters from
    /// other sources (the contexts of a kubeconfig).
    pub fn validate(&self) -> Vec<ValidationProblem> {
        let mut found = Vec::new();
        for cluster in &self.clusters {
            let object = object("UpstreamCluster", cluster.metadata.name.as_deref());
            upstream_cluster::validate(cluster, &mut Problems { object, found: &mut found });
        }
        for registry in &self.registries {
            let object = object("ResourceRegistry", registry.metadata.name.as_deref());
            let mut problems = Problems { object, found: &mut found };
            if registry.spec.clusters.placement_decision.is_some() {
                let text = "needs a hub, which has the PlacementDecisions; give names or a selector, or create the \
                            registry in a hub";
                problems.error("spec.clusters.placementDecision", text);
            }
            resource_registry::validate(registry, self, &mut problems);
        }
        for endpoint in &self.merged_endpoints {
            let object = object("MergedEndpoint", endpoint.metadata.name.as_deref());
            merged_endpoint::validate(endpoint, &mut Problems { object, found: &mut found });
        }
        self.unique_names(&mut found);
        self.unique_clusters(&mut found);
        self.unique_indexes(&mut found);
        self.unique_server_names(&mut found);
        self.one_registry_per_resource(&mut found);
        for problem in &mut found {
            problem.origins = self.origins.get(&problem.object).cloned().unwrap_or_default();
        }
        found
    }

    /// Returns the problems of one registry, which need not belong to this configuration, with the clusters of this
    /// configuration.
    pub fn validate_registry(&self, registry: &ResourceRegistry) -> Vec<ValidationProblem> {
        let mut found = Vec::new();
        let object = object("ResourceRegistry", registry.metadata.name.as_deref());
        resource_registry::validate(registry, self, &mut Problems { object, found: &mut found });
        found
    }

    fn unique_names(&self, found: &mut Vec<ValidationProblem>) {
        let clusters = self.clusters.iter().map(|cluster| ("UpstreamCluster", cluster.metadata.name.as_deref()));
        let registries = self.registries.iter().map(|registry| ("ResourceRegistry", registry.metadata.name.as_deref()));
        let endpoints = self.merged_endpoints.iter().map(|one| ("MergedEndpoint", one.metadata.name.as_deref()));
        let mut counts = BTreeMap::new();
        let sources = self.sources.iter().map(|source| ("ClusterSource", source.metadata.name.as_deref()));
        for (kind, name) in clusters.chain(registries).chain(endpoints).chain(sources) {
            *counts.entry((kind, name)).or_insert(0_usize) += 1;
        }
        for ((kind, name), count) in counts.into_iter().filter(|(_, count)| *count > 1) {
            Problems { object: object(kind, name), found }.error(
                "metadata.name",
                format!("{count} objects have this name; give each object a unique name, or remove all but one"),
            );
        }
    }

    /// Warns about two UpstreamClusters with the same recorded cluster uid. Each object of the cluster would appear
    /// twice in the merged view. The problem is not an error, because a recorded uid can be out of date, and `serve`
    /// refuses a cluster with two names.
    fn unique_clusters(&self, found: &mut Vec<ValidationProblem>) {
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        for cluster in &self.clusters {
            let name = cluster.metadata.name.as_deref().unwrap_or_default();
            let annotations = cluster.metadata.annotations.as_ref();
            let Some(uid) = annotations.and_then(|annotations| annotations.get(CLUSTER_UID)) else { continue };
            let first = *owners.entry(uid).or_insert(name);
            if first != name {
                Problems { object: object("UpstreamCluster", Some(name)), found }.warning(
                    format!("metadata.annotations[{CLUSTER_UID}]"),
                    format!("{uid:?} is also the uid of UpstreamCluster {first:?}, and serve refuses two names for a cluster; remove one of the UpstreamClusters"),
                );
            }
        }
    }

    fn unique_indexes(&self, found: &mut Vec<ValidationProblem>) {
        let mut owners: BTreeMap<u16, &str> = BTreeMap::new();
        for cluster in &self.clusters {
            let name = cluster.metadata.name.as_deref().unwrap_or_default();
            let Some(index) = cluster.spec.index else { continue };
            if let Some(first) = owners.get(&index).copied() {
                Problems { object: object("UpstreamCluster", Some(name)), found }.error(
                    "spec.index",
                    format!(
                        "{index} is already the index of UpstreamCluster {first:?}; give this cluster a number that was never used, for example {}",
                        free_index(&self.clusters.iter().filter_map(|cluster| cluster.spec.index).collect::<Vec<_>>())
                    ),
                );
            } else {
                owners.insert(index, name);
            }
        }
    }

    /// Reports a host in `serverNames` of two clusters, because the host of a request must select a single cluster.
    fn unique_server_names(&self, found: &mut Vec<ValidationProblem>) {
        let mut owners: BTreeMap<String, &str> = BTreeMap::new();
        for cluster in &self.clusters {
            let name = cluster.metadata.name.as_deref().unwrap_or_default();
            for (index, host) in cluster.spec.server_names.iter().enumerate() {
                let owner = *owners.entry(host.to_ascii_lowercase()).or_insert(name);
                if owner != name {
                    Problems { object: object("UpstreamCluster", Some(name)), found }.error(
                        format!("spec.serverNames[{index}]"),
                        format!(
                            "{host:?} is already a host of UpstreamCluster {owner:?} (host names are case-insensitive); remove it from one of the clusters"
                        ),
                    );
                }
            }
        }
    }

    /// Reports a resource that two registries name, because a single registry must define the properties of a merged
    /// list. A registry of `*` applies only to resources that no other registry names.
    fn one_registry_per_resource(&self, found: &mut Vec<ValidationProblem>) {
        for (index, registry) in self.registries.iter().enumerate() {
            for other in &self.registries[..index] {
                if let Some((field, mine, theirs)) = overlap(registry, other) {
                    let other = other.metadata.name.as_deref().unwrap_or_default();
                    Problems { object: object("ResourceRegistry", registry.metadata.name.as_deref()), found }.error(
                        field,
                        format!(
                            "{mine:?} overlaps with {theirs:?} of ResourceRegistry {other:?}; name a resource in only one registry, or merge the registries"
                        ),
                    );
                }
            }
        }
    }
}

/// Returns the field of `registry` that names the same resource as `other`, with the value of both.
fn overlap(registry: &ResourceRegistry, other: &ResourceRegistry) -> Option<(String, String, String)> {
    for (index, mine) in registry.spec.resources.iter().enumerate() {
        for theirs in &other.spec.resources {
            let (Ok(left), Ok(right)) = (mine.parse::<ResourcePattern>(), theirs.parse::<ResourcePattern>()) else {
                continue;
            };
            let equal_right = (left == ResourcePattern::All) == (right == ResourcePattern::All);
            if equal_right && left.overlaps(&right) {
                return Some((format!("spec.resources[{index}]"), mine.clone(), theirs.clone()));
            }
        }
    }
    None
}

/// Returns the message for a resource that both registries name; `None` if the registries are compatible.
pub fn registry_conflict(registry: &ResourceRegistry, other: &ResourceRegistry) -> Option<String> {
    let (field, mine, theirs) = overlap(registry, other)?;
    let other = other.metadata.name.as_deref().unwrap_or_default();
    Some(format!(
        "{field}: {mine:?} overlaps with {theirs:?} of ResourceRegistry {other:?}; name a resource in only one registry, or \
         merge the registries"
    ))
}

/// Returns the least index above all used indices, because an index must not be reused.
fn free_index(used: &[u16]) -> u16 {
    let next = used.iter().max().map_or(0, |most| most.saturating_add(1));
    if next <= crate::upstream_cluster::INDEX_MAX {
        return next;
    }
    (0..=crate::upstream_cluster::INDEX_MAX).find(|index| !used.contains(index)).unwrap_or_default()
}

fn object(kind: &str, name: Option<&str>) -> String {
    object_text(kind, name.unwrap_or_default())
}

fn is_integer(registry: &ResourceRegistry) -> bool {
    registry.spec.item_resource_versions == ItemResourceVersions::Integer
}

#[cfg(test)]
mod tests;
