//! Body of a client's request: complete, or aborted by the client.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tributary_apimachinery::body::{Body, BoxError};

/// Converts a request of hyper's server. The converted body reports an error if the client aborted it.
///
/// hyper treats an HTTP/2 stream that is reset without an error (`NO_ERROR`) as the end of the body. hyper's behavior
/// is correct after an early response (RFC 9113 §8.1). But Envoy sends such a reset when its own client aborts, and a
/// cluster would process the incomplete body as complete. Cost: none beyond the `Box` of every body.
pub fn received(request: Request<Incoming>) -> Request<Body> {
    let is_http2 = request.version() == Version::HTTP_2;
    request.map(|incoming| AnswerState { incoming, is_http2 }.boxed_unsync())
}

struct AnswerState {
    incoming: Incoming,
    /// Whether the stream must mark the end of the body, as HTTP/2 does.
    is_http2: bool,
}

/// Error: the stream of a client's request was reset before the end of the body.
#[derive(Debug, thiserror::Error)]
#[error("the client reset the stream before the end of the request's body")]
struct AnswerCutShort;

impl HttpBody for AnswerState {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.incoming).poll_frame(cx).map(|frame| match frame {
            Some(frame) => Some(frame.map_err(BoxError::from)),
            None if self.is_http2 && !self.incoming.is_end_stream() => Some(Err(AnswerCutShort.into())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
