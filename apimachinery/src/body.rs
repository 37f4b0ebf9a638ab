//! The body type of HTTP requests and responses.

mod peeked;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

pub use peeked::PeekedBody;

/// The error type of bodies and transports.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an HTTP request or response. Dropping a response body before its end cancels the request.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Creates a body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Creates an empty body.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
