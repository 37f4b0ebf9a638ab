//! Edits JSON objects, and the patches with the same structure, by replacing parts of the text.
//!
//! Each occurrence of a repeated field is edited, because members use the last occurrence.

use std::borrow::Cow;
use std::ops::Range;

use super::{
    BodyKind, Facts, HOOK_ANNOTATION, INSTANCE_LABEL, LISTED_MAX, RECORD_NAME_LABEL, RECORD_OWNER_LABEL,
    RELEASE_NAME_ANNOTATION, RELEASE_NAMESPACE_ANNOTATION, Reference, ReleaseFacts, Translate, translate,
};
use crate::object::{CLUSTER_ANNOTATION, is_cluster_annotation};
use crate::{Status, json};

/// Replacements of parts of a text, in any order and not nested.
#[derive(Debug, Default)]
pub(super) struct Edits(Vec<(Range<usize>, Vec<u8>)>);

impl Edits {
    pub(super) fn replace(&mut self, range: Range<usize>, by: impl Into<Vec<u8>>) {
        self.0.push((range, by.into()));
    }

    /// Returns the text with the replacements; `None` without replacements.
    pub(super) fn apply(mut self, text: &[u8]) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.sort_by_key(|(range, _)| (range.start, range.end));
        let mut out = Vec::with_capacity(text.len() + 64);
        let mut at = 0;
        for (range, by) in &self.0 {
            out.extend_from_slice(text.get(at..range.start).unwrap_or_default());
            out.extend_from_slice(by);
            at = at.max(range.end);
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        Some(out)
    }
}

/// Checks that the body is JSON. The error message has the position and never content.
pub(super) fn validate(text: &[u8]) -> Result<(), Status> {
    json::validate(text).map_err(|error| Status::bad_request(format!("the body is not valid JSON: {error}")))
}

/// Returns the ranges of all values at `path` below the value at `start`, in the order of the text.
pub(super) fn values_at(text: &[u8], start: usize, path: &[&str]) -> Vec<Range<usize>> {
    let here = json::skip_space(text, start);
    let mut found: Vec<_> = std::iter::once(here..json::skip_value(text, here)).collect();
    for key in path {
        found = found
            .into_iter()
            .flat_map(|range| json::members(text, range.start).filter(|member| json::key_equals(member.key, key)))
            .map(|member| member.value)
            .collect();
    }
    found
}

/// Returns the string at `range`; `None` for any other value.
pub(super) fn string_at<'a>(text: &'a [u8], range: &Range<usize>) -> Option<Cow<'a, str>> {
    unquote(text.get(range.clone())?)
}

fn unquote(quoted: &[u8]) -> Option<Cow<'_, str>> {
    let contents = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if contents.contains(&b'\\') {
        return serde_json::from_slice(quoted).ok().map(Cow::Owned);
    }
    std::str::from_utf8(contents).ok().map(Cow::Borrowed)
}

pub(super) fn quote(text: &str) -> Vec<u8> {
    // The conversion cannot fail, because a string always serializes.
    serde_json::to_vec(text).unwrap_or_default()
}

/// Returns the last string at `path` below `start`, because a member uses the last occurrence.
pub(super) fn last_string(text: &[u8], start: usize, path: &[&str]) -> Option<String> {
    let last = values_at(text, start, path).pop()?;
    string_at(text, &last).filter(|value| !value.is_empty()).map(Cow::into_owned)
}

/// Returns the last value of each field of `names` in the objects at `path`. The value is empty if the field is absent
/// or is not a string. Returns `None` if there is no object at `path`.
pub(super) fn texts_at<const N: usize>(text: &[u8], path: &[&str], names: [&str; N]) -> Option<[String; N]> {
    let places = values_at(text, 0, path);
    let mut objects = places.iter().filter(|place| text.get(place.start) == Some(&b'{')).peekable();
    objects.peek()?;
    let mut texts = [const { String::new() }; N];
    for member in objects.flat_map(|place| json::members(text, place.start)) {
        if let Some(at) = names.iter().position(|name| json::key_equals(member.key, name)) {
            texts[at] = string_at(text, &member.value).unwrap_or_default().into_owned();
        }
    }
    Some(texts)
}

