//! The mark on contexts, clusters and users that this program added to a user's kubeconfig. kubectl preserves the mark
//! when it rewrites the file.
//!
//! Source: client-go `tools/clientcmd/api/v1/types.go` (`extensions`).

use serde_json::{Value, json};

pub(super) const EXTENSION: &str = "tributary.dev";

/// Creates the `extensions` that mark an entry with this prefix as added by this program.
pub(super) fn mark(prefix: &str) -> Value {
    json!([{ "name": EXTENSION, "extension": { "program": "tributary", "prefix": prefix } }])
}

/// Returns the prefix of an entry that this program added; `None` for all other entries. `content` is the value of the
/// entry's `context`, `cluster` or `user`.
pub(super) fn prefix_of(content: &Value) -> Option<&str> {
    let extensions = content.get("extensions").and_then(Value::as_array).into_iter().flatten();
    extensions.filter(|named| named.get("name").and_then(Value::as_str) == Some(EXTENSION)).find_map(|named| {
        let extension = named.get("extension")?;
        let program = extension.get("program").and_then(Value::as_str);
        extension.get("prefix").and_then(Value::as_str).filter(|_| program == Some("tributary"))
    })
}
