//! A line of the access log.

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::Bytes;
use serde::Serialize;
use tributary_apimachinery::text::printable;

/// How much of a text is written, in bytes: a client is not to fill the disk by the names that it gives.
const TEXT_BYTES_MAX: usize = 512;

/// How many addresses, and groups, are written: what is claimed may be long.
const LISTED_MAX: usize = 16;

/// What is written of a request. Never its query, a header's credentials or a body.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AccessLine<'a> {
    /// When it arrived, RFC 3339 with microseconds.
    pub(crate) time: String,
    /// The HTTP status; none where its client went away before there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    pub(crate) method: Text<'a>,
    /// Without its query.
    pub(crate) path: Text<'a>,
    /// As RBAC writes it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) verb: &'a str,
    /// `deployments.apps/scale`
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) resource: Text<'a>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) namespace: Text<'a>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) name: Text<'a>,
    /// The cluster whose own API it was for.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) cluster: &'a str,
    /// What became of it.
    pub(crate) decision: &'a str,
    /// `memory`, the clusters that were asked, or `tributary`.
    pub(crate) answered_by: Cow<'a, str>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) user: Text<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<Text<'a>>,
    /// Whom the user asks to be.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) impersonated_user: Text<'a>,
    /// The kind of client, by its User-Agent.
    pub(crate) client: &'a str,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) user_agent: Text<'a>,
    /// The nearest last; all but that are what the client claims.
    pub(crate) source_ips: Vec<IpAddr>,
    /// Until the head of the answer.
    pub(crate) head_seconds: f64,
    /// Until its end.
    pub(crate) seconds: f64,
    /// Of the answer's body that were sent.
    pub(crate) bytes: u64,
    /// Whether the answer came to its end.
    pub(crate) complete: bool,
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub(crate) audit_id: Text<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) trace_id: &'a str,
}

impl AccessLine<'_> {
    /// The line as bytes, with its end.
    pub(crate) fn bytes(&self) -> Bytes {
        // Strings, numbers and lists of these can be written.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text.into()
    }
}

/// Another's words. They end at a bound, and nothing in them is obeyed by a terminal: what a terminal would obey, line
/// ends too, is an escape.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl<'a> Text<'a> {
    /// Of a text.
    pub(crate) fn of(text: &'a str) -> Self {
        let end = text.floor_char_boundary(TEXT_BYTES_MAX);
        let shown = match printable(&text[..end]) {
            Cow::Borrowed(_) if end == text.len() => return Self(Cow::Borrowed(text)),
            Cow::Borrowed(shown) => shown.to_owned(),
            Cow::Owned(shown) => shown,
        };
        Self(Cow::Owned(if end < text.len() { shown + "…" } else { shown }))
    }

    /// Of the first of some texts.
    pub(crate) fn some(texts: &'a [String]) -> Vec<Self> {
        texts.iter().take(LISTED_MAX).map(|text| Self::of(text)).collect()
    }

    /// Of what is text of some bytes.
    pub(crate) fn lossy(bytes: &'a [u8]) -> Self {
        match String::from_utf8_lossy(bytes) {
            Cow::Borrowed(text) => Self::of(text),
            Cow::Owned(text) => Self(Cow::Owned(Text::of(&text).0.into_owned())),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The last of some addresses: the nearest are at the end.
pub(crate) fn nearest(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let from = addresses.len().saturating_sub(LISTED_MAX);
    addresses.split_off(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_words_are_bounded_and_no_terminal_obeys_them() {
        for (given, expected) in [
            ("plain é", "plain é"),
            ("\u{1b}[2Jgone\u{7f}\u{9b}", "\\u{1b}[2Jgone\\u{7f}\\u{9b}"),
            ("\u{202e}txt", "\\u{202e}txt"),
        ] {
            assert_eq!(Text::of(given).0, expected);
        }
        let long = "é".repeat(TEXT_BYTES_MAX);
        let shown = Text::of(&long);
        assert_eq!(shown.0.len(), TEXT_BYTES_MAX + "…".len());
        assert_eq!(Text::lossy(b"a\xffb").0, "a\u{fffd}b");
        assert_eq!(Text::some(&vec![String::new(); 100]).len(), LISTED_MAX);
    }

    #[test]
    fn a_line_is_one_line_of_json_whatever_clients_say() {
        let forged = "x\"}\n{\"status\":200,\"user\":\"root\"";
        let line = AccessLine {
            time: String::new(),
            status: Some(200),
            method: Text::of("GET"),
            path: Text::of(forged),
            verb: "get",
            resource: Text::of(forged),
            namespace: Text::default(),
            name: Text::default(),
            cluster: "",
            decision: "memory",
            answered_by: "memory".into(),
            user: Text::of(forged),
            groups: vec![Text::of(forged)],
            impersonated_user: Text::default(),
            client: "other",
            user_agent: Text::of("\r\n\u{2028}\u{85}"),
            source_ips: Vec::new(),
            head_seconds: 0.25,
            seconds: 1.0,
            bytes: 3,
            complete: true,
            audit_id: Text::default(),
            trace_id: "",
        };
        let bytes = line.bytes();
        let text = std::str::from_utf8(&bytes).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert!(text.chars().filter(|c| c.is_control()).eq(['\n']), "{text}");
        let read: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(read["user"], forged);
        assert_eq!(read.get("namespace"), None);
    }
}
