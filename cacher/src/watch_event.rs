//! Parses a frame of a watch, such as `{"type":"ADDED","object":{…}}`, without building a tree.

use tributary_apimachinery::{ChangeType, ResourceVersion, json};

/// The annotation of the bookmark that ends the initial events of a WatchList (KEP-3157).
const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";

/// An event of a watch, as parsed from a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum MemberEvent<'a> {
    /// A change of an object. The object's JSON text is not validated yet.
    Object {
        /// The type of the change.
        change_type: ChangeType,
        /// The JSON text of the object.
        object: &'a [u8],
    },
    /// A bookmark: the member has sent all events up to its version.
    Bookmark {
        /// The version of the bookmark.
        version: ResourceVersion,
        /// Whether the bookmark ends the initial events of a WatchList.
        initial_events_end: bool,
    },
    /// An error of the watch; its object should be a Status.
    Error {
        /// The JSON text of the Status.
        status: &'a [u8],
    },
}

/// The reason why a frame is unreadable. The messages contain no content of the frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is not one complete JSON object.
    #[error("the frame is not a complete JSON object")]
    Cut,
    /// `type` is missing or unknown.
    #[error("the frame has no type of a watch event")]
    Type,
    /// The field `object` is missing.
    #[error("the frame has no object")]
    Object,
    /// The bookmark has no resourceVersion.
    #[error("the bookmark has no resourceVersion of a kube-apiserver")]
    Bookmark,
    /// The version of a bookmark is not a number.
    #[error("the bookmark has a resourceVersion that is not a number")]
    OpaqueVersion(String),
}

impl<'a> MemberEvent<'a> {
    /// Parses a frame. Cost: one pass over the text; the decoder validates the object itself.
    ///
    /// # Errors
    /// [`FrameError`] for malformed frames.
    pub fn parse(frame: &'a [u8]) -> Result<Self, FrameError> {
        let (mut event_type, mut object) = (None, None);
        let mut end = 0;
        for member in json::members(frame, 0) {
            end = member.value.end;
            match member.key {
                b"type" => event_type = json::string_contents(frame, &member.value),
                b"object" => object = Some(member.value),
                _ => {}
            }
        }
        let close = json::skip_space(frame, end);
        if end == 0 || frame.get(close) != Some(&b'}') || json::skip_space(frame, close + 1) != frame.len() {
            return Err(FrameError::Cut);
        }
        let object = &frame[object.ok_or(FrameError::Object)?];
        let change_type = match event_type.and_then(|range| frame.get(range)).ok_or(FrameError::Type)? {
            b"ADDED" => ChangeType::Added,
            b"MODIFIED" => ChangeType::Modified,
            b"DELETED" => ChangeType::Deleted,
            b"BOOKMARK" => return bookmark(object),
            b"ERROR" => return Ok(Self::Error { status: object }),
            _ => return Err(FrameError::Type),
        };
        Ok(Self::Object { change_type, object })
    }
}

fn bookmark(object: &[u8]) -> Result<MemberEvent<'_>, FrameError> {
    let text = json::find(object, 0, &["metadata", "resourceVersion"])
        .and_then(|value| json::string_contents(object, &value))
        .and_then(|contents| std::str::from_utf8(object.get(contents)?).ok())
        .ok_or(FrameError::Bookmark)?;
    let version = ResourceVersion::parse(text).map_err(|invalid| FrameError::OpaqueVersion(invalid.0))?;
    let initial_events_end = json::find(object, 0, &["metadata", "annotations"]).is_some_and(|annotations| {
        json::members(object, annotations.start)
            .any(|member| member.key == INITIAL_EVENTS_END && object[member.value] == *b"\"true\"")
    });
    Ok(MemberEvent::Bookmark { version, initial_events_end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_frame_of_each_event_type_is_parsed() {
        let parse = |text: &'static str| MemberEvent::parse(text.as_bytes());
        for (name, change_type) in
            [("ADDED", ChangeType::Added), ("MODIFIED", ChangeType::Modified), ("DELETED", ChangeType::Deleted)]
        {
            let text = format!(r#" {{"object": {{"a":"}}"}} , "more":[1], "type":"{name}" }} "#);
            let event = MemberEvent::parse(text.as_bytes());
            assert_eq!(event, Ok(MemberEvent::Object { change_type, object: br#"{"a":"}"}"# }));
        }
        assert_eq!(
            parse(
                r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12","creationTimestamp":null}}}"#
            ),
            Ok(MemberEvent::Bookmark { version: ResourceVersion(12), initial_events_end: false })
        );
        assert_eq!(
            parse(
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12","annotations":{"a":"b","k8s.io/initial-events-end":"true"}}}}"#
            ),
            Ok(MemberEvent::Bookmark { version: ResourceVersion(12), initial_events_end: true })
        );
        assert_eq!(
            parse(r#"{"type":"ERROR","object":{"code":410}}"#),
            Ok(MemberEvent::Error { status: br#"{"code":410}"# })
        );
    }

    #[test]
    fn malformed_watch_frames_are_refused() {
        let cases = [
            ("", FrameError::Cut),
            ("{}", FrameError::Cut),
            ("[]", FrameError::Cut),
            ("garbage", FrameError::Cut),
            (r#"{"type":"ADDED","object":{"a":1}"#, FrameError::Cut),
            (r#"{"type":"ADDED","object":{"a":1}} x"#, FrameError::Cut),
            (r#"{"type":"ADDED","object":{"a":"#, FrameError::Cut),
            (r#"{"type":"ADDED"}"#, FrameError::Object),
            (r#"{"object":{}}"#, FrameError::Type),
            (r#"{"type":"RENAMED","object":{}}"#, FrameError::Type),
            (r#"{"type":7,"object":{}}"#, FrameError::Type),
            (r#"{"type":"BOOKMARK","object":{}}"#, FrameError::Bookmark),
            (
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"10/7"}}}"#,
                FrameError::OpaqueVersion("10/7".to_owned()),
            ),
            (r#"{"type":"BOOKMARK","object":null}"#, FrameError::Bookmark),
        ];
        for (text, error) in cases {
            assert_eq!(MemberEvent::parse(text.as_bytes()), Err(error), "{text}");
        }
    }
}
