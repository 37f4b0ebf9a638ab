//! Assembles an object of a response from slices of the stored text.

use std::ops::Range;

use bytes::BufMut;

use super::Object;
use super::annotation::{AnnotationPosition, ClusterAnnotation};

/// The form of an object in a response.
#[derive(Clone, Copy, Debug)]
pub struct Rendering<'a> {
    /// The resourceVersion that replaces the member's; `None` to keep the member's.
    pub resource_version: Option<&'a str>,
    /// The cluster annotation to insert, if any.
    pub annotation: Option<&'a ClusterAnnotation>,
    /// Whether to omit `kind` and `apiVersion` if a kube-apiserver's lists of this kind omit them.
    pub list_item: bool,
}

impl Object {
    /// Returns the object's text in the form of `rendering`, as consecutive slices.
    pub fn pieces<'a>(&'a self, rendering: &Rendering<'a>) -> [&'a [u8]; 6] {
        self.gather(0..self.json.len(), rendering)
    }

    /// Returns the text of the object's metadata in the form of `rendering`, as consecutive slices. The option
    /// `list_item` has no effect.
    pub fn metadata_pieces<'a>(&'a self, rendering: &Rendering<'a>) -> [&'a [u8]; 6] {
        self.gather(self.metadata.range(), &Rendering { list_item: false, ..*rendering })
    }

    /// Appends the object's text in the form of `rendering`.
    pub fn render(&self, rendering: &Rendering<'_>, out: &mut impl BufMut) {
        for piece in self.pieces(rendering) {
            out.put_slice(piece);
        }
    }

    fn gather<'a>(&'a self, range: Range<usize>, rendering: &Rendering<'a>) -> [&'a [u8]; 6] {
        let json = &*self.json;
        let (skip, version) = (self.type_meta.range(), self.resource_version_text.range());
        let head: &[u8] = if rendering.list_item && !skip.is_empty() { &json[range.start..skip.start] } else { &[] };
        let start = if head.is_empty() { range.start } else { skip.end };
        let annotation: &[u8] = match (rendering.annotation, self.annotation_position) {
            (None, _) => &[],
            (Some(annotation), AnnotationPosition::NewMap) => &annotation.new_map,
            (Some(annotation), AnnotationPosition::BeforeOthers) => &annotation.before_others,
            (Some(annotation), AnnotationPosition::EmptyMap) => &annotation.empty_map,
        };
        let replaced = rendering.resource_version.map_or(&json[version.clone()], str::as_bytes);
        let at = self.annotation_at as usize;
        if at <= version.start {
            [head, &json[start..at], annotation, &json[at..version.start], replaced, &json[version.end..range.end]]
        } else {
            [head, &json[start..version.start], replaced, &json[version.end..at], annotation, &json[at..range.end]]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterName, ObjectDecoder};

    fn rendered(text: &str, list_item: bool) -> String {
        let object = ObjectDecoder::new("v1", "Pod", [].into()).decode(text.as_bytes()).unwrap();
        let annotation = ClusterAnnotation::new(&ClusterName::new("c1").unwrap());
        let mut out = Vec::new();
        object.render(&Rendering { resource_version: Some("RV"), annotation: Some(&annotation), list_item }, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rendered_object_has_the_composite_version_and_cluster_annotation() {
        let head = r#"{"kind":"Pod","apiVersion":"v1","#;
        let cases = [
            (
                r#""metadata":{"name":"p","resourceVersion":"1"}}"#,
                r#""metadata":{"annotations":{"tributary.dev/cluster":"c1"},"name":"p","resourceVersion":"RV"}}"#,
            ),
            (
                r#""metadata":{"name":"p","resourceVersion":"1","annotations":{"a":"b"}}}"#,
                r#""metadata":{"name":"p","resourceVersion":"RV","annotations":{"tributary.dev/cluster":"c1","a":"b"}}}"#,
            ),
            (
                r#""metadata":{"annotations":{ },"name":"p","resourceVersion":"1"}}"#,
                r#""metadata":{"annotations":{"tributary.dev/cluster":"c1" },"name":"p","resourceVersion":"RV"}}"#,
            ),
            (
                r#""metadata":{"annotations":{"tributary.dev/cluster":"forged"},"name":"p","resourceVersion":"1"}}"#,
                r#""metadata":{"annotations":{"tributary.dev/cluster":"c1"},"name":"p","resourceVersion":"RV"}}"#,
            ),
            (
                r#""metadata":{"annotations":{"a":"b","tributary.dev/cluster":"forged"},"name":"p","resourceVersion":"1"}}"#,
                r#""metadata":{"annotations":{"tributary.dev/cluster":"c1","a":"b"},"name":"p","resourceVersion":"RV"}}"#,
            ),
            (
                r#""metadata":{"name":"p","resourceVersion":"1","annotations":null}}"#,
                r#""metadata":{"annotations":{"tributary.dev/cluster":"c1"},"name":"p","resourceVersion":"RV"}}"#,
            ),
        ];
        for (input, expected) in cases {
            assert_eq!(rendered(&format!("{head}{input}"), false), format!("{head}{expected}"));
            assert_eq!(rendered(&format!("{head}{input}"), true), format!("{{{expected}"));
            assert_eq!(
                rendered(&format!("{{{input}"), false),
                format!("{head}{expected}"),
                "a list item is given its kind"
            );
        }
        let custom = r#"{"apiVersion":"x/v1","kind":"K","metadata":{"name":"p","resourceVersion":"1"}}"#;
        assert!(
            rendered(custom, true).starts_with(r#"{"apiVersion":"x/v1","kind":"K","#),
            "custom resources keep it in lists"
        );
    }
}
