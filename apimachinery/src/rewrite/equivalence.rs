//! Tests that a rewritten JSON patch has the same effect on the member's object as the original patch on the merged
//! view's object, with a small RFC 6902 implementation.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{BodyKind, Format, rewrite};
use crate::Status;

const MERGED_VERSION: &str = "merged";
const NATIVE_VERSION: &str = "42";
const KEY: &str = "tributary.dev/cluster";

#[derive(Debug)]
struct Failed;

fn tokens(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect()
}

fn get<'a>(document: &'a Value, path: &[String]) -> Result<&'a Value, Failed> {
    path.iter().try_fold(document, |value, key| value.get(key).ok_or(Failed))
}

fn parent<'a>(document: &'a mut Value, path: &[String]) -> Result<(&'a mut Map<String, Value>, String), Failed> {
    let (last, outer) = path.split_last().ok_or(Failed)?;
    let parent = outer.iter().try_fold(document, |value, key| value.get_mut(key).ok_or(Failed))?;
    Ok((parent.as_object_mut().ok_or(Failed)?, last.clone()))
}

fn add(document: &mut Value, path: &[String], value: Value) -> Result<(), Failed> {
    if path.is_empty() {
        *document = value;
        return Ok(());
    }
    let (parent, key) = parent(document, path)?;
    parent.insert(key, value);
    Ok(())
}

fn remove(document: &mut Value, path: &[String]) -> Result<Value, Failed> {
    let (parent, key) = parent(document, path)?;
    parent.remove(&key).ok_or(Failed)
}

/// Applies a patch to an object without arrays.
fn patched(mut document: Value, patch: &Value) -> Result<Value, Failed> {
    for operation in patch.as_array().ok_or(Failed)? {
        let path = tokens(operation["path"].as_str().ok_or(Failed)?);
        let from = || operation["from"].as_str().map(tokens).ok_or(Failed);
        let value = operation["value"].clone();
        match operation["op"].as_str().ok_or(Failed)? {
            "add" => add(&mut document, &path, value)?,
            "replace" => {
                get(&document, &path)?;
                add(&mut document, &path, value)?;
            }
            "remove" => drop(remove(&mut document, &path)?),
            "test" if *get(&document, &path)? == value => {}
            "copy" => {
                let copied = get(&document, &from()?)?.clone();
                add(&mut document, &path, copied)?;
            }
            "move" => {
                let moved = remove(&mut document, &from()?)?;
                add(&mut document, &path, moved)?;
            }
            _ => return Err(Failed),
        }
    }
    Ok(document)
}

/// Returns the merged view's form of a member's object.
fn merged_view(mut object: Value) -> Value {
    object["metadata"]["resourceVersion"] = MERGED_VERSION.into();
    if object["metadata"].get("annotations").is_none() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][KEY] = "c1".into();
    object
}

/// Returns an object as a member stores it: without the cluster annotation, with the member's version, and without an
/// empty map.
fn stored(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if metadata.get("resourceVersion") == Some(&MERGED_VERSION.into()) {
            metadata.insert("resourceVersion".into(), NATIVE_VERSION.into());
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(KEY);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

fn annotations() -> impl Strategy<Value = Value> {
    let entry = prop_oneof![2 => Just(("x", "1")), 2 => Just(("y", "2")), 3 => Just((KEY, "c1"))];
    proptest::collection::hash_map(entry.clone().prop_map(|(key, _)| key), entry.prop_map(|(_, value)| value), 0..3)
        .prop_map(|map| {
            // In the merged view, an object's cluster annotation has only one value, so a client's patch can contain
            // only that value.
            map.into_iter()
                .map(|(key, value)| (key.to_owned(), if key == KEY { "c1".into() } else { value.into() }))
                .collect::<Map<_, Value>>()
                .into()
        })
}

fn metadata() -> impl Strategy<Value = Value> {
    (proptest::option::of(annotations()), any::<bool>()).prop_map(|(annotations, versioned)| {
        let mut metadata = json!({ "name": "p" });
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        if versioned {
            metadata["resourceVersion"] = MERGED_VERSION.into();
        }
        metadata
    })
}

fn operation() -> impl Strategy<Value = Value> {
    let op = || prop_oneof![4 => Just("add"), 1 => Just("replace"), 2 => Just("test"), 1 => Just("remove")];
    let leaf = prop_oneof![
        Just("/metadata/annotations/x"),
        Just("/metadata/annotations/y"),
        Just("/metadata/annotations/tributary.dev~1cluster"),
        Just("/metadata/labels"),
        Just("/spec"),
    ];
    prop_oneof![
        4 => (op(), leaf).prop_map(|(op, path)| {
            let value = if path.ends_with("cluster") { "c1" } else { "1" };
            json!({ "op": op, "path": path, "value": value })
        }),
        1 => Just(json!({ "op": "test", "path": "/metadata/resourceVersion", "value": MERGED_VERSION })),
        2 => (op(), annotations()).prop_map(|(op, value)| json!({ "op": op, "path": "/metadata/annotations", "value": value })),
        1 => (prop_oneof![Just("add"), Just("test"), Just("replace")], metadata())
            .prop_map(|(op, value)| json!({ "op": op, "path": "/metadata", "value": value })),
        1 => metadata().prop_map(|value| json!({ "op": "replace", "path": "", "value": { "metadata": value } })),
        1 => Just(json!({ "op": "copy", "from": "/metadata/name", "path": "/metadata/annotations/x" })),
        1 => Just(json!({ "op": "move", "from": "/metadata/annotations/x", "path": "/metadata/annotations/y" })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn json_patch_keeps_its_effect_when_rewritten_for_the_member(
        has_map in any::<bool>(),
        annotated in any::<bool>(),
        operations in proptest::collection::vec(operation(), 0..5),
    ) {
        let mut object = json!({ "metadata": { "name": "p", "resourceVersion": NATIVE_VERSION }, "spec": "1" });
        if has_map {
            object["metadata"]["annotations"] = if annotated { json!({ "x": "1" }) } else { json!({}) };
        }
        let patch = Value::from(operations);
        // A patch that fails on the merged view's object has no effect to compare.
        let Ok(expected) = patched(merged_view(object.clone()), &patch) else { return Ok(()) };
        let body = Bytes::from(patch.to_string());
        let mut version = |_, version_text: &str| match version_text {
            MERGED_VERSION => Ok(NATIVE_VERSION.to_owned()),
            other => Err(Status::gone(other)),
        };
        let rewritten = rewrite(Format::JsonPatch, BodyKind::Object, &body, has_map, &mut version).unwrap();
        let sent: Value = serde_json::from_slice(&rewritten.body).unwrap();
        let done = patched(object, &sent);
        prop_assert!(done.is_ok(), "{} became {} and fails", patch, sent);
        prop_assert_eq!(stored(done.unwrap()), stored(expected), "{} became {}", patch, sent);
    }
}
