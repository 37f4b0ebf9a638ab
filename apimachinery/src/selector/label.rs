//! Label selectors: `a=b,c!=d,e in (f,g),!h,i>5` (apimachinery's `labels`).

use std::fmt;

use smallvec::SmallVec;

use super::bounds::{SelectorBounds, TooMany};
use super::label_syntax::{key_errors, value_errors};
use crate::Object;
use crate::status::FieldError;

/// The relation between a label and the values of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LabelOperator {
    /// `=`: the value equals the requirement's value.
    Equals,
    /// `==`: like `=`.
    DoubleEquals,
    /// `!=`: the label is absent, or its value differs.
    NotEquals,
    /// `in`: the value is in the list.
    In,
    /// `notin`: the label is absent, or its value is not in the list.
    NotIn,
    /// The bare key: the label exists.
    Exists,
    /// `!key`: the label is absent.
    DoesNotExist,
    /// `>`: the value is an integer above the requirement's value.
    GreaterThan,
    /// `<`: the value is an integer below the requirement's value.
    LessThan,
}

/// A requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    key: String,
    operator: LabelOperator,
    /// The values of the requirement, sorted and without repetitions.
    values: Vec<String>,
    /// The required value as an integer, for the operators `>` and `<`.
    number: i64,
}

/// A conjunction of label requirements, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

/// The reason why a text is not a label selector, in apimachinery's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelSelectorError {
    /// A requirement is malformed, or has an invalid key or value.
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    /// The selector has other characters where a requirement must begin, or after a requirement.
    #[error("{0}")]
    Unexpected(String),
    /// The selector exceeds a limit.
    #[error(transparent)]
    TooMany(#[from] TooMany),
}

impl LabelRequirement {
    /// Creates a requirement after validation.
    ///
    /// # Errors
    /// [`LabelSelectorError`] for an invalid key or value, in apimachinery's words.
    pub fn new(key: &str, operator: LabelOperator, values: &[&str]) -> Result<Self, LabelSelectorError> {
        let mut errors = Vec::new();
        let wrong_key = key_errors(key);
        if !wrong_key.is_empty() {
            errors.push(FieldError::invalid("key", key, wrong_key.join("; ")));
        }
        let mut sorted: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut number = 0;
        if matches!(operator, LabelOperator::GreaterThan | LabelOperator::LessThan) {
            match sorted.first().and_then(|value| parse_integer(value)) {
                Some(parsed) => number = parsed,
                None => errors.push(FieldError::invalid(
                    "values[0]",
                    sorted.first().cloned().unwrap_or_default(),
                    "for 'Gt', 'Lt' operators, the value must be an integer",
                )),
            }
        }
        if matches!(operator, LabelOperator::In | LabelOperator::NotIn) && sorted.is_empty() {
            errors.push(FieldError::invalid("values", "", "for 'in', 'notin' operators, values set can't be empty"));
        }
        for (index, value) in sorted.iter().enumerate() {
            let wrong = value_errors(value);
            if !wrong.is_empty() {
                errors.push(FieldError::invalid(format!("values[{index}][{key}]"), value, wrong.join("; ")));
            }
        }
        match crate::status::aggregate(&errors) {
            Some(text) => Err(LabelSelectorError::Requirement(text)),
            None => Ok(Self { key: key.to_owned(), operator, values: sorted, number }),
        }
    }

    /// Returns the label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the operator of the requirement.
    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    /// Returns the values, sorted. `=`, `==`, `!=`, `>` and `<` have exactly one value. `key` and `!key` have none.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Returns whether a label with this value (`None`: absent) meets the requirement. Allocates nothing.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let has = |value: &str| self.values.binary_search_by(|wanted| wanted.as_str().cmp(value)).is_ok();
        match self.operator {
            LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::In => value.is_some_and(has),
            LabelOperator::NotEquals | LabelOperator::NotIn => !value.is_some_and(has),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::GreaterThan => value.and_then(parse_integer).is_some_and(|value| value > self.number),
            LabelOperator::LessThan => value.and_then(parse_integer).is_some_and(|value| value < self.number),
        }
    }
}

