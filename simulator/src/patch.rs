//! Applies patches: JSON merge patch (RFC 7386), JSON patch (RFC 6902), and the parts of strategic merge patch that
//! clients use in practice.

use serde_json::{Map, Value};

#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    /// The patch does not have the structure of its type.
    #[error("the patch is malformed: {0}")]
    Malformed(String),
    /// A path of the patch does not exist, or a `test` operation failed.
    #[error("the server rejected our request due to an error in our request: {0}")]
    Failed(String),
}

pub(crate) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    let map = object_mut(target);
    for (key, value) in patch {
        if value.is_null() {
            map.remove(&key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Applies a strategic merge patch. Unlike a merge patch, it merges lists of named items by their key, and `$patch`
/// deletes or replaces. `$setElementOrder` and `$retainKeys` are ignored.
pub(crate) fn strategic(target: &mut Value, patch: Value) {
    let Value::Object(mut patch) = patch else {
        *target = patch;
        return;
    };
    let directive = patch.remove("$patch");
    let map = object_mut(target);
    if directive.as_ref().is_some_and(|directive| directive == "replace") {
        map.clear();
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(list)), Value::Array(deleted)) = (map.get_mut(list), &value) {
                list.retain(|item| !deleted.contains(item));
            }
        } else if key.starts_with('$') {
            // Directives such as `$setElementOrder` are ignored: the simulator determines the order of elements.
        } else if value.is_null() {
            map.remove(&key);
        } else {
            let slot = map.entry(key.clone()).or_insert(Value::Null);
            match value {
                Value::Array(items) => merge_list(slot, items, &key),
                value => strategic(slot, value),
            }
        }
    }
}

/// Returns the field that identifies the elements of a list, from the `patchMergeKey` of Kubernetes' types.
fn merge_key(list: &str) -> &'static str {
    match list {
        "ownerReferences" => "uid",
        "conditions" => "type",
        "ports" => "containerPort",
        "volumeMounts" => "mountPath",
        "hostAliases" | "podIPs" | "hostIPs" => "ip",
        _ => "name",
    }
}

fn merge_list(slot: &mut Value, items: Vec<Value>, list: &str) {
    let key = match merge_key(list) {
        // Both lists are named `ports`. The merge key of a Service's ports is `port`, and the merge key of a
        // container's ports is `containerPort`.
        "containerPort" if items.iter().any(|item| item.get("port").is_some()) => "port",
        key => key,
    };
    let keyed = !items.is_empty() && items.iter().all(|item| item.get(key).is_some() || item.get("$patch").is_some());
    // A list without a merge key, for example tolerations, is replaced by the list of the patch.
    if !keyed || !matches!(slot, Value::Array(_)) {
        *slot = Value::Array(items.into_iter().filter(|item| item.get("$patch").is_none()).collect());
        return;
    }
    let Value::Array(existing) = slot else { return };
    for item in items {
        let place = existing.iter().position(|old| old.get(key).is_some() && old.get(key) == item.get(key));
        match (place, item.get("$patch").and_then(Value::as_str)) {
            (Some(place), Some("delete")) => drop(existing.remove(place)),
            (None, Some("delete")) => {}
            (_, Some("replace")) => existing.clear(),
            (Some(place), _) => strategic(&mut existing[place], item),
            (None, _) => existing.push(item),
        }
    }
}

