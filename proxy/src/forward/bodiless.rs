//! Watches have no body.
//!
//! Kubernetes reads all that a watch asks for from its path and query. One that comes with a body, or whose body is not
//! known to have ended, is sent without: so it takes a stream of those that watches have, as it counts among them, and
//! none of the few that logs have. Whoever leaves bodies open would take those from others without being counted there.

use http::Request;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use tributary_apimachinery::body::{self, Body};

/// Takes the body out of a watch, and what tells of it; its length is none of the headers that are sent on.
pub(crate) fn without_body(watch: &mut Request<Body>) {
    *watch.body_mut() = body::empty();
    for header in [CONTENT_TYPE, CONTENT_ENCODING] {
        watch.headers_mut().remove(header);
    }
}
