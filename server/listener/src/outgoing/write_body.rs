//! The body of a write request, whose end waits for capacity for the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tributary_apimachinery::body::{Body, BoxError};

use super::capacity::ConnectionCapacity;

/// The error at the end of a request body without capacity for the answer. The listener replaces the handler's answer
/// with 429.
#[derive(Debug, thiserror::Error)]
#[error("the answer exceeds the limit of unread bytes of the connection (--max-unread-bytes)")]
struct NoCapacity;

/// A request body whose last frame waits for capacity on the connection.
pub(super) struct WriteBody {
    body: Body,
    capacity: Arc<ConnectionCapacity>,
    end: End,
    /// The flag that is set after a timeout without capacity for the answer.
    is_refused: Arc<AtomicBool>,
}

enum End {
    /// The request body may have more frames.
    Open,
    /// The last frame, or the end of a body without a last frame, waits for capacity.
    Waiting {
        last: Option<Frame<Bytes>>,
        capacity: BoxFuture<'static, bool>,
    },
    Passed,
}

impl WriteBody {
    /// Wraps a request body, and delays its end. Sets `is_refused` after a timeout without capacity.
    pub(super) fn new(body: Body, capacity: &Arc<ConnectionCapacity>, is_refused: Arc<AtomicBool>) -> Self {
        Self { body, capacity: Arc::clone(capacity), end: End::Open, is_refused }
    }
}

impl HttpBody for WriteBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            match &mut self.end {
                End::Open => {
                    let last = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                        // A reader of the body may stop after the announced number of bytes, without a poll for the end
                        // of the body. So the last frame must wait for capacity.
                        Some(Ok(frame)) if self.body.is_end_stream() || self.body.size_hint().exact() == Some(0) => {
                            Some(frame)
                        }
                        None => None,
                        more => return Poll::Ready(more),
                    };
                    let capacity = Arc::clone(&self.capacity);
                    self.end = End::Waiting { last, capacity: Box::pin(async move { capacity.wait(0).await }) };
                }
                End::Waiting { last, capacity } => {
                    let (has_capacity, last) = (ready!(capacity.as_mut().poll(cx)), last.take());
                    self.end = End::Passed;
                    if !has_capacity {
                        self.is_refused.store(true, Ordering::Relaxed);
                        return Poll::Ready(Some(Err(Box::new(NoCapacity))));
                    }
                    return Poll::Ready(last.map(Ok));
                }
                End::Passed => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, End::Passed)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.end {
            End::Open => self.body.size_hint(),
            End::Waiting { last, .. } => {
                let data = last.as_ref().and_then(Frame::data_ref);
                SizeHint::with_exact(data.map_or(0, Bytes::len) as u64)
            }
            End::Passed => SizeHint::with_exact(0),
        }
    }
}
