//! The positions of lists and fields in a YAML text, for edits that preserve all other bytes. Without I/O.

use granit_parser::{Event, Parser, ScanError, Span};

#[derive(Debug)]
pub(crate) struct Node {
    /// The index of the node's first byte. For a list in block form: the first byte of the first entry's content.
    start: usize,
    /// The index after the YAML node's last byte.
    pub(crate) end: usize,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Scalar(String),
    /// A list: `[…]`, or lines that begin with `-`.
    Sequence(Vec<Node>),
    /// A mapping: `{…}`, or lines with keys and values.
    Mapping(Vec<(Node, Node)>),
}

/// The position of a list in a YAML text.
#[derive(Debug)]
pub(crate) enum ListLayout {
    /// The document does not contain the list's key.
    Absent,
    /// An empty list. `colon` is the index after the key's colon, and `end` is the index after the value.
    Empty { colon: usize, end: usize },
    /// A list in brackets, `[…]`. Contains the byte range of each entry.
    Flow { entries: Vec<(usize, usize)> },
    /// A list in block form. Contains the byte range of each entry's lines.
    Block { colon: usize, indent: usize, entries: Vec<(usize, usize)> },
}

/// A mapping in block form: each field begins on its own line.
pub(crate) struct Mapping<'a> {
    /// The column of the mapping's keys.
    pub(crate) indent: usize,
    pub(crate) fields: Vec<MappingField<'a>>,
}

pub(crate) struct MappingField<'a> {
    pub(crate) key: &'a str,
    /// The indexes of the first byte of the field's first line, and of the byte after its last line.
    pub(crate) lines: (usize, usize),
    pub(crate) value: &'a Node,
}

/// The text of a document, with the positions of its nodes.
pub(crate) struct Layout<'a> {
    text: &'a str,
    /// The root node; `None` for a document without content.
    root: Option<Node>,
}

impl<'a> Layout<'a> {
    /// Parses the first document of the text.
    ///
    /// # Errors
    /// The text is invalid YAML.
    pub(crate) fn parse(text: &'a str) -> Result<Self, ScanError> {
        let mut events = Events { parser: Parser::new_from_str(text) };
        let root = events.document()?;
        // The parser returns an empty scalar for a document that contains only comments.
        let root = root.filter(|root| !matches!(&root.shape, Shape::Scalar(text) if text.is_empty()));
        Ok(Self { text, root })
    }

    /// Returns the root node; `None` for an empty document.
    pub(crate) fn root(&self) -> Option<&Node> {
        self.root.as_ref()
    }

    /// Returns the fields of a mapping, with their lines. Returns `None` for a node that is no mapping, and for fields
    /// that share a line.
    pub(crate) fn block_mapping<'b>(&self, node: &'b Node) -> Option<Mapping<'b>> {
        let Shape::Mapping(entries) = &node.shape else { return None };
        let begin = self.line_start(entries.first()?.0.start);
        let indent = entries.first()?.0.start - begin;
        let field = |(key, value): &'b (Node, Node)| {
            let Shape::Scalar(text) = &key.shape else { return None };
            let first = self.line_start(key.start);
            let is_alone = key.start - first == indent && self.text[first..key.start].trim().is_empty();
            let lines = (first, self.line_end(self.trimmed(value.end.max(key.end))));
            is_alone.then_some(MappingField { key: text, lines, value })
        };
        let fields = entries.iter().map(field).collect::<Option<Vec<_>>>()?;
        let is_apart = fields.windows(2).all(|pair| pair[0].lines.1 <= pair[1].lines.0);
        is_apart.then_some(Mapping { indent, fields })
    }

    /// Returns the index after the last byte before `end` that is not white space. So blank lines after the content of
    /// a block scalar do not belong to its node.
    fn trimmed(&self, end: usize) -> usize {
        self.text[..end].trim_end().len()
    }

    /// Returns whether the text contains only comments and white space.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Returns whether the document is written in braces, as JSON is.
    pub(crate) fn is_flow(&self) -> bool {
        self.root.as_ref().is_some_and(|root| self.text[root.start..].starts_with('{'))
    }

    /// Returns whether the document is an empty mapping, `{}`.
    pub(crate) fn has_no_keys(&self) -> bool {
        self.root.as_ref().is_some_and(|root| matches!(&root.shape, Shape::Mapping(entries) if entries.is_empty()))
    }

    /// Returns the column of the document's keys.
    pub(crate) fn indent(&self) -> usize {
        self.root.as_ref().map_or(0, |root| root.start - self.line_start(root.start))
    }

    /// Returns the index after the last byte of the document's mapping.
    pub(crate) fn end(&self) -> usize {
        self.root.as_ref().map_or(self.text.len(), |root| root.end)
    }

    /// Returns the position of the list that is the value of this key. Returns `None` for a form that cannot be edited,
    /// such as an alias.
    pub(crate) fn list(&self, key: &str) -> Option<ListLayout> {
        let Some(Shape::Mapping(entries)) = self.root.as_ref().map(|root| &root.shape) else {
            return Some(ListLayout::Absent);
        };
        let found = entries.iter().find(|(node, _)| matches!(&node.shape, Shape::Scalar(text) if text == key));
        let Some((key, value)) = found else { return Some(ListLayout::Absent) };
        let colon = self.colon_after(key.end)?;
        match &value.shape {
            Shape::Scalar(_) => Some(ListLayout::Empty { colon, end: value.end.max(colon) }),
            Shape::Sequence(entries) if entries.is_empty() => Some(ListLayout::Empty { colon, end: value.end }),
            Shape::Sequence(entries) if self.text[value.start..].starts_with('[') => {
                Some(ListLayout::Flow { entries: entries.iter().map(|entry| (entry.start, entry.end)).collect() })
            }
            Shape::Sequence(entries) => {
                let dashes: Option<Vec<usize>> = entries.iter().map(|entry| self.dash_before(entry.start)).collect();
                let dashes = dashes?;
                let indent = dashes.first().map(|dash| dash - self.line_start(*dash))?;
                let ends = entries.iter().map(|entry| self.line_end(entry.end));
                let entries = dashes.iter().map(|dash| self.line_start(*dash)).zip(ends).collect();
                Some(ListLayout::Block { colon, indent, entries })
            }
            Shape::Mapping(_) => None,
        }
    }

    /// Returns the index of the first byte of the line that contains `at`.
    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// Returns the index after the line that contains `end`.
    pub(crate) fn line_end(&self, end: usize) -> usize {
        if end > 0 && self.text[..end].ends_with('\n') {
            return end;
        }
        self.text[end..].find('\n').map_or(self.text.len(), |newline| end + newline + 1)
    }

    /// Prepends a newline to `lines` if the text before `at` ends without one.
    pub(crate) fn with_newline(&self, at: usize, lines: String) -> String {
        let begins_line = at == 0 || self.text[..at].ends_with('\n');
        if begins_line { lines } else { format!("\n{lines}") }
    }

    fn colon_after(&self, key_end: usize) -> Option<usize> {
        let rest = &self.text[key_end..];
        let spaces = rest.len() - rest.trim_start().len();
        rest[spaces..].starts_with(':').then_some(key_end + spaces + 1)
    }

    /// Returns the index of the dash before the content of a list's entry. Returns `None` if other text precedes the
    /// dash on its line.
    fn dash_before(&self, content: usize) -> Option<usize> {
        let dash = self.text[..content].trim_end().strip_suffix('-')?.len();
        self.text[self.line_start(dash)..dash].chars().all(|c| c == ' ').then_some(dash)
    }
}

