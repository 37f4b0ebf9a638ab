//! Field selectors: `metadata.name=x,spec.nodeName!=y` (apimachinery's `fields`).
//!
//! In a value, the characters `\`, `,` and `=` need a preceding backslash, and no other character may have one.

use std::borrow::Cow;
use std::fmt;

use super::bounds::{SelectorBounds, TooMany};

/// A conjunction of field requirements. [`Filter::compile`](crate::Filter::compile) checks that the fields are
/// selectable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// A requirement on a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The name of the field, for example `metadata.name`.
    pub field: String,
    /// Whether the value must be equal (`=`, `==`) or must differ (`!=`).
    pub equals: bool,
    /// The value without escapes.
    pub value: String,
}

/// The reason why a text is not a field selector, in apimachinery's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    /// A term has no operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole selector.
        selector: String,
        /// The malformed term.
        term: String,
    },
    /// The value ends with a backslash, or has a backslash before a character that needs none.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A `,` or `=` in a value lacks its backslash. The message has the character as a code point, like that of
    /// apimachinery.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
    /// The selector exceeds a limit.
    #[error(transparent)]
    TooMany(#[from] TooMany),
}

impl FieldSelector {
    /// Parses a selector without limits, for selectors that do not come from a client. The empty text selects all
    /// objects.
    ///
    /// # Errors
    /// [`FieldSelectorError`], whose text is the message of kube-apiserver's 400.
    pub fn parse(selector: &str) -> Result<Self, FieldSelectorError> {
        Self::parse_within(selector, SelectorBounds::NONE)
    }

    /// Parses a client's selector within limits. Each requirement has one value.
    ///
    /// # Errors
    /// The errors of [`parse`](Self::parse), and [`TooMany`].
    pub fn parse_within(selector: &str, bounds: SelectorBounds) -> Result<Self, FieldSelectorError> {
        let mut terms = split_terms(selector);
        terms.retain(|term| !term.is_empty());
        bounds.admit(terms.len(), terms.len())?;
        terms.sort_unstable();
        let requirements = terms
            .into_iter()
            .map(|term| {
                let (field, equals, value) = split_term(term)
                    .ok_or_else(|| FieldSelectorError::Term { selector: selector.to_owned(), term: term.to_owned() })?;
                Ok(FieldRequirement { field: field.to_owned(), equals, value: unescape(value)?.into_owned() })
            })
            .collect::<Result<_, FieldSelectorError>>()?;
        Ok(Self { requirements })
    }

    /// Returns whether the selector selects all objects.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements, sorted by their text. A matching object meets all requirements.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Returns the value that the selector requires of a field, if any.
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.equals && requirement.field == field)
            .map(|requirement| requirement.value.as_str())
    }

    /// Returns whether the fields from `get` meet all requirements; an absent field is the empty text.
    pub fn matches<'a>(&self, mut get: impl FnMut(&str) -> &'a str) -> bool {
        self.requirements.iter().all(|requirement| (get(&requirement.field) == requirement.value) == requirement.equals)
    }
}

impl fmt::Display for FieldSelector {
    /// Writes a text that parses to the same selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if requirement.equals { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{}", requirement.field, escape(&requirement.value))?;
        }
        Ok(())
    }
}

/// Inserts a backslash before each `\`, `,` and `=`.
pub fn escape(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', ',', '=']) {
        return Cow::Borrowed(value);
    }
    let mut out = String::with_capacity(value.len() + 4);
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(character);
    }
    Cow::Owned(out)
}

/// Resolves the escapes of a value.
///
/// # Errors
/// [`FieldSelectorError::Escape`] and [`FieldSelectorError::Unescaped`].
pub fn unescape(value: &str) -> Result<Cow<'_, str>, FieldSelectorError> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(Cow::Borrowed(value));
    }
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(FieldSelectorError::Escape(format!("\\{other}"))),
                None => return Err(FieldSelectorError::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(character)),
            other => out.push(other),
        }
    }
    Ok(Cow::Owned(out))
}

/// Splits a selector at the commas without a preceding backslash.
fn split_terms(selector: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, byte) in selector.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&selector[start..]);
    terms
}

