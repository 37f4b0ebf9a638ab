//! Edits a text by byte positions.

use serde_json::Value;

/// An edit of a text: a range of bytes, and its replacement.
pub(crate) struct Edit {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) put: String,
}

impl Edit {
    pub(crate) fn remove((from, to): (usize, usize)) -> Self {
        Self { from, to, put: String::new() }
    }

    pub(crate) fn insert(at: usize, put: String) -> Self {
        Self { from: at, to: at, put }
    }
}

/// Applies edits in any order. Edits at the same position keep their order. Returns `None` if edits overlap.
pub(crate) fn apply(text: &str, mut edits: Vec<Edit>) -> Option<String> {
    edits.sort_by_key(|edit| edit.from);
    let (mut changed, mut done) = (String::with_capacity(text.len()), 0);
    for edit in edits {
        changed.push_str(text.get(done..edit.from)?);
        changed.push_str(&edit.put);
        done = edit.to;
    }
    changed.push_str(text.get(done..)?);
    Some(changed)
}

/// Formats a value as YAML lines with this indentation.
pub(crate) fn lines(value: &Value, indent: usize) -> Option<String> {
    // Block scalars are disabled, because the added indentation would change their content.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(value, options).ok()?;
    Some(text.lines().map(|line| format!("{:indent$}{line}\n", "")).collect())
}
