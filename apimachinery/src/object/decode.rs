//! Decodes [`Object`]s from a member's text.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Object;
use super::decode_error::ObjectDecodeError;
use super::fields::{SelectableField, field_values};
use super::key::ObjectKey;
use super::metadata::{MetadataSpans, only_metadata};
use super::span::Span;
use crate::ResourceVersion;
use crate::json;

/// Decodes [`Object`]s of a resource from a member's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDecoder {
    type_meta: Box<str>,
    fields: Arc<[SelectableField]>,
    /// Whether the resourceVersion may be any text instead of a number.
    accepts_opaque: bool,
}

impl ObjectDecoder {
    /// Creates a decoder for objects of a kind. `api_version` and `kind` are added to list items that lack them.
    /// `fields` are the fields that [`Object::field`] returns, by index.
    pub fn new(api_version: &str, kind: &str, fields: Arc<[SelectableField]>) -> Self {
        Self {
            type_meta: format!("\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",").into(),
            fields,
            accepts_opaque: false,
        }
    }

    /// Creates a decoder for forwarded objects, which are not stored in memory. Their resourceVersion may be any text.
    pub fn for_forwarding() -> Self {
        Self { accepts_opaque: true, ..Self::new("", "", Arc::default()) }
    }

    /// Returns the selectable fields, in the order of the index of [`Object::field`].
    pub fn fields(&self) -> &Arc<[SelectableField]> {
        &self.fields
    }

    /// Copies an object's text and finds its positions. `kind` and `apiVersion` are added to a list item that lacks
    /// them.
    ///
    /// Cost: one validation, one copy, and less than two walks: about 10 µs for a pod of 6.5 KB.
    ///
    /// # Errors
    /// [`ObjectDecodeError`]. The caller must skip the object and increment a counter, and must never guess the
    /// object's content.
    pub fn decode(&self, text: &[u8]) -> Result<Object, ObjectDecodeError> {
        json::validate(text).map_err(ObjectDecodeError::Json)?;
        u32::try_from(text.len() + self.type_meta.len()).map_err(|_| ObjectDecodeError::TooLarge)?;
        match self.index(text.trim_ascii())? {
            Indexed::Object(object) => Ok(object),
            // The text without the removed entries is indexed once more. If that text needed another removal, the first
            // removal would have a bug.
            Indexed::Cut(text) => match self.index(&text)? {
                Indexed::Object(object) => Ok(object),
                Indexed::Cut(_) => Err(ObjectDecodeError::Repeated("metadata.annotations")),
            },
        }
    }

    /// Finds the positions in the text. If the member's text has cluster annotations, or annotations that are not a
    /// map, returns the text without them.
    fn index(&self, text: &[u8]) -> Result<Indexed, ObjectDecodeError> {
        if text.first() != Some(&b'{') {
            return Err(ObjectDecodeError::Missing("members"));
        }
        let mut top: Top<'_> = json::members(text, 0).map(|member| (member.key, member.value)).collect();
        if top.iter().any(|(key, _)| *key == b"kind") {
            return self.locate_fields(text.into(), &top);
        }
        let json = [b"{", self.type_meta.as_bytes(), &text[1..]].concat();
        for (_, value) in &mut top {
            *value = value.start + self.type_meta.len()..value.end + self.type_meta.len();
        }
        self.locate_fields(json.into(), &top)
    }

    fn locate_fields(&self, json: Box<[u8]>, top: &Top<'_>) -> Result<Indexed, ObjectDecodeError> {
        let metadata = only_metadata(top.iter().cloned())?.ok_or(ObjectDecodeError::Missing("metadata"))?;
        let spans = MetadataSpans::find(&json, &metadata)?;
        if let Some(cut) = spans.without_unwanted(&json, &metadata) {
            return Ok(Indexed::Cut(cut));
        }
        if spans.name.is_empty() {
            return Err(ObjectDecodeError::Missing("metadata.name"));
        }
        if spans.resource_version.is_empty() {
            return Err(ObjectDecodeError::Missing("metadata.resourceVersion"));
        }
        let text = |range: &Range<usize>| std::str::from_utf8(&json[range.clone()]).unwrap_or_default();
        let type_meta = self.type_meta.as_bytes();
        let omitted = if json[1..].starts_with(type_meta) { 1..1 + type_meta.len() } else { 0..0 };
        let (annotation_at, annotation_position) = spans.annotation(&json, &metadata);
        Ok(Indexed::Object(Object {
            // RBAC objects may have names with characters that JSON escapes, and kube-apiserver also escapes `&`, `<`
            // and `>`. So the names are decoded.
            key: ObjectKey::new(&json::unescaped(text(&spans.namespace)), &json::unescaped(text(&spans.name))),
            resource_version: match ResourceVersion::parse(text(&spans.resource_version)) {
                Ok(version) => version,
                Err(_) if self.accepts_opaque => ResourceVersion::default(),
                Err(invalid) => return Err(ObjectDecodeError::ResourceVersion(invalid)),
            },
            type_meta: omitted.into(),
            metadata: metadata.into(),
            resource_version_text: spans.resource_version.into(),
            uid: spans.uid.into(),
            creation_timestamp: spans.creation_timestamp.into(),
            labels: spans.labels.into(),
            annotation_at: Span::from(annotation_at..annotation_at).start,
            annotation_position,
            fields: field_values(&json, top, &self.fields),
            json,
        }))
    }
}

enum Indexed {
    Object(Object),
    /// The text without the member's cluster annotations. Its positions must be found again.
    Cut(Vec<u8>),
}

/// The top-level fields of an object: keys and ranges of values. Kubernetes' objects have at most five.
type Top<'a> = SmallVec<[(&'a [u8], Range<usize>); 6]>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NativeVersion;

    fn decoder() -> ObjectDecoder {
        ObjectDecoder::new(
            "v1",
            "Pod",
            vec![SelectableField::dotted("spec.nodeName"), SelectableField::dotted("status.phase")].into(),
        )
    }

    /// The texts contain names of Roles and ClusterRoles in the escaped form of kube-apiserver.
    #[test]
    fn json_escapes_in_object_names_are_decoded() {
        for (written, name) in
            [(r"a\u0026b", "a&b"), (r"x\u003cy", "x<y"), (r#"say \"hi\""#, r#"say "hi""#), (r"\u00e4", "ä")]
        {
            let text = format!(r#"{{"metadata":{{"name":"{written}","namespace":"n","resourceVersion":"1"}}}}"#);
            let object = decoder().decode(text.as_bytes()).unwrap();
            assert_eq!((object.name(), object.namespace(), object.key().as_str()), (name, "n", &*format!("n/{name}")));
            assert!(std::str::from_utf8(object.json()).unwrap().contains(written), "the text stays as it is");
        }
    }

    #[test]
    fn object_decoder_finds_the_positions_of_fields() {
        let object = decoder()
            .decode(br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"12","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"a":"b","c":""}},"spec":{"nodeName":"n1"},"status":{"phase":""}}"#)
            .unwrap();
        assert_eq!((object.key().as_str(), object.uid(), object.resource_version().0), ("n/p", "u", 12));
        assert_eq!(object.label("a"), Some("b"));
        assert_eq!(object.label("c"), Some(""));
        assert_eq!(object.label("x"), None);
        assert_eq!((object.field(0), object.field(1), object.field(2)), (Some("n1"), None, None));
        assert_eq!(object.creation_timestamp(), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn forwarded_object_may_have_a_non_numeric_resource_version() {
        let version = |text: &str| {
            let json = format!(r#"{{"kind":"K","metadata":{{"name":"p","resourceVersion":"{text}"}}}}"#);
            ObjectDecoder::for_forwarding().decode(json.as_bytes()).map(|object| match object.native_version() {
                NativeVersion::Number(number) => format!("number {number}"),
                NativeVersion::Opaque(text) => text.into_owned(),
            })
        };
        for (text, expected) in [
            ("12", "number 12"),
            ("0", "number 0"),
            ("100/107", "100/107"),
            ("107/", "107/"),
            ("018f3c2a-7d1e-7000", "018f3c2a-7d1e-7000"),
            (r#"a\u002f\"b"#, r#"a/"b"#),
        ] {
            assert_eq!(version(text).unwrap(), expected);
        }
        assert!(matches!(version(""), Err(ObjectDecodeError::Missing("metadata.resourceVersion"))));
    }

    #[test]
    fn object_decoder_refuses_malformed_objects() {
        for bad in [
            "",
            "{",
            "[]",
            "1",
            "{}",
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"name":"p"}}"#,
            r#"{"metadata":null}"#,
            r#"{"metadata":{"name":"p","resourceVersion":"x"}}"#,
            r#"{"metadata":{"name":1,"resourceVersion":"1"}}"#,
        ] {
            assert!(decoder().decode(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
