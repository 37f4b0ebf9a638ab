//! Parses a list as its bytes arrive and yields the text of each complete item. A list of any size costs the memory of
//! its largest item.
//!
//! ```text
//!            '{'          '"'           ':'                            '['
//!   Start ───────▶ Key ───────▶ Name ───────▶ Value ──┬─ "items" ──────────────▶ Item ⇄ items
//!                   ▲ │ '}'                           ├─ "metadata" (kept)          │ ']'
//!                   │ └────▶ End                      └─ others (passed over)       │
//!                   └────────────────────────────────────────┴──────────────────────┘
//! ```
//!
//! serde_json cannot stop inside a value, so this parser splits values by depth and quotes. The decoder then validates
//! each complete value.

use memchr::memchr2;
use tributary_apimachinery::{InvalidResourceVersion, ResourceVersion};

/// The reason why a response body is not a usable list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The body is not a JSON list object. Contains the position of the first wrong byte.
    #[error("the list is not valid JSON at byte {0}")]
    Syntax(u64),
    /// An item or the metadata is longer than this limit, in bytes.
    #[error("an item of the list is larger than {0} bytes")]
    TooLarge(usize),
    /// The body ended at this byte position, before the list was complete.
    #[error("the list ends after {0} bytes, before it is complete")]
    Incomplete(u64),
    /// The metadata is missing or malformed.
    #[error("the list's metadata cannot be read")]
    Metadata(#[source] serde_json::Error),
    /// The list has no resourceVersion, or a resourceVersion that is not a number.
    #[error("the list's metadata.resourceVersion is missing or malformed")]
    ResourceVersion(#[source] InvalidResourceVersion),
}

/// The metadata of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListMeta {
    /// The resourceVersion of the list.
    pub resource_version: ResourceVersion,
    /// The continue token of the next page, if there is a next page.
    pub continue_token: Option<String>,
}

#[derive(serde::Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawListMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

impl RawListMeta {
    fn version(&self) -> &str {
        self.resource_version.as_deref().unwrap_or_default()
    }

    fn parse(text: &[u8]) -> serde_json::Result<Self> {
        // Without this check, serde would also accept an array with the values of the fields.
        if text.first().is_some_and(|first| *first != b'{') {
            return Err(serde::de::Error::custom("the value is not an object"));
        }
        serde_json::from_slice(text)
    }
}

/// The part of the list's JSON text that the parser is reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListParserState {
    Start,
    /// The parser is before a field's key, or before the closing brace.
    Key,
    /// The parser is within a field's key.
    Name,
    /// The parser is before the colon that follows a key.
    Colon,
    /// The parser is before a field's value.
    Value,
    /// The parser is within the value of a field other than `items` or `rows`.
    Member,
    /// The parser is between two items of the list.
    Items,
    /// The parser is within an item of the list.
    Item,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListField {
    Items,
    Rows,
    Columns,
    Metadata,
    Other,
}

