//! Selects the parts of a response in which the test searches for names of hidden clusters.
//!
//! Other tests have objects with arbitrary contents in the same members. For example, a Deployment may name the node of
//! a different cluster. In an object of another test, this test searches only the fields that the endpoint adds: the
//! cluster and the version. It searches all other text.

use super::answer::{CLUSTER, all, text, text_names};
use crate::context::TestContext;
use anyhow::ensure;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tributary_apimachinery::wire::{fields, put_field};

/// Function that returns whether the object with this namespace and name belongs to another test.
pub(super) type IsForeign<'a> = &'a dyn Fn(&str, &str) -> bool;

/// Returns the parts of a body that the test searches. If the body is not a list, returns the whole body.
pub(super) fn of_body(body: &[u8], is_foreign: IsForeign<'_>) -> String {
    let of_json = || of_list(serde_json::from_slice(body).ok()?, is_foreign);
    let searched = match body.strip_prefix(b"k8s\0") {
        Some(envelope) => of_protobuf(envelope, is_foreign).ok(),
        None => of_json(),
    };
    searched.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
}

/// Returns the parts of a watch event that the test searches. Bookmarks and errors have no object name, so the whole
/// event is searched.
pub(super) fn of_event(event: &Value, is_foreign: IsForeign<'_>) -> String {
    match is_other(&event["object"], is_foreign) {
        true => json!([event["type"], said_of(&event["object"])]).to_string(),
        false => event.to_string(),
    }
}

/// Returns the parts of a list or Table in JSON that the test searches. `None` for other bodies, and for a list without
/// objects of other tests.
fn of_list(mut list: Value, is_foreign: IsForeign<'_>) -> Option<String> {
    let is_table = list["rows"].is_array();
    let items = list.get_mut(if is_table { "rows" } else { "items" })?.as_array_mut()?;
    let object = |item: &Value| if is_table { item["object"].clone() } else { item.clone() };
    let is_last_foreign = items.last().is_some_and(|item| is_other(&object(item), is_foreign));
    let mut is_cut = false;
    for item in items {
        let own = object(item);
        if is_other(&own, is_foreign) {
            // In a row of a Table, the endpoint adds only the second cell (CLUSTER).
            *item = json!([item["cells"][1], said_of(&own)]);
            is_cut = true;
        }
    }
    if let Some(token) = list["metadata"]["continue"].as_str().filter(|_| is_last_foreign) {
        list["metadata"]["continue"] = without_place(token).into();
    }
    is_cut.then(|| list.to_string())
}

