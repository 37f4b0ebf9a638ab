//! Inserts the cluster annotation into the text of a forwarded object.

use std::borrow::Cow;
use std::ops::Range;

use super::annotation::{AnnotationPosition, ClusterAnnotation};
use super::decode_error::ObjectDecodeError;
use super::metadata::{MetadataSpans, only_metadata};
use crate::{NativeVersion, json};

/// Appends the text of a forwarded object with its cluster's annotation. If the object has a resourceVersion, the
/// result of `version` replaces this resourceVersion. The text of an object without metadata stays unchanged.
///
/// Cost: one validation, one walk, and one copy.
///
/// # Errors
/// [`ObjectDecodeError::Json`]. [`ObjectDecodeError::Repeated`] if a field occurs twice, so that two clients could read
/// different clusters from the object.
pub fn mark_object<'v>(
    json: &[u8],
    annotation: &ClusterAnnotation,
    version: impl FnOnce(NativeVersion<'_>) -> &'v str,
    out: &mut Vec<u8>,
) -> Result<(), ObjectDecodeError> {
    json::validate(json).map_err(ObjectDecodeError::Json)?;
    let Some(Unmarked { text: cut, metadata, spans }) = Unmarked::parse(Cow::Borrowed(json))? else {
        out.extend_from_slice(json);
        return Ok(());
    };
    let (at, place) = spans.annotation(&cut, &metadata);
    let is_empty = cut[json::skip_space(&cut, metadata.start + 1)] == b'}';
    let added: &[u8] = match place {
        AnnotationPosition::NewMap if is_empty => annotation.new_map.strip_suffix(b",").unwrap_or_default(),
        AnnotationPosition::NewMap => &annotation.new_map,
        AnnotationPosition::BeforeOthers => &annotation.before_others,
        AnnotationPosition::EmptyMap => &annotation.empty_map,
    };
    let own = std::str::from_utf8(&cut[spans.resource_version.clone()]).unwrap_or_default();
    let replaced = (!own.is_empty()).then(|| version(NativeVersion::from_text(json::unescaped(own))));
    let mut edits = [(at..at, Some(added)), (spans.resource_version.clone(), replaced.map(str::as_bytes))];
    edits.sort_by_key(|(range, _)| range.start);
    let mut written = 0;
    for (range, by) in edits.into_iter().filter_map(|(range, by)| Some((range, by?))) {
        out.extend_from_slice(&cut[written..range.start]);
        out.extend_from_slice(by);
        written = range.end;
    }
    out.extend_from_slice(&cut[written..]);
    Ok(())
}

/// Returns the text of a forwarded object without a cluster annotation, because only Tributary may set this annotation.
///
/// # Errors
/// [`ObjectDecodeError::Json`] and [`ObjectDecodeError::Repeated`].
pub fn unmark_object(json: &[u8]) -> Result<Cow<'_, [u8]>, ObjectDecodeError> {
    json::validate(json).map_err(ObjectDecodeError::Json)?;
    Ok(Unmarked::parse(Cow::Borrowed(json))?.map_or(Cow::Borrowed(json), |unmarked| unmarked.text))
}

/// The text of a forwarded object, without the cluster annotations that it had.
struct Unmarked<'a> {
    text: Cow<'a, [u8]>,
    metadata: Range<usize>,
    spans: MetadataSpans,
}

impl<'a> Unmarked<'a> {
    /// Parses a forwarded object; `None` if the object has no metadata.
    fn parse(text: Cow<'a, [u8]>) -> Result<Option<Self>, ObjectDecodeError> {
        let root = json::members(&text, 0).map(|member| (member.key, member.value));
        let Some(metadata) = only_metadata(root)?.filter(|metadata| text[metadata.start] == b'{') else {
            return Ok(None);
        };
        let spans = MetadataSpans::find(&text, &metadata)?;
        match spans.without_unwanted(&text, &metadata) {
            Some(cut) => Self::parse(Cow::Owned(cut)),
            None => Ok(Some(Self { text, metadata, spans })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterName;

    #[test]
    fn forwarded_object_gets_the_cluster_annotation() {
        let annotation = ClusterAnnotation::new(&ClusterName::new("c1").unwrap());
        let marked = |text: &str| {
            let mut out = Vec::new();
            mark_object(text.as_bytes(), &annotation, |_| "RV", &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let own = r#""tributary.dev/cluster":"c1""#;
        for (input, expected) in [
            (r#"{"metadata":{}}"#, format!(r#"{{"metadata":{{"annotations":{{{own}}}}}}}"#)),
            (r#"{"metadata":{"name":"p"}}"#, format!(r#"{{"metadata":{{"annotations":{{{own}}},"name":"p"}}}}"#)),
            (
                r#"{"metadata":{"resourceVersion":"7","annotations":{"a":"b"}},"x":1}"#,
                format!(r#"{{"metadata":{{"resourceVersion":"RV","annotations":{{{own},"a":"b"}}}},"x":1}}"#),
            ),
            (
                r#"{"metadata":{"annotations":{"tributary.dev/cluster":"forged","a":"b"},"resourceVersion":"7"}}"#,
                format!(r#"{{"metadata":{{"annotations":{{{own},"a":"b"}},"resourceVersion":"RV"}}}}"#),
            ),
            (
                r#"{"metadata":{"annotations":null,"resourceVersion":"100/107"}}"#,
                format!(r#"{{"metadata":{{"annotations":{{{own}}},"resourceVersion":"RV"}}}}"#),
            ),
            (
                r#"{"metadata":{"name":"p","resourceVersion":""}}"#,
                format!(r#"{{"metadata":{{"annotations":{{{own}}},"name":"p","resourceVersion":""}}}}"#),
            ),
            (r#"{"kind":"K"}"#, r#"{"kind":"K"}"#.to_owned()),
            (r#"{"metadata":null}"#, r#"{"metadata":null}"#.to_owned()),
        ] {
            assert_eq!(marked(input), expected);
        }
        assert!(mark_object(b"{", &annotation, |_| "RV", &mut Vec::new()).is_err());
    }
}