/// Parses an integer like Go's `ParseInt`: a sign and leading zeros are allowed.
fn parse_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

impl LabelSelector {
    /// Parses a selector without limits, for selectors that do not come from a client. The empty text selects all
    /// objects.
    ///
    /// # Errors
    /// [`LabelSelectorError`], whose text is the message of kube-apiserver's 400.
    pub fn parse(selector: &str) -> Result<Self, LabelSelectorError> {
        Self::parse_within(selector, SelectorBounds::NONE)
    }

    /// Parses a client's selector within limits.
    ///
    /// # Errors
    /// The errors of [`parse`](Self::parse), and [`TooMany`].
    pub fn parse_within(selector: &str, bounds: SelectorBounds) -> Result<Self, LabelSelectorError> {
        LabelSelectorParser::new(selector).parse(bounds)
    }

    /// Creates a selector from requirements.
    pub fn new(mut requirements: Vec<LabelRequirement>) -> Self {
        // Go's sort compares only keys and is not stable. Any order of requirements with equal keys is therefore
        // allowed.
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }

    /// Returns whether the selector selects all objects.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements, sorted by key. A matching object meets all requirements.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Returns whether the object's labels meet all requirements.
    ///
    /// Cost: with up to two requirements, one walk over the labels' text for each requirement. With more requirements,
    /// one walk in total, and one search for each requirement. More than 16 labels cost an allocation.
    pub fn matches(&self, object: &Object) -> bool {
        /// The maximum number of requirements that are checked by a separate walk over the labels. With more
        /// requirements, sorting the labels is cheaper.
        const FEW: usize = 2;
        if self.requirements.len() <= FEW {
            return self.matches_labels(|key| object.label(key));
        }
        let mut labels: SmallVec<[(&str, &str); 16]> = object.labels().collect();
        // If several labels have equal keys, the first label is used. A stable sort keeps the first label first.
        labels.sort_by_key(|(key, _)| *key);
        self.matches_labels(|key| {
            let at = labels.partition_point(|(own, _)| *own < key);
            labels.get(at).filter(|(own, _)| *own == key).map(|(_, value)| *value)
        })
    }

