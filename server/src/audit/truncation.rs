//! What the flags say of events that are too long for whoever takes them.

use bytes::Bytes;
use tributary_audit::truncated_line;

use crate::cli::audit::{AuditLogArguments, AuditWebhookArguments};

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

    /// A line as it may be; `None` where it is too long however much it is cut.
    pub(crate) fn cut(self, line: Bytes) -> Option<Bytes> {
        if line.len() <= self.event {
            return Some(line);
        }
        truncated_line(&line, self.event).map(Bytes::from)
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
    use super::*;

    #[test]
    fn only_a_long_line_is_cut() {
        let line = Bytes::from_static(
            b"{\"requestObject\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\"},\"verb\":\"create\"}\n",
        );
        let cut = Bytes::from_static(b"{\"annotations\":{\"audit.k8s.io/truncated\":\"true\"},\"verb\":\"create\"}\n");
        for (event, expected) in [(line.len(), Some(&line)), (line.len() - 1, Some(&cut)), (10, None)] {
            assert_eq!(Truncation { event, list: 0 }.cut(line.clone()).as_ref(), expected, "{event}");
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
