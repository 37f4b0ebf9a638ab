//! Handles writes: create, update, patch, delete.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tributary_apimachinery::{Object, Query, Status, StatusReason};

use crate::catalog::{CATALOG, DEPLOYMENTS, NAMESPACES, PODS, REPLICASETS, ResourceIndex, SERVICES};
use crate::generate::{self, layout::mix};
use crate::list::named;
use crate::patch;
use crate::path::ResourcePath;
use crate::select::Selection;
use crate::status;
use crate::store::{MemberStore, TransactionOutcome};

/// The reason why an object from the Rust API was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// No served resource has this `kind` and `apiVersion`.
    #[error("the object's kind {kind:?} of {api_version:?} is not served")]
    Kind {
        /// The object's kind.
        kind: String,
        /// The object's apiVersion.
        api_version: String,
    },
    /// The object has no name, or its namespace does not fit the scope of its kind.
    #[error("the object has no name, or its namespace does not fit its kind")]
    Name,
}

pub(crate) struct Request<'a> {
    pub(crate) content_type: &'a str,
    pub(crate) body: &'a [u8],
    pub(crate) query: &'a Query<'a>,
}

pub(crate) enum WriteResponse {
    /// An object, which is written in the form that the client requests.
    Object(Arc<Object>),
    Value(Value),
}

impl Request<'_> {
    pub(crate) fn json(&self) -> Result<Value, Status> {
        if !matches!(self.content_type, "application/json" | "") {
            return Err(Status::unsupported_media_type(&["application/json"]));
        }
        self.value()
    }

    fn value(&self) -> Result<Value, Status> {
        serde_json::from_slice(self.body)
            .map_err(|error| Status::bad_request(format!("error decoding the body as JSON: {error}")))
    }

    fn dry_run(&self) -> bool {
        self.query.get("dryRun") == Some("All")
    }
}

/// Creates or replaces an object for the Rust API.
pub(crate) fn apply(store: &MemberStore, mut object: Value) -> Result<u64, WriteError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, api_version) = (text(&object["kind"]), text(&object["apiVersion"]));
    let resource = CATALOG.iter().position(|r| r.kind == kind && r.api_version() == api_version);
    let resource = resource.ok_or(WriteError::Kind { kind, api_version })?;
    let (name, namespace) = (text(&object["metadata"]["name"]), text(&object["metadata"]["namespace"]));
    if name.is_empty() || namespace.is_empty() == CATALOG[resource].namespaced {
        return Err(WriteError::Name);
    }
    let key = tributary_apimachinery::ObjectKey::new(&namespace, &name);
    let entropy = store.entropy();
    let written = store.transact(resource, key.as_str(), |existing, revision| {
        inherit(&mut object, existing, entropy);
        Ok::<_, std::convert::Infallible>(TransactionOutcome::Put(serialize(&mut object, revision)))
    });
    Ok(written.ok().flatten().map_or(0, |object| object.resource_version().0))
}

pub(crate) fn remove(store: &MemberStore, resource: ResourceIndex, namespace: &str, name: &str) -> Option<u64> {
    let key = tributary_apimachinery::ObjectKey::new(namespace, name);
    let existed = store.view(resource).get(key.as_str()).is_some();
    let outcome = |_: Option<&Object>, _| Ok::<_, std::convert::Infallible>(TransactionOutcome::Delete);
    let deleted = store.transact(resource, key.as_str(), outcome).ok().flatten()?;
    existed.then(|| deleted.resource_version().0)
}

