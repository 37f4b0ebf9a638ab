//! The printer of custom resources, which follows the table convertor of `k8s.io/apiextensions-apiserver`.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tributary_apimachinery::json::null_is_default;

use crate::column::CREATION_TIMESTAMP_DESCRIPTION;
use crate::jsonpath::{Budget, JsonPath, JsonPathError};
use crate::time::Time;
use crate::{Column, Row};

/// An entry of a CustomResourceDefinition's `additionalPrinterColumns`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ColumnDefinition {
    /// The heading of the column.
    pub name: String,
    /// The type of the cells: `string`, `integer`, `number`, `boolean` or `date`.
    pub r#type: String,
    /// A refinement of the type.
    #[serde(default, deserialize_with = "null_is_default")]
    pub format: String,
    /// A description of the column's content.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// The priority for kubectl: 0 for columns that are always shown, greater for columns of `-o wide`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub priority: i32,
    /// The JSONPath of the value in the object, for example `.spec.replicas`. Empty if the definition comes from a
    /// column of a Table.
    #[serde(default, deserialize_with = "null_is_default")]
    pub json_path: String,
}

/// The prefix of kube-apiserver's description for a column whose definition has no description. The JSONPath follows
/// the prefix.
const DEFAULT_DESCRIPTION: &str = "Custom resource definition column (in JSONPath format): ";

impl ColumnDefinition {
    /// Converts a column of a kube-apiserver's Table into a definition. A Table has no JSONPath, but kube-apiserver's
    /// default description of a column contains the path. Returns `None` if the description contains no path, and for
    /// the column `Name`. The column `Age` is recognized by its heading.
    pub fn from_table_column(mut self) -> Option<Self> {
        self.json_path = match self.description.strip_prefix(DEFAULT_DESCRIPTION) {
            Some(path) => path.to_owned(),
            None if self.name == "Age" && self.r#type == "date" => AGE_PATH.to_owned(),
            None => return None,
        };
        Some(self)
    }
}

/// The path of the creation time in each object.
const AGE_PATH: &str = ".metadata.creationTimestamp";

/// The maximum number of columns from a definition, so that the author of a CustomResourceDefinition cannot make Tables
/// expensive. Well-known definitions have at most a dozen columns.
const COLUMNS_MAX: usize = 64;

/// The maximum size of an object that is parsed into a tree, in bytes. kube-apiserver accepts objects up to 3 MiB
/// (`MaxRequestBodyBytes`), and a tree takes ten times as much memory. For larger objects only the name is shown.
const TREE_BYTES_MAX: usize = 4 << 20;

/// The maximum length of a cell's text, in bytes, which is more than any terminal shows. Longer texts are cut.
const CELL_BYTES_MAX: usize = 32 << 10;

/// A column with an invalid JSONPath.
#[derive(Debug, thiserror::Error)]
#[error("additionalPrinterColumns: jsonPath {json_path:?} of column {name:?} cannot be parsed")]
pub struct InvalidColumn {
    /// The column's name.
    pub name: String,
    /// The JSONPath of the column.
    pub json_path: String,
    #[source]
    source: JsonPathError,
}

#[derive(Debug)]
pub(crate) struct CustomPrinter {
    columns: Vec<Column>,
    /// The JSONPaths of all columns except the first, which is `Name`.
    paths: Vec<JsonPath>,
}

