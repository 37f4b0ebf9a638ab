//! Parses the parameters of a query string like a kube-apiserver.
//!
//! If a parameter occurs several times, its first value is used. A pair that does not decode (a bad percent escape, a
//! `;`) is ignored, and invalid UTF-8 is accepted, as in Go's `url.ParseQuery`. Other programs may read a query
//! differently, unless [`check_unambiguous`] accepts the query.

use std::borrow::Cow;

use crate::Status;

/// The maximum number of parameters in a query that [`check_unambiguous`] accepts. 1,000: reads and writes have up to
/// ten parameters. Above 10,000 parameters, members differ: Go before 1.25 reads all parameters, and later versions
/// ignore the whole query.
pub const PARAMETERS_MAX: usize = 1_000;

/// The maximum number of parameters that Go reads. Go ignores the whole query if it has more (`defaultMaxParams` of
/// `net/url`, Go 1.26).
const GO_PARAMETERS_MAX: usize = 10_000;

/// The maximum number of characters of a parameter's name in messages. 64: the longest name of a Kubernetes parameter
/// has 27.
const SHOWN_NAME_CHARS: usize = 64;

/// The parameters of a query string, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    malformed: bool,
}

impl<'a> Query<'a> {
    /// Parses a query string without its `?`. Invalid UTF-8 becomes U+FFFD, but Go leaves its bytes unchanged.
    pub fn parse(query: Option<&'a str>) -> Self {
        let query = query.unwrap_or_default();
        if parameters(query) > GO_PARAMETERS_MAX {
            return Self { pairs: Vec::new(), malformed: true };
        }
        let mut parsed = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if pair.contains(';') || !escapes_are_valid(pair) {
                parsed.malformed = true;
                continue;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parsed.pairs.push((decode(name), decode(value)));
        }
        parsed
    }

    /// Returns the first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// Returns a boolean parameter: `None` if absent; false for `0` and `false` (in any case); true for any other
    /// value, including the empty text.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value != "0" && !folds_to_false(value))
    }

    /// Returns whether the parser ignored a pair that does not decode, or ignored the whole query because of too many
    /// parameters.
    pub fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// Iterates over all name and value pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Returns whether a text equals `false` according to Go's `strings.EqualFold` (`Convert_Slice_string_To_bool` in
/// apimachinery), for which the long s equals an s.
fn folds_to_false(value: &str) -> bool {
    value.eq_ignore_ascii_case("false")
        || (value.contains('\u{17f}') && value.replace('\u{17f}', "s").eq_ignore_ascii_case("false"))
}

/// Checks that all programs read a query in the same way. Kubernetes ignores pairs that do not decode, and programs
/// differ for invalid UTF-8 and for very many parameters. Without the check, Tributary might authorize a different
/// request than the member executes. Allocates only if the query has escapes.
///
/// # Errors
/// 400 with the parameter's name and the correct spelling.
pub fn check_unambiguous(query: Option<&str>) -> Result<(), Status> {
    let query = query.unwrap_or_default();
    if parameters(query) > PARAMETERS_MAX {
        return Err(Status::bad_request(format!(
            "too many query parameters: there may be {PARAMETERS_MAX} at most; send fewer"
        )));
    }
    if !query.contains([';', '%']) {
        return Ok(());
    }
    for pair in query.split('&') {
        if let Some(fault) = fault(pair) {
            let name: String = pair.split('=').next().unwrap_or_default().chars().take(SHOWN_NAME_CHARS).collect();
            return Err(Status::bad_request(format!("the query parameter {name:?} {fault}")));
        }
    }
    Ok(())
}

/// Returns the reason why programs could read a pair differently, with the correct spelling. Returns `None` if all
/// programs read the pair in the same way.
fn fault(pair: &str) -> Option<&'static str> {
    if pair.contains(';') {
        return Some("has a semicolon: write it as %3B, and write & between parameters");
    }
    if !escapes_are_valid(pair) {
        return Some("has an invalid percent escape: write a percent sign as %25");
    }
    let is_text = percent_encoding::percent_decode_str(pair).decode_utf8().is_ok();
    (!is_text).then_some("is not UTF-8 once it is decoded: percent-encode the UTF-8 bytes of its text")
}

/// Returns the number of a query's parameters as Go counts them, including empty parameters.
fn parameters(query: &str) -> usize {
    query.bytes().filter(|byte| *byte == b'&').count() + 1
}

/// Decodes `+` and percent escapes. All escapes must be valid.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['+', '%']) {
        return Cow::Borrowed(text);
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

