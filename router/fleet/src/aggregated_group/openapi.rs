//! OpenAPI documents of Tributary's own API group.
//!
//! All definitions have names of this group, not of `metav1`. With names of `metav1`, an aggregator that joins the
//! documents of several servers would keep two definitions of `ObjectMeta`.

use serde_json::{Map, Value, json};

use super::{CLUSTERS, GROUP, VERSION, VIEWS};
use crate::discovery::model::Group;
use crate::foreign_groups::paths_and_definitions;
use crate::specification_version::SpecificationVersion;

/// Prefix of the names of definitions: the group's domain in reverse order, as in Kubernetes' own documents.
const PACKAGE: &str = "dev.tributary.aggregation.v1alpha1";

/// Returns the OpenAPI 3.0 document of the group, with all resources of the aggregated entry.
pub fn openapi_v3() -> Value {
    document(SpecificationVersion::V3, &[(CLUSTERS, "Cluster"), (VIEWS, "View")], Proxies::Described)
}

/// Returns the Swagger 2.0 document of the aggregated entry: all resources of Tributary's group, and the groups of
/// foreign systems.
pub fn openapi_v2<'a>(foreign: impl IntoIterator<Item = &'a Group>) -> Value {
    let mut own = document(SpecificationVersion::V2, &[(CLUSTERS, "Cluster"), (VIEWS, "View")], Proxies::Described);
    for group in foreign {
        let (paths, definitions) = paths_and_definitions(group, SpecificationVersion::V2);
        for (field, parts) in [("paths", paths), ("definitions", definitions)] {
            if let Some(own) = own[field].as_object_mut() {
                own.extend(parts);
            }
        }
    }
    own
}

/// Returns the OpenAPI 3.0 document of the group, with the resources of the merged view.
pub fn merged_view_openapi_v3() -> Value {
    document(SpecificationVersion::V3, &[(CLUSTERS, "Cluster")], Proxies::Absent)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Proxies {
    Described,
    Absent,
}

/// Returns an OpenAPI document with these resources. Each resource is a plural name and a kind.
fn document(specification: SpecificationVersion, resources: &[(&str, &str)], proxies: Proxies) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for schema in [object_metadata(), list_metadata()] {
        schemas.extend(schema);
    }
    for (plural, kind) in resources {
        schemas.extend(schemas_of_kind(specification, kind));
        let collection = format!("/apis/{GROUP}/{VERSION}/{plural}");
        paths.insert(collection.clone(), specification.read_path("list", kind));
        let object = format!("{collection}/{{name}}");
        paths.insert(object.clone(), specification.read_path("get", kind));
        if proxies == Proxies::Described {
            paths.insert(format!("{object}/proxy"), specification.proxy_path(kind, ""));
            paths.insert(format!("{object}/proxy/{{path}}"), specification.proxy_path(kind, "WithPath"));
        }
    }
    let info = json!({"title": "Tributary", "version": VERSION});
    match specification {
        SpecificationVersion::V2 => json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": schemas}),
        SpecificationVersion::V3 => {
            json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
        }
    }
}

impl SpecificationVersion {
    fn reference(self, schema: &str) -> Value {
        let place = match self {
            Self::V2 => "#/definitions",
            Self::V3 => "#/components/schemas",
        };
        json!({ "$ref": format!("{place}/{PACKAGE}.{schema}") })
    }

    fn parameter(self, place: &str, name: &str, (kind, description): (&str, &str)) -> Value {
        let mut parameter = json!({"in": place, "name": name, "description": description});
        match self {
            Self::V2 => parameter["type"] = json!(kind),
            Self::V3 => parameter["schema"] = json!({ "type": kind }),
        }
        if place == "path" {
            parameter["required"] = json!(true);
        }
        parameter
    }

    fn path_parameter(self, name: &str, description: &str) -> Value {
        self.parameter("path", name, ("string", description))
    }

