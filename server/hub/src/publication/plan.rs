//! The changes that make the present objects equal to the desired ones. Without I/O.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// Creates an object with this content. Fails if an object has the name.
    Create(Value),
    /// Writes this content into an object of this Tributary.
    Apply(Value),
    /// Applies the status in this content to an object that this Tributary has published.
    ApplyStatus(Value),
    /// Deletes an object that this Tributary has published. The value is the body of the DELETE request.
    Delete(Value),
}

/// Returns the change for each object that differs, by name. `present` are objects of Tributary. With `is_complete`,
/// `desired` has the objects of all members, and other objects are deleted.
pub(super) fn plan_changes(
    desired: BTreeMap<String, Value>,
    present: &BTreeMap<String, Value>,
    is_complete: bool,
) -> BTreeMap<String, Change> {
    let departed = present.iter().filter(|(name, _)| is_complete && !desired.contains_key(*name));
    let mut changes: BTreeMap<String, Change> =
        departed.map(|(name, object)| (name.clone(), Change::Delete(deletion_of(object)))).collect();
    for (name, mut object) in desired {
        let status = object.as_object_mut().and_then(|fields| fields.remove("status"));
        let change = match present.get(&name) {
            None => Some(Change::Create(object)),
            Some(present) => {
                let status = status.filter(|status| !contains(&present["status"], status));
                if contains(present, &object) {
                    status.map(|status| Change::ApplyStatus(status_body(present, &object, status)))
                } else {
                    Some(Change::Apply(with_version(present, object)))
                }
            }
        };
        changes.extend(change.map(|change| (name, change)));
    }
    changes
}

/// Returns whether a value has all fields of `part`. Lists must be equal.
fn contains(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(fields) => fields.iter().all(|(key, value)| contains(&whole[key], value)),
        _ => whole == part,
    }
}

/// Adds the uid and the resourceVersion of the present object. If the object was changed, or replaced by a new object
/// of the same name, the hub answers 409, and the next round plans again.
fn with_version(present: &Value, mut object: Value) -> Value {
    for field in ["uid", "resourceVersion"] {
        object["metadata"][field] = present["metadata"][field].clone();
    }
    object
}

fn status_body(present: &Value, object: &Value, status: Value) -> Value {
    let metadata = &object["metadata"];
    let body = json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "status": status,
    });
    with_version(present, body)
}

fn deletion_of(present: &Value) -> Value {
    let metadata = &present["metadata"];
    json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
    })
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn named(objects: &[Value]) -> BTreeMap<String, Value> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        objects.iter().map(|object| (name(object), object.clone())).collect()
    }

    fn desired(name: &str, data: &str) -> Value {
        json!({"kind": "Secret", "metadata": {"name": name, "labels": {"own": "1"}}, "data": {"a": data}})
    }

    fn stored(mut object: Value) -> Value {
        object["metadata"]["uid"] = json!("u1");
        object["metadata"]["resourceVersion"] = json!("7");
        object["metadata"]["managedFields"] = json!([]);
        object
    }

    #[test]
    fn only_objects_that_differ_are_changed() {
        let mut with_foreign_label = stored(desired("same", "1"));
        with_foreign_label["metadata"]["labels"]["foreign"] = json!("x");
        let present = named(&[with_foreign_label, stored(desired("changed", "1")), stored(desired("gone", "1"))]);
        let wanted = || named(&[desired("same", "1"), desired("changed", "2"), desired("new", "1")]);
        let changes = plan_changes(wanted(), &present, true);
        let preconditions = json!({"uid": "u1", "resourceVersion": "7"});
        let deletion = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        let mut applied = desired("changed", "2");
        applied["metadata"]["uid"] = json!("u1");
        applied["metadata"]["resourceVersion"] = json!("7");
        let expected = BTreeMap::from([
            ("changed".to_owned(), Change::Apply(applied)),
            ("gone".to_owned(), Change::Delete(deletion)),
            ("new".to_owned(), Change::Create(desired("new", "1"))),
        ]);
        assert_eq!(changes, expected);
        // The object `gone` may belong to a member of a source whose list is not read.
        let changes = plan_changes(wanted(), &present, false);
        assert_eq!(changes.into_keys().collect::<Vec<_>>(), ["changed", "new"]);
    }

    #[test]
    fn status_is_applied_after_the_rest() {
        let with_status = |status: Value| {
            let mut object = desired("eu", "1");
            object["status"] = status;
            object
        };
        let wanted = || named(&[with_status(json!({"version": "2"}))]);
        // The hub ignores the status of a creation.
        assert_eq!(plan_changes(wanted(), &BTreeMap::new(), true)["eu"], Change::Create(desired("eu", "1")));
        let old = stored(with_status(json!({"version": "1", "foreign": true})));
        let changes = plan_changes(wanted(), &named(slice::from_ref(&old)), true);
        let Change::ApplyStatus(body) = &changes["eu"] else { panic!("{changes:?}") };
        assert_eq!((&body["status"], &body["metadata"]["uid"]), (&json!({"version": "2"}), &json!("u1")));
        assert_eq!(body["data"], Value::Null);
        let mut other_data = old;
        other_data["data"]["a"] = json!("2");
        assert!(matches!(plan_changes(wanted(), &named(&[other_data]), true)["eu"], Change::Apply(_)));
        let same = stored(with_status(json!({"version": "2", "foreign": true})));
        assert_eq!(plan_changes(wanted(), &named(&[same]), true), BTreeMap::new());
    }
}
