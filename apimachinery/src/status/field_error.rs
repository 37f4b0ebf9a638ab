//! What is wrong with one field, and how Kubernetes words it (apimachinery's util/validation/field).

use std::fmt;

/// The kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorType {
    /// The value is malformed.
    Invalid,
    /// The value would be allowed in other circumstances.
    Forbidden,
    /// The value is not one of those that are known.
    NotSupported,
    /// The value is missing.
    Required,
}

impl FieldErrorType {
    /// The cause's reason on the wire.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Required => "FieldValueRequired",
        }
    }
}

/// One field's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The kind of fault.
    pub error_type: FieldErrorType,
    /// The path of the field: `metadata.annotations[x]`.
    pub field: String,
    /// The value, where the wording names it.
    pub value: Option<String>,
    /// What is expected.
    pub detail: String,
}

impl FieldError {
    /// A malformed value.
    pub fn invalid(field: impl Into<String>, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            error_type: FieldErrorType::Invalid,
            field: field.into(),
            value: Some(value.into()),
            detail: detail.into(),
        }
    }

    /// A value that is not allowed here.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { error_type: FieldErrorType::Forbidden, field: field.into(), value: None, detail: detail.into() }
    }

    /// A value outside the known ones.
    pub fn not_supported(field: impl Into<String>, value: impl Into<String>, known: &[&str]) -> Self {
        let quoted: Vec<_> = known.iter().map(|value| go_quote(value)).collect();
        Self {
            error_type: FieldErrorType::NotSupported,
            field: field.into(),
            value: Some(value.into()),
            detail: format!("supported values: {}", quoted.join(", ")),
        }
    }

    /// The wording without the field's name.
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

/// Quotes as Go's `%q` does: printable characters stand as they are.
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
                // Writing to a String cannot fail.
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
