//! The one reading of a request, which travels with it.

use std::sync::Arc;

use http::request::Parts;
use tributary_apimachinery::{Mount, RequestInfo, Status};

/// What a request asks for, or why that cannot be read: among its extensions from where its path was read. Whoever
/// writes of it, decides about it or answers it goes by this, so that what is written is what is done. Clones are of
/// the same reading, and cost nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestReading(Arc<Result<RequestInfo, Status>>);

impl RequestReading {
    /// Reads a request, as [`RequestInfo::parse_at`] does.
    pub fn parse(mount: &Mount, method: &str, path: &str, query: Option<&str>) -> Self {
        Self(Arc::new(RequestInfo::parse_at(mount, method, path, query)))
    }

    /// The reading of a request that has this head: what somebody has left there, or else what is read now and left
    /// there, by the [`Mount`] that it has.
    pub fn of_head(head: &mut Parts) -> Self {
        if let Some(left) = head.extensions.get::<Self>() {
            return left.clone();
        }
        let mount = head.extensions.get::<Mount>().cloned().unwrap_or_default();
        let reading = Self::parse(&mount, head.method.as_str(), head.uri.path(), head.uri.query());
        head.extensions.insert(reading.clone());
        reading
    }

    /// What it asks for.
    ///
    /// # Errors
    /// What it is answered, as of [`RequestInfo::parse_at`].
    pub fn info(&self) -> Result<&RequestInfo, &Status> {
        self.0.as_ref().as_ref()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tributary_apimachinery::{ClusterName, Verb};

    use super::*;

    #[test]
    fn a_request_is_read_once_by_the_mount_that_it_has() {
        let (mut head, ()) = Request::get("/api/v1/pods?watch=1").body(()).unwrap().into_parts();
        let eu = ClusterName::new("eu").unwrap();
        head.extensions.insert(Mount::Cluster(eu.clone()));
        let first = RequestReading::of_head(&mut head);
        let info = first.info().unwrap();
        assert_eq!((info.verb, &info.cluster), (Verb::Watch, &Some(eu)));
        // Whatever becomes of its head, nobody reads it otherwise.
        head.uri = "/version".parse().unwrap();
        let second = RequestReading::of_head(&mut head);
        assert!(Arc::ptr_eq(&first.0, &second.0));
    }

    #[test]
    fn that_a_path_cannot_be_read_is_found_out_once_as_well() {
        let (mut head, ()) = Request::get("/api/%zz").body(()).unwrap().into_parts();
        let first = RequestReading::of_head(&mut head);
        assert_eq!(first.info().unwrap_err().code, 400);
        assert!(Arc::ptr_eq(&first.0, &RequestReading::of_head(&mut head).0));
    }
}
