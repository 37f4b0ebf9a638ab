//! Text that must not be seen in logs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A token or a key. Its `Debug` form does not show it, so that no log does by accident.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"(not shown)\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_it() {
        assert!(!format!("{:?}", SecretText::new("hunter2")).contains("hunter2"));
        assert_eq!(SecretText::new("hunter2").expose(), "hunter2");
    }
}
