//! What becomes of events that are too long for whoever takes them: as kube-apiserver's truncating backend
//! (`plugin/pkg/audit/truncate`), but that one drops what is as long without its bodies. Nobody is to be left out of
//! the log by a long query: here what else a client chooses is cut, too.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::cli::audit::{AuditLogArguments, AuditWebhookArguments};

/// The annotation of an event that was cut.
const TRUNCATED: &str = "audit.k8s.io/truncated";
/// What is put where a text was cut, as of a long name of a client's program.
const TRUNCATED_SUFFIX: &str = "...TRUNCATED";
/// What a client and a member have sent.
const BODIES: [&str; 2] = ["requestObject", "responseObject"];
/// How many bytes a text may have, and how many entries a list, in an event that is too long without its bodies: as
/// many as it has room for. Many groups are told by their beginnings before any of them is left out.
const CUTS: [(usize, usize); 5] = [(1024, 512), (256, 512), (64, 512), (64, 64), (64, 4)];
/// How many fields an object may have in any case: no kind in an event has more of them by itself.
const FIELDS: usize = 16;

/// How long events and lists of them may be, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncation {
    /// A line.
    pub(crate) event: usize,
    /// The lines that are sent together.
    pub(crate) list: usize,
}

impl Truncation {
    /// What the flags of the log say.
    pub(crate) fn of_log(arguments: &AuditLogArguments) -> Option<Self> {
        let event = arguments.audit_log_truncate_max_event_size;
        // Lines are written one by one.
        arguments.audit_log_truncate_enabled.then_some(Self { event, list: event })
    }

    /// What those of the webhook say.
    pub(crate) fn of_webhook(arguments: &AuditWebhookArguments) -> Option<Self> {
        arguments.audit_webhook_truncate_enabled.then_some(Self {
            event: arguments.audit_webhook_truncate_max_event_size,
            list: arguments.audit_webhook_truncate_max_batch_size,
        })
    }

    /// A line as it may be: without its bodies, where it is too long with them, and with its texts and lists cut, where
    /// it is too long without; `None` where even that is too long.
    pub(crate) fn cut(self, line: Bytes) -> Option<Bytes> {
        if line.len() <= self.event {
            return Some(line);
        }
        // Bodies are passed over and not read: they may be nested deeper than a tree of values may be.
        let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&line).ok()?;
        let kept = fields.into_iter().filter(|(name, _)| !BODIES.contains(&name.as_str()));
        let read = |(name, text): (String, Box<RawValue>)| Some((name, serde_json::from_str(text.get()).ok()?));
        let mut event = Value::Object(kept.map(read).collect::<Option<_>>()?);
        let fields = event.as_object_mut()?;
        let annotations = fields.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        annotations.as_object_mut()?.insert(TRUNCATED.to_owned(), "true".into());
        if let Some(line) = self.fitting(&event) {
            return Some(line);
        }
        CUTS.into_iter().find_map(|(text, entries)| {
            for field in event.as_object_mut()?.values_mut() {
                shorten(field, text, entries);
            }
            self.fitting(&event)
        })
    }

    /// An event as a line, if that is short enough.
    fn fitting(self, event: &Value) -> Option<Bytes> {
        let mut line = serde_json::to_vec(event).ok()?;
        line.push(b'\n');
        (line.len() <= self.event).then(|| line.into())
    }

    /// Lines in parts that may be sent together, in their order. One line is one part, however long it is.
    pub(crate) fn parts(self, lines: Vec<Bytes>) -> Vec<Vec<Bytes>> {
        let (mut parts, mut bytes) = (Vec::<Vec<Bytes>>::new(), 0);
        for line in lines {
            bytes += line.len();
            match parts.last_mut().filter(|_| bytes <= self.list) {
                Some(part) => part.push(line),
                None => {
                    bytes = line.len();
                    parts.push(vec![line]);
                }
            }
        }
        parts
    }
}

