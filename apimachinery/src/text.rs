//! Escapes control characters in text from members before a terminal prints it, and formats bytes as hexadecimal
//! digits.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns whether a terminal executes a character, or the character changes the display of other characters: control
/// characters, line separators, direction marks, and invisible characters. Line feeds are included.
///
/// Source: Unicode's `Bidi_Control` and `Default_Ignorable_Code_Point`, without the characters that scripts need
/// (variation selectors); "Trojan Source", CVE-2021-42574.
pub fn is_terminal_control(c: char) -> bool {
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

/// Returns the text with its line feeds, and with an escape such as `\u{1b}` for each other character that a terminal
/// would execute. Allocates only if the text has such a character.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| c == '\n' || !is_terminal_control(c);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_shown(c) { shown.push(c) } else { shown.extend(c.escape_unicode()) }
    }
    Cow::Owned(shown)
}

/// Formats bytes as lower-case hexadecimal digits, two for each byte.
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
    fn terminal_control_characters_are_escaped() {
        assert_eq!(
            printable("a: ä\n- \u{1b}[31mred\r\u{9b}\u{202e}\n\u{2066}\u{e0041}"),
            "a: ä\n- \\u{1b}[31mred\\u{d}\\u{9b}\\u{202e}\n\\u{2066}\\u{e0041}"
        );
        assert!(matches!(printable("größer\n集群 e\u{301}"), Cow::Borrowed(_)));
    }

    #[test]
    fn hexadecimal_text_has_two_digits_for_each_byte() {
        assert_eq!((hex([]), hex([0, 0x0a, 0xff])), (String::new(), "000aff".to_owned()));
    }
}