    /// Returns whether the labels from `get` meet all requirements.
    pub fn matches_labels<'a>(&self, mut get: impl FnMut(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(get(&requirement.key)))
    }

    /// Splits the selector into the requirements on other keys, and the requirements on `key`.
    pub(crate) fn split_off(&self, key: &str) -> (Self, Vec<LabelRequirement>) {
        let (matching, remaining) = self.requirements.iter().cloned().partition(|requirement| requirement.key == key);
        (Self { requirements: remaining }, matching)
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            LabelOperator::Equals => write!(f, "{key}={values}"),
            LabelOperator::DoubleEquals => write!(f, "{key}=={values}"),
            LabelOperator::NotEquals => write!(f, "{key}!={values}"),
            LabelOperator::In => write!(f, "{key} in ({values})"),
            LabelOperator::NotIn => write!(f, "{key} notin ({values})"),
            LabelOperator::Exists => write!(f, "{key}"),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::GreaterThan => write!(f, "{key}>{values}"),
            LabelOperator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

impl fmt::Display for LabelSelector {
    /// Writes a text that parses to the same selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SelectorToken {
    End,
    Error,
    ClosePar,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    GreaterThan,
    Identifier,
    In,
    LessThan,
    NotEquals,
    NotIn,
    OpenPar,
}

const SPECIAL: [(&str, SelectorToken); 9] = [
    (")", SelectorToken::ClosePar),
    (",", SelectorToken::Comma),
    ("!", SelectorToken::Not),
    ("==", SelectorToken::DoubleEquals),
    ("=", SelectorToken::Equals),
    (">", SelectorToken::GreaterThan),
    ("<", SelectorToken::LessThan),
    ("!=", SelectorToken::NotEquals),
    ("(", SelectorToken::OpenPar),
];

/// Splits the text into tokens. `in` and `notin` are operators or names, depending on the position.
struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> (SelectorToken, String) {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        self.at += rest.len() - trimmed.len();
        // Like Go's lexer, this lexer treats a zero byte as the end of the selector.
        match trimmed.chars().next() {
            None | Some('\0') => (SelectorToken::End, String::new()),
            Some(character) if is_special(character) => self.special(trimmed),
            Some(_) => self.word(trimmed),
        }
    }

    /// Skips a zero byte that ends a token, like Go's lexer.
    fn skip_zero(&mut self) {
        if self.text[self.at..].starts_with('\0') {
            self.at += 1;
        }
    }

    fn word(&mut self, trimmed: &'a str) -> (SelectorToken, String) {
        let end =
            trimmed.find(|c| is_special(c) || matches!(c, ' ' | '\t' | '\r' | '\n' | '\0')).unwrap_or(trimmed.len());
        self.at += end;
        self.skip_zero();
        let word = &trimmed[..end];
        let token = match word {
            "in" => SelectorToken::In,
            "notin" => SelectorToken::NotIn,
            _ => SelectorToken::Identifier,
        };
        (token, word.to_owned())
    }

    /// Reads the longest operator of special characters. Each prefix of an operator is an operator too.
    fn special(&mut self, trimmed: &'a str) -> (SelectorToken, String) {
        let found = SPECIAL.iter().filter(|(text, _)| trimmed.starts_with(text)).max_by_key(|(text, _)| text.len());
        match found {
            Some((text, token)) => {
                self.at += text.len();
                self.skip_zero();
                (*token, (*text).to_owned())
            }
            None => (SelectorToken::Error, String::new()),
        }
    }
}

