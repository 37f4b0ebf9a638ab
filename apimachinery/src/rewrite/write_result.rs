//! Reads a member's response to a write. Reads that follow the write wait until the result is in memory.

use super::{BodyKind, Format, json_body, protobuf};
use crate::ResourceVersion;

/// The result of a write, from the member's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The object exists with this resourceVersion. Its deletion may be in progress.
    At {
        /// The resourceVersion after the write.
        version: ResourceVersion,
        /// The object's name, if the response contains it.
        name: Option<String>,
    },
    /// The object was deleted, and the response to the delete was a Status with the object's uid.
    Gone {
        /// The uid of the deleted object.
        uid: String,
    },
}

impl WriteResult {
    /// Parses a response in JSON or protobuf. Returns `None` if the response does not describe the result of the write:
    /// a different media type, a Status without a uid, an object without a version, or an object whose kind
    /// `is_written` rejects.
    pub fn read(content_type: &str, body: &[u8], is_written: impl FnOnce(&str) -> bool) -> Option<Self> {
        let (kind, version, name, uid) = match Format::from_content_type(content_type)? {
            Format::Json => {
                let facts = json_body::read(BodyKind::Object, body).ok()?;
                (facts.kind, facts.resource_version, facts.name, json_body::last_string(body, 0, &["details", "uid"]))
            }
            Format::Protobuf => {
                let facts = protobuf::read(BodyKind::Object, body).ok()?;
                (facts.kind, facts.resource_version, facts.name, protobuf::status_uid(body).ok()?)
            }
            _ => return None,
        };
        if kind.as_deref() == Some("Status") {
            return uid.map(|uid| Self::Gone { uid });
        }
        if !is_written(kind.as_deref().unwrap_or_default()) {
            return None;
        }
        ResourceVersion::parse(&version?).ok().map(|version| Self::At { version, name })
    }
}

/// Returns the uid of the object in a member's JSON response if the change completed the object's deletion.
///
/// A change that removes the last finalizer of an object with a deletionTimestamp deletes the object. The response then
/// contains the object as the change would have made it, at its previous version: `ShouldDeleteDuringUpdate` and
/// `deleteWithoutFinalizers` in apiserver's `pkg/registry/generic/registry/store.go`. For a namespace,
/// `spec.finalizers` count as well (`ShouldDeleteNamespaceDuringUpdate`).
pub fn deleted_by_change(body: &[u8]) -> Option<String> {
    let last = |path: &[&str]| json_body::values_at(body, 0, path).pop().and_then(|range| body.get(range));
    let is_nothing = |value: Option<&[u8]>| matches!(value, None | Some(b"null"));
    let is_empty = |path: &[&str]| {
        let place = json_body::values_at(body, 0, path).pop();
        place.is_none_or(|place| json_body::elements(body, place.start).next().is_none())
    };
    if is_nothing(last(&["metadata", "deletionTimestamp"])) {
        return None;
    }
    let grace = last(&["metadata", "deletionGracePeriodSeconds"]);
    let is_over = is_nothing(grace) || grace == Some(b"0");
    let is_deferred = !(is_over && is_empty(&["metadata", "finalizers"]) && is_empty(&["spec", "finalizers"]));
    json_body::last_string(body, 0, &["metadata", "uid"]).filter(|_| !is_deferred)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_of_the_last_finalizer_completes_an_objects_deletion() {
        let of = |metadata: &str, rest: &str| {
            deleted_by_change(
                format!(r#"{{"metadata":{{"uid":"u","resourceVersion":"7"{metadata}}}{rest}}}"#).as_bytes(),
            )
        };
        const TIME: &str = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
        for complete in [
            "",
            r#","finalizers":[]"#,
            r#","finalizers": [ ] "#,
            r#","finalizers":null"#,
            r#","deletionGracePeriodSeconds":0"#,
            r#","deletionGracePeriodSeconds":null"#,
            r#","finalizers":["a"],"finalizers":[]"#,
        ] {
            assert_eq!(of(&format!("{TIME}{complete}"), ""), Some("u".to_owned()), "{complete}");
        }
        for pending in [r#","finalizers":["a"]"#, r#","deletionGracePeriodSeconds":30"#] {
            assert_eq!(of(&format!("{TIME}{pending}"), ""), None, "{pending}");
        }
        assert_eq!(of(TIME, r#","spec":{"finalizers":["kubernetes"]}"#), None);
        assert_eq!(of(TIME, r#","spec":{"finalizers":[]}"#), Some("u".to_owned()));
        assert_eq!(of("", ""), None, "the object is not in deletion");
        assert_eq!(of(r#","deletionTimestamp":null"#, ""), None, "the object is not in deletion");
        for nothing in ["", "{", "[1]", r#"{"metadata":{"deletionTimestamp":"t"}}"#, r#"{"metadata":7}"#] {
            assert_eq!(deleted_by_change(nothing.as_bytes()), None, "{nothing}");
        }
    }

    #[test]
    fn result_of_a_write_is_read_from_a_json_response() {
        let read = |body: &str| WriteResult::read("application/json", body.as_bytes(), |kind| kind != "Other");
        assert_eq!(
            read(r#"{"kind":"Pod","metadata":{"name":"p","resourceVersion":"7"}}"#),
            Some(WriteResult::At { version: ResourceVersion(7), name: Some("p".into()) })
        );
        assert_eq!(
            read(r#"{"kind":"Status","metadata":{},"details":{"name":"p","uid":"u"}}"#),
            Some(WriteResult::Gone { uid: "u".into() })
        );
        for nothing in [
            r#"{"kind":"Status","metadata":{}}"#,
            r#"{"kind":"TokenRequest","metadata":{}}"#,
            r#"{"kind":"Other","metadata":{"resourceVersion":"7"}}"#,
            "{",
            "",
        ] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
        assert_eq!(WriteResult::read("text/plain", b"{}", |_| true), None);
    }

    #[test]
    fn result_of_a_write_is_read_from_a_protobuf_response() {
        let field = |number: u8, contents: &[u8]| [&[number << 3 | 2, contents.len() as u8], contents].concat();
        let answer = |kind: &str, object: &[u8]| {
            [b"k8s\0".as_slice(), &field(1, &field(2, kind.as_bytes())), &field(2, object)].concat()
        };
        let read = |body: &[u8]| WriteResult::read("application/vnd.kubernetes.protobuf", body, |_| true);
        let pod = answer("Pod", &field(1, &[field(1, b"p"), field(6, b"7")].concat()));
        assert_eq!(read(&pod), Some(WriteResult::At { version: ResourceVersion(7), name: Some("p".into()) }));
        let status = answer("Status", &[field(1, b""), field(2, b"Success"), field(5, &field(6, b"u"))].concat());
        assert_eq!(read(&status), Some(WriteResult::Gone { uid: "u".into() }));
        assert_eq!(read(&answer("Status", &field(2, b"Success"))), None);
        assert_eq!(read(b"k8s"), None);
    }
}
