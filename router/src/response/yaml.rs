//! YAML that the parsers of clients read as the same value as the original JSON.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use serde_saphyr::DoubleQuoted;

/// Converts JSON text to YAML; `None` for invalid JSON.
///
/// Long texts, such as continue tokens, stay on one line.
pub(crate) fn of_json(text: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(&Yaml(&value), options).ok()
}

/// JSON value that is formatted as YAML. Go's parser, which kubectl and kube-apiserver use, reads the same value.
struct Yaml<'a>(&'a Value);

impl Serialize for Yaml<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) if is_no_block(text) => DoubleQuoted(text).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Yaml)),
            Value::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, &Yaml(value))?;
                }
                map.end()
            }
            scalar => scalar.serialize(serializer),
        }
    }
}

/// Returns whether a text must not be written as a YAML block. Go's parser takes a tab at the start of a line for
/// indentation, and kube-apiserver also avoids such lines.
fn is_no_block(text: &str) -> bool {
    text.contains('\n') && text.contains('\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &Value) -> String {
        of_json(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn long_yaml_text_stays_on_one_line() {
        let words = "word ".repeat(60) + "end";
        assert_eq!(of(&serde_json::json!({"a": words})), format!("a: {words}\n"));
    }

    #[test]
    fn text_with_tabs_is_not_a_yaml_block() {
        let text = of(&serde_json::json!({"a": "\ta\nb", "b": ["\n\ta"], "c": "a\n b\n"}));
        assert_eq!(text, "a: \"\\ta\\nb\"\nb:\n- \"\\n\\ta\"\nc: |\n  a\n   b\n");
    }

    #[test]
    fn invalid_json_gives_no_yaml() {
        assert_eq!(of_json(b"{"), None);
    }
}
