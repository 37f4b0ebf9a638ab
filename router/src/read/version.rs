//! The versions that clients send back with reads.

use tributary_apimachinery::Status;
use tributary_merge::{CompositeResourceVersion, DecodeError, Epochs};

/// What a resourceVersion asks of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None: the newest, the client's own writes included.
    Newest,
    /// `0`: whatever is held.
    Any,
    /// A vector.
    Version(CompositeResourceVersion),
}

impl Wanted {
    /// Reads a resourceVersion.
    ///
    /// # Errors
    /// The reason why a text is no version that was handed out here.
    pub fn parse(text: Option<&str>, epochs: &Epochs) -> Result<Self, DecodeError> {
        match text {
            None | Some("") => Ok(Self::Newest),
            Some("0") => Ok(Self::Any),
            Some(text) => CompositeResourceVersion::decode(text, epochs).map(Self::Version),
        }
    }
}

/// The refusal of a get: whatever does not decode is the client's fault.
pub fn refuse_get(text: &str, error: &DecodeError) -> Status {
    Status::invalid_resource_version(text, &error.to_string())
}

/// The refusal of a list: garbage is the client's fault; what is well-formed but means nothing here is expired, because an
/// informer lists from scratch on 410 alone.
pub fn refuse_list(text: &str, error: &DecodeError) -> Status {
    match error {
        DecodeError::Malformed(_) => Status::invalid_resource_version(text, &error.to_string()),
        DecodeError::Foreign(_) => Status::expired(format!("the resourceVersion cannot be honoured here: {error}")),
    }
}
