//! Bodies of requests and answers, whoever sends them.

mod begun;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

pub use begun::BegunBody;

/// Any error, as bodies and transports carry it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of every request and answer. Dropping an answer's body before its end cancels the request.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body without bytes.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
