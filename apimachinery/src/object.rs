//! An object stored as the bytes from its member, with the positions that responses need.
//!
//! A tree of an object takes ten times the memory of its text and must be serialized for each response. This type keeps
//! the original text: [`ObjectDecoder`](decode::ObjectDecoder) finds the positions of `resourceVersion` and
//! `annotations` once, and [`Object::pieces`] assembles a response from slices. No request parses or serializes the
//! object.

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
use annotation::AnnotationPosition;
pub use annotation::{CLUSTER_ANNOTATION, ClusterAnnotation, ClusterAnnotations, KARMADA_ANNOTATION};
pub(crate) use annotation::{CLUSTER_ANNOTATIONS, is_cluster_annotation};
pub use fields::SelectableField;
pub use key::ObjectKey;
use span::Span;

/// An object of a cluster: its exact JSON text, and the positions that responses need. Immutable; shared by `Arc`.
///
/// The object takes the size of its text and about 150 bytes.
pub struct Object {
    key: ObjectKey,
    resource_version: ResourceVersion,
    json: Box<[u8]>,
    /// The range of `"kind":"Pod","apiVersion":"v1",` in the text, if a kube-apiserver omits these fields in the items
    /// of a list. Empty if it does not.
    type_meta: Span,
    metadata: Span,
    resource_version_text: Span,
    uid: Span,
    creation_timestamp: Span,
    labels: Span,
    annotation_at: u32,
    annotation_position: AnnotationPosition,
    fields: Box<[Option<Span>]>,
}

impl fmt::Debug for Object {
    /// Prints the object's key. The content may be secret and is never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", &self.key)
            .field("resource_version", &self.resource_version.0)
            .finish_non_exhaustive()
    }
}

impl Object {
    /// Returns the object's key (`namespace/name`) within the resource.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.key.namespace()
    }

    /// Returns the object's name.
    pub fn name(&self) -> &str {
        self.key.name()
    }

    /// Returns the resourceVersion from the object's cluster: a number, another text, or absent.
    pub fn native_version(&self) -> NativeVersion<'_> {
        match self.resource_version {
            ResourceVersion(0) => NativeVersion::from_text(json::unescaped(self.text(self.resource_version_text))),
            number => NativeVersion::Number(number),
        }
    }

    /// Returns the member's resourceVersion; zero for a version that is not a number, which only forwarded objects
    /// have.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Returns the text from the member, always with `kind` and `apiVersion`.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// Returns the text of the metadata object.
    pub fn metadata(&self) -> &[u8] {
        &self.json[self.metadata.range()]
    }

    /// Returns the uid; empty if the member sent none.
    pub fn uid(&self) -> &str {
        self.text(self.uid)
    }

    /// Returns the creationTimestamp (RFC 3339); empty if the member sent none.
    pub fn creation_timestamp(&self) -> &str {
        self.text(self.creation_timestamp)
    }

    /// Returns whether the member's object has an annotations map, possibly empty.
    pub fn has_annotations(&self) -> bool {
        self.annotation_position != AnnotationPosition::NewMap
    }

    /// Returns the value of a label. Cost: a walk over the labels' text.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Returns the text of the object's labels as the member wrote it; empty for an object without labels.
    pub fn labels_text(&self) -> &[u8] {
        &self.json[self.labels.range()]
    }

    /// Iterates over the labels in the order of the text. Label keys and values have no characters that JSON escapes.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        json::members(&self.json[..self.labels.range().end], self.labels.range().start).filter_map(|member| {
            let value = json::string_contents(&self.json, &member.value)?;
            Some((std::str::from_utf8(member.key).ok()?, std::str::from_utf8(&self.json[value]).ok()?))
        })
    }

    /// Returns the value of the selectable field at `index` of the decoder's list, without quotes and with JSON
    /// escapes. Returns `None` for an object without the field. The caller then uses the field's default value.
    pub fn field(&self, index: usize) -> Option<&str> {
        self.fields.get(index).copied().flatten().map(|span| self.text(span))
    }

    /// Returns whether all selectors treat this object and `other` alike, because their labels and selectable fields
    /// have equal texts. Both objects must have the same key.
    pub fn same_selectables(&self, other: &Self) -> bool {
        let mut fields = 0..self.fields.len().max(other.fields.len());
        self.labels().eq(other.labels()) && fields.all(|index| self.field(index) == other.field(index))
    }

    /// Returns the size in memory of the text and the positions, in bytes.
    pub fn size(&self) -> usize {
        let fields = std::mem::size_of_val(&*self.fields);
        self.json.len() + self.key.as_str().len() + fields + size_of::<Self>()
    }

    fn text(&self, span: Span) -> &str {
        std::str::from_utf8(&self.json[span.range()]).unwrap_or_default()
    }
}
