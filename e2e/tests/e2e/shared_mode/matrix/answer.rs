//! The parts of a response that the test compares: its objects without deliberate differences, and the clusters that it
//! names.

use super::{searched, world::World};
use anyhow::{Context, ensure};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use std::collections::BTreeMap;
use tributary_apimachinery::wire::fields;
use tributary_e2e::HttpResponse;

/// Annotation with the name of an object's cluster.
pub(super) const CLUSTER: &str = "tributary.dev/cluster";

/// Cluster, namespace and name of an object.
pub(super) type Identity = (String, String, String);

pub(super) type Objects = BTreeMap<Identity, Value>;

/// Returns the objects in `items` that belong to this run. Their cluster is `cluster`. If `cluster` is `None`, the
/// cluster is in their annotations.
pub(super) fn objects(world: &World, items: &Value, cluster: Option<&str>) -> anyhow::Result<Objects> {
    let mut all = Objects::new();
    for item in items.as_array().context("no items")? {
        let (identity, object) = object(item, cluster)?;
        if world.is_own(&identity.1, &identity.2) {
            ensure!(all.insert(identity, object).is_none(), "twice: {item}");
        }
    }
    Ok(all)
}

/// Returns the identity of an object, and the parts that the test compares.
pub(super) fn object(item: &Value, cluster: Option<&str>) -> anyhow::Result<(Identity, Value)> {
    let metadata = &item["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own = metadata["annotations"][CLUSTER].as_str();
    let cluster = cluster.or(own).with_context(|| format!("of no cluster: {item}"))?.to_owned();
    Ok(((cluster, text(&metadata["namespace"]), text(&metadata["name"])), plain(item)))
}

/// Removes the parts of an object that the test does not compare: the version, the fields that the endpoint adds, and
/// the kind. A member's list has no kind in its items.
fn plain(item: &Value) -> Value {
    let mut object = item.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(CLUSTER);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

pub(super) fn metadata(objects: &Objects) -> Objects {
    let metadata = |object: &Value| serde_json::json!({"metadata": object["metadata"]});
    objects.iter().map(|(identity, object)| (identity.clone(), metadata(object))).collect()
}

/// Returns the objects of this run in a list of metadata in protobuf (`generated.proto` of k8s.io/apimachinery).
pub(super) fn in_protobuf(world: &World, body: &[u8]) -> anyhow::Result<Vec<Identity>> {
    let envelope = body.strip_prefix(b"k8s\0").context("no protobuf")?;
    let list = all(envelope, 2)?.first().copied().unwrap_or_default();
    let mut found = Vec::new();
    for item in all(list, 2)? {
        let metadata = all(item, 1)?.first().copied().context("no metadata")?;
        let annotations = all(metadata, 12)?;
        let mut cluster = String::new();
        for annotation in annotations {
            if text(annotation, 1)? == CLUSTER {
                cluster = text(annotation, 2)?;
            }
        }
        let identity = (cluster, text(metadata, 3)?, text(metadata, 1)?);
        if world.is_own(&identity.1, &identity.2) {
            found.push(identity);
        }
    }
    found.sort();
    Ok(found)
}

pub(super) fn all(message: &[u8], number: u64) -> anyhow::Result<Vec<&[u8]>> {
    let found = fields(message).collect::<Result<Vec<_>, _>>().context("no message")?;
    Ok(found.into_iter().filter(|field| field.number == number).filter_map(|field| field.contents).collect())
}

/// Returns the first string with this field number. Returns an empty string if there is none.
pub(super) fn text(message: &[u8], number: u64) -> anyhow::Result<String> {
    Ok(String::from_utf8(all(message, number)?.first().copied().unwrap_or_default().to_vec())?)
}

/// Returns whether a response contains a cluster's name in its text, its headers, or its versions and continue tokens.
/// The contents of other tests' objects are ignored.
pub(super) fn names(world: &World, answer: &HttpResponse, cluster: &str) -> bool {
    let in_header = answer.headers.values().any(|value| value.to_str().is_ok_and(|text| text.contains(cluster)));
    in_header
        || text_names(&searched::of_body(&answer.body, &|namespace, name| world.is_foreign(namespace, name)), cluster)
}

/// Returns whether a text, or base64 in the text, contains a cluster's name.
pub(super) fn text_names(text: &str, cluster: &str) -> bool {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-' || letter == '_'));
    let is_named = |word: &str| {
        let decoded = URL_SAFE_NO_PAD.decode(word).unwrap_or_default();
        String::from_utf8_lossy(&decoded).contains(cluster)
    };
    text.contains(cluster) || words.filter(|word| word.len() > 8).any(is_named)
}
