//! Changes single fields of a YAML document. The lines of all other fields stay. Without I/O.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::edit::{Edit, apply, lines};
use super::layout::{Layout, Mapping, Node};

/// Changes a document's value from `from` to `to`. The lines of unchanged fields stay. Returns `None` if the document
/// is in braces, if fields share a line, or if the document has anchors.
pub fn with_fields(text: &str, from: &Value, to: &Value) -> Option<String> {
    let layout = Layout::parse(text).ok()?;
    let (Value::Object(from), Value::Object(wanted)) = (from, to) else { return None };
    let mut edits = Vec::new();
    collect_edits(&layout, &layout.block_mapping(layout.root()?)?, (from, wanted), &mut edits)?;
    let changed = apply(text, edits)?;
    // The changed text is parsed and compared with the wanted value, so that a wrong edit is never written.
    let is_read: Value = serde_saphyr::from_str(&changed).ok()?;
    (is_read == *to).then_some(changed)
}

/// The fields of a mapping before and after the change.
type BeforeAndAfter<'a> = (&'a Map<String, Value>, &'a Map<String, Value>);

/// Collects the edits that change a mapping and its nested mappings.
fn collect_edits(
    layout: &Layout<'_>,
    mapping: &Mapping<'_>,
    (from, to): BeforeAndAfter<'_>,
    edits: &mut Vec<Edit>,
) -> Option<()> {
    let end = mapping.fields.last()?.lines.1;
    let field = |key: &String, value: &Value| {
        let field: Map<String, Value> = [(key.clone(), value.clone())].into_iter().collect();
        lines(&Value::Object(field), mapping.indent)
    };
    let keys: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    for key in keys.into_iter().filter(|key| from.get(*key) != to.get(*key)) {
        let there = mapping.fields.iter().find(|field| field.key == key);
        match (there, to.get(key)) {
            (None, None) => return None,
            (None, Some(value)) => edits.push(Edit::insert(end, layout.with_newline(end, field(key, value)?))),
            (Some(there), None) => edits.push(Edit::remove(there.lines)),
            (Some(there), Some(value)) => {
                let inner = find_inner_mapping(layout, there.value, (from.get(key)?, value));
                match inner {
                    Some((inner, pair)) => collect_edits(layout, &inner, pair, edits)?,
                    None => {
                        let (from, to) = there.lines;
                        edits.push(Edit { from, to, put: field(key, value)? });
                    }
                }
            }
        }
    }
    Some(())
}

/// Returns the mapping that is the value of a field. Returns `None` if the mapping's fields cannot be changed one by
/// one, or if none of its keys stays.
fn find_inner_mapping<'a, 'b>(
    layout: &Layout<'_>,
    node: &'a Node,
    (from, to): (&'b Value, &'b Value),
) -> Option<(Mapping<'a>, BeforeAndAfter<'b>)> {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return None };
    let stays = from.keys().any(|key| to.contains_key(key));
    let mapping = layout.block_mapping(node).filter(|_| stays)?;
    Some((mapping, (from, to)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "# first
kind: Thing
metadata:
  # its name
  name: eu # short
spec:
  # where
  list:
  - one # of two
  - two
  text: |
    lines

  inner:
    a: 1
    # about b
    b: 2

  last: x
# end
";

    /// Parses a text, changes its value, and applies the change to the text.
    fn changed(text: &str, change: impl FnOnce(&mut Value)) -> Option<String> {
        let from: Value = serde_saphyr::from_str(text).unwrap();
        let mut to = from.clone();
        change(&mut to);
        with_fields(text, &from, &to)
    }

    #[test]
    fn change_of_one_yaml_field_keeps_all_other_lines() {
        assert_eq!(changed(TEXT, |_| {}).as_deref(), Some(TEXT));
        for (name, change, before, after) in [
            ("replace", (|to| to["spec"]["last"] = json!("other")) as fn(&mut Value), "  last: x\n", "  last: other\n"),
            ("replace within", |to| to["spec"]["inner"]["b"] = json!(3), "    b: 2\n", "    b: 3\n"),
            ("remove", |to| drop(to["spec"]["inner"].as_object_mut().unwrap().remove("a")), "    a: 1\n", ""),
            (
                "insert",
                |to| to["spec"]["new"] = json!({"c": [1]}),
                "  last: x\n",
                "  last: x\n  new:\n    c:\n    - 1\n",
            ),
            (
                "insert beside a comment",
                |to| to["metadata"]["labels"] = json!({"a": "b"}),
                "  name: eu # short\n",
                "  name: eu # short\n  labels:\n    a: b\n",
            ),
            (
                "replace a list",
                |to| to["spec"]["list"] = json!(["three"]),
                "  list:\n  - one # of two\n  - two\n",
                "  list:\n  - three\n",
            ),
            (
                "replace a mapping of which nothing stays",
                |to| to["spec"]["inner"] = json!({}),
                "  inner:\n    a: 1\n    # about b\n    b: 2\n",
                "  inner: {}\n",
            ),
        ] {
            let expected = TEXT.replace(before, after);
            assert_ne!(expected, TEXT, "{name}");
            assert_eq!(changed(TEXT, change).as_deref(), Some(&*expected), "{name}");
        }
    }

    #[test]
    fn yaml_without_a_line_per_field_is_not_changed() {
        for text in ["{a: 1, b: 2}", "a: &x 1\nb: *x\n", "- a\n", "", "? a\n: 1\n"] {
            let from: Value = serde_saphyr::from_str(text).unwrap();
            let to = json!({"a": 5, "b": 1});
            assert_eq!(with_fields(text, &from, &to), None, "{text}");
        }
        // A mapping in braces is replaced as a whole.
        let text = "a: {b: 1, c: 2} # both\nd: 3\n";
        assert_eq!(changed(text, |to| to["a"]["b"] = json!(5)).as_deref(), Some("a:\n  b: 5\n  c: 2\nd: 3\n"));
        assert_eq!(changed("a: 1\nb: 2", |to| to["b"] = json!(3)).as_deref(), Some("a: 1\nb: 3\n"));
        assert_eq!(changed("a: 1\nb: 2", |to| to["c"] = json!(3)).as_deref(), Some("a: 1\nb: 2\nc: 3\n"));
    }
}
