//! The metered body of an answer. HTTP/2 gets the body in pieces, as long as there is capacity.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::body::{BoxError, PeekedBody};

use super::capacity::{CapacityWaiter, ConnectionCapacity};
use super::counted::{Counted, CountedPieces};
use super::overdue::UnreadAnswers;
use super::pieces::Pieces;
use crate::coalesce::OpenStream;
use crate::streams;

/// The state of one unread answer. Dropping it removes the answer from the connection's unread answers.
pub(super) struct OutgoingBody {
    answers: Arc<Mutex<UnreadAnswers>>,
    waiter: CapacityWaiter,
    number: u64,
    pending_bytes: usize,
    pieces: CountedPieces,
    /// The guard that counts the stream as open.
    _stream: OpenStream,
}

impl OutgoingBody {
    pub(super) fn new(
        capacity: &Arc<ConnectionCapacity>,
        answers: &Arc<Mutex<UnreadAnswers>>,
        is_long_running: bool,
        stream: OpenStream,
    ) -> Self {
        let number = answers.lock().begin(Instant::now(), is_long_running, streams::stream());
        let (answers, waiter) = (Arc::clone(answers), CapacityWaiter::new(capacity));
        Self { answers, waiter, number, pending_bytes: 0, pieces: CountedPieces::default(), _stream: stream }
    }

    /// Marks this data as pending until HTTP/2 accepts it, and returns the data for the connection. If `counted` is
    /// `None`, the data is counted from this call on. Must not be called while other data is pending.
    fn store_pending(&mut self, data: Bytes, counted: Option<Counted>) -> Bytes {
        self.pending_bytes = data.len();
        self.record_progress();
        match counted {
            Some(counted) => counted.count_until_dropped(data),
            None => self.pieces.count_piece(&self.waiter.capacity, data),
        }
    }

    /// Restarts the time limit for reading the answer: data became available, or HTTP/2 accepted some data.
    fn record_progress(&self) {
        self.answers.lock().record_progress(Instant::now(), self.number, self.pending_bytes);
    }

    /// Marks the pending data of an answer as accepted by HTTP/2.
    fn release(&mut self) {
        if std::mem::take(&mut self.pending_bytes) > 0 {
            self.record_progress();
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
    body: PeekedBody,
    answer: OutgoingBody,
    /// True if the whole body is in memory. Such a body counts as pending from its beginning to its end, and does not
    /// wait for capacity.
    is_whole: bool,
    /// The reservation for the whole body, until the body's data is available.
    reserved: Option<Counted>,
    /// The pieces of the pending data that HTTP/2 has not polled.
    rest: Pieces,
}

impl Metered {
    /// Creates the metered body of an answer. `whole` is the complete data of a body that is in memory. `reserved` is
    /// the reservation of the answer's bytes.
    pub(super) fn new(body: PeekedBody, answer: OutgoingBody, whole: Option<Bytes>, reserved: Option<Counted>) -> Self {
        let mut metered = Self { body, answer, is_whole: whole.is_some(), reserved, rest: Pieces::default() };
        if let Some(data) = whole {
            metered.store_pending(data);
        }
        metered
    }

    /// Stores an answer's data for the next polls.
    fn store_pending(&mut self, data: Bytes) {
        let counted = self.reserved.take().filter(|counted| counted.bytes() == data.len());
        self.rest = Pieces::new(self.answer.store_pending(data, counted));
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
            self.answer.record_progress();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if !self.is_whole {
            self.answer.release();
            // A body with a reservation must not wait for its own reserved bytes.
            if self.reserved.is_none() && !self.answer.waiter.has_capacity(cx) {
                return Poll::Pending;
            }
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
        let frame = match frame.into_data() {
            Ok(data) if self.is_whole => Frame::data(data),
            // An empty frame costs HTTP/2 as much as a full frame, so the task yields before the next frame. Otherwise,
            // a member could occupy the task with empty frames.
            Ok(data) if data.is_empty() => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Ok(data) => {
                self.store_pending(data);
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
        let pending_bytes = self.rest.len() as u64;
        self.body.size_hint().exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(pending_bytes + rest))
    }
}
