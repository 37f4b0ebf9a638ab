//! A text that must not appear in logs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A token or a key. The `Debug` form hides the text, so that the text does not appear in a log by accident.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// Creates a secret from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret text.
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
    fn debug_form_of_a_secret_hides_its_text() {
        assert!(!format!("{:?}", SecretText::new("hunter2")).contains("hunter2"));
        assert_eq!(SecretText::new("hunter2").expose(), "hunter2");
    }
}
