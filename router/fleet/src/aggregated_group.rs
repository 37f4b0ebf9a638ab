//! Discovery and OpenAPI documents of Tributary's own API group. The documents do not depend on the clusters.
//!
//! The aggregated entry (Tributary behind the aggregator of the hub's kube-apiserver) serves `views`, `clusters` and
//! their `proxy` subresources. The merged view serves `clusters` only.
//!
//! The aggregator of a kube-apiserver needs a `responseKind` for each resource and subresource
//! (kubernetes/kubernetes#118361).

mod entry;
mod openapi;

pub(crate) use entry::{COMBINATIONS, combination, foreign_groups};
pub use entry::{aggregated_discovery, legacy_discovery, view};
pub use openapi::{merged_view_openapi_v3, openapi_v2, openapi_v3};

use serde_json::{Value, json};
use tributary_apimachinery::GroupVersionResource;
use tributary_printers::{ColumnDefinition, Printer};

use crate::discovery::model::{Group, GroupMetadata, GroupVersionKind, Resource, Subresource, Version};
use crate::discovery::{ResourceKind, documents};

/// Name of the API group.
pub const GROUP: &str = "aggregation.tributary.dev";

/// Only version of the API group.
pub const VERSION: &str = "v1alpha1";

/// Plural name of the resource with one object for each cluster.
pub const CLUSTERS: &str = "clusters";

/// Plural name of the resource with one object for each merged view.
pub const VIEWS: &str = "views";

/// RBAC verbs for the HTTP methods of a `proxy` subresource.
const PROXY_VERBS: [&str; 5] = ["create", "delete", "get", "patch", "update"];

/// Returns Tributary's group as an `APIGroupDiscovery` (`apidiscovery.k8s.io/v2`), with all resources of the aggregated
/// entry.
pub fn group_discovery() -> Value {
    json!(entry_group())
}

/// Returns the version of Tributary's group as a legacy `APIResourceList`, with all resources of the aggregated entry.
pub fn resource_list() -> Value {
    documents::resource_list(GROUP, &version_with(entry_resources()), &documents::StorageVersionHashes::new())
}

/// Returns kind and columns of the resource `clusters`.
pub fn clusters_kind() -> ResourceKind {
    kind_with_columns(CLUSTERS, "Cluster", CLUSTER_COLUMNS)
}

/// Returns kind and columns of the resource `views`.
pub fn views_kind() -> ResourceKind {
    kind_with_columns(VIEWS, "View", [("Path", "string", ".status.path")])
}

fn kind_with_columns<const N: usize>(plural: &str, kind: &str, columns: [PrintedColumn; N]) -> ResourceKind {
    let (printer, _) = Printer::custom(&columns.map(|(name, kind, path)| ColumnDefinition {
        name: name.to_owned(),
        r#type: kind.to_owned(),
        json_path: path.to_owned(),
        ..ColumnDefinition::default()
    }));
    let resource = GroupVersionResource::new(GROUP, VERSION, plural);
    ResourceKind { resource, kind: kind.into(), namespaced: false, printer }
}

