//! The body of an answer that is given piece by piece, as there is room.

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

/// What is held of one answer. Released when dropped.
pub(super) struct OutgoingBody {
    answers: Arc<Mutex<AnswersUnderWay>>,
    waiter: RoomWaiter,
    number: u64,
    held: usize,
    pieces: CountedPieces,
    /// It is open until this is dropped.
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

    /// Holds these bytes from now on, and gives them as they are to be passed on. Nothing is held before. They are
    /// counted from now on, too, unless they are already.
    fn hold_bytes(&mut self, data: Bytes, counted: Option<Counted>) -> Bytes {
        self.held = data.len();
        self.progressed();
        match counted {
            Some(counted) => counted.until_dropped(data),
            None => self.pieces.give(&self.waiter.room, data),
        }
    }

    /// What is held begins to be there, or some of it is taken.
    fn progressed(&self) {
        self.answers.lock().progressed(Instant::now(), self.number, self.held);
    }

    /// What was given is taken, or on its way, or will never be.
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

/// The body of an answer. What it gives is held until the next is asked for.
pub(super) struct Metered {
    body: BegunBody,
    answer: OutgoingBody,
    /// Whether all of it is there: it is held from the beginning to the end.
    is_whole: bool,
    /// The room that is taken for all of it, until that is there.
    reserved: Option<Counted>,
    /// What is held and not given yet.
    rest: Pieces,
}

impl Metered {
    /// A body of which all data is there, or none is held yet. Either may have its room already.
    pub(super) fn new(body: BegunBody, answer: OutgoingBody, whole: Option<Bytes>, reserved: Option<Counted>) -> Self {
        let mut metered = Self { body, answer, is_whole: whole.is_some(), reserved, rest: Pieces::default() };
        if let Some(data) = whole {
            metered.hold_bytes(data);
        }
        metered
    }

    /// Holds what is to be given next.
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
            // What has its room would wait for itself.
            if self.reserved.is_none() && !self.answer.waiter.has_room(cx) {
                return Poll::Pending;
            }
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
        let frame = match frame.into_data() {
            Ok(data) if self.is_whole => Frame::data(data),
            // It brings nothing, and would cost as much as one that does. Others have their turn before the next.
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