    /// Returns the path item of `get` or `list`.
    fn read_path(self, action: &str, kind: &str) -> Value {
        let answered = if action == "list" { format!("{kind}List") } else { kind.to_owned() };
        let description = if action == "list" { "list or watch objects of kind" } else { "read the specified" };
        let verb = if action == "list" { "list" } else { "read" };
        let mut operation = json!({
            "tags": ["aggregationTributaryDev_v1alpha1"],
            "description": format!("{description} {kind}"),
            "operationId": format!("{verb}AggregationTributaryDevV1alpha1{kind}"),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk(kind),
        });
        let types = ["application/json", "application/yaml"];
        let schema = self.reference(&answered);
        match self {
            Self::V2 => {
                operation["produces"] = json!(types);
                operation["schemes"] = json!(["https"]);
                operation["responses"] = json!({"200": {"description": "OK", "schema": schema}});
            }
            Self::V3 => {
                let content: Map<_, _> =
                    types.map(|it| (it.to_owned(), json!({ "schema": schema }))).into_iter().collect();
                operation["responses"] = json!({"200": {"description": "OK", "content": content}});
            }
        }
        let parameters = match action {
            "list" => LIST_PARAMETERS.map(|(name, form)| self.parameter("query", name, form)).to_vec(),
            _ => vec![self.path_parameter("name", &format!("name of the {kind}"))],
        };
        json!({"get": operation, "parameters": parameters})
    }

    /// Returns the path item of a `proxy` subresource. The cluster behind the proxy defines the responses.
    fn proxy_path(self, kind: &str, suffix: &str) -> Value {
        let mut parameters = vec![self.path_parameter("name", &format!("name of the {kind}"))];
        if !suffix.is_empty() {
            parameters.push(self.path_parameter("path", "path to the resource behind the proxy"));
        }
        let mut item = json!({ "parameters": parameters });
        for method in ["delete", "get", "patch", "post", "put"] {
            let mut operation = json!({
                "tags": ["aggregationTributaryDev_v1alpha1"],
                "description": format!("connect {} requests to proxy of {kind}", method.to_uppercase()),
                "operationId": format!("connect{}AggregationTributaryDevV1alpha1{kind}Proxy{suffix}", capitalize(method)),
                "x-kubernetes-action": "connect",
                "x-kubernetes-group-version-kind": gvk(&format!("{kind}ProxyOptions")),
            });
            match self {
                Self::V2 => {
                    operation["produces"] = json!(["*/*"]);
                    operation["consumes"] = json!(["*/*"]);
                    operation["schemes"] = json!(["https"]);
                    operation["responses"] = json!({"200": {"description": "OK", "schema": {"type": "string"}}});
                }
                Self::V3 => {
                    let content = json!({"*/*": {"schema": {"type": "string"}}});
                    operation["responses"] = json!({"200": {"description": "OK", "content": content}});
                }
            }
            item[method] = operation;
        }
        item
    }
}

/// Query parameters of a list, each with its type and description.
const LIST_PARAMETERS: [(&str, (&str, &str)); 7] = [
    ("allowWatchBookmarks", ("boolean", "Whether a watch sends events of the type BOOKMARK.")),
    ("fieldSelector", ("string", "Restricts the objects by their fields. The only known field is metadata.name.")),
    ("labelSelector", ("string", "Restricts the objects by their labels.")),
    ("resourceVersion", ("string", "The resourceVersion of an earlier answer, from which a watch continues.")),
    ("sendInitialEvents", ("boolean", "Whether a watch begins with the present objects.")),
    ("timeoutSeconds", ("integer", "The time in seconds after which a watch ends.")),
    ("watch", ("boolean", "Whether the answer is a stream of changes.")),
];

fn capitalize(word: &str) -> String {
    let mut characters = word.chars();
    characters.next().map(|first| first.to_ascii_uppercase().to_string() + characters.as_str()).unwrap_or_default()
}

fn gvk(kind: &str) -> Value {
    json!({"group": GROUP, "version": VERSION, "kind": kind})
}

