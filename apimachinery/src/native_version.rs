//! The resourceVersion of an object, as the API server of the object's cluster wrote it.

use std::borrow::Cow;

use crate::ResourceVersion;

/// The resourceVersion that an API server writes into an object.
///
/// kube-apiserver writes numbers (KEP-5504). An aggregated API server may write any text: Calico's API server writes
/// `1234/5678`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeVersion<'a> {
    /// A number. Versions of the same resource are comparable.
    Number(ResourceVersion),
    /// Any other text. A client can only send this text back to the API server.
    Opaque(Cow<'a, str>),
}

impl<'a> NativeVersion<'a> {
    /// Parses a version without JSON escapes.
    pub fn from_text(text: Cow<'a, str>) -> Self {
        ResourceVersion::parse(&text).map_or_else(|_| Self::Opaque(text), Self::Number)
    }

    /// Returns the number; `None` for any other text.
    pub fn number(&self) -> Option<ResourceVersion> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Opaque(_) => None,
        }
    }
}