/// Applies a JSON patch. If an operation fails, the whole patch is undone.
pub(crate) fn json(target: &mut Value, patch: Value) -> Result<(), PatchError> {
    let Value::Array(operations) = patch else { return Err(PatchError::Malformed("a list is expected".to_owned())) };
    let mut result = target.clone();
    for operation in operations {
        let text = |name: &str| operation.get(name).and_then(Value::as_str).map(str::to_owned);
        let missing = |name: &str| PatchError::Malformed(format!("an operation has no {name}"));
        let path = text("path").ok_or_else(|| missing("path"))?;
        let value = || operation.get("value").cloned().ok_or_else(|| missing("value"));
        match text("op").ok_or_else(|| missing("op"))?.as_str() {
            "add" => add(&mut result, &path, value()?)?,
            "remove" => drop(remove(&mut result, &path)?),
            "replace" => *result.pointer_mut(&path).ok_or_else(|| nowhere(&path))? = value()?,
            "test" if result.pointer(&path) == Some(&value()?) => {}
            "test" => return Err(PatchError::Failed(format!("testing value {path} failed"))),
            "move" => {
                let moved = remove(&mut result, &text("from").ok_or_else(|| missing("from"))?)?;
                add(&mut result, &path, moved)?;
            }
            "copy" => {
                let from = text("from").ok_or_else(|| missing("from"))?;
                let copied = result.pointer(&from).cloned().ok_or_else(|| nowhere(&from))?;
                add(&mut result, &path, copied)?;
            }
            other => return Err(PatchError::Malformed(format!("unknown operation {other:?}"))),
        }
    }
    *target = result;
    Ok(())
}

fn nowhere(path: &str) -> PatchError {
    PatchError::Failed(format!("path {path} does not exist"))
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), PatchError> {
    let (parent, last) = path.rsplit_once('/').ok_or_else(|| nowhere(path))?;
    let last = last.replace("~1", "/").replace("~0", "~");
    target.pointer_mut(parent).map(|parent| (parent, last)).ok_or_else(|| nowhere(path))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    match parent(target, path)? {
        (Value::Object(map), key) => drop(map.insert(key, value)),
        (Value::Array(list), key) if key == "-" => list.push(value),
        (Value::Array(list), key) => match key.parse::<usize>() {
            Ok(place) if place <= list.len() => list.insert(place, value),
            _ => return Err(nowhere(path)),
        },
        _ => return Err(nowhere(path)),
    }
    Ok(())
}

fn remove(target: &mut Value, path: &str) -> Result<Value, PatchError> {
    let removed = match parent(target, path)? {
        (Value::Object(map), key) => map.remove(&key),
        (Value::Array(list), key) => {
            key.parse::<usize>().ok().filter(|&place| place < list.len()).map(|place| list.remove(place))
        }
        _ => None,
    };
    removed.ok_or_else(|| nowhere(path))
}

/// Returns the value as an object. Any other value is replaced by an empty object.
fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // A previous statement has made the value an object.
        _ => unreachable!("an object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patches_follow_rfc_7386() {
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut value = target;
            merge(&mut value, patch);
            assert_eq!(value, expected);
        }
    }

    #[test]
    fn strategic_patches_merge_named_lists() {
        let mut value =
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}, "x": [1]});
        let patch = json!({"spec": {"$setElementOrder/containers": [], "containers": [
            {"name": "b", "image": "2"}, {"name": "a", "$patch": "delete"}, {"name": "c"}]}, "x": [2]});
        strategic(&mut value, patch);
        assert_eq!(value, json!({"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "c"}]}, "x": [2]}));
    }

    #[test]
    fn failed_json_patches_change_nothing() {
        let start = json!({"a": {"b": 1}, "l": [1, 2]});
        let mut value = start.clone();
        json(&mut value, json!([
            {"op": "test", "path": "/a/b", "value": 1}, {"op": "add", "path": "/a/c~1d", "value": 2},
            {"op": "add", "path": "/l/1", "value": 9}, {"op": "remove", "path": "/l/0"}, {"op": "move", "from": "/a/b", "path": "/b"},
            {"op": "replace", "path": "/l/0", "value": 8}, {"op": "copy", "from": "/b", "path": "/l/-"},
        ])).unwrap();
        assert_eq!(value, json!({"a": {"c/d": 2}, "b": 1, "l": [8, 2, 1]}));
        let mut value = start.clone();
        let failing = json!([{"op": "remove", "path": "/a"}, {"op": "test", "path": "/l/0", "value": 7}]);
        assert!(json(&mut value, failing).is_err());
        assert_eq!(value, start);
    }
}