impl CustomPrinter {
    /// Creates the printer of a custom resource. A column whose JSONPath kube-apiserver cannot parse ends the table:
    /// the printer has only the columns before it. The function then also returns the invalid column.
    ///
    /// Source: `tableconvertor.New` in `k8s.io/apiextensions-apiserver`.
    pub(crate) fn new(definitions: &[ColumnDefinition]) -> (Self, Option<InvalidColumn>) {
        let mut columns = vec![Column::name()];
        let mut paths = Vec::new();
        let age = [age_definition()];
        for definition in if definitions.is_empty() { &age } else { definitions }.iter().take(COLUMNS_MAX) {
            let ColumnDefinition { name, json_path, .. } = definition;
            match JsonPath::parse(json_path) {
                Ok(path) => paths.push(path),
                Err(source) => {
                    let invalid = InvalidColumn { name: name.clone(), json_path: json_path.clone(), source };
                    return (Self { columns, paths }, Some(invalid));
                }
            }
            columns.push(column(definition));
        }
        (Self { columns, paths }, None)
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn print(&self, object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
        if object.len() > TREE_BYTES_MAX {
            return Err(serde::de::Error::custom(format_args!("the object is larger than {TREE_BYTES_MAX} bytes")));
        }
        let mut budget = Budget::for_object(object.len());
        // A column's JSONPath may refer to any field, so the object is parsed into a tree.
        let object: Value = serde_json::from_slice(object)?;
        row.text(object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default());
        for (column, path) in self.columns[1..].iter().zip(&self.paths) {
            match path.first(&object, &mut budget) {
                Ok(Some(value)) => cell(&column.r#type, &value, now, row),
                // An error means that the path does not fit the object. kube-apiserver shows an empty cell in this
                // case, too.
                Ok(None) | Err(_) => row.null(),
            }
        }
        Ok(())
    }
}

/// Returns the column `Age`, the only column of a CustomResourceDefinition without `additionalPrinterColumns`.
fn age_definition() -> ColumnDefinition {
    ColumnDefinition {
        name: "Age".to_owned(),
        r#type: "date".to_owned(),
        description: CREATION_TIMESTAMP_DESCRIPTION.to_owned(),
        json_path: AGE_PATH.to_owned(),
        ..ColumnDefinition::default()
    }
}

fn column(definition: &ColumnDefinition) -> Column {
    let description = if definition.description.is_empty() {
        format!("{DEFAULT_DESCRIPTION}{}", definition.json_path)
    } else {
        definition.description.clone()
    };
    Column {
        name: Cow::Owned(definition.name.clone()),
        r#type: Cow::Owned(definition.r#type.clone()),
        format: Cow::Owned(definition.format.clone()),
        description: Cow::Owned(description),
        priority: definition.priority,
    }
}

/// Writes a value according to the type of its column. A value of a different type becomes `null`.
fn cell(r#type: &str, value: &Value, now: Timestamp, row: &mut Row) {
    match (r#type, value) {
        ("string", Value::String(text)) => row.text(cut(text)),
        // Go's text/template has its own formats for `null` and for other values that are not strings.
        ("string", Value::Null) => row.text("<no value>"),
        ("string", Value::Number(number)) => row.text(&go_number(number, 1e-4, 2)),
        ("string", Value::Bool(value)) => row.format(format_args!("{value}")),
        ("string", Value::Array(_) | Value::Object(_)) => {
            let mut text = String::new();
            go_json(value, &mut text);
            row.text(cut(&text));
        }
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => row.number(integer),
            #[expect(clippy::cast_possible_truncation, reason = "cut towards zero, as Go's conversion does")]
            (None, Some(float)) => row.number(float as i64),
            (None, None) => row.null(),
        },
        ("number", Value::Number(number)) => row.json(number.to_string().as_bytes()),
        ("boolean", Value::Bool(value)) => row.boolean(*value),
        ("date", Value::String(text)) => match Time::parse(text) {
            Ok(time) => row.format(format_args!("{}", time.since(now))),
            Err(_) => row.text("<invalid>"),
        },
        _ => row.null(),
    }
}

/// Formats a number like Go: integers plainly, and floats in the shortest form. Floats below `least` and from 1e21 have
/// an exponent of at least `exponent_digits` digits. (`fmt.Print` and `json.Marshal` differ in these two parameters.)
fn go_number(number: &serde_json::Number, least: f64, exponent_digits: usize) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    if float == 0.0 || (least..1e21).contains(&float.abs()) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>exponent_digits$}")
}

/// Cuts a text to the maximum length of a cell's text.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(CELL_BYTES_MAX)]
}

/// Appends a value like Go's `json.Marshal`: sorted keys, and escapes for `<`, `>` and `&`. The function may stop
/// early, but only after the maximum length of a cell's text.
fn go_json(value: &Value, out: &mut String) {
    match value {
        _ if out.len() > CELL_BYTES_MAX => {}
        Value::Number(number) => out.push_str(&go_number(number, 1e-6, 1)),
        Value::String(text) => go_json_string(cut(text), out),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                go_json(item, out);
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Value::Object(map) => {
            for (index, (key, item)) in map.iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                go_json_string(key, out);
                out.push(':');
                go_json(item, out);
            }
            out.push_str(if map.is_empty() { "{}" } else { "}" });
        }
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
    }
}

