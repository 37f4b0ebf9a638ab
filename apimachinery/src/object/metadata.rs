//! The positions of the fields in an object's metadata.

use std::ops::Range;

use super::annotation::{AnnotationPosition, is_cluster_annotation};
use super::decode_error::ObjectDecodeError;
use crate::json;

/// The ranges of the metadata's fields; strings without their quotes.
#[derive(Default)]
pub(super) struct MetadataSpans {
    pub(super) name: Range<usize>,
    pub(super) namespace: Range<usize>,
    pub(super) uid: Range<usize>,
    pub(super) resource_version: Range<usize>,
    pub(super) creation_timestamp: Range<usize>,
    pub(super) labels: Range<usize>,
    annotations: Option<Range<usize>>,
}

/// The metadata fields whose positions are stored. At most eight, because `find` detects repeated fields with a bit for
/// each key.
const KEYS: [&str; 7] = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp", "labels", "annotations"];

impl MetadataSpans {
    /// Finds the positions of the fields in the metadata object whose range is `metadata`.
    ///
    /// # Errors
    /// [`ObjectDecodeError::Repeated`]: some clients use the first of two fields with the same key and others the last,
    /// so they would disagree about the object's cluster. No kube-apiserver writes such a text.
    pub(super) fn find(json: &[u8], metadata: &Range<usize>) -> Result<Self, ObjectDecodeError> {
        let mut spans = Self::default();
        let mut seen = 0_u8;
        for member in json::members(json, metadata.start) {
            let key = json::unescaped_key(member.key);
            let Some(at) = KEYS.iter().position(|known| known.as_bytes() == &*key) else { continue };
            if seen & (1 << at) != 0 {
                return Err(ObjectDecodeError::Repeated(KEYS[at]));
            }
            seen |= 1 << at;
            let contents = json::string_contents(json, &member.value).unwrap_or(0..0);
            match KEYS[at] {
                "name" => spans.name = contents,
                "namespace" => spans.namespace = contents,
                "uid" => spans.uid = contents,
                "resourceVersion" => spans.resource_version = contents,
                "creationTimestamp" => spans.creation_timestamp = contents,
                "labels" => spans.labels = member.value,
                _ => spans.annotations = Some(member.value),
            }
        }
        Ok(spans)
    }

    /// Returns the text without its cluster annotations, which the member's object may have if it is a copy, and
    /// without an annotations value that is not a map.
    ///
    /// Returns `None` if the text has neither. Cost: a walk over the annotations.
    pub(super) fn without_unwanted(&self, json: &[u8], metadata: &Range<usize>) -> Option<Vec<u8>> {
        let value = self.annotations.as_ref()?;
        let names_cluster = |member: &json::JsonField<'_>| is_cluster_annotation(member.key);
        if json.get(value.start) != Some(&b'{') {
            return Some(json::without_members(json, metadata.start, |member| {
                json::key_equals(member.key, "annotations")
            }));
        }
        json::members(json, value.start)
            .any(|member| names_cluster(&member))
            .then(|| json::without_members(json, value.start, names_cluster))
    }

    /// Returns the position at which the cluster annotation is inserted, and whether the insertion also creates the
    /// annotations map.
    pub(super) fn annotation(&self, json: &[u8], metadata: &Range<usize>) -> (usize, AnnotationPosition) {
        match &self.annotations {
            Some(value) if json[value.start] == b'{' => {
                let at = value.start + 1;
                let empty = json[json::skip_space(json, at)] == b'}';
                (at, if empty { AnnotationPosition::EmptyMap } else { AnnotationPosition::BeforeOthers })
            }
            _ => (metadata.start + 1, AnnotationPosition::NewMap),
        }
    }
}

/// Returns the range of the root's `metadata`, if the root has the field.
///
/// # Errors
/// [`ObjectDecodeError::Repeated`].
pub(super) fn only_metadata<'k>(
    root: impl Iterator<Item = (&'k [u8], Range<usize>)>,
) -> Result<Option<Range<usize>>, ObjectDecodeError> {
    let mut all = root.filter(|(key, _)| json::key_equals(key, "metadata")).map(|(_, value)| value);
    let first = all.next();
    match all.next() {
        Some(_) => Err(ObjectDecodeError::Repeated("metadata")),
        None => Ok(first),
    }
}
