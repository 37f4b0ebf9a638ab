//! Bodies of requests and answers, whoever sends them.

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

/// Any error, as bodies and transports carry it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A streamed body. Dropping a response's body before its end cancels the request at the member.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body without content.
pub(crate) fn empty() -> Body {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}
