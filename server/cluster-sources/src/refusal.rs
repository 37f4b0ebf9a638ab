//! The reason why an item or a source is not used.

/// Maximum length of a message in characters, because the status of a source has up to 20 messages.
const MESSAGE_CHARS_MAX: usize = 1024;

/// The reason why an item or a source is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRefusal {
    /// The reason for programs, in CamelCase.
    pub reason: &'static str,
    /// The reason for people: the field, the problem and the remedy, without secrets.
    pub message: String,
}

impl SourceRefusal {
    pub(crate) fn new(reason: &'static str, message: impl AsRef<str>) -> Self {
        Self { reason, message: message.as_ref().chars().take(MESSAGE_CHARS_MAX).collect() }
    }

    /// Creates the refusal of an object that cannot be decoded. The parser's message is omitted, because it can quote
    /// secrets.
    pub(crate) fn unreadable(object: &str) -> Self {
        Self::new("Unreadable", format!("{object} is not a valid object of its kind. Correct the object."))
    }
}
