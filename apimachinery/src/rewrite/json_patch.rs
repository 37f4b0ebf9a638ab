//! Edits JSON patches (RFC 6902), whose operations address positions by path.

use std::borrow::Cow;
use std::ops::Range;

use super::json_body::{
    Edits, EmptyMap, PatchedValue, edit_value, elements, quote, read_value, string_at, validate, values_at,
};
use super::{BodyKind, Facts, Translate, translate};
use crate::object::{CLUSTER_ANNOTATIONS, is_cluster_annotation};
use crate::{Status, json};

const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];
/// Operations that remove the cluster annotations from a map. Each annotation is added first, because a removal fails
/// if the map lacks the annotation.
const REMOVE_CLUSTER_ANNOTATIONS: &str = concat!(
    r#",{"op":"add","path":"/metadata/annotations/resource.karmada.io~1cached-from-cluster","value":""}"#,
    r#",{"op":"remove","path":"/metadata/annotations/resource.karmada.io~1cached-from-cluster"}"#,
    r#",{"op":"add","path":"/metadata/annotations/tributary.dev~1cluster","value":""}"#,
    r#",{"op":"remove","path":"/metadata/annotations/tributary.dev~1cluster"}"#,
);
const ADD_ANNOTATIONS: &str = r#"{"op":"add","path":"/metadata/annotations","value":{}},"#;

struct Operation {
    range: Range<usize>,
    op: String,
    /// The range of the value of the field `op` in the patch.
    op_at: Range<usize>,
    /// The tokens of the JSON pointer `path`, without escapes.
    path: Vec<String>,
    /// The tokens of the JSON pointer `from`, without escapes.
    from: Option<Vec<String>>,
    value: Option<Range<usize>>,
}

impl Operation {
    fn writes(&self) -> bool {
        matches!(self.op.as_str(), "add" | "replace" | "copy" | "move")
    }

    fn is_at(&self, path: &[&str]) -> bool {
        self.path == path
    }

    fn is_annotation(&self) -> bool {
        is_annotation(&self.path)
    }
}

fn is_annotation(path: &[String]) -> bool {
    matches!(path, [metadata, annotations, key]
        if [metadata, annotations] == ANNOTATIONS && CLUSTER_ANNOTATIONS.contains(&key.as_str()))
}

/// Splits a JSON pointer (RFC 6901) into its decoded tokens.
fn tokens(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    Some(pointer.strip_prefix('/')?.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect())
}

fn parse(text: &[u8]) -> Result<Vec<Operation>, Status> {
    validate(text)?;
    if text.get(json::skip_space(text, 0)) != Some(&b'[') {
        return Err(Status::bad_request("the body is not a JSON patch: an array of operations is expected"));
    }
    elements(text, 0).map(|range| operation(text, range)).collect()
}

fn operation(text: &[u8], range: Range<usize>) -> Result<Operation, Status> {
    let member = |name: &str| values_at(text, range.start, &[name]).pop();
    let string = |name: &str| member(name).and_then(|place| string_at(text, &place).map(Cow::into_owned));
    let wrong = || Status::bad_request("the body is not a JSON patch: each operation needs op and path");
    let (op, path) = (string("op").ok_or_else(wrong)?, string("path").ok_or_else(wrong)?);
    let from = string("from").map(|from| tokens(&from).ok_or_else(wrong)).transpose()?;
    let op_at = member("op").ok_or_else(wrong)?;
    Ok(Operation { op, op_at, path: tokens(&path).ok_or_else(wrong)?, from, value: member("value"), range })
}

pub(super) fn read(shape: BodyKind, text: &[u8]) -> Result<Facts, Status> {
    let mut facts = Facts::default();
    for operation in parse(text)?.iter().filter(|operation| operation.op != "remove") {
        let Some(value) = &operation.value else { continue };
        let written = read_value(shape, text, value.start, &operation.path);
        facts.resource_version = written.resource_version.or(facts.resource_version);
        facts.cluster = written.cluster.or(facts.cluster);
        facts.uid = written.uid.or(facts.uid);
        facts.release = written.release.or(facts.release);
        facts.node_name = written.node_name.or(facts.node_name);
        facts.name = written.name.or(facts.name);
        facts.namespace = written.namespace.or(facts.namespace);
        facts.involved = written.involved.or(facts.involved);
        if !written.owners.is_empty() {
            facts.owners = written.owners;
        }
    }
    Ok(facts)
}

