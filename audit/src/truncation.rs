//! The truncation of events that are too long for their receiver. It follows kube-apiserver's truncating backend
//! (`plugin/pkg/audit/truncate`), with one difference. kube-apiserver removes the bodies of an event, and drops the
//! event if it is still too long. Tributary instead cuts other texts of the event, so that a client cannot keep its
//! request out of the log with a long query.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The annotation that marks a truncated event, as in kube-apiserver.
pub(crate) const TRUNCATED_ANNOTATION: &str = "audit.k8s.io/truncated";
/// The suffix of a truncated text, for example of a user agent.
const TRUNCATED_SUFFIX: &str = "...TRUNCATED";
/// The fields that contain the bodies of the request and the response.
const BODIES: [&str; 2] = ["requestObject", "responseObject"];
/// Limits for the texts and lists of an event without its bodies. The limits are applied one after another until the
/// event is short enough. Long texts are cut before long lists. Lists are cut before the names of the user and the
/// object.
const CUTS: [Cut; 6] = [
    Cut { text: 1024, entries: 512, name: 1024 },
    Cut { text: 256, entries: 512, name: NAME_MAX },
    Cut { text: 64, entries: 512, name: NAME_MAX },
    Cut { text: 64, entries: 64, name: NAME_MAX },
    Cut { text: 64, entries: 4, name: NAME_MAX },
    Cut { text: 64, entries: 4, name: 64 },
];
/// The limit for names in all cuts except the first and the last, in bytes. An object's name and a ServiceAccount's
/// user name have at most 339 bytes, so only the last cut shortens them.
const NAME_MAX: usize = 384;
/// The number of fields that a JSON object keeps at each cut. No type in an event has more fields, so only maps lose
/// entries.
const FIELDS: usize = 16;

#[derive(Clone, Copy)]
struct Cut {
    /// The maximum length of a text, in bytes.
    text: usize,
    /// The maximum number of entries in a list.
    entries: usize,
    /// The maximum length of the user's name, and of each text in the object reference, in bytes.
    name: usize,
}

/// Shortens the line of an event to a number of bytes. Removes the bodies and, if necessary, cuts texts and lists.
/// Returns `None` if the line is not an event, or is still too long.
pub fn truncated_line(line: &[u8], bytes: usize) -> Option<Vec<u8>> {
    // The bodies of the event are not parsed, because they may be nested deeper than serde_json allows.
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(line).ok()?;
    let without_bodies = fields.into_iter().filter(|(name, _)| !BODIES.contains(&name.as_str()));
    let read = |(name, text): (String, Box<RawValue>)| Some((name, serde_json::from_str(text.get()).ok()?));
    // A field that is nested too deeply is dropped, so that the event keeps the other fields.
    let mut event: Map<String, Value> = without_bodies.filter_map(read).collect();
    let annotations = event.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    annotations.as_object_mut()?.insert(TRUNCATED_ANNOTATION.to_owned(), "true".into());
    if let Some(line) = fitting(&event, bytes) {
        return Some(line);
    }
    CUTS.into_iter().find_map(|cut| {
        cut.shorten_event(&mut event);
        fitting(&event, bytes)
    })
}

/// Returns the line of an event if the line has at most this number of bytes.
fn fitting(event: &Map<String, Value>, bytes: usize) -> Option<Vec<u8>> {
    let mut line = serde_json::to_vec(event).ok()?;
    line.push(b'\n');
    (line.len() <= bytes).then_some(line)
}

impl Cut {
    fn shorten_event(self, event: &mut Map<String, Value>) {
        let of_names = Self { text: self.name, ..self };
        for (key, field) in event.iter_mut() {
            match (key.as_str(), field) {
                ("objectRef", object) => of_names.shorten(object),
                ("user" | "impersonatedUser", Value::Object(user)) => {
                    for (key, field) in user.iter_mut() {
                        if key == "username" { of_names.shorten(field) } else { self.shorten(field) }
                    }
                }
                (_, field) => self.shorten(field),
            }
        }
    }

