//! The cells of a Table's row, as JSON text.

use std::fmt;

/// The cells of a row. [`Row::clear`] keeps the allocated memory, so that a `Row` can be reused.
#[derive(Debug, Default, Clone)]
pub struct Row {
    /// The cells as JSON, separated by commas.
    cells: Vec<u8>,
    /// The position in `cells` after the first cell.
    first_end: usize,
    count: usize,
    conditions: Option<&'static str>,
}

impl Row {
    /// Creates a row without cells.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes the cells and the conditions.
    pub fn clear(&mut self) {
        self.cells.clear();
        self.first_end = 0;
        self.count = 0;
        self.conditions = None;
    }

    /// Returns the number of cells in the row.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the row has no cells.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the row's `conditions` as a JSON array. Only completed pods have conditions; all other rows return
    /// `None`.
    pub fn conditions(&self) -> Option<&'static str> {
        self.conditions
    }

    /// Appends the cells as a JSON array. `cluster` becomes the second cell, in the column of
    /// [`Column::cluster`](crate::Column::cluster).
    pub fn write_cells(&self, cluster: Option<&str>, out: &mut Vec<u8>) {
        out.reserve(self.cells.len() + 32);
        out.push(b'[');
        out.extend_from_slice(&self.cells[..self.first_end]);
        if let Some(cluster) = cluster {
            if self.count > 0 {
                out.push(b',');
            }
            write_json_string(cluster, out);
        }
        out.extend_from_slice(&self.cells[self.first_end..]);
        out.push(b']');
    }

    pub(crate) fn set_conditions(&mut self, conditions: &'static str) {
        self.conditions = Some(conditions);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.cell(|out| write_json_string(text, out));
    }

    /// Appends a string cell with `text`. If `text` is empty, the cell contains `fallback`.
    pub(crate) fn text_or(&mut self, text: &str, fallback: &str) {
        self.text(if text.is_empty() { fallback } else { text });
    }

    /// Appends a string cell from format arguments.
    pub(crate) fn format(&mut self, arguments: fmt::Arguments<'_>) {
        self.cell(|out| write_json_format(arguments, out));
    }

    pub(crate) fn number(&mut self, number: i64) {
        self.cell(|out| write_ascii(format_args!("{number}"), out));
    }

    /// Appends a cell whose content is already JSON.
    pub(crate) fn json(&mut self, json: &[u8]) {
        self.cell(|out| out.extend_from_slice(json));
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        self.json(if value { b"true" } else { b"false" });
    }

    pub(crate) fn null(&mut self) {
        self.json(b"null");
    }

    fn cell(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.count > 0 {
            self.cells.push(b',');
        }
        write(&mut self.cells);
        if self.count == 0 {
            self.first_end = self.cells.len();
        }
        self.count += 1;
    }
}

pub(crate) fn write_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text, out);
    out.push(b'"');
}

/// Appends the output of `arguments` as a JSON string.
fn write_json_format(arguments: fmt::Arguments<'_>, out: &mut Vec<u8>) {
    struct Escaping<'a>(&'a mut Vec<u8>);
    impl fmt::Write for Escaping<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            write_escaped(text, self.0);
            Ok(())
        }
    }
    out.push(b'"');
    // Writing to memory cannot fail, and the `Display` implementations of the arguments never fail.
    let _ = fmt::Write::write_fmt(&mut Escaping(out), arguments);
    out.push(b'"');
}

/// Appends the output of `arguments`, which must not need JSON escapes.
fn write_ascii(arguments: fmt::Arguments<'_>, out: &mut Vec<u8>) {
    use std::io::Write;
    // Writing to memory cannot fail.
    let _ = out.write_fmt(arguments);
}

fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut done = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0..=0x1f => b'u',
            _ => continue,
        };
        out.extend_from_slice(&bytes[done..at]);
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            write_ascii(format_args!("{byte:04x}"), out);
        }
        done = at + 1;
    }
    out.extend_from_slice(&bytes[done..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_cell_is_the_second_cell_of_a_table_row() {
        let mut row = Row::new();
        row.text("a \"b\" \\ \u{1} \n ü");
        row.number(-3);
        row.boolean(true);
        row.null();
        row.format(format_args!("{}/{}", "<\">", 2));
        let mut out = Vec::new();
        row.write_cells(Some("eu"), &mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value, serde_json::json!(["a \"b\" \\ \u{1} \n ü", "eu", -3, true, null, "<\">/2"]));
        assert_eq!(row.len(), 5);
        out.clear();
        row.write_cells(None, &mut out);
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&out).unwrap().as_array().unwrap().len(), 5);
        row.clear();
        out.clear();
        row.write_cells(Some("eu"), &mut out);
        assert_eq!(out, b"[\"eu\"]");
    }
}
