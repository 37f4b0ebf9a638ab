//! Parsed form of a request, shared by all stages.

use std::sync::Arc;

use tributary_apimachinery::{Mount, Mounted, RequestInfo, Status};

/// Parsed method, path and query of a request, or the Status for an unparsable request. Audit, policies and the answer
/// use this value, so that their readings of the request agree. Cloning increments a reference count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestReading(Arc<Result<RequestInfo, Status>>);

impl RequestReading {
    /// Parses a request, as [`RequestInfo::parse_at`] does.
    pub fn parse(mount: &Mount, method: &str, path: &str, query: Option<&str>) -> Self {
        Self::parse_mounted(mount.resolve(path), method, query)
    }

    /// Parses a request whose path is resolved, as [`RequestInfo::parse_mounted`] does. A failed resolution is the
    /// Status for the answer.
    pub fn parse_mounted(mounted: Result<Mounted<'_>, Status>, method: &str, query: Option<&str>) -> Self {
        Self(Arc::new(mounted.and_then(|mounted| RequestInfo::parse_mounted(mounted, method, query))))
    }

    /// Returns the parsed method and path.
    ///
    /// # Errors
    /// The Status of [`RequestInfo::parse_at`], for the answer.
    pub fn info(&self) -> Result<&RequestInfo, &Status> {
        self.0.as_ref().as_ref()
    }
}
