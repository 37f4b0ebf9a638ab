//! The discovery documents that clients are given, aggregated and legacy, made from the union.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::model::{Group, Kind, Resource, Version};
use super::storage_versions::StorageVersionHashes;
use super::union::Union;
use crate::body::{self, Body};

/// A document with its entity tag.
#[derive(Clone, Debug)]
pub struct Document {
    /// JSON text.
    pub json: Bytes,
    /// A quoted strong tag: a digest of the text.
    pub etag: String,
}

impl Document {
    fn new(value: &impl serde::Serialize) -> Self {
        let json = serde_json::to_vec(value).unwrap_or_default();
        let digest = Sha256::digest(&json);
        let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02X}")).collect();
        Self { json: json.into(), etag: format!("\"{hex}\"") }
    }
}

/// Which document a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoveryPath<'a> {
    /// `/`
    Root,
    /// `/api`
    Core,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(&'a str),
    /// `/api/<version>` or `/apis/<group>/<version>`
    Version(&'a str, &'a str),
}

impl<'a> DiscoveryPath<'a> {
    /// Reads a path; `None` if it names no discovery document.
    pub fn parse(path: &'a str) -> Option<Self> {
        let mut segments = path.trim_matches('/').split('/');
        match (segments.next()?, segments.next(), segments.next(), segments.next()) {
            ("", None, None, None) => Some(Self::Root),
            ("api", None, None, None) => Some(Self::Core),
            ("apis", None, None, None) => Some(Self::Groups),
            ("api", Some(version), None, None) => Some(Self::Version("", version)),
            ("apis", Some(group), None, None) => Some(Self::Group(group)),
            ("apis", Some(group), Some(version), None) => Some(Self::Version(group, version)),
            _ => None,
        }
    }
}

/// Whether an `Accept` header asks for aggregated discovery.
pub fn wants_aggregated(accept: &str) -> bool {
    let wanted = ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"];
    accept.split(',').map(str::trim).any(|clause| {
        clause.starts_with("application/json")
            && wanted.iter().all(|part| clause.split(';').any(|own| own.trim() == *part))
    })
}

/// The aggregated document of `/api` or `/apis`; the other paths have none.
pub fn aggregated(union: &Union, path: &DiscoveryPath<'_>) -> Option<Document> {
    match path {
        DiscoveryPath::Core => Some(Document::new(&union.core)),
        DiscoveryPath::Groups => Some(Document::new(&union.named)),
        _ => None,
    }
}

/// The legacy document of a path, or `None` if no member serves that group or version. `address` is the host and port
/// that the client used; `hashes` are those of the version that the path names, if it names one.
pub fn legacy(
    union: &Union,
    path: &DiscoveryPath<'_>,
    address: &str,
    hashes: &StorageVersionHashes,
) -> Option<Document> {
    let value = match path {
        DiscoveryPath::Root => json!({ "paths": paths(union) }),
        DiscoveryPath::Core => json!({
            "kind": "APIVersions",
            "versions": union.core.items.iter().flat_map(|group| &group.versions).map(|version| &version.version).collect::<Vec<_>>(),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        }),
        DiscoveryPath::Groups => json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": union.named.items.iter().map(api_group).collect::<Vec<_>>(),
        }),
        DiscoveryPath::Group(name) => {
            let mut group = api_group(union.group(name)?);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }
        DiscoveryPath::Version(group, version) => resource_list(group, union.version(group, version)?, hashes),
    };
    Some(Document::new(&value))
}

/// The answer with this document, or 304 where the client has it already.
pub fn answer(headers: &HeaderMap, document: Document, content_type: &'static str) -> Response<Body> {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    let unchanged = known.flat_map(|tags| tags.split(',')).any(|tag| tag.trim() == document.etag);
    let mut response = if unchanged {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        crate::response::with_content_type(StatusCode::OK, content_type, body::full(document.json))
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&document.etag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// The paths that can be asked for, as kube-apiserver names them at its root.
fn paths(union: &Union) -> Vec<String> {
    const OTHERS: [&str; 6] = ["/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3", "/version"];
    let mut paths: Vec<String> = OTHERS.map(str::to_owned).into();
    for (root, document) in [("/api", &union.core), ("/apis", &union.named)] {
        paths.push(root.to_owned());
        for group in &document.items {
            let name = &group.metadata.name;
            let base = if name.is_empty() { root.to_owned() } else { format!("{root}/{name}") };
            paths.extend(group.versions.iter().map(|version| format!("{base}/{}", version.version)));
            paths.push(base);
        }
    }
    paths.sort();
    paths.dedup();
    paths
}

fn api_group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{}/{}", group.metadata.name, version.version), "version": version.version}))
        .collect();
    json!({"name": group.metadata.name, "preferredVersion": versions.first(), "versions": versions})
}

fn resource_list(group: &str, version: &Version, hashes: &StorageVersionHashes) -> Value {
    let group_version = if group.is_empty() { version.version.clone() } else { format!("{group}/{}", version.version) };
    let mut resources = Vec::new();
    for resource in &version.resources {
        let mut entry = api_resource(group, version, resource);
        if let Some(hash) = hashes.get(&resource.resource) {
            entry["storageVersionHash"] = json!(hash);
        }
        resources.push(entry);
        for subresource in &resource.subresources {
            let kind = subresource.response_kind.as_ref();
            let mut entry = json!({
                "name": format!("{}/{}", resource.resource, subresource.subresource),
                "singularName": "",
                "namespaced": resource.namespaced(),
                "kind": kind.map_or("", |kind| kind.kind.as_str()),
                "verbs": subresource.verbs,
            });
            name_foreign_kind(&mut entry, group, version, kind);
            resources.push(entry);
        }
    }
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

fn api_resource(group: &str, version: &Version, resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.resource,
        "singularName": resource.singular_resource,
        "namespaced": resource.namespaced(),
        "kind": resource.kind(),
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    name_foreign_kind(&mut entry, group, version, resource.response_kind.as_ref());
    entry
}

/// Names group and version of a kind that is of another group or version than the list (`Scale` below `deployments`).
fn name_foreign_kind(entry: &mut Value, group: &str, version: &Version, kind: Option<&Kind>) {
    if let Some(kind) =
        kind.filter(|kind| !kind.version.is_empty() && (kind.group != group || kind.version != version.version))
    {
        entry["group"] = json!(kind.group);
        entry["version"] = json!(kind.version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_documents_are_asked_for_in_full() {
        assert!(wants_aggregated(super::super::model::AGGREGATED_ACCEPT));
        assert!(wants_aggregated(&format!("application/yaml, {}", super::super::model::AGGREGATED_ACCEPT)));
        assert!(!wants_aggregated("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"));
        assert!(!wants_aggregated("application/json"));
    }

    #[test]
    fn paths_of_documents() {
        assert_eq!(DiscoveryPath::parse("/"), Some(DiscoveryPath::Root));
        assert_eq!(DiscoveryPath::parse("/api"), Some(DiscoveryPath::Core));
        assert_eq!(DiscoveryPath::parse("/apis/"), Some(DiscoveryPath::Groups));
        assert_eq!(DiscoveryPath::parse("/api/v1"), Some(DiscoveryPath::Version("", "v1")));
        assert_eq!(DiscoveryPath::parse("/apis/apps"), Some(DiscoveryPath::Group("apps")));
        assert_eq!(DiscoveryPath::parse("/apis/apps/v1"), Some(DiscoveryPath::Version("apps", "v1")));
        assert_eq!(DiscoveryPath::parse("/apis/apps/v1/x"), None);
        assert_eq!(DiscoveryPath::parse("/version"), None);
    }
}
