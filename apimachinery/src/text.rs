//! Text that may come from members, where a terminal shows it: names, reasons and messages are theirs, and a terminal
//! obeys characters. And bytes as text.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal obeys a character, or it changes how others are read: control characters, separators of lines,
/// marks of the direction of writing, and what has no shape of its own. Line feeds are among them.
///
/// Source: Unicode's `Bidi_Control` and `Default_Ignorable_Code_Point`, without what scripts need (variation
/// selectors); "Trojan Source", CVE-2021-42574.
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The text with its lines, in which every other character that a terminal would obey is an escape such as `\u{1b}`.
/// Allocates only where there is one.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| c == '\n' || !is_obeyed(c);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_shown(c) { shown.push(c) } else { shown.extend(c.escape_unicode()) }
    }
    Cow::Owned(shown)
}

/// Bytes as hexadecimal digits, in lower case: two of each.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(
            printable("a: ä\n- \u{1b}[31mred\r\u{9b}\u{202e}\n\u{2066}\u{e0041}"),
            "a: ä\n- \\u{1b}[31mred\\u{d}\\u{9b}\\u{202e}\n\\u{2066}\\u{e0041}"
        );
        assert!(matches!(printable("größer\n集群 e\u{301}"), Cow::Borrowed(_)));
    }

    #[test]
    fn bytes_are_two_digits_each() {
        assert_eq!((hex([]), hex([0, 0x0a, 0xff])), (String::new(), "000aff".to_owned()));
    }
}