/// Splits a term at the first operator into field, whether the operator requires equality, and value. The name of a
/// field has no escapes.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find('=')?;
    // `!` is a part of the operator only directly before the first `=`.
    if let Some(field) = term[..at].strip_suffix('!') {
        return Some((field, false, &term[at + 1..]));
    }
    let value = &term[at + 1..];
    Some((&term[..at], true, value.strip_prefix('=').unwrap_or(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selector_terms_split_at_unescaped_commas() {
        for (selector, expected) in [
            ("a", vec!["a"]),
            (",a", vec!["", "a"]),
            ("a,", vec!["a", ""]),
            ("a=b,c=d", vec!["a=b", "c=d"]),
            (r"a=b\,c=d", vec![r"a=b\,c=d"]),
            (r"a=b\\,c=d", vec![r"a=b\\", "c=d"]),
            (r"\,\\,\=", vec![r"\,\\", r"\="]),
            (r"k\", vec![r"k\"]),
        ] {
            assert_eq!(split_terms(selector), expected, "{selector}");
        }
    }

    #[test]
    fn field_selector_term_splits_at_its_first_operator() {
        for (term, expected) in [
            ("simple=value", Some(("simple", true, "value"))),
            ("simple==value", Some(("simple", true, "value"))),
            ("simple!=value", Some(("simple", false, "value"))),
            ("", None),
            ("!", None),
            ("=", Some(("", true, ""))),
            ("==", Some(("", true, ""))),
            ("!=", Some(("", false, ""))),
            ("===", Some(("", true, "="))),
            (r"k\=a", Some((r"k\", true, "a"))),
            ("a!b=c", Some(("a!b", true, "c"))),
            ("k=a!=b", Some(("k", true, "a!=b"))),
        ] {
            assert_eq!(split_term(term), expected, "{term}");
        }
    }

    #[test]
    fn field_selector_escapes_are_resolved_or_refused() {
        for (escaped, plain) in [
            ("", ""),
            ("value", "value"),
            (r"\\", r"\"),
            (r"\=", "="),
            (r"\,", ","),
            (r"\\\,\=", r"\,="),
            (r"k\\\\k", r"k\\k"),
        ] {
            assert_eq!(unescape(escaped).as_deref(), Ok(plain));
            assert_eq!(unescape(&escape(plain)).as_deref(), Ok(plain));
        }
        for (bad, message) in [
            (r"\n", r"invalid field selector: invalid escape sequence: \n"),
            (r"a\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b", "invalid field selector: unescaped character in value: 61"),
            ("a,b", "invalid field selector: unescaped character in value: 44"),
        ] {
            assert_eq!(unescape(bad).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn field_selector_parses_and_prints_an_equal_selector() {
        for (text, printed) in [
            ("", ""),
            (",", ""),
            ("x=a,y=b,z=c", "x=a,y=b,z=c"),
            ("z!=c,x==a", "x=a,z!=c"),
            (r"x=a\,b\=c\\", r"x=a\,b\=c\\"),
            ("x=", "x="),
            ("metadata.name=ä", "metadata.name=ä"),
        ] {
            let selector = FieldSelector::parse(text).unwrap();
            assert_eq!(selector.to_string(), printed, "{text}");
            assert_eq!(FieldSelector::parse(printed), Ok(selector));
        }
        assert_eq!(
            FieldSelector::parse("a=b,blurb").unwrap_err().to_string(),
            "invalid selector: 'a=b,blurb'; can't understand 'blurb'"
        );
        for bad in ["x=a||y=b", "x==a==b", r"x=\q", "x!=a=b"] {
            assert!(FieldSelector::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn field_selector_compares_an_absent_field_as_empty_text() {
        let get = |field: &str| match field {
            "x" => "foo",
            "baz" => "blah",
            "complex" => r"=value\,\",
            _ => "",
        };
        for (text, expected) in [
            ("", true),
            ("x=foo", true),
            ("x!=foo", false),
            ("baz=blah,x=foo", true),
            ("baz=blah,x=bar", false),
            ("missing=", true),
            ("missing!=", false),
            ("missing!=a", true),
            (r"complex=\=value\\\,\\", true),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(get), expected, "{text}");
        }
        let selector = FieldSelector::parse("a!=1,metadata.name=x").unwrap();
        assert_eq!(selector.requires_exact_match("metadata.name"), Some("x"));
        assert_eq!(selector.requires_exact_match("a"), None);
    }
}
