//! The text of an object that is passed on, marked with its cluster.

use super::annotation::{AnnotationPlace, ClusterAnnotation};
use super::decode::ObjectDecodeError;
use super::metadata::{MetadataPlaces, cut_member};
use crate::ResourceVersion;
use crate::json;

/// Appends the text of an object that is passed on, not held, with its cluster's annotation and, where it has a
/// version, what `version` makes of that. One without metadata stays as it is.
///
/// Cost: one validation, one walk, and one copy.
///
/// # Errors
/// [`ObjectDecodeError::Json`].
pub fn mark_object<'v>(
    json: &[u8],
    annotation: &ClusterAnnotation,
    version: impl FnOnce(ResourceVersion) -> &'v str,
    out: &mut Vec<u8>,
) -> Result<(), ObjectDecodeError> {
    json::validate(json).map_err(ObjectDecodeError::Json)?;
    let Some(metadata) = json::find(json, 0, &["metadata"]).filter(|metadata| json[metadata.start] == b'{') else {
        out.extend_from_slice(json);
        return Ok(());
    };
    let mut cut = std::borrow::Cow::Borrowed(json);
    let (mut metadata, mut places) = (metadata.clone(), MetadataPlaces::find(json, &metadata));
    while let Some(unwanted) = places.unwanted_annotation(&cut) {
        let before = cut.len();
        cut_member(cut.to_mut(), unwanted);
        metadata.end -= before - cut.len();
        places = MetadataPlaces::find(&cut, &metadata);
    }
    let (at, place) = places.annotation(&cut, &metadata);
    let is_empty = cut[json::skip_space(&cut, metadata.start + 1)] == b'}';
    let added: &[u8] = match place {
        AnnotationPlace::NewMap if is_empty => annotation.new_map.strip_suffix(b",").unwrap_or_default(),
        AnnotationPlace::NewMap => &annotation.new_map,
        AnnotationPlace::BeforeOthers => &annotation.before_others,
        AnnotationPlace::EmptyMap => &annotation.empty_map,
    };
    let own = std::str::from_utf8(&cut[places.resource_version.clone()]).unwrap_or_default();
    let replaced = ResourceVersion::parse(own).ok().map(version);
    let mut edits = [(at..at, Some(added)), (places.resource_version.clone(), replaced.map(str::as_bytes))];
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterName;

    #[test]
    fn what_is_passed_on_is_marked() {
        let annotation = ClusterAnnotation::new(&ClusterName::new("c1").unwrap());
        let marked = |text: &str| {
            let mut out = Vec::new();
            mark_object(text.as_bytes(), &annotation, |_| "RV", &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let own = r#""tributary.dev/cluster":"c1""#;
        for (given, expected) in [
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
                r#"{"metadata":{"annotations":null,"resourceVersion":"x"}}"#,
                format!(r#"{{"metadata":{{"annotations":{{{own}}},"resourceVersion":"x"}}}}"#),
            ),
            (r#"{"kind":"K"}"#, r#"{"kind":"K"}"#.to_owned()),
            (r#"{"metadata":null}"#, r#"{"metadata":null}"#.to_owned()),
        ] {
            assert_eq!(marked(given), expected);
        }
        assert!(mark_object(b"{", &annotation, |_| "RV", &mut Vec::new()).is_err());
    }
}
