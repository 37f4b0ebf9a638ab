//! Evaluates the JSONPath of custom resources' columns, like `k8s.io/client-go/util/jsonpath`.
//!
//! The language is a dialect of JSONPath: `['a.b']` means `.a.b` (a dot in a key is written `\.`). A step without a
//! result is not an error, but a step that does not fit the value is an error, for example an index into a map. Maps
//! are visited in the order of their keys; Go's order is random.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

/// A parsed JSONPath.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<JsonPathNode>);

/// The reason why a text is not a valid JSONPath.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonPathError {
    /// A bracket, filter or quote has no end.
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    /// A character cannot begin a step.
    #[error("unrecognized character {0:?}")]
    Character(char),
    /// The text in brackets is not an index, slice or quoted key.
    #[error("invalid array index {0:?}")]
    Index(String),
    /// A number in the path is malformed.
    #[error("cannot parse number {0:?}")]
    Number(String),
    /// The path contains `....`.
    #[error("invalid multiple recursive descent")]
    Recursion,
}

/// The reason why a path cannot be evaluated for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// A step of the path is applied to a value of the wrong type.
    #[error("the path does not match the structure of the object")]
    TypeMismatch,
    /// The path visits more values than the budget allows.
    #[error("the path visits too many values")]
    OverBudget,
}

/// The number of values that the paths of an object's columns may visit. Each `..` multiplies the visits, so the author
/// of a CustomResourceDefinition could make Tables expensive for all users.
#[derive(Debug)]
pub struct Budget(usize);

impl Budget {
    /// Creates the budget for all cells of an object of this size. The budget allows one or two visits to each value,
    /// and some thousand additional visits for small objects. The columns of a usual definition visit some hundred
    /// values.
    pub fn for_object(bytes: usize) -> Self {
        const SMALL: usize = 2_000;
        Self(bytes.saturating_add(SMALL))
    }

    /// Subtracts visited values from the budget.
    fn spend(&mut self, values: usize) -> Result<(), EvaluationError> {
        // If the budget is too small, it becomes zero, so that later steps fail too.
        let left = self.0.checked_sub(values);
        self.0 = left.unwrap_or(0);
        left.map(drop).ok_or(EvaluationError::OverBudget)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum JsonPathNode {
    Field(String),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<JsonPathNode>>),
    Filter {
        left: Vec<JsonPathNode>,
        comparison: Option<(Operator, Vec<JsonPathNode>)>,
    },
    Literal(Value),
    /// A name such as `range`. It is valid in client-go's templates, but not in columns.
    Identifier,
}

/// `[start:end:step]`, or `[i]` with `single` set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    single: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Less,
    Greater,
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    /// An operator that does not exist. The path parses, but each comparison with the operator fails.
    Unknown,
}

impl JsonPath {
    /// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    /// [`JsonPathError`] for paths that kube-apiserver rejects.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        JsonPathParser { rest: text }.nodes().map(Self)
    }

    /// Returns the first value at the path. Costs an iteration over the visited values, which are subtracted from the
    /// budget.
    ///
    /// # Errors
    /// [`EvaluationError`].
    pub fn first<'a>(
        &'a self,
        root: &'a Value,
        budget: &mut Budget,
    ) -> Result<Option<Cow<'a, Value>>, EvaluationError> {
        Ok(evaluate(vec![Cow::Borrowed(root)], &self.0, budget)?.into_iter().next())
    }
}

struct JsonPathParser<'a> {
    rest: &'a str,
}

impl<'a> JsonPathParser<'a> {
    fn nodes(mut self) -> Result<Vec<JsonPathNode>, JsonPathError> {
        let mut nodes = Vec::new();
        while let Some(next) = self.rest.chars().next() {
            if let Some(rest) = self.rest.strip_prefix("[?(") {
                self.rest = rest;
                nodes.push(self.filter()?);
            } else if let Some(rest) = self.rest.strip_prefix("..") {
                if nodes.last() == Some(&JsonPathNode::Recursive) {
                    return Err(JsonPathError::Recursion);
                }
                self.rest = rest;
                nodes.push(JsonPathNode::Recursive);
                if rest.starts_with(is_word) {
                    nodes.push(self.field());
                }
            } else {
                match next {
                    ' ' | '@' | '$' => self.rest = &self.rest[1..],
                    '.' => {
                        self.rest = &self.rest[1..];
                        nodes.push(self.field());
                    }
                    '[' => self.brackets(&mut nodes)?,
                    '"' | '\'' => nodes.push(self.quoted(next)?),
                    '+' | '-' | '0'..='9' => nodes.push(self.number()?),
                    _ if is_word(next) => nodes.push(self.word()),
                    _ => return Err(JsonPathError::Character(next)),
                }
            }
        }
        Ok(nodes)
    }

