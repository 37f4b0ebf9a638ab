//! A body whose first frame can be read before the body is sent. A caller learns in this way whether the whole body is
//! already in memory.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::body::{Body, BoxError};

/// A body whose first frame may be read before the body is sent.
pub struct PeekedBody {
    first: FirstFrame,
    rest: Body,
}

#[derive(Default)]
enum FirstFrame {
    /// The body stores no frame: the first frame has not been read, or `take_data` has returned it.
    #[default]
    Passed,
    /// The first frame, or the error that occurred instead, has been read and is stored until the body is sent.
    Frame(Result<Frame<Bytes>, BoxError>),
    /// The body ended without a frame.
    End,
}

impl PeekedBody {
    /// Reads the first frame of a body if the frame is ready.
    pub fn begin(mut body: Body) -> Self {
        // This poll registers no waker. If no frame is ready, the next poll registers the waker of its task, so no
        // wakeup is lost.
        let first = match body.frame().now_or_never() {
            None => FirstFrame::Passed,
            Some(Some(frame)) => FirstFrame::Frame(frame),
            Some(None) => FirstFrame::End,
        };
        Self { first, rest: body }
    }

    /// Wraps a body without reading it.
    pub fn new(body: Body) -> Self {
        Self { first: FirstFrame::Passed, rest: body }
    }

    /// Returns the data of the first frame without removing the data from the body. Returns `None` if no data frame was
    /// ready.
    pub fn data(&self) -> Option<&Bytes> {
        match &self.first {
            FirstFrame::Frame(Ok(frame)) => frame.data_ref(),
            _ => None,
        }
    }

    /// Takes the data of the first frame out of the body if `is_wanted` accepts the data. Otherwise the data stays in
    /// the body.
    pub fn take_data(&mut self, is_wanted: impl FnOnce(&Bytes) -> bool) -> Option<Bytes> {
        if !self.data().is_some_and(is_wanted) {
            return None;
        }
        match std::mem::take(&mut self.first) {
            FirstFrame::Frame(Ok(frame)) => frame.into_data().ok(),
            _ => None,
        }
    }

    /// Returns whether the body has no frames after the first frame.
    pub fn rest_has_ended(&self) -> bool {
        self.rest.is_end_stream()
    }

    /// Returns the whole body, including a first frame that was not taken.
    pub fn into_body(self) -> Body {
        match self.first {
            FirstFrame::Passed => self.rest,
            _ => self.boxed_unsync(),
        }
    }
}

impl http_body::Body for PeekedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match std::mem::take(&mut self.first) {
            FirstFrame::Frame(first) => Poll::Ready(Some(first)),
            FirstFrame::End => Poll::Ready(None),
            FirstFrame::Passed => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.first, FirstFrame::Passed) && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.size_hint();
        let first = match &self.first {
            FirstFrame::Frame(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len) as u64,
            _ => 0,
        };
        rest.exact().map_or(rest, |rest| SizeHint::with_exact(first + rest))
    }
}
