//! Handles HTTP/1.1 answers that are ready before the request's body has arrived.
//!
//! On an HTTP/1.1 connection the next request follows the body, so hyper closes the connection unless the body is read.
//! Without notice of the close, a client sends its next request into a closing connection, and cannot tell whether the
//! server executed the request. So a short remainder of the body is read first, as in Go's server (`net/http`
//! server.go, `cw.writeHeader`). After a long remainder, the answer contains `Connection: close` (RFC 9112 §9.6). Over
//! HTTP/2 the server resets the stream, so none of these steps is needed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tributary_apimachinery::body::{Body, BoxError};

/// The longest remainder of a body that is read, in bytes: Go's limit (`maxPostHandlerReadBytes`).
const DRAINED_BYTES_MAX: u64 = 256 << 10;
/// The time limit for reading the remainder of a body. The answer waits for this read. A body follows its head within a
/// round trip, and 256 KiB in 1 s need 2 Mbit/s.
const DRAINED_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
enum BodyState {
    /// The request's handler may still read the body.
    #[default]
    Open,
    /// The request's handler has read the whole body, or the connection has failed.
    Ended,
    /// The request's handler dropped the body before its end.
    Dropped(Incoming),
}

/// The shared state of an HTTP/1.1 request's body, for the code that writes the answer.
pub(super) struct RequestBody {
    state: Arc<Mutex<BodyState>>,
    /// True if the client may wait for `100 Continue` before it sends the body. The remainder of such a body is not
    /// read, because hyper sends that status as soon as the body is read.
    expects_continue: bool,
}

/// A request's body for the handler. Dropping this value before the body's end moves the remainder into the shared
/// state.
struct ReadBody {
    incoming: Option<Incoming>,
    state: Arc<Mutex<BodyState>>,
}

impl RequestBody {
    /// Shares the request's body between its handler and the code that writes the answer. Returns `None` for HTTP/2 and
    /// for an empty body.
    pub(super) fn follow(request: Request<Incoming>) -> (Request<Body>, Option<Self>) {
        if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
            return (tributary_proxy::received(request), None);
        }
        let expects_continue = request.headers().contains_key(header::EXPECT);
        let state = Arc::<Mutex<BodyState>>::default();
        let own = Self { state: Arc::clone(&state), expects_continue };
        (request.map(|incoming| ReadBody { incoming: Some(incoming), state }.boxed_unsync()), Some(own))
    }

    /// Prepares the connection for the next request before the answer is written. Reads a short remainder of the body
    /// if `may_wait`, or adds `Connection: close` to the answer.
    pub(super) async fn prepare_next_request(self, answer: &mut Response<Body>, may_wait: bool) {
        let state = std::mem::take(&mut *self.state.lock());
        let is_read = match state {
            BodyState::Ended => true,
            BodyState::Open => false,
            BodyState::Dropped(rest) => may_wait && !self.expects_continue && drain(rest).await,
        };
        // After an upgrade, the connection carries no more HTTP requests, so the header `Connection: close` is not
        // needed.
        if !is_read && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Reads the remainder of a body. Returns `false` if the remainder exceeds the limits. Dropping the future closes the
/// connection.
async fn drain(mut rest: Incoming) -> bool {
    let read = async {
        let mut left = DRAINED_BYTES_MAX;
        while rest.size_hint().lower() <= left {
            match rest.frame().await {
                None => return true,
                Some(Err(_)) => return false,
                Some(Ok(frame)) => left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64),
            }
            if rest.is_end_stream() {
                return true;
            }
            if left == 0 {
                return false;
            }
        }
        false
    };
    tokio::time::timeout(DRAINED_WITHIN, read).await.unwrap_or(false)
}

impl HttpBody for ReadBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        let is_end = match &polled {
            Poll::Pending => false,
            Poll::Ready(Some(Ok(_))) => incoming.is_end_stream(),
            Poll::Ready(None | Some(Err(_))) => true,
        };
        if is_end {
            self.incoming = None;
            *self.state.lock() = BodyState::Ended;
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for ReadBody {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            *self.state.lock() = BodyState::Dropped(incoming);
        }
    }
}
