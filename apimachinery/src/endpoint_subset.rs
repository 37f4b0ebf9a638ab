//! Those of a cluster's endpoints that a request may be sent to.

use std::sync::Arc;

/// Those of a cluster's endpoints that a request may be sent to, by the URLs that the configuration has for them. Among
/// a request's extensions; one that has none may be sent to all of them. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSubset(Arc<[Box<str>]>);

impl EndpointSubset {
    /// These.
    pub fn new(urls: &[String]) -> Self {
        Self(urls.iter().map(|url| url.as_str().into()).collect())
    }

    /// Their URLs, as they are written in `spec.endpoints`.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|url| &**url)
    }
}
