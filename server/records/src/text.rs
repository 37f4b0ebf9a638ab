//! Others' words, as far as they are written and kept: a client is not to fill the disk, nor what waits for it, by the
//! names that it gives.

use std::borrow::Cow;

use serde::Serialize;
use tributary_apimachinery::text::printable;

/// How much of a text is written, in bytes.
const TEXT_BYTES_MAX: usize = 512;

/// Another's words. They end at a bound, and nothing in them is obeyed by a terminal: what a terminal would obey, line
/// ends too, is an escape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl<'a> Text<'a> {
    /// Of a text.
    pub(crate) fn new(text: &'a str) -> Self {
        let end = text.floor_char_boundary(TEXT_BYTES_MAX);
        let shown = match printable(&text[..end]) {
            Cow::Borrowed(_) if end == text.len() => return Self(Cow::Borrowed(text)),
            shown => shown,
        };
        // Escapes are longer than what they stand for.
        let shown_end = shown.floor_char_boundary(TEXT_BYTES_MAX);
        let is_cut = end < text.len() || shown_end < shown.len();
        Self(Cow::Owned(shown[..shown_end].to_owned() + if is_cut { "…" } else { "" }))
    }

    /// Of what is text of some bytes.
    pub(crate) fn lossy(bytes: &'a [u8]) -> Self {
        // What is no whole character at the end of these is beyond the bound.
        let bytes = &bytes[..bytes.len().min(TEXT_BYTES_MAX + char::MAX_LEN_UTF8)];
        match String::from_utf8_lossy(bytes) {
            Cow::Borrowed(text) => Self::new(text),
            Cow::Owned(text) => Text::new(&text).into_owned(),
        }
    }

    /// The same, which keeps nothing of what it was made of.
    pub(crate) fn into_owned(self) -> Text<'static> {
        Text(Cow::Owned(self.0.into_owned()))
    }

    /// The same, shared.
    pub(crate) fn shared(&self) -> Text<'_> {
        Text(Cow::Borrowed(&self.0))
    }

    /// As it is shown.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
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
