//! Removes the bodies of watch requests.
//!
//! Kubernetes reads all parameters of a watch from path and query. A watch without a body can use one of the many
//! streams for watches, instead of one of the few streams for logs.

use http::Request;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use tributary_apimachinery::body::{self, Body};

pub(crate) fn without_body(watch: &mut Request<Body>) {
    *watch.body_mut() = body::empty();
    for header in [CONTENT_TYPE, CONTENT_ENCODING] {
        watch.headers_mut().remove(header);
    }
}