/// Handles a POST of a collection.
pub(crate) fn create(
    store: &MemberStore,
    target: &mut ResourcePath,
    request: &Request<'_>,
) -> Result<(u16, WriteResponse), Status> {
    let mut object = request.json()?;
    let described = &CATALOG[target.resource];
    check_kind(&object, target)?;
    let entropy = store.entropy();
    let metadata = metadata_mut(&mut object)?;
    if metadata.get("resourceVersion").is_some_and(|version| version != "") {
        return Err(Status::new(
            500,
            StatusReason::Unknown,
            "resourceVersion should not be set on objects to be created",
        ));
    }
    check_namespace(metadata, target)?;
    if metadata.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
        let prefix = metadata.get("generateName").and_then(Value::as_str).filter(|prefix| !prefix.is_empty());
        let name = prefix.map(|prefix| format!("{prefix}{}", suffix(entropy)));
        let required = || {
            let error = tributary_apimachinery::status::FieldError::invalid(
                "metadata.name",
                "",
                "name or generateName is required",
            );
            Status::invalid(described.group, described.kind, "", &[error])
        };
        metadata.insert("name".to_owned(), name.ok_or_else(required)?.into());
    }
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    namespace_exists(store, target)?;
    target.name = Some(name.clone());
    let key = target.key().unwrap_or_default();
    let written = put(store, target, &key, request, |existing| match existing {
        Some(_) => Err(Status::already_exists(&named(target), &name)),
        None => {
            default_status(&mut object, target.resource, entropy);
            inherit(&mut object, None, entropy);
            Ok(object)
        }
    })?;
    Ok((201, WriteResponse::Object(written)))
}

/// Handles a PUT of an object or of its status.
pub(crate) fn update(
    store: &MemberStore,
    target: &ResourcePath,
    request: &Request<'_>,
) -> Result<(u16, WriteResponse), Status> {
    let mut object = request.json()?;
    check_kind(&object, target)?;
    check_namespace(metadata_mut(&mut object)?, target)?;
    let name = target.name.clone().unwrap_or_default();
    if object["metadata"]["name"] != name.as_str() {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            object["metadata"]["name"].as_str().unwrap_or_default()
        )));
    }
    let entropy = store.entropy();
    let key = target.key().unwrap_or_default();
    let written = put(store, target, &key, request, |existing| {
        let existing = existing.ok_or_else(|| Status::not_found(&named(target), &name))?;
        check_preconditions(target, &object["metadata"], existing)?;
        Ok(updated(target, object, existing, entropy))
    })?;
    Ok((200, WriteResponse::Object(written)))
}

/// Handles a PATCH of any type for an object or its status. An apply patch creates a missing object.
pub(crate) fn patch(
    store: &MemberStore,
    target: &ResourcePath,
    request: &Request<'_>,
) -> Result<(u16, WriteResponse), Status> {
    let name = target.name.clone().unwrap_or_default();
    let change = request.value()?;
    let applies = request.content_type == "application/apply-patch+yaml";
    let entropy = store.entropy();
    let key = target.key().unwrap_or_default();
    let mut created = false;
    let has_namespace = namespace_exists(store, target);
    let written = put(store, target, &key, request, |existing| {
        let Some(existing) = existing else {
            if !applies {
                return Err(Status::not_found(&named(target), &name));
            }
            has_namespace?;
            created = true;
            let mut object = change;
            refuse_uid(target, &object)?;
            check_kind(&object, target)?;
            check_namespace(metadata_mut(&mut object)?, target)?;
            default_status(&mut object, target.resource, entropy);
            inherit(&mut object, None, entropy);
            return Ok(object);
        };
        let mut object = to_value(existing);
        apply_patch(request.content_type, target, &mut object, change)?;
        check_preconditions(target, &object["metadata"], existing)?;
        Ok(updated(target, object, existing, entropy))
    })?;
    Ok((if created { 201 } else { 200 }, WriteResponse::Object(written)))
}

/// Rejects a new object with a uid, because a uid refers to an existing object (`createNewObject` in apiserver's
/// `endpoints/handlers/patch.go`).
fn refuse_uid(target: &ResourcePath, object: &Value) -> Result<(), Status> {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if uid.is_empty() {
        return Ok(());
    }
    let cause = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(Status::conflict(&named(target), target.name.as_deref().unwrap_or_default(), &cause))
}