/// Cuts the texts of a value to so many bytes, and its lists to so many entries.
fn shorten(value: &mut Value, text: usize, entries: usize) {
    match value {
        Value::String(own) => shorten_text(own, text),
        Value::Array(items) => {
            items.truncate(entries);
            for item in items {
                shorten(item, text, entries);
            }
        }
        Value::Object(fields) => {
            let shortened = |(mut key, mut value): (String, Value)| {
                shorten_text(&mut key, text);
                shorten(&mut value, text, entries);
                (key, value)
            };
            *fields = std::mem::take(fields).into_iter().take(entries.max(FIELDS)).map(shortened).collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Cuts a text that has more than so many bytes, and says so in it.
fn shorten_text(own: &mut String, bytes: usize) {
    if own.len() > bytes {
        own.truncate(own.floor_char_boundary(bytes));
        own.push_str(TRUNCATED_SUFFIX);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(event: &Value) -> Bytes {
        format!("{event}\n").into()
    }

    #[test]
    fn a_long_event_is_told_without_its_bodies_and_with_short_texts() {
        let own = Truncation { event: 200, list: 0 };
        let long = "x".repeat(300);
        let short = format!("{}{TRUNCATED_SUFFIX}", "x".repeat(64));
        for (event, expected) in [
            (
                json!({"auditID": "a", "requestObject": {"a": 1}}),
                Some(json!({"auditID": "a", "requestObject": {"a": 1}})),
            ),
            (
                json!({"auditID": "a", "requestObject": {"a": long}, "responseObject": {"b": 1}}),
                Some(json!({"auditID": "a", "annotations": {TRUNCATED: "true"}})),
            ),
            (
                json!({"responseObject": {"a": long}, "annotations": {"b": "c"}}),
                Some(json!({"annotations": {"b": "c", TRUNCATED: "true"}})),
            ),
            (
                json!({"requestURI": long, "requestObject": {}}),
                Some(json!({"requestURI": short, "annotations": {TRUNCATED: "true"}})),
            ),
            (json!({"requestURI": long}), Some(json!({"requestURI": short, "annotations": {TRUNCATED: "true"}}))),
            // What no client can bring about.
            (json!({"a": short, "b": short, "c": short}), None),
        ] {
            assert_eq!(own.cut(line(&event)), expected.as_ref().map(line), "{event}");
        }
    }

    /// A body may be as deep as its own tree, and stands one deeper in an event.
    #[test]
    fn a_body_that_is_nested_deeply_hides_nothing() {
        let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
        let own = Truncation { event: 200, list: 0 };
        let cut = own.cut(format!("{{\"auditID\":\"a\",\"requestObject\":{deep}}}\n").into());
        assert_eq!(cut, Some(line(&json!({"auditID": "a", "annotations": {TRUNCATED: "true"}}))));
    }

    /// JSON doubles a backslash, and has six bytes for what is below a blank.
    #[test]
    fn nobody_is_left_out_by_what_they_send() {
        let own = Truncation { event: 100 << 10, list: 0 };
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
            assert!(line.len() > own.event, "{what} is long");
            let cut = own.cut(line).unwrap_or_else(|| panic!("{what} hides its request"));
            assert!(cut.len() <= own.event, "{what}: {} bytes", cut.len());
            let cut: Value = serde_json::from_slice(&cut).unwrap();
            assert_eq!((&cut["verb"], &cut["user"]["username"]), (&json!("delete"), &json!("eve")), "{what}");
            assert_eq!(cut["annotations"][TRUNCATED], "true", "{what}");
            assert!(cut["requestURI"].as_str().unwrap().starts_with('/'), "{what}");
            if what == "groups" {
                assert_eq!(cut["impersonatedUser"]["groups"].as_array().unwrap().len(), 512, "each is told of");
            }
        }
    }

    #[test]
    fn a_long_list_is_sent_in_parts() {
        let own = Truncation { event: 0, list: 10 };
        let lines =
            |lengths: &[usize]| lengths.iter().map(|length| Bytes::from("x".repeat(*length))).collect::<Vec<_>>();
        for (lengths, expected) in
            [(&[][..], &[][..]), (&[5, 5, 5], &[2, 1][..]), (&[11, 11], &[1, 1]), (&[1, 12, 1, 1], &[1, 1, 2])]
        {
            let parts: Vec<_> = own.parts(lines(lengths)).iter().map(Vec::len).collect();
            assert_eq!(parts, expected, "{lengths:?}");
        }
    }
}