    /// Removes the first `length` bytes of the remaining text and returns them.
    fn take_bytes(&mut self, length: usize) -> &'a str {
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        bytes
    }

    /// Parses a key up to the next special character. A backslash escapes a special character.
    fn field(&mut self) -> JsonPathNode {
        let mut name = String::new();
        let mut length = self.rest.len();
        let mut characters = self.rest.char_indices();
        while let Some((at, character)) = characters.next() {
            if character == '\\' {
                name.extend(characters.next().map(|(_, escaped)| escaped).filter(|&escaped| escaped != '\\'));
            } else if ends_name(character) {
                length = at;
                break;
            } else {
                name.push(character);
            }
        }
        self.take_bytes(length);
        if name == "*" { JsonPathNode::Wildcard } else { JsonPathNode::Field(name) }
    }

    fn word(&mut self) -> JsonPathNode {
        let length = self.rest.find(ends_name).unwrap_or(self.rest.len());
        match self.take_bytes(length) {
            "true" => JsonPathNode::Literal(Value::Bool(true)),
            "false" => JsonPathNode::Literal(Value::Bool(false)),
            _ => JsonPathNode::Identifier,
        }
    }

    fn number(&mut self) -> Result<JsonPathNode, JsonPathError> {
        let signs = usize::from(self.rest.starts_with(['+', '-']));
        let digits = self.rest[signs..].find(|c: char| c != '.' && !c.is_ascii_digit());
        let text = self.take_bytes(digits.map_or(self.rest.len(), |digits| signs + digits));
        let number = match text.parse::<i64>() {
            Ok(integer) => Some(integer.into()),
            Err(_) => text.parse().ok().and_then(serde_json::Number::from_f64),
        };
        number
            .map(|number| JsonPathNode::Literal(Value::Number(number)))
            .ok_or_else(|| JsonPathError::Number(text.to_owned()))
    }

    fn quoted(&mut self, quote: char) -> Result<JsonPathNode, JsonPathError> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            if character == quote {
                self.take_bytes(at + 1);
                return Ok(JsonPathNode::Literal(Value::String(text)));
            }
            match character {
                '\n' => break,
                '\\' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, 'r')) => text.push('\r'),
                    Some((_, escaped)) => text.push(escaped),
                    None => break,
                },
                _ => text.push(character),
            }
        }
        Err(JsonPathError::Unterminated("quoted string"))
    }

    fn brackets(&mut self, nodes: &mut Vec<JsonPathNode>) -> Result<(), JsonPathError> {
        let end = self.rest.find([']', '\n']).filter(|&end| self.rest[end..].starts_with(']'));
        let end = end.ok_or(JsonPathError::Unterminated("array"))?;
        let text = &self.take_bytes(end + 1)[1..end];
        if text.contains(',') {
            let lists =
                text.split(',').map(|part| JsonPathParser { rest: &format!("[{}]", part.trim_matches(' ')) }.nodes());
            nodes.push(JsonPathNode::Union(lists.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        if let Some(key) = key.filter(|key| !key.contains('\'')) {
            // The key is parsed once more as a field, so that `['a.b']` means `.a.b`.
            nodes.extend(JsonPathParser { rest: &format!(".{key}") }.nodes()?);
            return Ok(());
        }
        nodes.push(JsonPathNode::Slice(slice(text).ok_or_else(|| JsonPathError::Index(text.to_owned()))?));
        Ok(())
    }

    /// Parses a filter after its opening `[?(`.
    fn filter(&mut self) -> Result<JsonPathNode, JsonPathError> {
        let unterminated = JsonPathError::Unterminated("filter");
        let text = self.take_bytes(filter_end(self.rest).ok_or(unterminated.clone())?);
        self.rest = self.rest.strip_prefix(")]").ok_or(unterminated)?;
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let comparison = text.find(is_operator).filter(|&start| start > 0).and_then(|start| {
            let length = text[start..].find(|c| !is_operator(c))?;
            Some((start, start + length))
        });
        let Some((start, end)) = comparison else {
            return Ok(JsonPathNode::Filter { left: JsonPathParser { rest: text }.nodes()?, comparison: None });
        };
        let operator = match &text[start..end] {
            "<" => Operator::Less,
            ">" => Operator::Greater,
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<=" => Operator::LessOrEqual,
            ">=" => Operator::GreaterOrEqual,
            _ => Operator::Unknown,
        };
        let left = JsonPathParser { rest: &text[..start] }.nodes()?;
        let right = JsonPathParser { rest: &text[end..] }.nodes()?;
        Ok(JsonPathNode::Filter { left, comparison: Some((operator, right)) })
    }
}

/// Returns the index of the `)` that ends a filter: the first `)` outside of the single pair of quotes that a filter
/// may have.
fn filter_end(text: &str) -> Option<usize> {
    let (mut quote, mut closed, mut previous) = (None, false, ' ');
    for (at, character) in text.char_indices() {
        match character {
            '\n' => return None,
            '"' | '\'' => match quote {
                None => quote = Some(character),
                Some(open) => closed |= open == character && previous != '\\',
            },
            ')' if quote.is_some() == closed => return Some(at),
            _ => {}
        }
        previous = character;
    }
    None
}

/// Parses `*`, `i`, `start:end` or `start:end:step`, where each number is optional.
fn slice(text: &str) -> Option<Slice> {
    let text = if text == "*" { ":" } else { text };
    let mut parts = text.split(':');
    let mut number = || -> Option<Option<i64>> {
        match parts.next() {
            None | Some("") => Some(None),
            Some(part) if part.starts_with('+') => None,
            Some(part) => part.parse().ok().map(Some),
        }
    };
    let (start, end, step) = (number()?, number()?, number()?);
    if parts.next().is_some() {
        return None;
    }
    Some(Slice { start, end, step, single: !text.contains(':') })
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

fn ends_name(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

type Values<'a> = Vec<Cow<'a, Value>>;

fn evaluate<'a>(
    mut values: Values<'a>,
    nodes: &'a [JsonPathNode],
    budget: &mut Budget,
) -> Result<Values<'a>, EvaluationError> {
    for node in nodes {
        budget.spend(values.len())?;
        values = match node {
            JsonPathNode::Field(name) => flat(values, |value| match value {
                Value::Object(map) => Ok(map.get(name).into_iter().collect()),
                _ => Ok(Vec::new()),
            })?,
            JsonPathNode::Wildcard => flat(values, |value| children(value, budget))?,
            JsonPathNode::Recursive => flat(values, |value| {
                let mut found = Vec::new();
                descend(value, &mut found, budget)?;
                Ok(found)
            })?,
            JsonPathNode::Slice(slice) => flat(values, |value| match value {
                Value::Null => Ok(Vec::new()),
                Value::Array(items) => {
                    budget.spend(items.len())?;
                    slice.apply(items)
                }
                _ => Err(EvaluationError::TypeMismatch),
            })?,
            JsonPathNode::Union(lists) => {
                let mut all = Vec::new();
                for list in lists {
                    budget.spend(values.len())?;
                    all.extend(evaluate(values.clone(), list, budget)?);
                }
                all
            }
            JsonPathNode::Filter { left, comparison } => flat(values, |value| match value {
                Value::Array(items) => filter(items, left, comparison.as_ref(), budget),
                _ => Err(EvaluationError::TypeMismatch),
            })?,
            JsonPathNode::Literal(literal) => values.iter().map(|_| Cow::Borrowed(literal)).collect(),
            JsonPathNode::Identifier => return Err(EvaluationError::TypeMismatch),
        };
    }
    Ok(values)
}

/// Applies `step` to each value, and returns all results in one list.
fn flat<'a>(
    values: Values<'a>,
    mut step: impl for<'b> FnMut(&'b Value) -> Result<Vec<&'b Value>, EvaluationError>,
) -> Result<Values<'a>, EvaluationError> {
    let mut found = Vec::new();
    for value in values {
        match value {
            Cow::Borrowed(value) => found.extend(step(value)?.into_iter().map(Cow::Borrowed)),
            Cow::Owned(value) => found.extend(step(&value)?.into_iter().cloned().map(Cow::Owned)),
        }
    }
    Ok(found)
}

