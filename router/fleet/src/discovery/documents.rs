//! Discovery documents for clients, in aggregated and legacy form. The documents are built from the union of all
//! clusters' discovery documents.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tributary_answers::negotiate::{Clause, Encoding, NotAcceptable, names_a_known_type};

use super::document::{DiscoveryPath, Document};
use super::merged_discovery::MergedDiscovery;
use super::model::{Group, GroupVersionKind, Resource, Version};

/// Storage version hash of each resource in one API version, by resource name. The map omits resources without a hash.
pub type StorageVersionHashes = BTreeMap<String, String>;

/// Form of a discovery document, as negotiated with the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoveryForm {
    /// Whether the client gets the aggregated document of all groups, or a legacy document.
    pub aggregated: bool,
    /// Encoding of the document.
    pub encoding: Encoding,
}

const DOCUMENT_TYPES: [&str; 2] = ["application/json", "application/yaml"];

/// Negotiates the form from an `Accept` header. Media types are ranked by their q value, then by their order in the
/// header. The first type that is available is used. `profile=nopeer` makes no difference, because Tributary has no
/// peers.
///
/// Source: kubernetes/apiserver `pkg/endpoints/discovery/aggregated/wrapper.go`.
///
/// # Errors
/// [`NotAcceptable`] if the header accepts no available form, for example only protobuf.
pub fn negotiate(accept: &str, path: &DiscoveryPath<'_>) -> Result<DiscoveryForm, NotAcceptable> {
    // The document of `/` is always legacy JSON, so the Accept header has no effect.
    if accept.trim().is_empty() || *path == DiscoveryPath::Root {
        return Ok(DiscoveryForm { aggregated: false, encoding: Encoding::Json });
    }
    // kube-apiserver routes `/api` and the paths of versions like resources, so it refuses an unknown media type before
    // it negotiates the form. Tributary does the same.
    if matches!(path, DiscoveryPath::Core | DiscoveryPath::Version(..)) && !names_a_known_type(accept) {
        return Err(NotAcceptable::Unknown { available: DOCUMENT_TYPES.to_vec() });
    }
    let clauses = Clause::parse_all(accept);
    let found = clauses.iter().find_map(|clause| wish(clause, path));
    found.ok_or_else(|| NotAcceptable::Unavailable { available: DOCUMENT_TYPES.to_vec() })
}

fn wish(clause: &Clause<'_>, path: &DiscoveryPath<'_>) -> Option<DiscoveryForm> {
    let encodings = [Encoding::Json, Encoding::Yaml];
    let encoding = encodings.into_iter().find(|encoding| clause.names(encoding.content_type()))?;
    let get = |key: &str| clause.parameters().filter(|(own, _)| *own == key).map(|(_, value)| value).last();
    match [get("g"), get("v"), get("as")] {
        [Some("apidiscovery.k8s.io"), Some("v2"), Some("APIGroupDiscoveryList")] => {
            let has_aggregated_form = matches!(path, DiscoveryPath::Core | DiscoveryPath::Groups);
            has_aggregated_form.then_some(DiscoveryForm { aggregated: true, encoding })
        }
        [_, _, Some(_)] => None,
        _ => Some(DiscoveryForm { aggregated: false, encoding }),
    }
}

/// Returns the legacy document of a path, or `None` if no cluster serves the path's group or version. `address` is the
/// host and port that the client used. `hashes` are the storage version hashes for a path of one version.
pub fn legacy(
    merged_discovery: &MergedDiscovery,
    path: &DiscoveryPath<'_>,
    address: &str,
    hashes: &StorageVersionHashes,
) -> Option<Document> {
    let value = match path {
        DiscoveryPath::Root => json!({ "paths": paths(merged_discovery) }),
        DiscoveryPath::Core => json!({
            "kind": "APIVersions",
            "versions": merged_discovery.core.items.iter().flat_map(|group| &group.versions).map(|version| &version.version).collect::<Vec<_>>(),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        }),
        DiscoveryPath::Groups => json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": merged_discovery.named.items.iter().map(api_group).collect::<Vec<_>>(),
        }),
        DiscoveryPath::Group(name) => api_group_document(merged_discovery.group(name)?),
        DiscoveryPath::Version(group, version) => {
            resource_list(group, merged_discovery.version(group, version)?, hashes)
        }
    };
    Some(Document::new(&value))
}

fn paths(merged_discovery: &MergedDiscovery) -> Vec<String> {
    const OTHERS: [&str; 6] = ["/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3", "/version"];
    let mut paths: Vec<String> = OTHERS.map(str::to_owned).into();
    for (root, document) in [("/api", &merged_discovery.core), ("/apis", &merged_discovery.named)] {
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

/// Returns a group as a `metav1.APIGroup`, with the fields `kind` and `apiVersion`.
pub(crate) fn api_group_document(group: &Group) -> Value {
    let mut document = api_group(group);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    document
}

fn api_group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{}/{}", group.metadata.name, version.version), "version": version.version}))
        .collect();
    json!({"name": group.metadata.name, "preferredVersion": versions.first(), "versions": versions})
}

/// Returns a version of a group as an `APIResourceList`.
pub(crate) fn resource_list(group: &str, version: &Version, hashes: &StorageVersionHashes) -> Value {
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
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        // A version of the core group has no `apiVersion` (`keepUnversioned` in apiserver's `endpoints/discovery`).
        list["apiVersion"] = "v1".into();
    }
    list
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

/// Adds `group` and `version` to a resource whose kind belongs to a different group or version than the list. Example:
/// kind `Scale` of `deployments/scale`.
fn name_foreign_kind(entry: &mut Value, group: &str, version: &Version, kind: Option<&GroupVersionKind>) {
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
    fn discovery_document_forms_are_negotiated_by_accept_header() {
        const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        let negotiated_form = |accept: &str, path: &str| {
            let wish = negotiate(accept, &DiscoveryPath::parse(path).unwrap()).ok();
            wish.map(|wish| (wish.aggregated, wish.encoding))
        };
        let (legacy, aggregated) = (Some((false, Encoding::Json)), Some((true, Encoding::Json)));
        let cases = [
            (V2.to_owned(), "/apis", aggregated),
            (format!("{V2};profile=nopeer"), "/api", aggregated),
            (format!("{V2BETA1},{V2}"), "/apis", aggregated),
            (format!("{V2BETA1},application/json"), "/apis", legacy),
            (V2BETA1.to_owned(), "/apis", None),
            (format!("application/json,{V2};q=0.9"), "/apis", legacy),
            (V2.replace("application/json", "*/*"), "/apis", aggregated),
            (V2.replace("json", "yaml"), "/apis", Some((true, Encoding::Yaml))),
            (V2.to_owned(), "/apis/apps", None),
            (format!("{V2},application/json"), "/apis/apps/v1", legacy),
            ("application/yaml".to_owned(), "/apis/apps/v1", Some((false, Encoding::Yaml))),
            ("application/vnd.kubernetes.protobuf,application/json".to_owned(), "/api", legacy),
            ("application/vnd.kubernetes.protobuf".to_owned(), "/api", None),
            ("text/html".to_owned(), "/apis", None),
            ("text/html".to_owned(), "/", legacy),
            (String::new(), "/apis", legacy),
        ];
        for (accept, path, expected) in cases {
            assert_eq!(negotiated_form(&accept, path), expected, "{accept} {path}");
        }
    }

    #[test]
    fn discovery_paths_are_recognized() {
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
