//! What becomes of events that are too long for whoever takes them: as kube-apiserver's truncating backend
//! (`plugin/pkg/audit/truncate`).

use bytes::Bytes;
use serde_json::Value;

use crate::cli::audit::{AuditLogArguments, AuditWebhookArguments};

/// The annotation of an event whose bodies were left out.
const TRUNCATED: &str = "audit.k8s.io/truncated";

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

    /// A line as it may be: without its bodies, where it is too long with them; `None` where it is too long without.
    pub(crate) fn cut(self, line: Bytes) -> Option<Bytes> {
        if line.len() <= self.event {
            return Some(line);
        }
        let mut event: Value = serde_json::from_slice(&line).ok()?;
        let fields = event.as_object_mut()?;
        let bodies = ["requestObject", "responseObject"].map(|body| fields.remove(body));
        // One without bodies is as long without them.
        bodies.iter().any(Option::is_some).then_some(())?;
        let annotations = fields.entry("annotations").or_insert_with(|| Value::Object(serde_json::Map::new()));
        annotations.as_object_mut()?.insert(TRUNCATED.to_owned(), "true".into());
        let mut cut = serde_json::to_vec(&event).ok()?;
        cut.push(b'\n');
        (cut.len() <= self.event).then(|| cut.into())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(event: &Value) -> Bytes {
        format!("{event}\n").into()
    }

    #[test]
    fn a_long_event_is_told_without_its_bodies_or_not_at_all() {
        let own = Truncation { event: 200, list: 0 };
        let long = "x".repeat(300);
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
            (json!({"requestURI": long, "requestObject": {}}), None),
            (json!({"requestURI": long}), None),
        ] {
            assert_eq!(own.cut(line(&event)), expected.as_ref().map(line), "{event}");
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