fn children<'b>(value: &'b Value, budget: &mut Budget) -> Result<Vec<&'b Value>, EvaluationError> {
    match value {
        Value::Object(map) => {
            budget.spend(map.len())?;
            Ok(map.values().collect())
        }
        Value::Array(items) => {
            budget.spend(items.len())?;
            Ok(items.iter().collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// Collects a value and all its nested values that have children.
fn descend<'b>(value: &'b Value, found: &mut Vec<&'b Value>, budget: &mut Budget) -> Result<(), EvaluationError> {
    let below = children(value, budget)?;
    if !below.is_empty() {
        found.push(value);
        for child in below {
            descend(child, found, budget)?;
        }
    }
    Ok(())
}

impl Slice {
    fn apply<'b>(&self, items: &'b [Value]) -> Result<Vec<&'b Value>, EvaluationError> {
        let length = i64::try_from(items.len()).map_err(|_| EvaluationError::TypeMismatch)?;
        let mut start = self.start.unwrap_or(0);
        let mut end = match self.end {
            _ if self.single => start.saturating_add(1),
            end => end.unwrap_or(length),
        };
        if start < 0 {
            start += length;
        }
        if end < 0 || (end == 0 && self.single) {
            end += length;
        }
        if start == end {
            return Ok(Vec::new());
        }
        let fits = (0..length).contains(&start) && (0..=length).contains(&end) && start < end;
        let step = usize::try_from(self.step.unwrap_or(1))
            .ok()
            .filter(|&step| fits && step > 0)
            .ok_or(EvaluationError::TypeMismatch)?;
        let range = usize::try_from(start).map_err(|_| EvaluationError::TypeMismatch)?
            ..usize::try_from(end).map_err(|_| EvaluationError::TypeMismatch)?;
        Ok(items.get(range).ok_or(EvaluationError::TypeMismatch)?.iter().step_by(step).collect())
    }
}

