//! A resourceVersion as an API server gives it to an object.

use std::borrow::Cow;

use crate::ResourceVersion;

/// A resourceVersion as an API server gives it to an object. kube-apiserver gives numbers (KEP-5504); an aggregated API
/// server may give any text: Calico's gives `1234/5678`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeVersion<'a> {
    /// A number, which can be compared with others of the same resource.
    Number(ResourceVersion),
    /// Any other text, which can only be sent back.
    Opaque(Cow<'a, str>),
}

impl<'a> NativeVersion<'a> {
    /// Reads the text of a version, without JSON's escapes.
    pub fn of(text: Cow<'a, str>) -> Self {
        ResourceVersion::parse(&text).map_or_else(|_| Self::Opaque(text), Self::Number)
    }

    /// The number of a version that can be compared.
    pub fn number(&self) -> Option<ResourceVersion> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Opaque(_) => None,
        }
    }
}