/// Rejects a new object in a missing namespace, like the admission plugin NamespaceLifecycle.
fn namespace_exists(store: &MemberStore, target: &ResourcePath) -> Result<(), Status> {
    match &target.namespace {
        Some(namespace) if store.view(NAMESPACES).get(namespace).is_none() => {
            let namespaces = tributary_apimachinery::GroupVersionResource::new("", "v1", "namespaces");
            Err(Status::not_found(&namespaces, namespace))
        }
        _ => Ok(()),
    }
}

pub(crate) fn apply_patch(
    content_type: &str,
    target: &ResourcePath,
    object: &mut Value,
    change: Value,
) -> Result<(), Status> {
    match content_type {
        "application/merge-patch+json" => patch::merge(object, change),
        "application/strategic-merge-patch+json" | "application/apply-patch+yaml" => patch::strategic(object, change),
        "application/json-patch+json" => patch::json(object, change).map_err(|error| match error {
            patch::PatchError::Malformed(_) => Status::bad_request(error.to_string()),
            patch::PatchError::Failed(_) => Status::new(422, StatusReason::Invalid, error.to_string()),
        })?,
        _ => {
            return Err(Status::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ]));
        }
    }
    check_kind(object, target)
}

pub(crate) fn delete(
    store: &MemberStore,
    target: &ResourcePath,
    request: &Request<'_>,
) -> Result<(u16, WriteResponse), Status> {
    let options = delete_options(request)?;
    let from_query = |name: &str| request.query.get(name).map(Value::from).unwrap_or_default();
    let preconditions = match options.get("preconditions") {
        Some(preconditions) => preconditions.clone(),
        None if request.body.is_empty() => {
            json!({"uid": from_query("uid"), "resourceVersion": from_query("resourceVersion")})
        }
        None => json!({}),
    };
    let dry_run = options["dryRun"] == json!(["All"]);
    let name = target.name.clone().unwrap_or_default();
    let key = target.key().unwrap_or_default();
    let deleted = store.transact(target.resource, &key, |existing, _| {
        let existing = existing.ok_or_else(|| Status::not_found(&named(target), &name))?;
        check_preconditions(target, &preconditions, existing)?;
        Ok::<_, Status>(if dry_run { TransactionOutcome::Unchanged } else { TransactionOutcome::Delete })
    })?;
    let deleted = deleted.ok_or_else(|| Status::not_found(&named(target), &name))?;
    // kube-apiserver returns the object if the deletion is graceful.
    let answer = match target.resource {
        PODS | NAMESPACES => WriteResponse::Object(deleted),
        _ => WriteResponse::Value(status::deleted(&CATALOG[target.resource], &name, deleted.uid())),
    };
    Ok((200, answer))
}

/// Returns the DeleteOptions. A body replaces the query (apiserver `pkg/endpoints/handlers/delete.go`).
fn delete_options(request: &Request<'_>) -> Result<Value, Status> {
    match request.body.is_empty() {
        true if request.dry_run() => Ok(json!({"dryRun": ["All"]})),
        true => Ok(json!({})),
        false => request.json(),
    }
}

pub(crate) fn delete_collection(
    store: &MemberStore,
    target: &ResourcePath,
    request: &Request<'_>,
) -> Result<(u16, WriteResponse), Status> {
    let selection = Selection::parse(target, request.query, store.decoder(target.resource).fields())?;
    let options = delete_options(request)?;
    let view = store.view(target.resource);
    let mut items = Vec::new();
    for object in view.range(selection.namespace.as_deref(), None).filter(|object| selection.matches(object)) {
        if options["dryRun"] != json!(["All"]) {
            remove(store, target.resource, object.namespace(), object.name());
        }
        items.push(to_value(&object));
    }
    let described = &CATALOG[target.resource];
    let version = store.revision().to_string();
    let list = json!({
        "kind": format!("{}List", described.kind), "apiVersion": described.api_version(),
        "metadata": {"resourceVersion": version}, "items": items,
    });
    Ok((200, WriteResponse::Value(list)))
}