/// Returns the schemas of a kind, of its list, and of the types that only this kind uses.
fn schemas_of_kind(specification: SpecificationVersion, kind: &str) -> Map<String, Value> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let mut properties = json!({
        "apiVersion": text("The version of the schema of this object."),
        "kind": text("The REST resource that this object represents."),
        "metadata": specification.property("ObjectMeta", "Metadata of the object."),
    });
    let mut list = properties.clone();
    list["metadata"] = specification.property("ListMeta", "Metadata of the list.");
    list["items"] =
        json!({"type": "array", "description": "Objects of the list.", "items": specification.reference(kind)});
    let mut schemas = Map::new();
    let description = match kind {
        "Cluster" => {
            properties["status"] =
                specification.property("ClusterStatus", "State of the cluster as Tributary sees it.");
            schemas.extend(cluster_status(specification));
            "Cluster is the state of a cluster behind Tributary."
        }
        _ => {
            let path = json!({"path": text("Path of the view's API at this server.")});
            properties["status"] = specification.property("ViewStatus", "Address of the view.");
            schemas.extend(definition("ViewStatus", "ViewStatus is the address of a merged view.", &path));
            "View is a merged view of all clusters."
        }
    };
    let described = |kind: &str, description: &str, properties: Value| {
        json!({"type": "object", "description": description, "properties": properties,
            "x-kubernetes-group-version-kind": [gvk(kind)]})
    };
    schemas.insert(format!("{PACKAGE}.{kind}"), described(kind, description, properties));
    let list_kind = format!("{kind}List");
    let mut list = described(&list_kind, &format!("{list_kind} is a list of {kind} objects."), list);
    list["required"] = json!(["items"]);
    schemas.insert(format!("{PACKAGE}.{list_kind}"), list);
    schemas
}

impl SpecificationVersion {
    /// Returns a property that refers to another schema. OpenAPI 3.0 ignores keys beside `$ref`, so `allOf` contains
    /// the reference.
    fn property(self, schema: &str, description: &str) -> Value {
        let mut property = self.reference(schema);
        if self == Self::V3 {
            property = json!({"allOf": [property], "default": {}});
        }
        property["description"] = json!(description);
        property
    }
}

fn object_metadata() -> Map<String, Value> {
    let map = |description: &str| json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}});
    let properties = json!({
        "name": {"type": "string", "description": "Name of the object."},
        "uid": {"type": "string", "description": "Identifier of the object in time and space."},
        "resourceVersion": {"type": "string", "description": "Opaque version of the object."},
        "creationTimestamp": {"type": "string", "format": "date-time", "description": "Time of the creation."},
        "labels": map("Labels of the object."),
        "annotations": map("Annotations of the object."),
    });
    definition("ObjectMeta", "ObjectMeta is the metadata of an object.", &properties)
}

fn list_metadata() -> Map<String, Value> {
    let properties =
        json!({"resourceVersion": {"type": "string", "description": "Opaque version of the list, for a watch."}});
    definition("ListMeta", "ListMeta is the metadata of a list.", &properties)
}

fn cluster_status(specification: SpecificationVersion) -> Map<String, Value> {
    let count = |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    let text = |description: &str| json!({"type": "string", "description": description});
    let conditions = json!({"type": "array", "description": "Conditions of the cluster: Ready and Synced.",
        "items": specification.reference("Condition"),
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]});
    let time = json!({"type": "string", "format": "date-time",
        "description": "Time since which the cached objects are out of date; absent while they are up to date."});
    let mut schemas = definition(
        "ClusterStatus",
        "ClusterStatus is the state of a cluster as Tributary sees it.",
        &json!({
            "conditions": conditions,
            "version": text("Version of the cluster's server."),
            "syncedResources": count("Number of cached collections that are up to date."),
            "knownResources": count("Number of collections that are cached or being read."),
            "synced": text("Both numbers as one text, for example 23/24."),
            "objects": text("Number of cached objects, rounded to two digits, for example ~12k."),
            "staleSince": time,
            "source": specification.reference("ClusterSource"),
        }),
    );
    schemas.extend(definition(
        "ClusterSource",
        "ClusterSource is the object of the hub that describes the cluster.",
        &json!({
            "kind": text("Kind of the object: UpstreamCluster or ClusterSource."),
            "name": text("Name of the object."),
            "item": text("Object of the list of a ClusterSource."),
        }),
    ));
    let condition = json!({
        "type": text("Type of the condition."),
        "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Status of the condition."},
        "lastTransitionTime": {"type": "string", "format": "date-time", "description": "Time of the last change."},
        "reason": text("Reason for programs, in CamelCase."),
        "message": text("Reason for people."),
    });
    let mut condition = definition("Condition", "Condition is one aspect of the state of an object.", &condition);
    for schema in condition.values_mut() {
        schema["required"] = json!(["type", "status", "lastTransitionTime", "reason", "message"]);
    }
    schemas.extend(condition);
    schemas
}

