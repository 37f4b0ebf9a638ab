//! An object as the bytes that its member sent, with the few places known that answers need.
//!
//! A tree of an object takes ten times the memory of its text and must be serialized for each answer. Here the text is
//! kept as it came; [`ObjectDecoder`](decode::ObjectDecoder) notes once where `resourceVersion` and `annotations`
//! stand, and [`Object::pieces`] gives an answer as a gather of slices: nothing is parsed or serialized per request.

mod annotation;
pub mod decode;
pub mod decode_error;
mod fields;
mod key;
pub mod mark;
mod metadata;
pub mod render;
mod span;

use std::fmt;

use crate::json;
use crate::{NativeVersion, ResourceVersion};
use annotation::AnnotationPlace;
pub use annotation::{CLUSTER_ANNOTATION, ClusterAnnotation};
pub use fields::SelectableField;
pub use key::ObjectKey;
use span::Span;

/// One object of one cluster: exact JSON text and the places in it that answers need. Immutable; shared by `Arc`.
///
/// Costs the text plus about 150 bytes.
pub struct Object {
    key: ObjectKey,
    resource_version: ResourceVersion,
    json: Box<[u8]>,
    /// `"kind":"Pod","apiVersion":"v1",` where a list of this kind leaves it out of its items; else empty.
    type_meta: Span,
    metadata: Span,
    resource_version_text: Span,
    uid: Span,
    creation_timestamp: Span,
    labels: Span,
    annotation_at: u32,
    annotation_place: AnnotationPlace,
    fields: Box<[Option<Span>]>,
}

impl fmt::Debug for Object {
    /// Names the object; its content may be secret and is never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", &self.key)
            .field("resource_version", &self.resource_version.0)
            .finish_non_exhaustive()
    }
}

impl Object {
    /// The key within the resource.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.key.namespace()
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.key.name()
    }

    /// The resourceVersion of the object's cluster: a number, another text, or absent.
    pub fn native_version(&self) -> NativeVersion<'_> {
        match self.resource_version {
            ResourceVersion(0) => NativeVersion::from_text(json::unescaped(self.text(self.resource_version_text))),
            number => NativeVersion::Number(number),
        }
    }

    /// The member's resourceVersion; zero for a version that is not a number. Only a forwarded object has such a
    /// version.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// The text as the member sent it, always with `kind` and `apiVersion`.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The text of the metadata object.
    pub fn metadata(&self) -> &[u8] {
        &self.json[self.metadata.range()]
    }

    /// The uid; empty if the member sent none.
    pub fn uid(&self) -> &str {
        self.text(self.uid)
    }

    /// The creationTimestamp (RFC 3339); empty if the member sent none.
    pub fn creation_timestamp(&self) -> &str {
        self.text(self.creation_timestamp)
    }

    /// Whether the member's object has an annotations map, be it an empty one.
    pub fn has_annotations(&self) -> bool {
        self.annotation_place != AnnotationPlace::NewMap
    }

    /// The value of a label. Cost: a walk over the labels' text.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The text of the labels, as the member wrote it; empty if it wrote none.
    pub fn labels_text(&self) -> &[u8] {
        &self.json[self.labels.range()]
    }

    /// The labels in the order of the text. Label keys and values have no characters that JSON escapes.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        json::members(&self.json[..self.labels.range().end], self.labels.range().start).filter_map(|member| {
            let value = json::string_contents(&self.json, &member.value)?;
            Some((std::str::from_utf8(member.key).ok()?, std::str::from_utf8(&self.json[value]).ok()?))
        })
    }

    /// The value of the selectable field at `index` of the decoder's list, as written between its quotes (escapes are
    /// not resolved), or `None` where the object has none and the field's default holds.
    pub fn field(&self, index: usize) -> Option<&str> {
        self.fields.get(index).copied().flatten().map(|span| self.text(span))
    }

    /// Whether no selector tells this object from the other one, which has the same key: the labels are the same, as
    /// written, and each selectable field is.
    pub fn same_selectables(&self, other: &Self) -> bool {
        let mut fields = 0..self.fields.len().max(other.fields.len());
        self.labels().eq(other.labels()) && fields.all(|index| self.field(index) == other.field(index))
    }

    /// The bytes that this object occupies, text and places.
    pub fn size(&self) -> usize {
        let fields = std::mem::size_of_val(&*self.fields);
        self.json.len() + self.key.as_str().len() + fields + size_of::<Self>()
    }

    fn text(&self, span: Span) -> &str {
        std::str::from_utf8(&self.json[span.range()]).unwrap_or_default()
    }
}