pub(super) fn rewrite(
    shape: BodyKind,
    text: &[u8],
    has_annotations: bool,
    version: Translate<'_>,
) -> Result<Option<Vec<u8>>, Status> {
    let operations = parse(text)?;
    let mut edits = Edits::default();
    let mut parts = Vec::with_capacity(operations.len());
    // Whether the member's object has an annotations map before the current operation.
    let mut has_map = has_annotations;
    for operation in &operations {
        if let Some(from) = &operation.from
            && let Some(path) = [from, &operation.path].into_iter().find(|path| is_annotation(path))
        {
            return Err(Status::bad_request(format!(
                "the annotation {} cannot be moved or copied: it is not part of the object",
                path.last().map_or("", String::as_str),
            )));
        }
        if copies_unseen_annotations(operation) {
            if !operation.is_at(&ANNOTATIONS) {
                return Err(Status::bad_request("metadata cannot be moved or copied as a whole: move its fields"));
            }
            edits.replace(operation.range.end..operation.range.end, REMOVE_CLUSTER_ANNOTATIONS);
        }
        let is_removed = operation.is_annotation() || has_no_effect_without_map(text, operation, has_map);
        parts.push((operation.range.clone(), is_removed));
        if is_removed {
            continue;
        }
        if !has_map
            && operation.writes()
            && operation.path.len() == 3
            && operation.path.starts_with(&owned_annotations())
        {
            edits.replace(operation.range.start..operation.range.start, ADD_ANNOTATIONS);
            has_map = true;
        }
        if !has_map && operation.op == "replace" && operation.is_at(&ANNOTATIONS) {
            // In the member's object, which lacks the map, a `replace` would fail. An `add` has the effect that the
            // client expects.
            edits.replace(operation.op_at.clone(), r#""add""#);
        }
        edit_operation(shape, text, operation, has_map, version, &mut edits)?;
        has_map = has_map_after(text, operation, has_map);
    }
    for cut in json::cuts(&parts) {
        edits.replace(cut, []);
    }
    Ok(edits.apply(text))
}

/// Returns whether the operation copies or moves a value that may contain an annotations map. The patch does not
/// contain the entries of this map.
fn copies_unseen_annotations(operation: &Operation) -> bool {
    let is_copy = matches!(operation.op.as_str(), "copy" | "move");
    is_copy && operation.path.len() <= ANNOTATIONS.len() && ANNOTATIONS.iter().zip(&operation.path).all(|(a, b)| a == b)
}

fn owned_annotations() -> [String; 2] {
    ANNOTATIONS.map(str::to_owned)
}

/// Returns whether the operation concerns only an annotations map that exists in the merged view but not in the
/// member's object. Such an operation removes the map, or tests for an empty map or for a map with only the cluster
/// annotation. The member does not need the operation.
fn has_no_effect_without_map(text: &[u8], operation: &Operation, has_map: bool) -> bool {
    if has_map || !operation.is_at(&ANNOTATIONS) {
        return false;
    }
    match operation.op.as_str() {
        "remove" => true,
        "test" => operation.value.as_ref().is_some_and(|value| {
            text.get(value.start) == Some(&b'{')
                && json::members(text, value.start).all(|member| is_cluster_annotation(member.key))
        }),
        _ => false,
    }
}

/// Returns whether the member's object has an annotations map after the operation.
fn has_map_after(text: &[u8], operation: &Operation, before: bool) -> bool {
    if operation.op == "move" && operation.from.as_deref().is_some_and(|from| from == ANNOTATIONS) {
        return false;
    }
    if operation.is_at(&ANNOTATIONS) {
        return match operation.op.as_str() {
            "remove" => false,
            "test" => before,
            _ => true,
        };
    }
    let outer = operation.path.is_empty() || operation.is_at(&ANNOTATIONS[..1]);
    if outer && operation.writes() {
        let rest = &ANNOTATIONS[operation.path.len()..];
        return operation.value.as_ref().is_none_or(|value| {
            // A map with only the cluster annotation is removed; any other map stays, even an empty map.
            values_at(text, value.start, rest).iter().any(|map| {
                let mut members = json::members(text, map.start).peekable();
                let is_map = text.get(map.start) == Some(&b'{');
                is_map && (members.peek().is_none() || members.any(|member| !is_cluster_annotation(member.key)))
            })
        });
    }
    before
}

fn edit_operation(
    shape: BodyKind,
    text: &[u8],
    operation: &Operation,
    has_map: bool,
    version: Translate<'_>,
    edits: &mut Edits,
) -> Result<(), Status> {
    let Some(value) = &operation.value else { return Ok(()) };
    if !matches!(operation.op.as_str(), "add" | "replace" | "test") {
        return Ok(());
    }
    if let Some((of, _)) = shape.versions().iter().find(|(_, place)| operation.is_at(place)) {
        if let Some(old) = string_at(text, value)
            && let Some(new) = translate(*of, version, &old)?
        {
            edits.replace(value.clone(), quote(&new));
        }
        return Ok(());
    }
    // A `test` operation compares its value with the member's object after all previous operations of the patch. So the
    // treatment of an empty map depends on whether the object has a map at this point.
    let empty_map = match (operation.op.as_str(), has_map) {
        ("test", true) => EmptyMap::Keep,
        ("test", false) => EmptyMap::AlwaysRemove,
        _ => EmptyMap::Remove,
    };
    let value = PatchedValue { text, start: value.start, path: &operation.path };
    edit_value(shape, value, empty_map, version, edits)
}