/// Builds YAML nodes from a parser's events.
struct Events<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
}

impl<'a> Events<'a> {
    /// Returns the root of the first document; `None` for an empty text.
    fn document(&mut self) -> Result<Option<Node>, ScanError> {
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart | Event::DocumentStart(..) => {}
                Event::StreamEnd | Event::DocumentEnd => return Ok(None),
                event => return self.node(event, span).map(Some),
            }
        }
        Ok(None)
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, ScanError> {
        loop {
            match self.parser.next().transpose()? {
                Some((Event::Comment(..), _)) => {}
                other => return Ok(other),
            }
        }
    }

    /// Builds the node that begins with an event. The parser limits nesting to a depth of 255.
    fn node(&mut self, event: Event<'a>, span: Span) -> Result<Node, ScanError> {
        let (start, end) = (offset(&span.start), offset(&span.end));
        match event {
            Event::SequenceStart(..) => {
                let (mut entries, mut last) = (Vec::new(), end);
                while let Some((event, span)) = self.next()? {
                    if matches!(event, Event::SequenceEnd) {
                        last = end_of(&span, last);
                        break;
                    }
                    let entry = self.node(event, span)?;
                    last = last.max(entry.end);
                    entries.push(entry);
                }
                Ok(Node { start, end: last, shape: Shape::Sequence(entries) })
            }
            Event::MappingStart(..) => {
                let (mut entries, mut last) = (Vec::new(), end);
                while let Some((event, span)) = self.next()? {
                    if matches!(event, Event::MappingEnd) {
                        last = end_of(&span, last);
                        break;
                    }
                    let key = self.node(event, span)?;
                    let Some((event, span)) = self.next()? else { break };
                    let mut value = self.node(event, span)?;
                    // For an empty YAML value, the parser reports the position of the next token, so the position is
                    // replaced with the end of the key.
                    if matches!(&value.shape, Shape::Scalar(_)) && value.start == value.end {
                        (value.start, value.end) = (key.end, key.end);
                    }
                    last = last.max(value.end);
                    entries.push((key, value));
                }
                Ok(Node { start, end: last, shape: Shape::Mapping(entries) })
            }
            Event::Scalar(text, ..) => Ok(Node { start, end, shape: Shape::Scalar(text.into_owned()) }),
            _ => Ok(Node { start, end, shape: Shape::Mapping(Vec::new()) }),
        }
    }
}

/// Returns the end of a list or mapping: the index after its closing bracket. Block form has no closing bracket, so the
/// end of the last node is returned.
fn end_of(span: &Span, last: usize) -> usize {
    let (start, end) = (offset(&span.start), offset(&span.end));
    if end > start { end } else { last }
}

fn offset(marker: &granit_parser::Marker) -> usize {
    // The parser reads a string, so it always reports a byte position.
    marker.byte_offset().unwrap_or_default()
}
