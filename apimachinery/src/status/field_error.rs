//! The error of a field, in Kubernetes' words (apimachinery's util/validation/field).

use std::fmt;

/// The kind of a field error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorType {
    /// The value is malformed.
    Invalid,
    /// The value is not allowed in this context.
    Forbidden,
    /// The value is not in the list of supported values.
    NotSupported,
    /// The value is missing.
    Required,
}

impl FieldErrorType {
    /// Returns the `reason` of the Status cause for this kind of error.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Required => "FieldValueRequired",
        }
    }
}

/// An error of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The kind of the error.
    pub error_type: FieldErrorType,
    /// The path of the field: `metadata.annotations[x]`.
    pub field: String,
    /// The value, if the message contains it.
    pub value: Option<String>,
    /// The explanation, for example the expected form of the value.
    pub detail: String,
}

impl FieldError {
    /// Creates the error of a malformed value.
    pub fn invalid(field: impl Into<String>, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            error_type: FieldErrorType::Invalid,
            field: field.into(),
            value: Some(value.into()),
            detail: detail.into(),
        }
    }

    /// Creates the error of a value that is not allowed in this context.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { error_type: FieldErrorType::Forbidden, field: field.into(), value: None, detail: detail.into() }
    }

    /// Creates the error of a value that is not supported; `known` are the supported values.
    pub fn not_supported(field: impl Into<String>, value: impl Into<String>, supported: &[&str]) -> Self {
        let quoted: Vec<_> = supported.iter().map(|value| go_quote(value)).collect();
        Self {
            error_type: FieldErrorType::NotSupported,
            field: field.into(),
            value: Some(value.into()),
            detail: format!("supported values: {}", quoted.join(", ")),
        }
    }

    /// Returns the message without the field's name.
    pub fn body(&self) -> String {
        let mut body = match self.error_type {
            FieldErrorType::Invalid => "Invalid value".to_owned(),
            FieldErrorType::Forbidden => "Forbidden".to_owned(),
            FieldErrorType::NotSupported => "Unsupported value".to_owned(),
            FieldErrorType::Required => "Required value".to_owned(),
        };
        for part in [self.value.as_deref().map(go_quote), Some(self.detail.clone()).filter(|detail| !detail.is_empty())]
            .into_iter()
            .flatten()
        {
            body.push_str(": ");
            body.push_str(&part);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Quotes a text like Go's `%q`: printable characters stay unchanged.
pub fn go_quote(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                // Writing to a `String` cannot fail.
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
