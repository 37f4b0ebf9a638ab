//! Serves discovery documents: aggregated (v2) and legacy.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tributary_apimachinery::Status;

use crate::catalog::{CATALOG, CUSTOM_GROUP_VERSION, CatalogResource, GROUP_VERSIONS, RBAC_GROUP};

/// The content type of aggregated discovery, which clients compare.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The access reviews, with their resource and kind. They are created but never stored.
const REVIEWS: [(&str, &str); 3] = [
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ("subjectaccessreviews", "SubjectAccessReview"),
];
const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

pub(crate) fn wants_aggregated(accept: &str) -> bool {
    accept.split(',').any(|clause| {
        let parts: Vec<_> = clause.split(';').map(str::trim).collect();
        parts.contains(&"as=APIGroupDiscoveryList")
            && parts.contains(&"v=v2")
            && parts.contains(&"g=apidiscovery.k8s.io")
    })
}

/// Returns the discovery document of a path (`api`, `apis`, `apis/apps`, `apis/apps/v1`, …).
pub(crate) fn document(path: &str, aggregated: bool) -> Result<Value, Status> {
    match path {
        "api" if aggregated => Ok(aggregated_list(true)),
        "apis" if aggregated => Ok(aggregated_list(false)),
        "api" => Ok(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
        })),
        "apis" => Ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups()})),
        "api/v1" => Ok(resource_list("", "v1")),
        "apis/apps/v1" => Ok(resource_list("apps", "v1")),
        "apis/authorization.k8s.io/v1" => Ok(reviews()),
        "apis/rbac.authorization.k8s.io/v1" => Ok(resource_list(RBAC_GROUP, "v1")),
        _ => groups()
            .into_iter()
            .find(|group| path.strip_prefix("apis/").is_some_and(|name| group["name"] == name))
            .map(|mut group| {
                group["kind"] = "APIGroup".into();
                group["apiVersion"] = "v1".into();
                group
            })
            .ok_or_else(Status::path_not_found),
    }
}

/// Removes resources (`pods`, `deployments.apps`) from a discovery document. Groups and versions without remaining
/// resources are removed, too.
pub(crate) fn remove_unserved(document: &mut Value, unserved: &BTreeSet<String>) {
    if unserved.is_empty() {
        return;
    }
    if let Some(resources) = document.get_mut("resources").and_then(Value::as_array_mut) {
        resources.retain(|resource| {
            !unserved.iter().any(|unserved| unserved.split('.').next() == resource["name"].as_str())
        });
    }
    if let Some(groups) = document.get_mut("groups").and_then(Value::as_array_mut) {
        groups.retain(|group| !group["name"].as_str().is_some_and(|group| is_unserved(group, unserved)));
    }
    let Some(groups) = document.get_mut("items").and_then(Value::as_array_mut) else { return };
    for group in &mut *groups {
        let name = group["metadata"]["name"].as_str().map(|name| format!(".{name}")).unwrap_or_default();
        let Some(versions) = group["versions"].as_array_mut() else { continue };
        for version in &mut *versions {
            if let Some(resources) = version["resources"].as_array_mut() {
                resources.retain(|own| {
                    !unserved.contains(&format!("{}{name}", own["resource"].as_str().unwrap_or_default()))
                });
            }
        }
        versions.retain(|version| version["resources"].as_array().is_some_and(|own| !own.is_empty()));
    }
    groups.retain(|group| group["versions"].as_array().is_some_and(|versions| !versions.is_empty()));
}

/// Returns whether the group has resources in the catalog, and none of them is served.
fn is_unserved(group: &str, unserved: &BTreeSet<String>) -> bool {
    let mut own = CATALOG.iter().filter(|resource| resource.group == group).peekable();
    own.peek().is_some() && own.all(|resource| unserved.contains(&resource.qualified()))
}

/// Marks groups as stale if their aggregated API server does not answer.
pub(crate) fn silence(document: &mut Value, silent: &BTreeSet<String>) {
    let Some(groups) = document.get_mut("items").and_then(Value::as_array_mut) else { return };
    let is_silent = |group: &&mut Value| group["metadata"]["name"].as_str().is_some_and(|name| silent.contains(name));
    for group in groups.iter_mut().filter(is_silent) {
        for version in group["versions"].as_array_mut().into_iter().flatten() {
            version["freshness"] = "Stale".into();
            version["resources"] = json!([]);
        }
    }
}

