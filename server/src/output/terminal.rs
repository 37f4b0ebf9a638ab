//! Removes terminal control characters from text, because text from members may contain them.

use tributary_apimachinery::text::is_terminal_control;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Removes characters that a terminal interprets, or that change the direction of text. Control characters and line
/// separators become spaces; direction marks and invisible characters are removed.
pub(crate) fn plain(text: &str) -> String {
    let shown = |c: char| match c {
        c if is_separator(c) => Some(' '),
        c => (!is_terminal_control(c)).then_some(c),
    };
    text.chars().filter_map(shown).collect()
}

fn is_separator(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Returns the width of a text in columns.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Cuts a text to this number of columns. A cut text ends with `…`.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut out, mut used) = (String::new(), 1);
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        out.push(c);
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

/// Escapes in JSON text the characters that [`plain`] removes. The value stays the same, because in JSON such
/// characters, except line feeds, occur only in strings.
pub(crate) fn plain_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_terminal_control(c) {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text with terminal control characters for colours, a window title, a carriage return, and reversed direction.
    const HOSTILE: &str = "a\u{1b}[31mb\u{1b}]0;title\u{7}\rc\u{9b}2Jd\u{202e}e\u{200b}f\u{2028}g\u{e0041}";

    #[test]
    fn terminal_control_characters_are_removed() {
        assert_eq!(plain(HOSTILE), "a [31mb ]0;title  c 2Jdef g");
        assert_eq!(plain("größer 集群"), "größer 集群");
    }

    #[test]
    fn long_text_is_cut_by_terminal_columns() {
        for (text, columns, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("集群集群", 5, "集群…"),
            ("集群集群", 4, "集…"),
            ("ab", 1, "…"),
            ("ab", 0, ""),
        ] {
            assert_eq!(cut(text, columns), expected, "{text} {columns}");
        }
    }

    #[test]
    fn escaped_json_has_plain_characters_and_the_same_value() {
        let value = serde_json::json!({ "reason": HOSTILE });
        let text = plain_json(&format!("{value:#}"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        assert_eq!(plain(&text.replace('\n', "")), text.replace('\n', ""));
    }
}
