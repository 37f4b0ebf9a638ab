//! What is left of an event that is too long for whoever takes it: as kube-apiserver's truncating backend
//! (`plugin/pkg/audit/truncate`), but that one drops what is as long without its bodies. Nobody is to be left out of
//! the log by a long query: here what else a client chooses is cut, too.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The annotation of an event that was cut, or whose bodies were too long, by kube-apiserver and here.
pub(crate) const TRUNCATED_ANNOTATION: &str = "audit.k8s.io/truncated";
/// What is put where a text was cut, as of a long name of a client's program.
const TRUNCATED_SUFFIX: &str = "...TRUNCATED";
/// What a client and a member have sent.
const BODIES: [&str; 2] = ["requestObject", "responseObject"];
/// How far an event that is too long without its bodies is cut, one after the other, until it is short enough. Many
/// groups are told by their beginnings before any of them is left out; and all that there may be many of is cut before
/// who does something to which object is.
const CUTS: [Cut; 6] = [
    Cut { text: 1024, entries: 512, name: 1024 },
    Cut { text: 256, entries: 512, name: NAME_MAX },
    Cut { text: 64, entries: 512, name: NAME_MAX },
    Cut { text: 64, entries: 64, name: NAME_MAX },
    Cut { text: 64, entries: 4, name: NAME_MAX },
    Cut { text: 64, entries: 4, name: 64 },
];
/// Bytes that every name of an object has room in, and that of every ServiceAccount's user: that has 339 at most.
const NAME_MAX: usize = 384;
/// How many fields an object may have in any case: no kind in an event has more of them by itself.
const FIELDS: usize = 16;

/// How much is left of an event.
#[derive(Clone, Copy)]
struct Cut {
    /// The bytes of a text.
    text: usize,
    /// The entries of a list.
    entries: usize,
    /// The bytes of a text that says who does something, or to which object.
    name: usize,
}

/// An event's line that has more than so many bytes, as it may be: without its bodies, and where it is too long without
/// them, with its texts and lists cut; `None` where even that is too long, or where the line is no event.
pub fn truncated_line(line: &[u8], bytes: usize) -> Option<Vec<u8>> {
    // Bodies are passed over and not read: they may be nested deeper than a tree of values may be.
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(line).ok()?;
    let kept = fields.into_iter().filter(|(name, _)| !BODIES.contains(&name.as_str()));
    let read = |(name, text): (String, Box<RawValue>)| Some((name, serde_json::from_str(text.get()).ok()?));
    // What else is nested so deeply, which nothing that is written here is, shall not hide the rest.
    let mut event: Map<String, Value> = kept.filter_map(read).collect();
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

/// An event as a line, if that has no more than so many bytes.
fn fitting(event: &Map<String, Value>, bytes: usize) -> Option<Vec<u8>> {
    let mut line = serde_json::to_vec(event).ok()?;
    line.push(b'\n');
    (line.len() <= bytes).then_some(line)
}

impl Cut {
    /// Cuts what an event says.
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

    /// Cuts the texts and lists of a value.
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

/// Cuts a text that has more than so many bytes.
fn shorten_text(own: &mut String, bytes: usize) {
    if own.len() > bytes {
        *own = shortened(own, bytes).into_owned();
    }
}

/// The text; its beginning, and that it is cut, if it has more than so many bytes.
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
    fn a_long_text_says_that_it_was_cut() {
        for (text, expected) in
            [("kubectl", "kubectl"), ("12345678", "12345678"), ("123456789", "12345678"), ("1234567ü", "1234567")]
        {
            let suffix = if text == expected { "" } else { TRUNCATED_SUFFIX };
            assert_eq!(shortened(text, 8), format!("{expected}{suffix}"));
        }
    }

    #[test]
    fn a_long_event_is_told_without_its_bodies_and_with_short_texts() {
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
            // What no client can bring about.
            (json!({"a": short, "b": short, "c": short}), None),
        ] {
            assert_eq!(truncated_line(&line(&event), 200), expected.as_ref().map(line), "{event}");
        }
    }

    /// A body may be as deep as its own tree, and stands one deeper in an event.
    #[test]
    fn a_body_that_is_nested_deeply_hides_nothing() {
        let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
        let cut = truncated_line(format!("{{\"auditID\":\"a\",\"requestObject\":{deep}}}\n").as_bytes(), 200);
        assert_eq!(cut, Some(line(&json!({"auditID": "a", "annotations": {TRUNCATED_ANNOTATION: "true"}}))));
    }

    /// What others say hides nothing beside it, whatever becomes part of an event.
    #[test]
    fn a_field_that_is_nested_deeply_is_left_out_alone() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let text = format!("{{\"auditID\":\"a\",\"responseStatus\":{{\"code\":409,\"details\":{deep}}}}}\n");
        let cut = truncated_line(text.as_bytes(), 200);
        assert_eq!(cut, Some(line(&json!({"auditID": "a", "annotations": {TRUNCATED_ANNOTATION: "true"}}))));
    }

    /// JSON doubles a backslash, and has six bytes for what is below a blank.
    #[test]
    fn nobody_is_left_out_by_what_they_send() {
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

    /// Whom somebody acts as is who does it.
    #[test]
    fn as_whom_somebody_acts_is_cut_last_too() {
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

    /// Whoever sends much does not choose that nobody can say which object was deleted, or by whom.
    #[test]
    fn who_does_something_to_which_object_is_cut_last() {
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