/// Inserts groups before the first group of a discovery document.
pub(crate) fn describe(document: &mut Value, described: &[Value]) {
    let Some(groups) = document.get_mut("items").and_then(Value::as_array_mut) else { return };
    groups.splice(..0, described.iter().cloned());
}

fn groups() -> Vec<Value> {
    ["apps", AUTHORIZATION, RBAC_GROUP]
        .map(|group| {
            let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
            json!({"name": group, "versions": [version], "preferredVersion": version})
        })
        .into()
}

fn resource_list(group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for resource in CATALOG.iter().filter(|r| r.group == group && r.version == version) {
        let mut entry = json!({
            "name": resource.name, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": VERBS,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        resources.push(entry);
        for subresource in resource.subresources {
            let (response_group, response_version, kind) = response_kind(resource, subresource);
            let mut entry = json!({
                "name": format!("{}/{subresource}", resource.name), "singularName": "", "namespaced": resource.namespaced,
                "kind": kind, "verbs": subresource_verbs(subresource),
            });
            if *subresource == "scale" {
                entry["group"] = response_group.into();
                entry["version"] = response_version.into();
            }
            resources.push(entry);
        }
    }
    if group.is_empty() {
        resources.push(json!({
            "name": "bindings", "singularName": "binding", "namespaced": true, "kind": "Binding", "verbs": ["create"],
        }));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

fn reviews() -> Value {
    let resources: Vec<_> = REVIEWS
        .iter()
        .map(|(name, kind)| json!({"name": name, "singularName": kind.to_lowercase(), "namespaced": false, "kind": kind, "verbs": ["create"]}))
        .collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "authorization.k8s.io/v1", "resources": resources})
}

fn subresource_verbs(subresource: &str) -> &'static [&'static str] {
    match subresource {
        "log" => &["get"],
        "binding" => &["create"],
        _ => &["get", "patch", "update"],
    }
}

fn response_kind(resource: &CatalogResource, subresource: &str) -> (&'static str, &'static str, &'static str) {
    match subresource {
        "scale" => ("autoscaling", "v1", "Scale"),
        "binding" => ("", "v1", "Binding"),
        _ => (resource.group, resource.version, resource.kind),
    }
}

fn aggregated_list(core: bool) -> Value {
    let mut items: Vec<_> = GROUP_VERSIONS
        .iter()
        .chain([&CUSTOM_GROUP_VERSION])
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, version)| {
            let bindings = json!({
                "resource": "bindings", "responseKind": {"group": "", "version": "v1", "kind": "Binding"},
                "scope": "Namespaced", "singularResource": "binding", "verbs": ["create"],
            });
            let described = CATALOG.iter().filter(|r| r.group == *group && r.version == *version);
            let resources = described.map(aggregated_resource).chain(core.then_some(bindings)).collect();
            aggregated_group(group, version, resources)
        })
        .collect();
    if !core {
        let resources = REVIEWS
            .iter()
            .map(|(name, kind)| {
                json!({
                    "resource": name, "responseKind": {"group": AUTHORIZATION, "version": "v1", "kind": kind},
                    "scope": "Cluster", "singularResource": kind.to_lowercase(), "verbs": ["create"],
                })
            })
            .collect();
        items.push(aggregated_group(AUTHORIZATION, "v1", resources));
        let (name, kind) = ("selfsubjectreviews", "SelfSubjectReview");
        let self_review = json!({
            "resource": name, "responseKind": {"group": AUTHENTICATION, "version": "v1", "kind": kind},
            "scope": "Cluster", "singularResource": "selfsubjectreview", "verbs": ["create"],
        });
        items.push(aggregated_group(AUTHENTICATION, "v1", vec![self_review]));
    }
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_group(group: &str, version: &str, resources: Vec<Value>) -> Value {
    let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
    json!({"metadata": metadata, "versions": [{"version": version, "resources": resources, "freshness": "Current"}]})
}

fn aggregated_resource(resource: &CatalogResource) -> Value {
    let mut entry = json!({
        "resource": resource.name,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": VERBS,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subresources: Vec<_> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let (group, version, kind) = response_kind(resource, subresource);
            json!({
                "subresource": subresource, "responseKind": {"group": group, "version": version, "kind": kind},
                "verbs": subresource_verbs(subresource),
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}