/// Writes the result of `change` for an existing object. A dry run writes nothing and returns an equal response.
fn put(
    store: &MemberStore,
    target: &ResourcePath,
    key: &str,
    request: &Request<'_>,
    change: impl FnOnce(Option<&Object>) -> Result<Value, Status>,
) -> Result<Arc<Object>, Status> {
    let mut rehearsed = None;
    let written = store.transact(target.resource, key, |existing, revision| {
        let mut object = change(existing)?;
        if let Some(existing) = existing
            && same_content(&object, existing)
        {
            return Ok(TransactionOutcome::Unchanged);
        }
        let text = serialize(&mut object, revision);
        if request.dry_run() {
            rehearsed = store.decoder(target.resource).decode(text.as_bytes()).ok().map(Arc::new);
            return Ok(TransactionOutcome::Unchanged);
        }
        Ok::<_, Status>(TransactionOutcome::Put(text))
    })?;
    rehearsed.or(written).ok_or_else(|| Status::internal_error("the object could not be stored"))
}

/// Restores the fields that an update must not change. These fields are the object's identity and, depending on the
/// path, either the status or all fields except the status.
fn updated(target: &ResourcePath, mut object: Value, existing: &Object, entropy: u64) -> Value {
    let old = to_value(existing);
    let has_status = CATALOG[target.resource].subresources.contains(&"status");
    if target.subresource == "status" {
        let status = object["status"].take();
        object = old.clone();
        object["status"] = status;
    } else if has_status && !old["status"].is_null() {
        object["status"] = old["status"].clone();
    }
    if object["spec"] != old["spec"]
        && let Some(generation) = old["metadata"]["generation"].as_u64()
    {
        object["metadata"]["generation"] = (generation + 1).into();
    }
    inherit(&mut object, Some(existing), entropy);
    object
}

