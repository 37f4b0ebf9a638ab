//! Removal of the bodies of watches.
//!
//! Kubernetes reads all parameters of a watch from its path and query. So a watch is sent without its body, and takes a
//! stream of the watches, not one of the few streams for logs.

use http::Request;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use tributary_apimachinery::body::{self, Body};

/// Removes the body of a watch and its headers.
pub(crate) fn without_body(watch: &mut Request<Body>) {
    *watch.body_mut() = body::empty();
    for header in [CONTENT_TYPE, CONTENT_ENCODING] {
        watch.headers_mut().remove(header);
    }
}