/// The text of an item of a list, or of a row or the columns of a Table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListPart<'a> {
    /// An item of a list.
    Item(&'a [u8]),
    /// A row of a Table.
    Row(&'a [u8]),
    /// The columns of a Table. A kube-apiserver sends the columns before the rows.
    Columns(&'a [u8]),
}

/// Parses a list, or a page of a list, from chunks of bytes.
#[derive(Debug)]
pub struct ListParser {
    state: ListParserState,
    name: ListField,
    value: ValueEnd,
    /// The bytes of an incomplete key, metadata or item.
    partial: Vec<u8>,
    metadata: Vec<u8>,
    read: u64,
    limit: usize,
}

impl ListParser {
    /// Creates a parser that refuses items of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            state: ListParserState::Start,
            name: ListField::Other,
            value: ValueEnd::default(),
            partial: Vec::new(),
            metadata: Vec::new(),
            read: 0,
            limit,
        }
    }

    /// Parses the next chunk and calls `item` with the text of each item that the chunk completes.
    ///
    /// # Errors
    /// [`ListError`], after which the parser is unusable.
    pub fn push(&mut self, chunk: &[u8], mut item: impl FnMut(&[u8])) -> Result<(), ListError> {
        self.push_parts(chunk, |part| {
            if let ListPart::Item(text) = part {
                item(text);
            }
        })
    }

    /// Parses the next chunk of a list or Table and calls `part` with each part that the chunk completes.
    ///
    /// # Errors
    /// [`ListError`], after which the parser is unusable.
    pub fn push_parts(&mut self, chunk: &[u8], mut part: impl FnMut(ListPart<'_>)) -> Result<(), ListError> {
        let mut at = 0;
        while let Some(&byte) = chunk.get(at) {
            let within = matches!(self.state, ListParserState::Name | ListParserState::Member | ListParserState::Item);
            if !within && byte.is_ascii_whitespace() {
                at += 1;
                continue;
            }
            at = match (self.state, byte) {
                (ListParserState::Start, b'{') => self.goto(ListParserState::Key, at + 1),
                (ListParserState::Key, b',') => at + 1,
                (ListParserState::Key, b'"') => self.begin(ListParserState::Name, at),
                (ListParserState::Key, b'}') => self.goto(ListParserState::End, at + 1),
                (ListParserState::Colon, b':') => self.goto(ListParserState::Value, at + 1),
                (ListParserState::Value, b'[') if matches!(self.name, ListField::Items | ListField::Rows) => {
                    self.goto(ListParserState::Items, at + 1)
                }
                (ListParserState::Value, _) => self.begin(ListParserState::Member, at),
                (ListParserState::Items, b',') => at + 1,
                (ListParserState::Items, b']') => self.goto(ListParserState::Key, at + 1),
                (ListParserState::Items, _) => self.begin(ListParserState::Item, at),
                (ListParserState::Name | ListParserState::Member | ListParserState::Item, _) => {
                    self.within(chunk, at, &mut part)?
                }
                (ListParserState::Start | ListParserState::Key | ListParserState::Colon | ListParserState::End, _) => {
                    return Err(ListError::Syntax(self.read + at as u64));
                }
            };
        }
        self.read += chunk.len() as u64;
        Ok(())
    }

    /// Returns the metadata of the list. Must be called after the end of the body.
    ///
    /// # Errors
    /// [`ListError`] for an incomplete list or unusable metadata.
    pub fn finish(self) -> Result<ListMeta, ListError> {
        if self.state != ListParserState::End {
            return Err(ListError::Incomplete(self.read));
        }
        let raw = RawListMeta::parse(&self.metadata).map_err(ListError::Metadata)?;
        Ok(ListMeta {
            resource_version: ResourceVersion::parse(raw.version()).map_err(ListError::ResourceVersion)?,
            continue_token: raw.continue_token.filter(|token| !token.is_empty()),
        })
    }

    /// Returns the list's resourceVersion and continue token. Must be called after the end of the body. Both values are
    /// optional: lists of metrics, which are computed for each request, have no resourceVersion.
    ///
    /// # Errors
    /// [`ListError`] for an incomplete list or unusable metadata.
    pub fn finish_any(self) -> Result<(Option<ResourceVersion>, Option<String>), ListError> {
        if self.state != ListParserState::End {
            return Err(ListError::Incomplete(self.read));
        }
        if self.metadata.is_empty() {
            return Ok((None, None));
        }
        let raw = RawListMeta::parse(&self.metadata).map_err(ListError::Metadata)?;
        let version = ResourceVersion::parse(raw.version()).ok();
        Ok((version, raw.continue_token.filter(|token| !token.is_empty())))
    }

    fn goto(&mut self, state: ListParserState, at: usize) -> usize {
        self.state = state;
        at
    }

    /// Prepares the parser for a key or value whose first byte has the index `at`. [`Self::within`] then reads the key
    /// or value.
    fn begin(&mut self, state: ListParserState, at: usize) -> usize {
        self.value = ValueEnd::default();
        self.partial.clear();
        self.goto(state, at)
    }

    /// Reads the current key or value from index `at` on. Returns the index after its last byte, or the end of the
    /// chunk if it continues in the next chunk.
    fn within(&mut self, chunk: &[u8], at: usize, give: &mut impl FnMut(ListPart<'_>)) -> Result<usize, ListError> {
        let rest = &chunk[at..];
        let end = self.value.find(rest);
        let part = &rest[..end.unwrap_or(rest.len())];
        if end == Some(0) && self.partial.is_empty() {
            // A delimiter occurs where a value is required.
            return Err(ListError::Syntax(self.read + at as u64));
        }
        let is_required =
            self.state != ListParserState::Member || matches!(self.name, ListField::Metadata | ListField::Columns);
        if is_required && self.partial.len() + part.len() > self.limit {
            return Err(ListError::TooLarge(self.limit));
        }
        if end.is_none() {
            if is_required {
                self.partial.extend_from_slice(part);
            } else {
                // The text of the value is not needed. A single byte in the buffer records that the value has begun.
                self.partial.clear();
                self.partial.push(0);
            }
            return Ok(chunk.len());
        }
        if self.partial.is_empty() || !is_required {
            self.complete(part, give);
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(part);
            self.complete(&whole, give);
            // The buffer is reused for the next item that is split across chunks.
            self.partial = whole;
        }
        Ok(at + part.len())
    }

    fn complete(&mut self, text: &[u8], give: &mut impl FnMut(ListPart<'_>)) {
        self.state = match self.state {
            ListParserState::Name => {
                self.name = match text {
                    b"\"items\"" => ListField::Items,
                    b"\"rows\"" => ListField::Rows,
                    b"\"columnDefinitions\"" => ListField::Columns,
                    b"\"metadata\"" => ListField::Metadata,
                    _ => ListField::Other,
                };
                ListParserState::Colon
            }
            ListParserState::Item => {
                give(if self.name == ListField::Rows { ListPart::Row(text) } else { ListPart::Item(text) });
                ListParserState::Items
            }
            _ => {
                match self.name {
                    ListField::Metadata => self.metadata = text.to_vec(),
                    ListField::Columns => give(ListPart::Columns(text)),
                    ListField::Items | ListField::Rows | ListField::Other => {}
                }
                ListParserState::Key
            }
        };
    }
}

/// Finds the end of a JSON value that may continue in the next chunk.
#[derive(Clone, Copy, Debug, Default)]
struct ValueEnd {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl ValueEnd {
    /// Returns the index after the value's last byte, or `None` if the value continues in the next chunk.
    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            if self.in_string {
                at = self.skip_string(bytes, at)?;
                if self.depth == 0 {
                    return Some(at);
                }
                continue;
            }
            match bytes[at] {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth > 1 => self.depth -= 1,
                b'}' | b']' => return Some(if self.depth == 1 { at + 1 } else { at }),
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if self.depth == 0 => return Some(at),
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// Skips the bytes of a JSON string, beginning at index `at` within the string. Returns the index after the closing
    /// quote, or `None` if the string continues in the next chunk.
    fn skip_string(&mut self, bytes: &[u8], mut at: usize) -> Option<usize> {
        loop {
            if self.escaped {
                self.escaped = false;
                at += 1;
            }
            at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
            if bytes[at] == b'"' {
                self.in_string = false;
                return Some(at + 1);
            }
            self.escaped = true;
            at += 1;
            if at >= bytes.len() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chunks: &[&[u8]], limit: usize) -> Result<(Vec<String>, ListMeta), ListError> {
        let mut parser = ListParser::new(limit);
        let mut items = Vec::new();
        for chunk in chunks {
            parser.push(chunk, |item| items.push(String::from_utf8(item.to_vec()).unwrap()))?;
        }
        Ok((items, parser.finish()?))
    }

    const LIST: &str = r#" {"kind":"PodList", "x":[1,{"items":[2]}],"n":-1.5,"metadata":{"resourceVersion":"12","continue":"a\"}b"},
        "items": [ {"a":"}\\\"]"} , {"b":[{"c":"\\"}]},7,"s",null ]  , "more":true,"last":{} } "#;

    #[test]
    fn list_parser_results_do_not_depend_on_the_chunk_size() {
        let text = LIST.as_bytes();
        let expected = parse(&[text], 100).unwrap();
        assert_eq!(expected.0, [r#"{"a":"}\\\"]"}"#, r#"{"b":[{"c":"\\"}]}"#, "7", "\"s\"", "null"]);
        assert_eq!(
            expected.1,
            ListMeta { resource_version: ResourceVersion(12), continue_token: Some("a\"}b".to_owned()) }
        );
        for first in 0..text.len() {
            for second in first..text.len() {
                let chunks = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(parse(&chunks, 100).unwrap(), expected, "cut at {first} and {second}");
            }
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(parse(&bytes, 100).unwrap(), expected);
    }

    #[test]
    fn list_parser_yields_table_rows_whatever_the_chunk_size() {
        let text = br#"{"kind":"Table","metadata":{"continue":"t"},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["a"]},{"cells":["b"]}]}"#;
        for cut in 0..text.len() {
            let (mut parser, mut parts) = (ListParser::new(100), Vec::new());
            for chunk in [&text[..cut], &text[cut..]] {
                parser.push_parts(chunk, |part| parts.push(format!("{part:?}"))).unwrap();
            }
            let expected: [ListPart<'_>; 3] = [
                ListPart::Columns(br#"[{"name":"Name"}]"#),
                ListPart::Row(br#"{"cells":["a"]}"#),
                ListPart::Row(br#"{"cells":["b"]}"#),
            ];
            assert_eq!(parts, expected.map(|part| format!("{part:?}")), "cut at {cut}");
            assert_eq!(parser.finish_any().unwrap(), (None, Some("t".to_owned())));
        }
    }

    #[test]
    fn list_parser_treats_null_items_as_an_empty_list() {
        for items in ["[]", "null", "[ ]"] {
            let text = format!(r#"{{"items":{items},"metadata":{{"resourceVersion":"3","continue":""}}}}"#);
            let (found, meta) = parse(&[text.as_bytes()], 100).unwrap();
            assert!(found.is_empty(), "{items}");
            assert_eq!(meta.continue_token, None, "an empty token means no next page");
        }
    }

    #[test]
    fn list_parser_refuses_text_that_is_not_a_list() {
        let syntax = |text: &str| matches!(parse(&[text.as_bytes()], 100), Err(ListError::Syntax(_)));
        for text in ["[]", "x", "{x}", r#"{"a" 1}"#, r#"{"a":}"#, r#"{"a":,}"#, "{}}", r#"{"items":[}]}"#, "404 page"] {
            assert!(syntax(text), "{text}");
        }
        let incomplete = |text: &str| matches!(parse(&[text.as_bytes()], 100), Err(ListError::Incomplete(_)));
        for end in 1..LIST.trim_end().len() {
            assert!(incomplete(&LIST[..end]), "{end}");
        }
        for text in ["{}", r#"{"metadata":["8","x"]}"#, r#"{"metadata":null}"#, r#"{"metadata":"8"}"#] {
            assert!(matches!(parse(&[text.as_bytes()], 100), Err(ListError::Metadata(_))), "{text}");
        }
        assert!(matches!(parse(&[br#"{"metadata":{}}"#], 100), Err(ListError::ResourceVersion(_))));
        assert!(matches!(
            parse(&[br#"{"metadata":{"resourceVersion":"x"}}"#], 100),
            Err(ListError::ResourceVersion(_))
        ));
    }

    #[test]
    fn list_parser_refuses_large_items_but_accepts_large_skipped_fields() {
        let long = "y".repeat(200);
        let item = format!(r#"{{"items":["{long}"]}}"#);
        assert!(matches!(parse(&[item.as_bytes()], 100), Err(ListError::TooLarge(100))));
        let pieces: Vec<&[u8]> = item.as_bytes().chunks(7).collect();
        assert!(matches!(parse(&pieces, 100), Err(ListError::TooLarge(100))));
        let other = format!(r#"{{"other":"{long}","metadata":{{"resourceVersion":"1"}}}}"#);
        let pieces: Vec<&[u8]> = other.as_bytes().chunks(7).collect();
        assert!(parse(&pieces, 100).is_ok());
    }
}