fn is_special(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

/// A recursive descent parser with the states, and therefore the error messages, of apimachinery's parser.
struct LabelSelectorParser {
    tokens: Vec<(SelectorToken, String)>,
    at: usize,
}

impl LabelSelectorParser {
    fn new(text: &str) -> Self {
        let mut lexer = Lexer { text, at: 0 };
        let mut tokens = Vec::new();
        loop {
            let token = lexer.next();
            let end = matches!(token.0, SelectorToken::End | SelectorToken::Error);
            tokens.push(token);
            if end {
                break;
            }
        }
        Self { tokens, at: 0 }
    }

    /// Returns the current token. `in` and `notin` are returned as names instead of operators.
    fn peek(&self) -> (SelectorToken, &str) {
        match &self.tokens[self.at.min(self.tokens.len() - 1)] {
            (SelectorToken::In | SelectorToken::NotIn, text) => (SelectorToken::Identifier, text),
            (token, text) => (*token, text),
        }
    }

    fn next_token(&mut self) -> (SelectorToken, String) {
        let (token, text) = self.peek();
        let current = (token, text.to_owned());
        self.at += 1;
        current
    }

    fn parse(mut self, bounds: SelectorBounds) -> Result<LabelSelector, LabelSelectorError> {
        let (mut requirements, mut values) = (Vec::new(), 0);
        loop {
            match self.peek() {
                (SelectorToken::Identifier | SelectorToken::Not, _) => {
                    let requirement = self.requirement()?;
                    values += requirement.values.len();
                    requirements.push(requirement);
                    bounds.admit(requirements.len(), values)?;
                }
                (SelectorToken::End, _) => return Ok(LabelSelector::new(requirements)),
                (_, text) => return unexpected(text, "!, identifier, or 'end of string'"),
            }
            match self.next_token() {
                (SelectorToken::End, _) => return Ok(LabelSelector::new(requirements)),
                (SelectorToken::Comma, _) => match self.peek() {
                    (SelectorToken::Identifier | SelectorToken::Not, _) => {}
                    (_, text) => return unexpected(text, "identifier after ','"),
                },
                (_, text) => return unexpected(&text, "',' or 'end of string'"),
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, LabelSelectorError> {
        let (mut token, mut key) = self.next_token();
        let negated = token == SelectorToken::Not;
        if negated {
            (token, key) = self.next_token();
        }
        if token != SelectorToken::Identifier {
            return wrong(format!("found '{key}', expected: identifier"));
        }
        let errors = key_errors(&key);
        if !errors.is_empty() {
            return wrong(FieldError::invalid("<nil>", key, errors.join("; ")).to_string());
        }
        if negated {
            return LabelRequirement::new(&key, LabelOperator::DoesNotExist, &[]);
        }
        if matches!(self.peek().0, SelectorToken::End | SelectorToken::Comma) {
            return LabelRequirement::new(&key, LabelOperator::Exists, &[]);
        }
        let operator = self.operator()?;
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        let values: Vec<_> = values.iter().map(String::as_str).collect();
        LabelRequirement::new(&key, operator, &values)
    }

    fn operator(&mut self) -> Result<LabelOperator, LabelSelectorError> {
        let (token, text) = self.tokens[self.at.min(self.tokens.len() - 1)].clone();
        self.at += 1;
        match token {
            SelectorToken::In => Ok(LabelOperator::In),
            SelectorToken::NotIn => Ok(LabelOperator::NotIn),
            SelectorToken::Equals => Ok(LabelOperator::Equals),
            SelectorToken::DoubleEquals => Ok(LabelOperator::DoubleEquals),
            SelectorToken::NotEquals => Ok(LabelOperator::NotEquals),
            SelectorToken::GreaterThan => Ok(LabelOperator::GreaterThan),
            SelectorToken::LessThan => Ok(LabelOperator::LessThan),
            _ => wrong(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// Parses `(a,b,)`. A value is empty between two commas, or between a comma and a parenthesis.
    fn values(&mut self) -> Result<Vec<String>, LabelSelectorError> {
        let (token, text) = self.next_token();
        if token != SelectorToken::OpenPar {
            return wrong(format!("found '{text}' expected: '('"));
        }
        match self.peek() {
            (SelectorToken::Identifier | SelectorToken::Comma, _) => {
                let values = self.identifiers()?;
                // `identifiers` stops before the closing parenthesis, which is skipped here.
                self.at += 1;
                Ok(values)
            }
            (SelectorToken::ClosePar, _) => {
                self.at += 1;
                Ok(vec![String::new()])
            }
            (_, text) => wrong(format!("found '{text}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<Vec<String>, LabelSelectorError> {
        let mut values = Vec::new();
        loop {
            match self.next_token() {
                (SelectorToken::Identifier, text) => {
                    values.push(text);
                    match self.peek() {
                        (SelectorToken::Comma, _) => {}
                        (SelectorToken::ClosePar, _) => return Ok(values),
                        (_, text) => return wrong(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (SelectorToken::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek().0 {
                        SelectorToken::ClosePar => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        SelectorToken::Comma => values.push(String::new()),
                        _ => {}
                    }
                }
                (_, text) => return wrong(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, LabelSelectorError> {
        if matches!(self.peek().0, SelectorToken::End | SelectorToken::Comma) {
            return Ok(String::new());
        }
        match self.next_token() {
            (SelectorToken::Identifier, text) => Ok(text),
            (_, text) => wrong(format!("found '{text}', expected: identifier")),
        }
    }
}

fn wrong<T>(text: String) -> Result<T, LabelSelectorError> {
    Err(LabelSelectorError::Requirement(text))
}

fn unexpected<T>(found: &str, expected: &str) -> Result<T, LabelSelectorError> {
    Err(LabelSelectorError::Unexpected(format!("found '{found}', expected: {expected}")))
}

#[cfg(test)]
mod tests;
