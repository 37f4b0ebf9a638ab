//! The reasons why a member's text is not a valid object.

/// The reason why a member's text is not a usable object. The message never contains the text.
#[derive(Debug, thiserror::Error)]
pub enum ObjectDecodeError {
    /// The text is not JSON.
    #[error("the object is not valid JSON")]
    Json(#[source] serde_json::Error),
    /// The text is too large for 32-bit positions.
    #[error("the object is larger than 4 GiB")]
    TooLarge,
    /// A required field is missing or of a wrong type.
    #[error("the object has no {0}")]
    Missing(&'static str),
    /// A field that Tributary reads occurs twice. Some clients would use the first occurrence, and others the last.
    #[error("the object has {0} twice")]
    Repeated(&'static str),
    /// The field `metadata.resourceVersion` is not a number.
    #[error("the object's metadata.resourceVersion is not a number")]
    ResourceVersion(#[source] crate::InvalidResourceVersion),
}
