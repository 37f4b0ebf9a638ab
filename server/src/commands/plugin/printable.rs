//! Text from clusters, as a terminal may have it.

/// The text with its lines, in which every other control character, and every one that changes the direction of what
/// follows, is shown as an escape such as `\u{1b}`.
pub(super) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let is_hidden =
            c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if is_hidden && c != '\n' { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(
            printable("a: ä\n- \u{1b}[31mred\r\u{9b}\u{202e}\n"),
            "a: ä\n- \\u{1b}[31mred\\u{d}\\u{9b}\\u{202e}\n"
        );
    }
}