fn filter<'b>(
    items: &'b [Value],
    left: &[JsonPathNode],
    comparison: Option<&(Operator, Vec<JsonPathNode>)>,
    budget: &mut Budget,
) -> Result<Vec<&'b Value>, EvaluationError> {
    budget.spend(items.len())?;
    let mut found = Vec::new();
    for item in items {
        let lefts = evaluate(vec![Cow::Borrowed(item)], left, budget);
        let Some((operator, right)) = comparison else {
            match lefts {
                Ok(lefts) if !lefts.is_empty() => found.push(item),
                Err(EvaluationError::OverBudget) => return Err(EvaluationError::OverBudget),
                _ => {}
            }
            continue;
        };
        let (Some(left), Some(right)) =
            (at_most_one(lefts?)?, at_most_one(evaluate(vec![Cow::Borrowed(item)], right, budget)?)?)
        else {
            continue;
        };
        if compare(*operator, &left, &right)? {
            found.push(item);
        }
    }
    Ok(found)
}

fn at_most_one(values: Values<'_>) -> Result<Option<Cow<'_, Value>>, EvaluationError> {
    if values.len() > 1 { Err(EvaluationError::TypeMismatch) } else { Ok(values.into_iter().next()) }
}

/// Compares two values of the same basic type; values of different types are an error.
fn compare(operator: Operator, left: &Value, right: &Value) -> Result<bool, EvaluationError> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                _ => left.as_f64().partial_cmp(&right.as_f64()).ok_or(EvaluationError::TypeMismatch)?,
            }
        }
        (Value::Bool(left), Value::Bool(right)) => match operator {
            Operator::Equal | Operator::NotEqual => left.cmp(right),
            _ => return Err(EvaluationError::TypeMismatch),
        },
        _ => return Err(EvaluationError::TypeMismatch),
    };
    Ok(match operator {
        Operator::Less => order == Ordering::Less,
        Operator::Greater => order == Ordering::Greater,
        Operator::Equal => order == Ordering::Equal,
        Operator::NotEqual => order != Ordering::Equal,
        Operator::LessOrEqual => order != Ordering::Greater,
        Operator::GreaterOrEqual => order != Ordering::Less,
        Operator::Unknown => return Err(EvaluationError::TypeMismatch),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(path: &str, object: &Value) -> Option<Value> {
        JsonPath::parse(path).unwrap().first(object, &mut Budget::for_object(0)).unwrap().map(Cow::into_owned)
    }

    #[test]
    fn jsonpath_selects_the_expected_values() {
        let object = serde_json::json!({
            "a": {"b": 1, "x.y": 2},
            "l": [{"n": "p", "v": 1}, {"n": "q", "v": 2}, {"n": "r)", "v": 3.5}],
            "e": [],
            "z": null,
        });
        for (path, expected) in [
            (".a.b", Some("1")),
            ("$.a.b", Some("1")),
            ("['a'].b", Some("1")),
            ("['a.b']", Some("1")),
            (r".a.x\.y", Some("2")),
            (r".a['x\.y']", Some("2")),
            (".a.none", None),
            (".a.b.c", None),
            (".l[0].n", Some("\"p\"")),
            (".l[-1].n", Some("\"r)\"")),
            (".l[1:].n", Some("\"q\"")),
            (".l[*].v", Some("1")),
            (".l[1,0].n", Some("\"q\"")),
            (".l[?(@.n==\"q\")].v", Some("2")),
            (".l[?(@.n=='q')].v", Some("2")),
            (".l[?(@.n==\"r)\")].v", Some("3.5")),
            (".l[?(@.n!=\"p\")].v", Some("2")),
            (".l[?(@.none)].v", None),
            (".l[?(@.none==1)].v", None),
            (".l[?(@.n)].v", Some("1")),
            ("..v", Some("1")),
            (".e[*]", None),
            (".z", Some("null")),
            (".z.a", None),
            (".a.*", Some("1")),
        ] {
            let expected = expected.map(|text| serde_json::from_str::<Value>(text).unwrap());
            assert_eq!(first(path, &object), expected, "{path}");
        }
        let numbers = serde_json::json!({"l": [{"v": 1}, {"v": 2}]});
        assert_eq!(first(".l[?(@.v>1)].v", &numbers), Some(2.into()));
        assert_eq!(first(".l[?(@.v<=1)].v", &numbers), Some(1.into()));
    }

    #[test]
    fn jsonpath_step_into_a_value_of_wrong_type_is_an_error() {
        let object = serde_json::json!({"a": {"b": "s"}, "l": [1]});
        for path in [".a[0]", ".l[1]", ".a[?(@.b)]", ".l[?(@==\"x\")]", ".a.b[*]", "range"] {
            let found = JsonPath::parse(path).unwrap();
            assert_eq!(found.first(&object, &mut Budget::for_object(0)), Err(EvaluationError::TypeMismatch), "{path}");
        }
    }

    /// Without a budget, the evaluation of each of these paths visits billions of values.
    #[test]
    fn jsonpath_evaluation_stops_at_the_limit_of_evaluation_steps() {
        let mut object = serde_json::json!({"a": 1});
        for _ in 0..20 {
            object = serde_json::json!({"a": object, "l": [[1], [2], [3]]});
        }
        let bytes = object.to_string().len();
        object["n"] = serde_json::json!([[[[[[[[1]]]]]]]]);
        let union = "[0,0,0,0,0,0,0,0,0,0]".repeat(8);
        for path in ["..a..a..a..a..a..a..a..a", "...*...*...*...*...*", &format!(".n{union}")] {
            let path = JsonPath::parse(path).unwrap();
            let mut budget = Budget::for_object(bytes);
            assert_eq!(path.first(&object, &mut budget), Err(EvaluationError::OverBudget), "{path:?}");
            assert_eq!(budget.0, 0);
        }
        let mut budget = Budget::for_object(bytes);
        assert_eq!(JsonPath::parse("..a").unwrap().first(&object, &mut budget).unwrap().as_deref(), object.get("a"));
    }

    #[test]
    fn malformed_jsonpath_has_a_descriptive_error() {
        for (path, error) in [
            (".a[", JsonPathError::Unterminated("array")),
            (".a[x]", JsonPathError::Index("x".to_owned())),
            (".a[?(@.b", JsonPathError::Unterminated("filter")),
            ("\"b", JsonPathError::Unterminated("quoted string")),
            (".a}", JsonPathError::Character('}')),
        ] {
            assert_eq!(JsonPath::parse(path), Err(error), "{path}");
        }
    }
}