/// Returns whether two states of an object differ only in their resourceVersion.
fn same_content(object: &Value, existing: &Object) -> bool {
    let mut old = to_value(existing);
    old["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    old == *object
}

pub(crate) fn to_value(object: &Object) -> Value {
    serde_json::from_slice(object.json()).unwrap_or_default()
}

fn metadata_mut(object: &mut Value) -> Result<&mut Map<String, Value>, Status> {
    object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .ok_or_else(|| Status::bad_request("the object has no metadata"))
}

fn check_kind(object: &Value, target: &ResourcePath) -> Result<(), Status> {
    let described = &CATALOG[target.resource];
    let expected = (described.kind, described.api_version());
    let declared = (object["kind"].as_str().unwrap_or_default(), object["apiVersion"].as_str().unwrap_or_default());
    if declared != (expected.0, expected.1.as_str()) {
        return Err(Status::bad_request(format!(
            "the object's kind {:?} of {:?} does not match the expected {:?} of {:?}",
            declared.0, declared.1, expected.0, expected.1
        )));
    }
    Ok(())
}

fn check_namespace(metadata: &mut Map<String, Value>, target: &ResourcePath) -> Result<(), Status> {
    let Some(namespace) = &target.namespace else {
        metadata.remove("namespace");
        return Ok(());
    };
    match metadata.get("namespace").and_then(Value::as_str) {
        None | Some("") => drop(metadata.insert("namespace".to_owned(), namespace.as_str().into())),
        Some(declared) if declared == namespace => {}
        Some(_) => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}

/// Compares the uid and resourceVersion in a request with those of the object.
fn check_preconditions(target: &ResourcePath, wanted: &Value, existing: &Object) -> Result<(), Status> {
    let (resource, name) = (named(target), existing.name());
    let wanted = |member: &str| wanted[member].as_str().filter(|text| !text.is_empty());
    if let Some(uid) = wanted("uid").filter(|uid| *uid != existing.uid()) {
        return Err(Status::precondition_uid(&resource, name, uid, existing.uid()));
    }
    if wanted("resourceVersion").is_some_and(|version| version != existing.resource_version().0.to_string()) {
        return Err(Status::stale(&resource, name));
    }
    Ok(())
}

/// Sets the fields that the server determines: uid and creationTimestamp. If the object exists, the fields are copied
/// from the existing object.
fn inherit(object: &mut Value, existing: Option<&Object>, entropy: u64) {
    let (uid, created) = match existing {
        Some(existing) => (existing.uid().to_owned(), existing.creation_timestamp().to_owned()),
        None => (generate::uid(entropy, mix(entropy)), generate::rfc3339(Timestamp::now().as_second())),
    };
    object["metadata"]["uid"] = uid.into();
    object["metadata"]["creationTimestamp"] = created.into();
}

fn default_status(object: &mut Value, resource: ResourceIndex, entropy: u64) {
    match resource {
        PODS => object["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"}),
        NAMESPACES => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        SERVICES => {
            let spec = &mut object["spec"];
            if spec["type"].is_null() {
                spec["type"] = "ClusterIP".into();
            }
            if spec["clusterIP"].is_null() {
                // Service addresses are in 10.96.0.0/12, kubeadm's default.
                let [a, b, c, ..] = mix(entropy).to_le_bytes();
                spec["clusterIP"] = format!("10.{}.{b}.{}", 96 + a % 16, c.max(1)).into();
            }
            object["status"] = json!({"loadBalancer": {}});
        }
        DEPLOYMENTS | REPLICASETS => {
            object["status"] = json!({});
            object["metadata"]["generation"] = 1.into();
            if object["spec"]["replicas"].is_null() {
                object["spec"]["replicas"] = 1.into();
            }
            if resource == DEPLOYMENTS && object["spec"]["strategy"]["type"].is_null() {
                object["spec"]["strategy"] =
                    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
            }
        }
        _ => {}
    }
}

/// Returns five characters, like the suffix of a generated name.
pub(crate) fn suffix(hash: u64) -> String {
    const CHARACTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|place| CHARACTERS[(hash >> (5 * place)) as usize % 27] as char).collect()
}

/// The order in which Go writes the fields of ObjectMeta.
const METADATA_ORDER: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Returns the object's text at a revision, with the fields in Go's order: kind, apiVersion and metadata first.
pub(crate) fn serialize(object: &mut Value, revision: u64) -> String {
    object["metadata"]["resourceVersion"] = revision.to_string().into();
    let mut out = String::new();
    out.push_str(&format!("{{\"kind\":{},\"apiVersion\":{},\"metadata\":{{", object["kind"], object["apiVersion"]));
    let empty = Map::new();
    let metadata = object["metadata"].as_object().unwrap_or(&empty);
    let ordered = METADATA_ORDER.iter().filter_map(|key| metadata.get_key_value(*key));
    let unknown = metadata.iter().filter(|(key, _)| !METADATA_ORDER.contains(&key.as_str()));
    for (place, (key, value)) in ordered.chain(unknown).filter(|(_, value)| !value.is_null()).enumerate() {
        let comma = if place > 0 { "," } else { "" };
        out.push_str(&format!("{comma}\"{key}\":{value}"));
    }
    out.push('}');
    let rest = object.as_object().unwrap_or(&empty).iter();
    for (key, value) in
        rest.filter(|(key, value)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") && !value.is_null())
    {
        out.push_str(&format!(",{}:{value}", Value::from(key.as_str())));
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialized_object_fields_have_the_order_of_go() {
        let mut object = json!({
            "spec": {}, "kind": "Pod", "apiVersion": "v1", "status": null,
            "metadata": {"labels": {"a": "b"}, "uid": "u", "name": "n", "x": 1},
        });
        assert_eq!(
            serialize(&mut object, 7),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"7","labels":{"a":"b"},"x":1},"spec":{}}"#
        );
    }
}
