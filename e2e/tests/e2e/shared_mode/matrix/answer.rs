//! The comparable contents of an answer: its objects without deliberate differences, and the clusters that it names.

use super::{searched, world::World};
use anyhow::{Context, ensure};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use std::collections::BTreeMap;
use tributary_apimachinery::wire::fields;
use tributary_e2e::HttpResponse;

/// The annotation with an object's cluster.
pub(super) const CLUSTER: &str = "tributary.dev/cluster";

/// Identity of an object: cluster, namespace and name.
pub(super) type Identity = (String, String, String);

pub(super) type Objects = BTreeMap<Identity, Value>;

/// The objects of this run in `items`. Their cluster is `cluster`, or the cluster in their annotations.
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

/// The identity and the comparable content of an object.
pub(super) fn object(item: &Value, cluster: Option<&str>) -> anyhow::Result<(Identity, Value)> {
    let metadata = &item["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own = metadata["annotations"][CLUSTER].as_str();
    let cluster = cluster.or(own).with_context(|| format!("of no cluster: {item}"))?.to_owned();
    Ok(((cluster, text(&metadata["namespace"]), text(&metadata["name"])), plain(item)))
}

/// Removes the version, the endpoint's additions and the kind. The kind is removed because a member omits the kind of
/// items in lists.
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

/// The objects of this run in a list of metadata in protobuf (`generated.proto` of k8s.io/apimachinery).
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

/// The first string with this field number, or an empty string.
pub(super) fn text(message: &[u8], number: u64) -> anyhow::Result<String> {
    Ok(String::from_utf8(all(message, number)?.first().copied().unwrap_or_default().to_vec())?)
}

/// Returns whether an answer contains a cluster's name: in its text, its headers, or its versions and continue tokens.
/// Contents of other tests' objects do not count.
pub(super) fn names(world: &World, answer: &HttpResponse, cluster: &str) -> bool {
    let in_header = answer.headers.values().any(|value| value.to_str().is_ok_and(|text| text.contains(cluster)));
    in_header
        || text_names(&searched::of_body(&answer.body, &|namespace, name| world.is_foreign(namespace, name)), cluster)
}

/// Returns whether a text, or base64 within it, contains a cluster's name.
pub(super) fn text_names(text: &str, cluster: &str) -> bool {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-' || letter == '_'));
    let is_named = |word: &str| {
        let decoded = URL_SAFE_NO_PAD.decode(word).unwrap_or_default();
        String::from_utf8_lossy(&decoded).contains(cluster)
    };
    text.contains(cluster) || words.filter(|word| word.len() > 8).any(is_named)
}
