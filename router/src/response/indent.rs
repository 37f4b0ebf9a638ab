//! Indentation of JSON text for people. Tributary indents the text part by part, so that a list of 60 MB is never
//! complete in memory.
//!
//! Source: Go's `encoding/json.Indent` with two blanks, as kube-apiserver answers `pretty=true`: the text does not end
//! with a newline. Numbers and strings stay unchanged.

/// State of the indentation between two calls. A chunk of JSON may end at any byte, for example within a string.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indent {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// True after an opening bracket, until a value follows: `{}` stays on one line.
    opened: bool,
}

impl Indent {
    /// Appends the next chunk of text, indented. For invalid JSON the layout is undefined.
    pub(crate) fn push(&mut self, text: &[u8], out: &mut Vec<u8>) {
        for &byte in text {
            if self.in_string {
                out.push(byte);
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => continue,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if !std::mem::take(&mut self.opened) {
                        self.new_line(out);
                    }
                    out.push(byte);
                    continue;
                }
                _ => {}
            }
            if std::mem::take(&mut self.opened) {
                self.new_line(out);
            }
            match byte {
                b'{' | b'[' => {
                    out.push(byte);
                    self.depth += 1;
                    self.opened = true;
                }
                b',' => {
                    out.push(byte);
                    self.new_line(out);
                }
                b':' => out.extend_from_slice(b": "),
                _ => {
                    self.in_string = byte == b'"';
                    out.push(byte);
                }
            }
        }
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn laid_out(pieces: &[&[u8]]) -> String {
        let (mut indent, mut out) = (Indent::default(), Vec::new());
        for piece in pieces {
            indent.push(piece, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_is_indented_like_gos_json_indent() {
        let text = br#"{"a":[],"b":{},"c":[1, {"d":"x\\\"{,:}"}],"e":1.50}"#;
        let expected = "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": \"x\\\\\\\"{,:}\"\n    }\n  ],\n  \"e\": 1.50\n}";
        assert_eq!(laid_out(&[text, b"\n"]), expected);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn json_in_pieces_is_indented_like_the_whole_text(value in values(), cut in any::<prop::sample::Index>()) {
            let text = serde_json::to_vec(&value).unwrap();
            let (first, second) = text.split_at(cut.index(text.len() + 1));
            prop_assert_eq!(laid_out(&[first, second]), serde_json::to_string_pretty(&value).unwrap());
        }
    }
}
