//! The only reading of a request.

use std::sync::Arc;

use tributary_apimachinery::{Mount, RequestInfo, Status};

/// The method, path and query of a request as read, or the Status for a request that cannot be read. Audit, policies
/// and the answer go by the same reading. Clones are of the same reading, and cost nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestReading(Arc<Result<RequestInfo, Status>>);

impl RequestReading {
    /// Reads a request, as [`RequestInfo::parse_at`] does.
    pub fn parse(mount: &Mount, method: &str, path: &str, query: Option<&str>) -> Self {
        Self(Arc::new(RequestInfo::parse_at(mount, method, path, query)))
    }

    /// The request's method and path.
    ///
    /// # Errors
    /// The Status of [`RequestInfo::parse_at`], for the answer.
    pub fn info(&self) -> Result<&RequestInfo, &Status> {
        self.0.as_ref().as_ref()
    }
}
