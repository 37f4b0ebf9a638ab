//! Text from clients and members for the logs, with a bounded length and in printable characters. So long names from a
//! client cannot fill the disk or a log queue.

use std::borrow::Cow;

use serde::Serialize;
use tributary_apimachinery::text::printable;

/// The maximum length of a logged text, in bytes.
const TEXT_BYTES_MAX: usize = 512;

/// Text from a client or a member, for a log line. Long text is cut. Control characters and line ends are escaped, so
/// that a terminal does not interpret them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl<'a> Text<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let end = text.floor_char_boundary(TEXT_BYTES_MAX);
        let shown = match printable(&text[..end]) {
            Cow::Borrowed(_) if end == text.len() => return Self(Cow::Borrowed(text)),
            shown => shown,
        };
        // Escaping lengthens the text, so the limit applies a second time.
        let shown_end = shown.floor_char_boundary(TEXT_BYTES_MAX);
        let is_cut = end < text.len() || shown_end < shown.len();
        Self(Cow::Owned(shown[..shown_end].to_owned() + if is_cut { "…" } else { "" }))
    }

    /// Decodes bytes as UTF-8 with replacement, and then bounds and escapes the text.
    pub(crate) fn lossy(bytes: &'a [u8]) -> Self {
        // The slice is longer than the limit by one character, so a character that the slice's end splits lies beyond
        // the limit.
        let bytes = &bytes[..bytes.len().min(TEXT_BYTES_MAX + char::MAX_LEN_UTF8)];
        match String::from_utf8_lossy(bytes) {
            Cow::Borrowed(text) => Self::new(text),
            Cow::Owned(text) => Text::new(&text).into_owned(),
        }
    }

    /// Copies the text, so that it no longer borrows its source.
    pub(crate) fn into_owned(self) -> Text<'static> {
        Text(Cow::Owned(self.0.into_owned()))
    }

    pub(crate) fn shared(&self) -> Text<'_> {
        Text(Cow::Borrowed(&self.0))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_is_bounded_and_free_of_terminal_controls() {
        for (given, expected) in [
            ("plain é", "plain é"),
            ("\u{1b}[2Jgone\u{7f}\u{9b}", "\\u{1b}[2Jgone\\u{7f}\\u{9b}"),
            ("\u{202e}txt", "\\u{202e}txt"),
        ] {
            assert_eq!(Text::new(given).0, expected);
        }
        let long = "é".repeat(TEXT_BYTES_MAX);
        let shown = Text::new(&long);
        assert_eq!(shown.0.len(), TEXT_BYTES_MAX + "…".len());
        assert_eq!(Text::lossy(b"a\xffb").0, "a\u{fffd}b");
        let escapes = "\u{202e}".repeat(TEXT_BYTES_MAX);
        for long in [escapes.as_bytes(), &[0xff; 1 << 20], long.as_bytes(), &b"a".repeat(TEXT_BYTES_MAX + 1)] {
            let shown = Text::lossy(long);
            assert!(shown.0.len() <= TEXT_BYTES_MAX + "…".len() && shown.0.ends_with('…'), "{}", shown.0);
        }
    }
}
