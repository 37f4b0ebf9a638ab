//! Whether a configuration makes sense: each object by itself, then all of them together.

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

/// Whether a problem keeps the configuration from being used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It is used, and the user had better know.
    Warning,
    /// It is not used.
    Error,
}

/// Something that is wrong or doubtful. Secrets are never part of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationProblem {
    /// Whether it keeps the configuration from being used.
    pub severity: Severity,
    /// The object by kind and name: `UpstreamCluster "eu"`.
    pub object: String,
    /// The path of the field: `spec.endpoints[1]`.
    pub field: String,
    /// The value, what is wrong with it, what is allowed and what to do.
    pub message: String,
    /// The documents of the object: several for a repeated name, none for an object of no file.
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

/// Collects the problems of one object.
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
    /// All that is wrong or doubtful. It may be used if there is no [`Severity::Error`].
    ///
    /// Names of clusters are looked up in [`ConfigurationObjects::clusters`]: clusters that come from elsewhere (the
    /// contexts of a kubeconfig) have to be added there first.
    pub fn validate(&self) -> Vec<ValidationProblem> {
        let mut found = Vec::new();
        for cluster in &self.clusters {
            let object = object("UpstreamCluster", cluster.metadata.name.as_deref());
            upstream_cluster::validate(cluster, &mut Problems { object, found: &mut found });
        }
        for registry in &self.registries {
            let object = object("ResourceRegistry", registry.metadata.name.as_deref());
            resource_registry::validate(registry, self, &mut Problems { object, found: &mut found });
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

    fn unique_names(&self, found: &mut Vec<ValidationProblem>) {
        let clusters = self.clusters.iter().map(|cluster| ("UpstreamCluster", cluster.metadata.name.as_deref()));
        let registries = self.registries.iter().map(|registry| ("ResourceRegistry", registry.metadata.name.as_deref()));
        let endpoints = self.merged_endpoints.iter().map(|one| ("MergedEndpoint", one.metadata.name.as_deref()));
        let mut counts = BTreeMap::new();
        for (kind, name) in clusters.chain(registries).chain(endpoints) {
            *counts.entry((kind, name)).or_insert(0_usize) += 1;
        }
        for ((kind, name), count) in counts.into_iter().filter(|(_, count)| *count > 1) {
            Problems { object: object(kind, name), found }.error(
                "metadata.name",
                format!("{count} objects have this name; give each one of its own, or remove all but one"),
            );
        }
    }

    /// Warns of one cluster under two names, whose objects would appear twice. It is no error: the recorded uid may be
    /// out of date, and `serve` itself refuses a cluster of two names.
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
                    format!("{uid:?} is that of UpstreamCluster {first:?}, too: serve refuses two names of one cluster; remove one of the two"),
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
                        "{index} is already the index of UpstreamCluster {first:?}; give this cluster another one that was never used before, for example {}",
                        free_index(&self.clusters.iter().filter_map(|cluster| cluster.spec.index).collect::<Vec<_>>())
                    ),
                );
            } else {
                owners.insert(index, name);
            }
        }
    }

    /// A request's host has to say which cluster it means.
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
                            "{host:?} is already a name of UpstreamCluster {owner:?}, whatever the case of its letters; a host is one cluster's: remove it from one of the two"
                        ),
                    );
                }
            }
        }
    }

    /// A resource is one merged list with one set of properties, so one registry has to answer for it. `*` stands
    /// behind those that name the resource.
    fn one_registry_per_resource(&self, found: &mut Vec<ValidationProblem>) {
        for (index, registry) in self.registries.iter().enumerate() {
            for other in &self.registries[..index] {
                if let Some((field, mine, theirs)) = overlap(registry, other) {
                    let other = other.metadata.name.as_deref().unwrap_or_default();
                    Problems { object: object("ResourceRegistry", registry.metadata.name.as_deref()), found }.error(
                        field,
                        format!(
                            "{mine:?} overlaps with {theirs:?} of ResourceRegistry {other:?}; name a resource in one registry only, or put both together"
                        ),
                    );
                }
            }
        }
    }
}

/// The first pair of entries that mean one resource with equal right.
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

/// The least number above all that are used, since a number must not come back.
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

/// Whether the registry gives integer versions.
fn is_integer(registry: &ResourceRegistry) -> bool {
    registry.spec.item_resource_versions == ItemResourceVersions::Integer
}

#[cfg(test)]
mod tests;
