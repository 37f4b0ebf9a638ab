//! The body of a write. It ends once there is room for the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tributary_apimachinery::body::{Body, BoxError};

use super::room::ConnectionRoom;

/// The error at the end of a body for whose answer there is no room. The listener answers 429 in place of the handler.
#[derive(Debug, thiserror::Error)]
#[error("there is no room for the answer on the connection (--max-unread-bytes)")]
struct NoRoom;

/// A body whose last frame waits for room on the connection.
pub(super) struct WriteBody {
    body: Body,
    room: Arc<ConnectionRoom>,
    end: End,
    /// Set when there was no room.
    is_refused: Arc<AtomicBool>,
}

enum End {
    /// More frames may come.
    Open,
    /// The last frame, or the end without one, waits for room.
    Waiting {
        last: Option<Frame<Bytes>>,
        room: BoxFuture<'static, bool>,
    },
    Passed,
}

impl WriteBody {
    /// Holds the end of a body back. Sets `is_refused` if there is no room in time.
    pub(super) fn new(body: Body, room: &Arc<ConnectionRoom>, is_refused: Arc<AtomicBool>) -> Self {
        Self { body, room: Arc::clone(room), end: End::Open, is_refused }
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
                        // A receiver may treat a body as complete once it has the announced length.
                        Some(Ok(frame)) if self.body.is_end_stream() || self.body.size_hint().exact() == Some(0) => {
                            Some(frame)
                        }
                        None => None,
                        more => return Poll::Ready(more),
                    };
                    let room = Arc::clone(&self.room);
                    self.end = End::Waiting { last, room: Box::pin(async move { room.wait(0).await }) };
                }
                End::Waiting { last, room } => {
                    let (has_room, last) = (ready!(room.as_mut().poll(cx)), last.take());
                    self.end = End::Passed;
                    if !has_room {
                        self.is_refused.store(true, Ordering::Relaxed);
                        return Poll::Ready(Some(Err(Box::new(NoRoom))));
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
