//! OpenAPI documents with the minimum that kubectl needs for create, apply and edit.
//!
//! kubectl reads from v3 whether the server validates fields (the `fieldValidation` parameter of PATCH). If so, kubectl
//! validates nothing itself, and v2 only has to be parsable.

use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use crate::catalog::{CATALOG, GROUP_VERSIONS};

/// The content type of the v2 document in protobuf. The name with `@` that clients send is not a valid media type.
pub(crate) const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

pub(crate) fn v2_json() -> Value {
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}, "paths": {}, "definitions": {}})
}

/// Returns the v2 document in protobuf: the fields `swagger` (1) and `info` (2: `title` 1, `version` 2) of
/// openapi.v2.Document.
pub(crate) fn v2_protobuf() -> Vec<u8> {
    let info = [field(1, b"Kubernetes"), field(2, b"v1.36.3")].concat();
    [field(1, b"2.0"), field(2, &info)].concat()
}

/// Encodes a length-delimited field. The contents are always shorter than 128 bytes, so a length takes one byte.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, bytes.len() as u8];
    out.extend_from_slice(bytes);
    out
}

/// Returns the hash of a document like kube-openapi (`computeETag`): SHA-512 in upper-case hexadecimal.
pub(crate) fn hash(document: &[u8]) -> String {
    Sha512::digest(document).iter().map(|byte| format!("{byte:02X}")).collect()
}

fn patch_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Returns the index of v3 documents. With `broken`, the hashes are those of truncated documents.
pub(crate) fn v3_index(broken: bool) -> Value {
    let paths: serde_json::Map<_, _> = GROUP_VERSIONS
        .iter()
        .map(|(group, version)| {
            let path = patch_path(group, version);
            let hash = v3_text(&path, broken).map(|document| hash(&document)).unwrap_or_default();
            let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")});
            (path, url)
        })
        .collect();
    json!({"paths": paths})
}

/// Returns the text of a v3 document. With `broken`, only the first half.
pub(crate) fn v3_text(path: &str, broken: bool) -> Option<Vec<u8>> {
    let mut text = v3(path)?.to_string().into_bytes();
    if broken {
        text.truncate(text.len() / 2);
    }
    Some(text)
}

/// Returns a v3 document, which contains the PATCH operation and the kind of each resource.
fn v3(path: &str) -> Option<Value> {
    let (group, version) = GROUP_VERSIONS.iter().find(|(group, version)| patch_path(group, version) == path)?;
    let mut paths = serde_json::Map::new();
    let mut schemas = serde_json::Map::new();
    for resource in CATALOG.iter().filter(|r| r.group == *group && r.version == *version) {
        let kind = json!({"group": group, "version": version, "kind": resource.kind});
        let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
        let parameters: Vec<_> = ["dryRun", "fieldManager", "fieldValidation", "force"]
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
            .into();
        let operation = json!({
            "patch": {
                "parameters": parameters, "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": kind,
            },
        });
        paths.insert(format!("/{path}/{scope}{}/{{name}}", resource.name), operation);
        let schema = json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-group-version-kind": [kind],
        });
        schemas.insert(format!("simulated.{}.{}", version, resource.kind), schema);
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}, "paths": paths,
        "components": {"schemas": schemas},
    }))
}

/// Returns a forged v3 document, which describes a type that no other cluster has.
pub(crate) fn v3_forged(path: &str) -> Option<Vec<u8>> {
    let mut document = v3(path)?;
    document["components"]["schemas"] = json!({"forged": {"type": "object"}});
    Some(document.to_string().into_bytes())
}
