//! The workload behind the `proxy` subresource of a Service. It returns each chunk of a request's body immediately.

use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::body::Body;
use crate::catalog::SERVICES;
use crate::path::ResourcePath;

pub(crate) fn is_workload(target: &ResourcePath) -> bool {
    target.resource == SERVICES && target.subresource.split('/').next() == Some("proxy")
}

/// Returns the request's body with the request's content type.
pub(crate) fn echo_request(request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut response = Response::new(body.map_err(Into::into).boxed_unsync());
    if let Some(content_type) = head.headers.get(CONTENT_TYPE) {
        response.headers_mut().insert(CONTENT_TYPE, content_type.clone());
    }
    response
}