/// Printer column: heading, type and JSONPath. The column with the name is not listed.
type PrintedColumn = (&'static str, &'static str, &'static str);

/// Printer columns of `clusters` in addition to the name.
const CLUSTER_COLUMNS: [PrintedColumn; 7] = [
    ("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#),
    ("Reason", "string", r#".status.conditions[?(@.type=="Ready")].reason"#),
    ("Version", "string", ".status.version"),
    ("Synced", "string", ".status.synced"),
    ("Objects", "string", ".status.objects"),
    ("Stale", "date", ".status.staleSince"),
    ("Age", "date", ".metadata.creationTimestamp"),
];

/// Returns Tributary's group as a legacy `metav1.APIGroup`.
pub fn api_group() -> Value {
    documents::api_group_document(&entry_group())
}

/// Returns Tributary's group for the merged view: the resource `clusters` without subresources.
pub fn merged_group() -> Group {
    group_with(vec![clusters(Vec::new())])
}

fn entry_group() -> Group {
    group_with(entry_resources())
}

fn entry_resources() -> Vec<Resource> {
    vec![clusters(vec![proxy("ClusterProxyOptions")]), views()]
}

fn group_with(resources: Vec<Resource>) -> Group {
    let metadata = GroupMetadata { name: GROUP.to_owned(), creation_timestamp: None };
    Group { metadata, versions: vec![version_with(resources)], unreadable: None }
}

fn version_with(resources: Vec<Resource>) -> Version {
    Version { version: VERSION.to_owned(), resources, freshness: "Current".to_owned(), unreadable: None }
}

fn clusters(subresources: Vec<Subresource>) -> Resource {
    Resource {
        resource: CLUSTERS.to_owned(),
        response_kind: Some(kind("Cluster")),
        scope: "Cluster".to_owned(),
        singular_resource: "cluster".to_owned(),
        verbs: owned(["get", "list", "watch"]),
        short_names: Vec::new(),
        categories: owned(["tributary"]),
        subresources,
    }
}

fn views() -> Resource {
    Resource {
        resource: VIEWS.to_owned(),
        response_kind: Some(kind("View")),
        singular_resource: "view".to_owned(),
        verbs: owned(["get", "list"]),
        ..clusters(vec![proxy("ViewProxyOptions")])
    }
}

fn proxy(options: &str) -> Subresource {
    Subresource {
        subresource: "proxy".to_owned(),
        response_kind: Some(kind(options)),
        accepted_types: Vec::new(),
        verbs: owned(PROXY_VERBS),
    }
}

fn kind(kind: &str) -> GroupVersionKind {
    GroupVersionKind { group: GROUP.to_owned(), version: VERSION.to_owned(), kind: kind.to_owned() }
}

fn owned<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resource_and_subresource_of_the_aggregated_entry_has_a_response_kind() {
        let group = group_discovery();
        assert_eq!(group["metadata"], json!({ "name": GROUP }));
        let version = &group["versions"][0];
        assert_eq!((&version["version"], &version["freshness"]), (&json!(VERSION), &json!("Current")));
        let all = ["create", "delete", "get", "patch", "update"];
        let cases: [(usize, &str, &str, &[&str]); 2] =
            [(0, "clusters", "Cluster", &["get", "list", "watch"]), (1, "views", "View", &["get", "list"])];
        for (at, name, kind, verbs) in cases {
            let resource = &version["resources"][at];
            let gvk = |kind: &str| json!({"group": GROUP, "version": VERSION, "kind": kind});
            assert_eq!(resource["resource"], name);
            assert_eq!(resource["scope"], "Cluster");
            assert_eq!(resource["responseKind"], gvk(kind));
            assert_eq!(resource["verbs"], json!(verbs));
            assert_eq!(resource["categories"], json!(["tributary"]));
            assert_eq!(resource.get("shortNames"), None);
            let below = &resource["subresources"];
            assert_eq!(below.as_array().unwrap().len(), 1);
            assert_eq!(below[0]["subresource"], "proxy");
            assert_eq!(below[0]["responseKind"], gvk(&format!("{kind}ProxyOptions")));
            assert_eq!(below[0]["verbs"], json!(all));
        }
    }

    #[test]
    fn legacy_documents_list_the_resources_of_aggregated_discovery() {
        let list = resource_list();
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("APIResourceList"), &json!("v1")));
        assert_eq!(list["groupVersion"], format!("{GROUP}/{VERSION}"));
        let resources = list["resources"].as_array().unwrap();
        let names: Vec<_> =
            resources.iter().map(|it| (it["name"].as_str().unwrap(), it["kind"].as_str().unwrap())).collect();
        let expected = [
            ("clusters", "Cluster"),
            ("clusters/proxy", "ClusterProxyOptions"),
            ("views", "View"),
            ("views/proxy", "ViewProxyOptions"),
        ];
        assert_eq!(names, expected);
        assert!(resources.iter().all(|resource| resource["namespaced"] == false));
        let versions = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
        let group = json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "preferredVersion": versions,
            "versions": [versions]});
        assert_eq!(api_group(), group);
    }

    #[test]
    fn columns_of_clusters_have_valid_paths() {
        let kind = clusters_kind();
        let headings: Vec<_> = kind.printer.columns().iter().map(|column| &*column.name).collect();
        assert_eq!(headings, ["Name", "Ready", "Reason", "Version", "Synced", "Objects", "Stale", "Age"]);
    }

    #[test]
    fn merged_view_serves_clusters_without_proxies() {
        let group = merged_group();
        let resources = &group.versions[0].resources;
        assert_eq!(resources.len(), 1);
        assert_eq!((&*resources[0].resource, resources[0].subresources.len()), ("clusters", 0));
    }
}