fn definition(name: &str, description: &str, properties: &Value) -> Map<String, Value> {
    let schema = json!({"type": "object", "description": description, "properties": properties});
    Map::from_iter([(format!("{PACKAGE}.{name}"), schema)])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tributary_apimachinery::ForeignSystem;

    use super::*;
    use crate::foreign_groups::groups_of;

    fn collect<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get(key));
                map.values().for_each(|value| collect(value, key, found));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, key, found)),
            _ => {}
        }
    }

    fn all(value: &Value, key: &str) -> Vec<String> {
        let mut found = Vec::new();
        collect(value, key, &mut found);
        found.into_iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
    }

    fn foreign_groups() -> Vec<Group> {
        ForeignSystem::ALL.into_iter().flat_map(groups_of).collect()
    }

    #[test]
    fn references_of_openapi_documents_name_existing_schemas() {
        let foreign = foreign_groups();
        let own = [openapi_v2(&foreign), openapi_v3(), merged_view_openapi_v3()];
        for document in own.iter().chain(&foreign.iter().map(crate::foreign_groups::openapi_v3).collect::<Vec<_>>()) {
            let references = all(document, "$ref");
            for reference in references {
                assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
            }
        }
    }

    #[test]
    fn operations_of_openapi_documents_have_distinct_ids() {
        for document in [openapi_v2([]), openapi_v3()] {
            let ids = all(&document, "operationId");
            assert_eq!(ids.len(), 24, "{ids:?}");
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
        }
        let ids = all(&openapi_v2(&foreign_groups()), "operationId");
        assert!(ids.len() > 24 && ids.iter().collect::<BTreeSet<_>>().len() == ids.len(), "{ids:?}");
    }

    #[test]
    fn openapi_documents_describe_the_paths_and_kinds_of_the_group_only() {
        let base = format!("/apis/{GROUP}/{VERSION}");
        for (document, schemas) in
            [(openapi_v2([]), "/definitions"), (openapi_v3(), "/components/schemas")].iter().map(|it| (&it.0, it.1))
        {
            let paths: Vec<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
            let of = |plural: &str| {
                ["", "/{name}", "/{name}/proxy", "/{name}/proxy/{path}"].map(|it| format!("{base}/{plural}{it}"))
            };
            assert_eq!(BTreeSet::from_iter(paths), of(CLUSTERS).into_iter().chain(of(VIEWS)).collect());
            let schemas = document.pointer(schemas).unwrap().as_object().unwrap();
            assert!(schemas.keys().all(|name| name.starts_with(PACKAGE)));
            for kind in ["Cluster", "ClusterList", "View", "ViewList"] {
                let schema = &schemas[&format!("{PACKAGE}.{kind}")];
                assert_eq!(schema["x-kubernetes-group-version-kind"], json!([gvk(kind)]));
            }
        }
    }

    #[test]
    fn openapi_document_of_the_merged_view_has_no_views_and_no_proxies() {
        let document = merged_view_openapi_v3();
        assert_eq!(document["paths"].as_object().unwrap().len(), 2);
        assert!(!document.to_string().contains("ViewList"));
    }
}
