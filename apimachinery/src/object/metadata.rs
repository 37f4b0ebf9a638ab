//! Where the members of an object's metadata stand.

use std::ops::Range;

use super::annotation::{AnnotationPlace, CLUSTER_ANNOTATION};
use crate::json;

/// Where the members of the metadata stand; strings without their quotes.
#[derive(Default)]
pub(super) struct MetadataPlaces {
    pub(super) name: Range<usize>,
    pub(super) namespace: Range<usize>,
    pub(super) uid: Range<usize>,
    pub(super) resource_version: Range<usize>,
    pub(super) creation_timestamp: Range<usize>,
    pub(super) labels: Range<usize>,
    /// The whole member `annotations`, and its value.
    annotations: Option<(Range<usize>, Range<usize>)>,
}

impl MetadataPlaces {
    pub(super) fn find(json: &[u8], metadata: &Range<usize>) -> Self {
        let mut places = Self::default();
        for member in json::members(json, metadata.start) {
            let contents = json::string_contents(json, &member.value).unwrap_or(0..0);
            match member.key {
                b"name" => places.name = contents,
                b"namespace" => places.namespace = contents,
                b"uid" => places.uid = contents,
                b"resourceVersion" => places.resource_version = contents,
                b"creationTimestamp" => places.creation_timestamp = contents,
                b"labels" => places.labels = member.value,
                b"annotations" => places.annotations = Some((member.start..member.value.end, member.value)),
                _ => {}
            }
        }
        places
    }

    /// A cluster annotation of the member's own (somebody copied an object there), whose place ours takes; or a null
    /// map, in whose place ours can be added.
    pub(super) fn unwanted_annotation(&self, json: &[u8]) -> Option<Range<usize>> {
        let (member, value) = self.annotations.as_ref()?;
        if json.get(value.start) == Some(&b'n') {
            return Some(member.clone());
        }
        json::members(json, value.start)
            .find(|member| member.key == CLUSTER_ANNOTATION.as_bytes())
            .map(|member| member.start..member.value.end)
    }

    /// Where and how our annotation is added.
    pub(super) fn annotation(&self, json: &[u8], metadata: &Range<usize>) -> (usize, AnnotationPlace) {
        match &self.annotations {
            Some((_, value)) if json[value.start] == b'{' => {
                let at = value.start + 1;
                let empty = json[json::skip_space(json, at)] == b'}';
                (at, if empty { AnnotationPlace::EmptyMap } else { AnnotationPlace::BeforeOthers })
            }
            _ => (metadata.start + 1, AnnotationPlace::NewMap),
        }
    }
}

/// Cuts one member out of its object, with the comma that parted it from a neighbour.
pub(super) fn cut_member(json: &mut Vec<u8>, Range { start, end }: Range<usize>) {
    let after = json::skip_space(json, end);
    if json.get(after) == Some(&b',') {
        json.drain(start..json::skip_space(json, after + 1));
    } else {
        let before = json[..start].iter().rposition(|byte| !byte.is_ascii_whitespace()).unwrap_or(start);
        let cut = if json[before] == b',' { before } else { start };
        json.drain(cut..end);
    }
}
