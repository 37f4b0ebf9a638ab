//! Why a member's text is no object.

/// Why a member's text is not an object that can be served. The text itself is never part of the message.
#[derive(Debug, thiserror::Error)]
pub enum ObjectDecodeError {
    /// Not JSON.
    #[error("the object is not valid JSON")]
    Json(#[source] serde_json::Error),
    /// Larger than places can address.
    #[error("the object is larger than 4 GiB")]
    TooLarge,
    /// A member that every object has is missing or of another type.
    #[error("the object has no {0}")]
    Missing(&'static str),
    /// A member that is looked at is there twice: clients would not agree on which of them counts.
    #[error("the object has {0} twice")]
    Repeated(&'static str),
    /// `metadata.resourceVersion` is not a member's version.
    #[error("the object's metadata.resourceVersion is not a number")]
    ResourceVersion(#[source] crate::InvalidResourceVersion),
}