/// Iterates over the elements of the array at `start`. Elements are parsed on demand.
pub(super) fn elements(text: &[u8], start: usize) -> impl Iterator<Item = Range<usize>> {
    let open = json::skip_space(text, start);
    let first = (text.get(open) == Some(&b'[')).then(|| json::skip_space(text, open + 1));
    let mut next = first;
    std::iter::from_fn(move || {
        let at = next.filter(|at| !matches!(text.get(*at), None | Some(b']')))?;
        let end = json::skip_value(text, at);
        if end <= at {
            next = None;
            return None;
        }
        let after = json::skip_space(text, end);
        next = Some(if text.get(after) == Some(&b',') { json::skip_space(text, after + 1) } else { after });
        Some(at..end)
    })
}

/// Returns the fields of the object at `range`, with their raw keys.
fn members_of(text: &[u8], range: &Range<usize>) -> Vec<(Range<usize>, Vec<u8>)> {
    json::members(text, range.start).map(|member| (member.start..member.value.end, member.key.to_vec())).collect()
}

pub(super) fn read(shape: BodyKind, text: &[u8]) -> Result<Facts, Status> {
    validate(text)?;
    let string = |path: &[&str]| last_string(text, 0, path);
    let mut facts =
        Facts { api_version: string(&["apiVersion"]), kind: string(&["kind"]), ..read_value(shape, text, 0, &[]) };
    if let Some(prefix) = shape.delete_options() {
        let at = |rest: &[&'static str]| [prefix, rest].concat();
        facts.precondition_uid = string(&at(&["preconditions", "uid"]));
        facts.precondition_resource_version = string(&at(&["preconditions", "resourceVersion"]));
        for array in values_at(text, 0, &at(&["dryRun"])) {
            let values = elements(text, array.start).take(LISTED_MAX + 1);
            facts.dry_run.extend(values.filter_map(|element| string_at(text, &element).map(Cow::into_owned)));
        }
    }
    Ok(facts)
}

/// Reads the metadata and the references of the value at `start`. `prefix` is the path of this value in the object.
pub(super) fn read_value(shape: BodyKind, text: &[u8], start: usize, prefix: &[String]) -> Facts {
    let value_at = |path: &[&str]| below(prefix, path).and_then(|rest| values_at(text, start, rest).pop());
    let string_of = |path: &[&str]| Some(string_at(text, &value_at(path)?)?.into_owned()).filter(|it| !it.is_empty());
    // The metadata is searched once for all fields, because the text of the object may be large.
    let metadata = below(prefix, &["metadata"]).map(|rest| values_at(text, start, rest));
    let string = |path: &[&str]| match &metadata {
        Some(places) => {
            let last = places.iter().flat_map(|place| values_at(text, place.start, path)).last()?;
            string_at(text, &last).filter(|value| !value.is_empty()).map(Cow::into_owned)
        }
        None => string_of(&[&["metadata"], path].concat()),
    };
    let mut facts = Facts {
        name: string(&["name"]),
        generate_name: string(&["generateName"]),
        namespace: string(&["namespace"]),
        uid: string(&["uid"]),
        resource_version: string(&["resourceVersion"]),
        cluster: string(&["annotations", CLUSTER_ANNOTATION]),
        release: ReleaseFacts {
            record_owner: string(&["labels", RECORD_OWNER_LABEL]),
            record_name: string(&["labels", RECORD_NAME_LABEL]),
            name: string(&["annotations", RELEASE_NAME_ANNOTATION]),
            namespace: string(&["annotations", RELEASE_NAMESPACE_ANNOTATION]),
            hook: string(&["annotations", HOOK_ANNOTATION]),
            instance: string(&["labels", INSTANCE_LABEL]),
        },
        node_name: string_of(&["spec", "nodeName"]).filter(|_| shape == BodyKind::Pod),
        ..Facts::default()
    };
    if let Some(array) = value_at(&["metadata", "ownerReferences"]) {
        let owners = elements(text, array.start).take(LISTED_MAX + 1);
        facts.owners = owners.map(|owner| reference(text, owner.start)).collect();
    }
    if shape == BodyKind::Binding {
        facts.target = value_at(&["target"]).map(|place| reference(text, place.start));
    }
    facts.involved = shape.reference().and_then(|name| value_at(&[name])).map(|place| reference(text, place.start));
    facts
}

fn reference(text: &[u8], start: usize) -> Reference {
    let string = |name: &str| last_string(text, start, &[name]).unwrap_or_default();
    Reference {
        api_version: string("apiVersion"),
        kind: string("kind"),
        namespace: string("namespace"),
        name: string("name"),
        uid: string("uid"),
    }
}

/// Returns the remaining path of `path` below `prefix`; `None` if `path` does not begin with `prefix`.
pub(super) fn below<'a, 'b>(prefix: &[String], path: &'a [&'b str]) -> Option<&'a [&'b str]> {
    let (head, rest) = path.split_at_checked(prefix.len())?;
    head.iter().zip(prefix).all(|(a, b)| a == b).then_some(rest)
}

