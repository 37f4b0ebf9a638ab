//! The metered body of an answer. HTTP/2 gets the body in pieces, as long as there is capacity.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::body::{BegunBody, BoxError};

use super::counted::{Counted, CountedPieces};
use super::overdue::AnswersUnderWay;
use super::pieces::Pieces;
use super::room::{ConnectionRoom, RoomWaiter};
use crate::coalesce::OpenStream;
use crate::streams;

/// The state of one unread answer. Dropping it removes the answer from the connection's unread answers.
pub(super) struct OutgoingBody {
    answers: Arc<Mutex<AnswersUnderWay>>,
    waiter: RoomWaiter,
    number: u64,
    held: usize,
    pieces: CountedPieces,
    /// The guard that counts the stream as open.
    _stream: OpenStream,
}

impl OutgoingBody {
    pub(super) fn new(
        room: &Arc<ConnectionRoom>,
        answers: &Arc<Mutex<AnswersUnderWay>>,
        lasts: bool,
        stream: OpenStream,
    ) -> Self {
        let number = answers.lock().begin(Instant::now(), lasts, streams::stream());
        let (answers, waiter) = (Arc::clone(answers), RoomWaiter::new(room));
        Self { answers, waiter, number, held: 0, pieces: CountedPieces::default(), _stream: stream }
    }

    /// Begins to wait until HTTP/2 accepts this data, and returns the data for the connection. Data without a count is
    /// counted from now on. No earlier data may be pending.
    fn hold_bytes(&mut self, data: Bytes, counted: Option<Counted>) -> Bytes {
        self.held = data.len();
        self.progressed();
        match counted {
            Some(counted) => counted.until_dropped(data),
            None => self.pieces.give(&self.waiter.room, data),
        }
    }

    /// Restarts the time limit of the answer: data became available, or HTTP/2 accepted some.
    fn progressed(&self) {
        self.answers.lock().progressed(Instant::now(), self.number, self.held);
    }

    /// Marks the pending data of an answer as accepted by HTTP/2.
    fn release(&mut self) {
        if std::mem::take(&mut self.held) > 0 {
            self.progressed();
            self.pieces.release();
        }
    }
}

impl Drop for OutgoingBody {
    fn drop(&mut self) {
        self.release();
        self.answers.lock().end(self.number);
    }
}

/// The metered body of an answer. A piece counts as accepted when HTTP/2 polls the next piece.
pub(super) struct Metered {
    body: BegunBody,
    answer: OutgoingBody,
    /// True if the whole body is in memory. A body in memory counts as pending from its beginning to its end.
    is_whole: bool,
    /// The reservation for the whole body, until the body's data is available.
    reserved: Option<Counted>,
    /// The part of the pending data that HTTP/2 has not polled.
    rest: Pieces,
}

impl Metered {
    /// Creates the body, with its whole data or without data. `reserved` is the reservation of either kind of body.
    pub(super) fn new(body: BegunBody, answer: OutgoingBody, whole: Option<Bytes>, reserved: Option<Counted>) -> Self {
        let mut metered = Self { body, answer, is_whole: whole.is_some(), reserved, rest: Pieces::default() };
        if let Some(data) = whole {
            metered.hold_bytes(data);
        }
        metered
    }

    /// Stores an answer's data for the next polls.
    fn hold_bytes(&mut self, data: Bytes) {
        let counted = self.reserved.take().filter(|counted| counted.bytes() == data.len());
        self.rest = Pieces::new(self.answer.hold_bytes(data, counted));
    }
}

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Some(piece) = self.rest.next() {
            self.answer.progressed();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if !self.is_whole {
            self.answer.release();
            // A body with a reservation must not wait for its own reserved bytes.
            if self.reserved.is_none() && !self.answer.waiter.has_room(cx) {
                return Poll::Pending;
            }
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
        let frame = match frame.into_data() {
            Ok(data) if self.is_whole => Frame::data(data),
            // An empty frame costs HTTP/2 as much as a full frame, so the task yields before the next frame.
            Ok(data) if data.is_empty() => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Ok(data) => {
                self.hold_bytes(data);
                Frame::data(self.rest.next().unwrap_or_default())
            }
            Err(other) => other,
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.len() == 0 && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.rest.len() as u64;
        self.body.size_hint().exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(held + rest))
    }
}
