//! OpenAPI documents of foreign groups, generated from their discovery. The schemas describe only the metadata of
//! objects.
//!
//! All definitions have names of the group itself, not of `metav1`. Otherwise, an aggregator that joins the documents
//! of several servers would keep two definitions of `ObjectMeta`.

use serde_json::{Map, Value, json};

use crate::discovery::model::{Group, GroupVersionKind, Resource};
use crate::specification_version::SpecificationVersion;

/// Returns the OpenAPI 3.0 document of a group's only version.
pub(crate) fn openapi_v3(group: &Group) -> Value {
    let (paths, schemas) = paths_and_definitions(group, SpecificationVersion::V3);
    let info = json!({"title": "Tributary", "version": version(group)});
    json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
}

/// Returns the paths and the definitions of a group, for a document that also contains other groups.
pub(crate) fn paths_and_definitions(
    group: &Group,
    specification: SpecificationVersion,
) -> (Map<String, Value>, Map<String, Value>) {
    let writer = Writer { group, specification };
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in group.versions.iter().flat_map(|version| &version.resources) {
        writer.write_resource(resource, &mut paths, &mut schemas);
    }
    (paths, schemas)
}

fn version(group: &Group) -> &str {
    group.versions.first().map_or("", |version| &version.version)
}

/// Builds the parts of a group's document in one version of the OpenAPI specification.
struct Writer<'a> {
    group: &'a Group,
    specification: SpecificationVersion,
}

impl Writer<'_> {
    fn write_resource(&self, resource: &Resource, paths: &mut Map<String, Value>, schemas: &mut Map<String, Value>) {
        let Some(kind) = &resource.response_kind else { return };
        let collection = format!("/apis/{}/{}/{}", self.group.metadata.name, version(self.group), resource.resource);
        let list = GroupVersionKind { kind: format!("{}List", kind.kind), ..kind.clone() };
        if resource.has_verb("list") {
            schemas.insert(self.definition(&list), self.list_schema(&list, kind));
            paths.insert(collection.clone(), self.path_item(&["get"], "list", &list, &[]));
        }
        if resource.has_verb("get") {
            schemas.insert(self.definition(kind), self.object_schema(kind));
            paths.insert(format!("{collection}/{{name}}"), self.path_item(&["get"], "get", kind, &["name"]));
        }
        for below in &resource.subresources {
            let Some(kind) = &below.response_kind else { continue };
            let path = format!("{collection}/{{name}}/{}", below.subresource);
            if below.subresource == "proxy" {
                const METHODS: [&str; 5] = ["delete", "get", "patch", "post", "put"];
                paths.insert(path.clone(), self.path_item(&METHODS, "connect", kind, &["name"]));
                let item = self.path_item(&METHODS, "connect", kind, &["name", "path"]);
                paths.insert(format!("{path}/{{path}}"), item);
            } else {
                paths.insert(path, self.path_item(&["get", "put"], &below.subresource, kind, &["name"]));
            }
        }
    }

    /// Returns the path item with the operations of a path. `action` is `list`, `get`, `connect` or the name of a
    /// subresource.
    fn path_item(&self, methods: &[&str], action: &str, kind: &GroupVersionKind, parameters: &[&str]) -> Value {
        let parameters: Vec<_> = parameters.iter().map(|name| self.parameter(name)).collect();
        let suffix = if parameters.len() > 1 { "WithPath" } else { "" };
        let mut item = json!({ "parameters": parameters });
        for method in methods {
            let mut operation = json!({
                "operationId": format!("{method}_{action}_{}{suffix}", self.definition(kind)),
                "description": format!("{action} {}", kind.kind),
                "x-kubernetes-group-version-kind": gvk(kind),
            });
            let (media_type, schema) = match action {
                "connect" => ("*/*", json!({"type": "string"})),
                _ => ("application/json", self.reference(kind)),
            };
            match self.specification {
                SpecificationVersion::V2 => {
                    operation["produces"] = json!([media_type]);
                    operation["responses"] = json!({"200": {"description": "OK", "schema": schema}});
                }
                SpecificationVersion::V3 => {
                    let content = json!({ media_type: {"schema": schema} });
                    operation["responses"] = json!({"200": {"description": "OK", "content": content}});
                }
            }
            item[*method] = operation;
        }
        item
    }

    fn parameter(&self, name: &str) -> Value {
        let mut parameter = json!({"in": "path", "name": name, "required": true});
        match self.specification {
            SpecificationVersion::V2 => parameter["type"] = json!("string"),
            SpecificationVersion::V3 => parameter["schema"] = json!({"type": "string"}),
        }
        parameter
    }

    /// Returns the name of a kind's definition: the group's domain in reverse order, as in Kubernetes' own documents.
    fn definition(&self, kind: &GroupVersionKind) -> String {
        let domain: Vec<_> = self.group.metadata.name.rsplit('.').collect();
        format!("{}.{}.{}", domain.join("."), kind.version, kind.kind)
    }

    fn reference(&self, kind: &GroupVersionKind) -> Value {
        let place = match self.specification {
            SpecificationVersion::V2 => "#/definitions",
            SpecificationVersion::V3 => "#/components/schemas",
        };
        json!({ "$ref": format!("{place}/{}", self.definition(kind)) })
    }

    fn object_schema(&self, kind: &GroupVersionKind) -> Value {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let properties = json!({
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": open, "spec": open, "status": open,
        });
        json!({"type": "object", "properties": properties, "x-kubernetes-group-version-kind": [gvk(kind)]})
    }

    fn list_schema(&self, list: &GroupVersionKind, item: &GroupVersionKind) -> Value {
        let properties = json!({
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "items": {"type": "array", "items": self.reference(item)},
        });
        json!({"type": "object", "properties": properties, "required": ["items"],
            "x-kubernetes-group-version-kind": [gvk(list)]})
    }
}

fn gvk(kind: &GroupVersionKind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}
