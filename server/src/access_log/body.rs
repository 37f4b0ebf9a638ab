//! An answer's body that is counted while it passes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

use crate::handler::{Body, BoxError};

/// Whoever is told what passes, and dropped with the body.
pub(super) trait Counts: Send + Unpin + 'static {
    /// So many bytes have passed, and that is all or not.
    fn passed(&mut self, bytes: u64, is_all: bool);
}

/// The body of an answer, and whoever counts it.
pub(super) struct LoggedBody<Counting> {
    body: Body,
    counting: Counting,
}

impl<Counting: Counts> LoggedBody<Counting> {
    /// A body that is counted.
    pub(super) fn boxed(body: Body, counting: Counting) -> Body {
        Self { body, counting }.boxed_unsync()
    }
}

impl<Counting: Counts> hyper::body::Body for LoggedBody<Counting> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) | None => 0,
        };
        // What fails has no end.
        let is_all = frame.is_none() || (!matches!(frame, Some(Err(_))) && self.body.is_end_stream());
        self.counting.passed(bytes, is_all);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
