//! API groups of foreign systems (cluster-gateway, Karmada). The aggregated entry serves a group if the door of its
//! system is open. The documents do not depend on the clusters.

mod cluster_gateway;
mod karmada;
mod openapi;

use tributary_apimachinery::ForeignSystem;

pub use cluster_gateway::{GROUP as CLUSTER_GATEWAY_GROUP, VERSION as CLUSTER_GATEWAY_VERSION};
pub(crate) use openapi::{openapi_v3, paths_and_definitions};

use crate::discovery::model::{Group, GroupMetadata, GroupVersionKind, Resource, Subresource, Version};

/// RBAC verbs for the HTTP methods of a `proxy` subresource.
const PROXY_VERBS: [&str; 5] = ["create", "delete", "get", "patch", "update"];

/// Returns the groups of a system, each with one version.
pub fn groups_of(system: ForeignSystem) -> Vec<Group> {
    match system {
        ForeignSystem::ClusterGateway => cluster_gateway::groups(),
        ForeignSystem::Karmada => karmada::groups(),
        // The door has an entry of its own, and no resources.
        ForeignSystem::OpenClusterManagement => Vec::new(),
    }
}

fn group(name: &str, version: &str, resources: Vec<Resource>) -> Group {
    let version = Version { version: version.to_owned(), resources, freshness: "Current".to_owned(), unreadable: None };
    let metadata = GroupMetadata { name: name.to_owned(), creation_timestamp: None };
    Group { metadata, versions: vec![version], unreadable: None }
}

/// Describes a cluster-scoped resource. `names` are the plural and the singular name.
fn resource(kind: GroupVersionKind, names: (&str, &str), verbs: &[&str], subresources: Vec<Subresource>) -> Resource {
    Resource {
        resource: names.0.to_owned(),
        response_kind: Some(kind),
        scope: "Cluster".to_owned(),
        singular_resource: names.1.to_owned(),
        verbs: owned(verbs),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources,
    }
}

fn subresource(kind: GroupVersionKind, name: &str, verbs: &[&str]) -> Subresource {
    Subresource {
        subresource: name.to_owned(),
        response_kind: Some(kind),
        accepted_types: Vec::new(),
        verbs: owned(verbs),
    }
}

fn kind(group: &str, version: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The aggregator of a kube-apiserver ignores resources without a kind (kubernetes/kubernetes#118361).
    #[test]
    fn each_resource_and_subresource_of_foreign_systems_has_a_kind_of_its_group() {
        for group in ForeignSystem::ALL.into_iter().flat_map(groups_of) {
            for resource in group.versions.iter().flat_map(|version| &version.resources) {
                let below = resource.subresources.iter().map(|below| &below.response_kind);
                for kind in below.chain([&resource.response_kind]) {
                    let kind = kind.as_ref().unwrap();
                    assert_eq!((&kind.group, &*kind.version), (&group.metadata.name, "v1alpha1"));
                }
            }
        }
    }
}