/// Returns whether two hexadecimal digits follow each `%`.
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

    /// Each row has the result of Go 1.26's `url.ParseQuery`: its pairs in order, and whether the function returned an
    /// error. U+FFFD replaces invalid UTF-8, which Go keeps.
    #[test]
    fn query_parameters_parse_like_go() {
        let many = |count: usize| format!("watch=1{}", "&".repeat(count - 1));
        let (most, too_many) = (many(10_000), many(10_001));
        type Pairs = &'static [(&'static str, &'static str)];
        let rows: [(&str, Pairs, bool); 24] = [
            ("", &[], false),
            ("a", &[("a", "")], false),
            ("a=", &[("a", "")], false),
            ("a=1&a=2", &[("a", "1"), ("a", "2")], false),
            ("=v", &[("", "v")], false),
            ("=", &[("", "")], false),
            ("&&a=1&", &[("a", "1")], false),
            ("g=a=b", &[("g", "a=b")], false),
            ("b=x%20y+z%2B", &[("b", "x y z+")], false),
            ("limit+=1", &[("limit ", "1")], false),
            ("%68=h", &[("h", "h")], false),
            ("%26=%3D", &[("&", "=")], false),
            ("a=%00", &[("a", "\0")], false),
            ("a=%3B", &[("a", ";")], false),
            ("a=%ff", &[("a", "\u{fffd}")], false),
            ("%ff=1&a=%c3", &[("\u{fffd}", "1"), ("a", "\u{fffd}")], false),
            ("a=%c3%a4\u{e4}", &[("a", "\u{e4}\u{e4}")], false),
            ("a=%zz&b=1", &[("b", "1")], true),
            ("%zz=1&b=1", &[("b", "1")], true),
            ("a=%&b=%4", &[], true),
            ("a=1;b=2&c=3", &[("c", "3")], true),
            (";", &[], true),
            (&most, &[("watch", "1")], false),
            (&too_many, &[], true),
        ];
        for (query, pairs, is_malformed) in rows {
            let shown = &query[..query.len().min(40)];
            let parsed = Query::parse(Some(query));
            assert_eq!(parsed.iter().collect::<Vec<_>>(), pairs, "{shown}");
            assert_eq!(parsed.is_malformed(), is_malformed, "{shown}");
        }
        assert_eq!(Query::parse(None), Query::default());
        let twice = Query::parse(Some("a=%ff&a=2"));
        assert_eq!((twice.get("a"), twice.get("b")), (Some("\u{fffd}"), None), "the first value counts");
    }

    #[test]
    fn ambiguous_query_is_refused_with_the_correct_spelling() {
        let many = |count: usize| format!("watch=1{}", "&".repeat(count - 1));
        let most = many(PARAMETERS_MAX);
        let clear = ["", "&&", "=", "a=1&a=2", "a+b=%20%2B", "%C3%A4=\u{e4}", "a=%00", "a=%3B%25", "x=%F0%9F%90%B3"];
        for query in clear.into_iter().chain([most.as_str()]) {
            assert_eq!(check_unambiguous(Some(query)), Ok(()), "{query}");
        }
        assert_eq!(check_unambiguous(None), Ok(()));
        let semicolon = "has a semicolon: write it as %3B, and write & between parameters";
        let escape = "has an invalid percent escape: write a percent sign as %25";
        let text = "is not UTF-8 once it is decoded: percent-encode the UTF-8 bytes of its text";
        let long = "k".repeat(10_000) + "=%ff";
        for (query, name, fault) in [
            ("a=1&watch=%ff", "watch", text),
            ("fieldSelector=metadata.name!=%ff&fieldSelector=metadata.name=pub", "fieldSelector", text),
            ("%ff=1", "%ff", text),
            ("%c3=%a4", "%c3", text),
            ("a=%c3%28", "a", text),
            ("a=%ed%a0%80", "a", text),
            ("a=1;b=2", "a", semicolon),
            ("a;b", "a;b", semicolon),
            ("limit=%zz", "limit", escape),
            ("%=1", "%", escape),
            ("a=%4", "a", escape),
            (long.as_str(), &long[..64], text),
        ] {
            let status = check_unambiguous(Some(query)).unwrap_err();
            let message = format!("the query parameter {name:?} {fault}");
            assert_eq!((status.code, status.message), (400, message), "{query}");
        }
        let status = check_unambiguous(Some(&many(PARAMETERS_MAX + 1))).unwrap_err();
        let message = "too many query parameters: there may be 1000 at most; send fewer";
        assert_eq!((status.code, status.message.as_str()), (400, message));
    }

    #[test]
    fn boolean_query_parameters_parse_like_kube_apiserver() {
        for (query, expected) in [
            ("watch=", Some(true)),
            ("watch", Some(true)),
            ("watch=1", Some(true)),
            ("watch=yes", Some(true)),
            ("watch=0", Some(false)),
            ("watch=false", Some(false)),
            ("watch=False", Some(false)),
            ("watch=fal%C5%BFe", Some(false)),
            ("watch=fal%C5%BF", Some(true)),
            ("watch=%ff", Some(true)),
            ("watch=0&watch=1", Some(false)),
            ("watching=1", None),
        ] {
            assert_eq!(Query::parse(Some(query)).bool("watch"), expected, "{query}");
        }
    }
}