pub(super) fn rewrite(shape: BodyKind, text: &[u8], version: Translate<'_>) -> Result<Option<Vec<u8>>, Status> {
    validate(text)?;
    let mut edits = Edits::default();
    let object = PatchedValue { text, start: 0, path: &[] };
    edit_value(shape, object, EmptyMap::Remove, version, &mut edits)?;
    Ok(edits.apply(text))
}

/// The treatment of an annotations map without remaining entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EmptyMap {
    /// The map is removed if the cluster annotation was its only entry. The member's object then has no map, and only
    /// the merged view has it.
    Remove,
    /// The map stays, because the member's object has an annotations map.
    Keep,
    /// The map is removed even if it was empty before, because the member's object has no annotations map.
    AlwaysRemove,
}

/// A value in the text of a body, with its path in the object.
#[derive(Clone, Copy)]
pub(super) struct PatchedValue<'a> {
    pub(super) text: &'a [u8],
    /// The offset of the value in the text, in bytes.
    pub(super) start: usize,
    pub(super) path: &'a [String],
}

/// Records the edits of a value: translates its resourceVersions, and removes its cluster annotation.
pub(super) fn edit_value(
    shape: BodyKind,
    value: PatchedValue<'_>,
    empty_map: EmptyMap,
    version: Translate<'_>,
    edits: &mut Edits,
) -> Result<(), Status> {
    let PatchedValue { text, start, path } = value;
    for (of, place) in shape.versions() {
        let Some(rest) = below(path, place) else { continue };
        for range in values_at(text, start, rest) {
            if let Some(old) = string_at(text, &range)
                && let Some(new) = translate(*of, version, &old)?
            {
                edits.replace(range, quote(&new));
            }
        }
    }
    if shape != BodyKind::DeleteOptions {
        remove_annotation(value, empty_map, edits);
    }
    Ok(())
}

/// Removes the cluster annotation from a value. Also removes the annotations map, depending on `empty_map`, if the map
/// is a field of the value and has no other entry.
fn remove_annotation(value: PatchedValue<'_>, empty_map: EmptyMap, edits: &mut Edits) {
    let PatchedValue { text, start, path } = value;
    if let Some([]) = below(path, &["metadata", "annotations"]) {
        let here = json::skip_space(text, start);
        for range in annotation_cuts(text, &(here..json::skip_value(text, here))).0 {
            edits.replace(range, []);
        }
        return;
    }
    let Some(rest) = below(path, &["metadata"]) else { return };
    for metadata in values_at(text, start, rest) {
        let mut parts = Vec::new();
        for member in json::members(text, metadata.start) {
            let mut is_removed = false;
            if json::key_equals(member.key, "annotations") {
                let (inner, empties) = annotation_cuts(text, &member.value);
                is_removed = match empty_map {
                    EmptyMap::Remove => empties && !inner.is_empty(),
                    EmptyMap::Keep => false,
                    EmptyMap::AlwaysRemove => empties,
                };
                if !is_removed {
                    inner.into_iter().for_each(|range| edits.replace(range, []));
                }
            }
            parts.push((member.start..member.value.end, is_removed));
        }
        json::cuts(&parts).into_iter().for_each(|range| edits.replace(range, []));
    }
}

/// Returns the ranges to cut from an annotations map, and whether the map is then empty. For a value that is not a map,
/// the second result is false.
fn annotation_cuts(text: &[u8], map: &Range<usize>) -> (Vec<Range<usize>>, bool) {
    let parts: Vec<_> =
        members_of(text, map).into_iter().map(|(range, key)| (range, is_cluster_annotation(&key))).collect();
    let empties = text.get(map.start) == Some(&b'{') && parts.iter().all(|(_, is_removed)| *is_removed);
    (json::cuts(&parts), empties)
}