/// Removes the namespace and name of an object from a continue token. The token contains them as the position at which
/// the list continues.
fn without_place(token: &str) -> String {
    let part = |part: &str| -> String {
        let decoded = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
        match serde_json::from_slice::<Value>(&decoded) {
            Ok(Value::Object(mut said)) => {
                said.remove("after");
                Value::Object(said).to_string()
            }
            _ => part.to_owned(),
        }
    };
    token.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// Returns the parts of a list of metadata in protobuf that the test searches (`generated.proto` of
/// k8s.io/apimachinery). `envelope` is the body without the bytes before the envelope.
fn of_protobuf(envelope: &[u8], is_foreign: IsForeign<'_>) -> anyhow::Result<String> {
    let mut searched = Vec::new();
    for field in fields(envelope) {
        let field = field?;
        match field.contents {
            Some(list) if field.number == 2 => searched.extend(of_list_in_protobuf(list, is_foreign)?),
            _ => searched.push(shown(field.whole)),
        }
    }
    Ok(searched.join("\n"))
}

fn of_list_in_protobuf(list: &[u8], is_foreign: IsForeign<'_>) -> anyhow::Result<Vec<String>> {
    let mut searched = Vec::new();
    for field in fields(list) {
        let field = field?;
        searched.extend(match field.contents {
            // The fields must stay separate. The length byte of a string may be a letter, and would then look like the
            // end of the previous string.
            Some(metadata) if field.number == 1 => {
                (1..=3).map(|number| text(metadata, number)).collect::<anyhow::Result<Vec<_>>>()?
            }
            Some(item) if field.number == 2 => of_item_in_protobuf(item, is_foreign)?,
            _ => vec![shown(field.whole)],
        });
    }
    Ok(searched)
}

fn of_item_in_protobuf(item: &[u8], is_foreign: IsForeign<'_>) -> anyhow::Result<Vec<String>> {
    let metadata = all(item, 1)?.first().copied().unwrap_or_default();
    if !is_foreign(&text(metadata, 3)?, &text(metadata, 1)?) {
        return Ok(vec![shown(item)]);
    }
    let mut said = vec![text(metadata, 6)?];
    for annotation in all(metadata, 12)? {
        if text(annotation, 1)? == CLUSTER {
            said.push(text(annotation, 2)?);
        }
    }
    Ok(said)
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_other(object: &Value, is_foreign: IsForeign<'_>) -> bool {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    is_foreign(&text(&metadata["namespace"]), &text(&metadata["name"]))
}

/// Returns the fields that the endpoint adds to an object.
fn said_of(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!([metadata["annotations"][CLUSTER], metadata["resourceVersion"]])
}

/// A cluster's name in the contents of another test's object is not a leak. A name in the fields that the endpoint adds
/// to this object is a leak, and also a name in all other text.
pub(super) async fn leak_search_ignores_cluster_names_in_objects_of_other_tests(_: TestContext) -> anyhow::Result<()> {
    let is_foreign = |namespace: &str, name: &str| !name.is_empty() && namespace != "own";
    let names = |text: &str| text_names(text, "hidden");
    for (namespace, owner, is_named) in [("other", "shown", false), ("other", "hidden", true), ("own", "shown", true)] {
        let metadata = json!({"namespace": namespace, "name": "hidden-a", "resourceVersion": "7",
            "annotations": {CLUSTER: owner, "other": "hidden"}});
        let item = json!({"spec": {"nodeName": "hidden-node-0"}, "metadata": metadata});
        let token = format!("v1.{}", URL_SAFE_NO_PAD.encode(r#"{"cluster":"shown","after":"x/hidden-a"}"#));
        let list = json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": [item]});
        let table = json!({"metadata": {}, "rows": [{"cells": ["hidden-a", owner, "hidden"], "object": item}]});
        let metadata = metadata_in_protobuf(namespace, owner);
        for body in [list.to_string().into_bytes(), table.to_string().into_bytes(), metadata] {
            let searched = of_body(&body, &is_foreign);
            ensure!(names(&searched) == is_named, "{searched} of {}", String::from_utf8_lossy(&body));
        }
        let searched = of_event(&json!({"type": "ADDED", "object": item}), &is_foreign);
        ensure!(names(&searched) == is_named, "{searched} of an event");
    }
    let version = URL_SAFE_NO_PAD.encode(r#"{"hidden":"7"}"#);
    let others = json!({"metadata": {"namespace": "other", "name": "a"}});
    let list = json!({"metadata": {"resourceVersion": version}, "items": [others]});
    ensure!(names(&of_body(list.to_string().as_bytes(), &is_foreign)), "the version of a list is searched");
    let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}});
    ensure!(names(&of_event(&bookmark, &is_foreign)), "the version of a bookmark is searched");
    let refusal = json!({"kind": "Status", "message": "hidden"}).to_string();
    ensure!(names(&of_body(refusal.as_bytes(), &is_foreign)), "a refusal is searched");
    Ok(())
}

/// Encodes a metadata list with one object in this namespace and of this cluster. The object's name and an additional
/// annotation contain `hidden`.
fn metadata_in_protobuf(namespace: &str, owner: &str) -> Vec<u8> {
    let message = |parts: &[(u64, &[u8])]| {
        let mut message = Vec::new();
        for (number, contents) in parts {
            put_field(&mut message, *number, contents);
        }
        message
    };
    let [own, other] = [(CLUSTER, owner), ("other", "hidden")]
        .map(|(key, value)| message(&[(1, key.as_bytes()), (2, value.as_bytes())]));
    let parts: [(u64, &[u8]); 5] = [(1, b"hidden-a"), (3, namespace.as_bytes()), (6, b"7"), (12, &own), (12, &other)];
    let item = message(&[(1, &message(&parts))]);
    let list = message(&[(1, &message(&[(2, b"7")])), (2, &item)]);
    [b"k8s\0".to_vec(), message(&[(2, &list)])].concat()
}
