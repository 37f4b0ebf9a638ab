//! Forms of texts, as regular expressions that Rust, Go and editors read alike. A kube-apiserver refuses an object of a
//! hub cluster by them; files are refused for the same by the validation, in words.

use regex::Regex;

/// How long a request may be let wait: durations as Go writes them, of `ms`, `s` and `m` alone. A rule of the definition
/// reads them, too, and hours would be out of its range in any case.
pub(crate) const WAIT: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$";

/// Whether a text has the form that one of these patterns says.
///
/// Cost: the pattern is compiled each time. That is asked while a configuration is loaded, once for a field.
pub(crate) fn has_form(text: &str, pattern: &str) -> bool {
    Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits() {
        for (text, expected) in [
            ("1s", true),
            ("750ms", true),
            ("1m0.5s", true),
            ("1.25s", true),
            ("", false),
            ("1", false),
            (".5s", false),
            ("5.s", false),
            ("500us", false),
            ("1h", false),
            ("-1s", false),
            ("1s ", false),
        ] {
            assert_eq!(has_form(text, WAIT), expected, "{text:?}");
        }
    }
}