fn go_json_string(text: &str, out: &mut String) {
    for character in Value::from(text).to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Printer;

    fn definition(r#type: &str, json_path: &str) -> ColumnDefinition {
        ColumnDefinition {
            name: json_path.to_owned(),
            r#type: r#type.to_owned(),
            json_path: json_path.to_owned(),
            ..ColumnDefinition::default()
        }
    }

    fn print(definitions: &[ColumnDefinition], object: &Value) -> Value {
        let (printer, _) = CustomPrinter::new(definitions);
        let mut row = Row::new();
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        printer.print(object.to_string().as_bytes(), now, &mut row).unwrap();
        let mut out = Vec::new();
        row.write_cells(None, &mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn format_of_a_table_cell_follows_the_type_of_its_column() {
        let object = serde_json::json!({
            "metadata": {"name": "a", "creationTimestamp": "2026-01-01T23:50:00Z"},
            "spec": {"s": "text", "i": 3, "f": 2.5, "big": 1e21, "b": true, "l": ["x", 1], "m": {"h": "<", "f": [1, 2.0, 1e-7], "e": {}}, "n": null},
            "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        let columns: Vec<_> = [
            ("string", ".spec.s"),
            ("string", ".spec.i"),
            ("string", ".spec.f"),
            ("string", ".spec.big"),
            ("string", ".spec.b"),
            ("string", ".spec.l"),
            ("string", ".spec.m"),
            ("string", ".spec.n"),
            ("string", ".spec.absent"),
            ("integer", ".spec.i"),
            ("integer", ".spec.f"),
            ("integer", ".spec.s"),
            ("number", ".spec.f"),
            ("boolean", ".spec.b"),
            ("boolean", ".spec.s"),
            ("date", ".metadata.creationTimestamp"),
            ("date", ".spec.s"),
            ("date", ".spec.absent"),
            ("string", ".status.conditions[?(@.type==\"Ready\")].status"),
            ("string", ".status.conditions[*].type"),
        ]
        .iter()
        .map(|(r#type, path)| definition(r#type, path))
        .collect();
        assert_eq!(
            print(&columns, &object),
            serde_json::json!([
                "a",
                "text",
                "3",
                "2.5",
                "1e+21",
                "true",
                "[\"x\",1]",
                "{\"e\":{},\"f\":[1,2,1e-7],\"h\":\"\\u003c\"}",
                "<no value>",
                null,
                3,
                2,
                null,
                2.5,
                true,
                null,
                "10m",
                "<invalid>",
                null,
                "True",
                "A"
            ])
        );
    }

    #[test]
    fn custom_columns_respect_size_and_evaluation_limits() {
        let mut deep = serde_json::json!({"a": 1});
        for _ in 0..100 {
            deep = serde_json::json!({"a": deep});
        }
        let long = "ä".repeat(20_000);
        let object = serde_json::json!({"metadata": {"name": "a"}, "text": long, "list": [long, 1], "deep": deep});
        let columns = [".text", ".list", "..a..a..a..a..a..a..a..a"].map(|path| definition("string", path));
        let row = print(&columns, &object);
        let bytes = |cell: usize| row[cell].as_str().map(str::len);
        assert_eq!((bytes(1), bytes(2)), (Some(CELL_BYTES_MAX), Some(CELL_BYTES_MAX)));
        assert_eq!(row[3], Value::Null);
        let many: Vec<_> = (0..200).map(|number| definition("string", &format!(".m{number}"))).collect();
        assert_eq!(CustomPrinter::new(&many).0.columns().len(), 1 + COLUMNS_MAX);
        let large = serde_json::json!({"metadata": {"name": "a"}, "text": "x".repeat(TREE_BYTES_MAX)}).to_string();
        let (printer, _) = CustomPrinter::new(&[]);
        assert!(printer.print(large.as_bytes(), Timestamp::UNIX_EPOCH, &mut Row::new()).is_err());
    }

    #[test]
    fn custom_resource_without_columns_prints_the_age() {
        let object = serde_json::json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T23:50:00Z"}});
        assert_eq!(print(&[], &object), serde_json::json!(["a", "10m"]));
        let (printer, _) = CustomPrinter::new(&[]);
        assert_eq!(printer.columns()[1].r#type, "date");
        assert_eq!(printer.columns()[1].description, CREATION_TIMESTAMP_DESCRIPTION);
    }

    #[test]
    fn printer_columns_of_a_crd_are_recovered_from_the_columns_of_a_table() {
        let (shown, _) = CustomPrinter::new(&[
            definition("string", ".spec.s"),
            ColumnDefinition { description: "Its size.".to_owned(), ..definition("integer", ".spec.size") },
            ColumnDefinition { priority: 1, format: "int32".to_owned(), ..definition("integer", ".spec.i") },
            ColumnDefinition { description: "How old it is.".to_owned(), ..age_definition() },
        ]);
        let read = |column: &Column| {
            let mut text = Vec::new();
            column.write(&mut text);
            serde_json::from_slice::<ColumnDefinition>(&text).unwrap().from_table_column()
        };
        let known: Vec<_> = shown.columns().iter().filter_map(read).collect();
        let paths: Vec<_> = known.iter().map(|column| &*column.json_path).collect();
        assert_eq!(paths, [".spec.s", ".spec.i", ".metadata.creationTimestamp"]);
        let (again, _) = CustomPrinter::new(&known);
        assert_eq!(
            again.columns()[1..],
            [1, 3, 4].map(|at| shown.columns()[at].clone()),
            "the columns equal the original ones"
        );
        assert_eq!(Printer::default_columns().columns().iter().filter_map(read).count(), 0);
    }

    #[test]
    fn columns_before_one_with_an_invalid_jsonpath_are_printed() {
        let object = serde_json::json!({"metadata": {"name": "a"}, "spec": {"s": "text", "x": "hidden"}});
        let [first, last] = [".spec.s", ".spec.x"].map(|path| definition("string", path));
        for bad in [".spec[", ".spec[\"x\"]", ".spec}", ".spec[?(@.x", ".spec....x", ".spec['x'"] {
            let bad = definition("string", bad);
            assert_eq!(print(&[first.clone(), bad.clone(), last.clone()], &object), serde_json::json!(["a", "text"]));
            assert_eq!(
                print(&[bad.clone(), last.clone()], &object),
                serde_json::json!(["a"]),
                "the age is not shown either"
            );
            let (_, invalid) = CustomPrinter::new(&[first.clone(), bad.clone(), last.clone()]);
            let message = invalid.unwrap().to_string();
            assert!(message.contains(&format!("{:?}", bad.json_path)), "{message}");
        }
        assert!(CustomPrinter::new(&[first, last]).1.is_none());
    }
}
