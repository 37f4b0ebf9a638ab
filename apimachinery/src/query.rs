//! The parameters of a query string, read as a kube-apiserver reads them.
//!
//! Of a parameter given twice the first value counts; a pair that does not decode (a bad percent escape, a `;`) is no
//! parameter, as in Go's `url.ParseQuery`.

use std::borrow::Cow;

/// The parameters of a query string, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    malformed: bool,
}

impl<'a> Query<'a> {
    /// Reads a query string without its `?`.
    pub fn parse(query: Option<&'a str>) -> Self {
        let mut parsed = Self::default();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (decode(name), decode(value)) {
                (Some(name), Some(value)) if !pair.contains(';') => parsed.pairs.push((name, value)),
                _ => parsed.malformed = true,
            }
        }
        parsed
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// A boolean parameter: absent is `None`; `0` and `false` (in any case) are false;
    /// everything else, the empty text too, is true.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Whether something was left out because it does not decode.
    pub fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// All pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Resolves `+` and percent escapes; `None` for what is malformed.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['+', '%']) {
        return Some(Cow::Borrowed(text));
    }
    if !escapes_are_valid(text) {
        return None;
    }
    let spaced = text.replace('+', " ");
    percent_encoding::percent_decode_str(&spaced).decode_utf8().ok().map(|text| Cow::Owned(text.into_owned()))
}

/// Whether each `%` is followed by two hexadecimal digits.
pub(crate) fn escapes_are_valid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'%')
        .all(|(at, _)| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_value_counts_and_malformed_pairs_are_none() {
        let query = Query::parse(Some("a=1&a=2&b=x%20y+z&c&=v&d=%zz&e=1;f=2&g=a=b&%68=h"));
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("b"), Some("x y z"));
        assert_eq!(query.get("c"), Some(""));
        assert_eq!((query.get("d"), query.get("e"), query.get("f")), (None, None, None));
        assert_eq!(query.get("g"), Some("a=b"));
        assert_eq!(query.get("h"), Some("h"));
        assert!(query.is_malformed());
        assert!(!Query::parse(None).is_malformed());
        assert_eq!(Query::parse(Some("a=%ff")).get("a"), None, "not UTF-8");
    }

    #[test]
    fn booleans() {
        for (query, expected) in [
            ("watch=", Some(true)),
            ("watch", Some(true)),
            ("watch=1", Some(true)),
            ("watch=yes", Some(true)),
            ("watch=0", Some(false)),
            ("watch=false", Some(false)),
            ("watch=False", Some(false)),
            ("watch=0&watch=1", Some(false)),
            ("watching=1", None),
        ] {
            assert_eq!(Query::parse(Some(query)).bool("watch"), expected, "{query}");
        }
    }
}
