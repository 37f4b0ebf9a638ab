//! Truncation of events that are too long for a backend.

use bytes::Bytes;
use tributary_audit::truncated_line;

/// The size limits of events and EventLists, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The longest audit event that is written without truncation.
    pub event: usize,
    /// The maximum length of an EventList.
    pub list: usize,
}

impl Truncation {
    /// Truncates an audit event's line above the limit. Returns `None` if the truncated line still exceeds the limit.
    pub(crate) fn cut(self, line: Bytes) -> Option<Bytes> {
        if line.len() <= self.event {
            return Some(line);
        }
        truncated_line(&line, self.event).map(Bytes::from)
    }

    /// Splits the lines of events into EventLists below the limit, in the order of the lines. A single line above the
    /// limit becomes a list of its own.
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
    fn only_audit_events_above_the_size_limit_are_truncated() {
        let line = Bytes::from_static(
            b"{\"requestObject\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\"},\"verb\":\"create\"}\n",
        );
        let cut = Bytes::from_static(b"{\"annotations\":{\"audit.k8s.io/truncated\":\"true\"},\"verb\":\"create\"}\n");
        for (event, expected) in [(line.len(), Some(&line)), (line.len() - 1, Some(&cut)), (10, None)] {
            assert_eq!(Truncation { event, list: 0 }.cut(line.clone()).as_ref(), expected, "{event}");
        }
    }

    #[test]
    fn long_list_of_audit_events_is_split_into_several_lists() {
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