    fn shorten(self, value: &mut Value) {
        match value {
            Value::String(own) => shorten_text(own, self.text),
            Value::Array(items) => {
                items.truncate(self.entries);
                for item in items {
                    self.shorten(item);
                }
            }
            Value::Object(fields) => {
                let shortened = |(mut key, mut value): (String, Value)| {
                    shorten_text(&mut key, self.text);
                    self.shorten(&mut value);
                    (key, value)
                };
                *fields = std::mem::take(fields).into_iter().take(self.entries.max(FIELDS)).map(shortened).collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn shorten_text(own: &mut String, bytes: usize) {
    if own.len() > bytes {
        *own = shortened(own, bytes).into_owned();
    }
}

/// Shortens a text that is longer than a number of bytes, and appends [`TRUNCATED_SUFFIX`].
pub(crate) fn shortened(text: &str, bytes: usize) -> Cow<'_, str> {
    match text.len() > bytes {
        true => format!("{}{TRUNCATED_SUFFIX}", &text[..text.floor_char_boundary(bytes)]).into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(event: &Value) -> Vec<u8> {
        format!("{event}\n").into_bytes()
    }

    #[test]
    fn text_above_the_length_limit_is_cut_and_gets_a_suffix() {
        for (text, expected) in
            [("kubectl", "kubectl"), ("12345678", "12345678"), ("123456789", "12345678"), ("1234567ü", "1234567")]
        {
            let suffix = if text == expected { "" } else { TRUNCATED_SUFFIX };
            assert_eq!(shortened(text, 8), format!("{expected}{suffix}"));
        }
    }

    #[test]
    fn truncated_event_has_no_bodies_and_short_texts() {
        let long = "x".repeat(300);
        let short = format!("{}{TRUNCATED_SUFFIX}", "x".repeat(64));
        for (event, expected) in [
            (
                json!({"auditID": "a", "requestObject": {"a": long}, "responseObject": {"b": 1}}),
                Some(json!({"auditID": "a", "annotations": {TRUNCATED_ANNOTATION: "true"}})),
            ),
            (
                json!({"responseObject": {"a": long}, "annotations": {"b": "c"}}),
                Some(json!({"annotations": {"b": "c", TRUNCATED_ANNOTATION: "true"}})),
            ),
            (
                json!({"requestURI": long, "requestObject": {}}),
                Some(json!({"requestURI": short, "annotations": {TRUNCATED_ANNOTATION: "true"}})),
            ),
            (
                json!({"requestURI": long}),
                Some(json!({"requestURI": short, "annotations": {TRUNCATED_ANNOTATION: "true"}})),
            ),
            // This event is too long even after all cuts, so it is dropped. No client can cause such an event.
            (json!({"a": short, "b": short, "c": short}), None),
        ] {
            assert_eq!(truncated_line(&line(&event), 200), expected.as_ref().map(line), "{event}");
        }
    }

    /// A body that the parser barely accepts is nested one level deeper in the event. The truncation must therefore not
    /// parse the body.
    #[test]
    fn truncation_removes_deeply_nested_bodies_without_parsing_them() {
        let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
        let cut = truncated_line(format!("{{\"auditID\":\"a\",\"requestObject\":{deep}}}\n").as_bytes(), 200);
        assert_eq!(cut, Some(line(&json!({"auditID": "a", "annotations": {TRUNCATED_ANNOTATION: "true"}}))));
    }

    /// A cluster determines the text of `responseStatus`. If this field is nested too deeply, only the field is removed
    /// from the event.
    #[test]
    fn truncation_removes_a_deeply_nested_status_and_keeps_the_audit_event() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let text = format!("{{\"auditID\":\"a\",\"responseStatus\":{{\"code\":409,\"details\":{deep}}}}}\n");
        let cut = truncated_line(text.as_bytes(), 200);
        assert_eq!(cut, Some(line(&json!({"auditID": "a", "annotations": {TRUNCATED_ANNOTATION: "true"}}))));
    }

    /// The client's texts consist of backslashes and control characters, because JSON encodes them with two and six
    /// bytes.
    #[test]
    fn event_with_long_client_input_is_truncated_and_not_dropped() {
        const BYTES: usize = 100 << 10;
        let groups = |count: usize, length: usize, byte: &str| vec![byte.repeat(length); count];
        let extra: Map<String, Value> =
            (0..600).map(|key| (format!("{key}{}", "\u{1}".repeat(100)), json!(["v", "w"]))).collect();
        for (what, event) in [
            ("a query", json!({"requestURI": format!("/api/v1/namespaces/n/pods/p?{}", "\\".repeat(52_000))})),
            ("a name", json!({"requestURI": "/", "objectRef": {"name": "\\".repeat(60_000)}})),
            ("groups", json!({"requestURI": "/", "impersonatedUser": {"groups": groups(512, 128, "\\")}})),
            ("more groups", json!({"requestURI": "/", "user": {"groups": groups(30_000, 2, "\u{1}")}})),
            ("extras", json!({"requestURI": "/", "impersonatedUser": {"username": "bob", "extra": extra}})),
            ("addresses", json!({"requestURI": "/", "sourceIPs": groups(9000, 10, "1")})),
        ] {
            let mut event = event;
            event["verb"] = "delete".into();
            event["user"]["username"] = "eve".into();
            let line = line(&event);
            assert!(line.len() > BYTES, "{what} is long");
            let cut = truncated_line(&line, BYTES).unwrap_or_else(|| panic!("{what} hides its request"));
            assert!(cut.len() <= BYTES, "{what}: {} bytes", cut.len());
            let cut: Value = serde_json::from_slice(&cut).unwrap();
            assert_eq!((&cut["verb"], &cut["user"]["username"]), (&json!("delete"), &json!("eve")), "{what}");
            assert_eq!(cut["annotations"][TRUNCATED_ANNOTATION], "true", "{what}");
            assert!(cut["requestURI"].as_str().unwrap().starts_with('/'), "{what}");
            if what == "groups" {
                assert_eq!(cut["impersonatedUser"]["groups"].as_array().unwrap().len(), 512, "each is told of");
            }
        }
    }

    #[test]
    fn truncation_preserves_the_impersonated_user_name() {
        let name = format!("system:serviceaccount:{}:{}", "n".repeat(63), "s".repeat(253));
        assert_eq!(name.len(), 339);
        let event = json!({
            "impersonatedUser": {"username": name, "groups": vec!["\\".repeat(128); 512]},
            "user": {"username": "eve"},
        });
        for (bytes, groups) in [(100 << 10, 512), (4 << 10, 4)] {
            let cut: Value = serde_json::from_slice(&truncated_line(&line(&event), bytes).unwrap()).unwrap();
            let own = &cut["impersonatedUser"];
            assert_eq!((&own["username"], own["groups"].as_array().unwrap().len()), (&json!(name), groups), "{bytes}");
        }
        let cut: Value = serde_json::from_slice(&truncated_line(&line(&event), 900).unwrap()).unwrap();
        assert_eq!(cut["impersonatedUser"]["username"], format!("{}{TRUNCATED_SUFFIX}", &name[..64]));
    }

    /// A client must not be able to remove its user name or the object's name from an event by sending much data.
    #[test]
    fn truncation_preserves_the_user_and_object_names() {
        let (name, user) = ("n".repeat(253), format!("system:serviceaccount:{}:{}", "n".repeat(63), "s".repeat(253)));
        let event = json!({
            "impersonatedUser": {"groups": vec!["\\".repeat(128); 512]},
            "objectRef": {"name": name},
            "user": {"groups": vec!["g".repeat(100); 8], "username": user},
        });
        for (bytes, groups) in [(100 << 10, 512), (20 << 10, 64), (4 << 10, 4)] {
            let cut: Value = serde_json::from_slice(&truncated_line(&line(&event), bytes).unwrap()).unwrap();
            assert_eq!((&cut["objectRef"]["name"], &cut["user"]["username"]), (&json!(name), &json!(user)), "{bytes}");
            let impersonated = &cut["impersonatedUser"]["groups"];
            assert_eq!(impersonated.as_array().unwrap().len(), groups, "{bytes}");
            assert!(cut["user"]["groups"][0].as_str().unwrap().ends_with(TRUNCATED_SUFFIX), "{bytes}");
        }
        let cut: Value = serde_json::from_slice(&truncated_line(&line(&event), 1500).unwrap()).unwrap();
        assert_eq!(cut["objectRef"]["name"], format!("{}{TRUNCATED_SUFFIX}", "n".repeat(64)));
    }
}
