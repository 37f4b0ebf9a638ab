//! What of its answers a connection has been given and its client has not taken.
//!
//! HTTP/2 takes a frame of each answer before there is room for it: a client that opens two thousand streams and reads none would
//! have as many frames held for it, or as many whole objects. So a connection is given no more than [`HELD_BYTES_MAX`] that it does
//! not take, and one that takes nothing of what it has been given for [`TAKEN_WITHIN`] is closed: its pings are answered by the
//! client's library, whatever the program does, and prove nothing.
//!
//! ```text
//! request ─▶ room? ─▶ handler ─▶ Metered ── frame ──▶ hyper, HTTP/2 ──▶ TLS ──▶ socket
//!                                  │ asked for the next one: the one before is taken        blocked: no progress
//! ```

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::RequestClass;

use crate::handler::{Body, BoxError};

/// What a connection may have been given and not taken, in bytes. 16 MiB: 256 frames of long answers, or 16 large objects; a client
/// that reads has a few under way.
pub(super) const HELD_BYTES_MAX: usize = 16 << 20;

/// How long a client may take nothing of what it has been given. As long as a short request may take.
pub(super) const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// How often it is looked at. A connection that is stuck is closed so much later at most.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(15);

/// From which size on the last byte of an answer is given on its own, in bytes. HTTP/2 takes a frame as soon as there is room for one
/// byte of it, and the answer would be done with; that the last byte is taken says that there was room for the rest.
const LAST_BYTE_FROM: usize = 16 << 10;

/// The answers of one connection.
#[derive(Default)]
pub(super) struct Outgoing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What has been given and is not taken.
    bytes: usize,
    /// The part of it that has to be taken in time.
    pressing: usize,
    /// Answers under way that last as long as their client pleases: somebody may read a log page by page.
    lasting: usize,
    /// Whether the socket takes nothing.
    blocked: bool,
    /// Counts whatever is taken.
    progress: u64,
    waiting: Vec<Waker>,
}

impl Outgoing {
    /// Waits until there is room for another answer.
    pub(super) async fn room(&self) {
        poll_fn(|cx| if self.has_room(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Whether more may be given. If not, the task is woken once it may.
    fn has_room(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state.lock();
        if state.bytes < HELD_BYTES_MAX {
            return true;
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        false
    }

    /// Meters an answer's body. One that is in memory as a whole, as an object is, is held from now on to its end. A length alone says
    /// nothing: that of a member's answer is what the member says, and its bytes come when they come.
    pub(super) fn meter(self: &Arc<Self>, response: Response<Body>) -> Response<Body> {
        let lasts = response.extensions().get() == Some(&RequestClass::LongRunning);
        response.map(|mut body| {
            let exact = body.size_hint().exact();
            if exact == Some(0) {
                return body;
            }
            let first = exact.and_then(|_| body.frame().now_or_never());
            let length = |frame: &Frame<Bytes>| frame.data_ref().map(|data| data.len() as u64);
            let whole = matches!(&first, Some(Some(Ok(frame))) if length(frame) == exact);
            let mut metered = Metered { body, outgoing: Arc::clone(self), lasts, whole, held: 0, first, last: None };
            if lasts {
                self.state.lock().lasting += 1;
            }
            if whole {
                metered.hold(metered.first_bytes());
            }
            metered.boxed_unsync()
        })
    }

    /// Notes whether the socket took what was to be written.
    pub(super) fn wrote(&self, is_blocked: bool) {
        let mut state = self.state.lock();
        let was_blocked = std::mem::replace(&mut state.blocked, is_blocked);
        // What HTTP/2 writes of its own is no answer that is taken; but a socket that was blocked goes on.
        state.progress += u64::from(was_blocked && !is_blocked);
    }

    /// Ends when the client has taken nothing of what it has been given for [`TAKEN_WITHIN`].
    pub(super) async fn stuck(&self) {
        let (mut progress, mut since) = (0, Instant::now());
        loop {
            tokio::time::sleep(LOOKED_AT_EVERY).await;
            let state = self.state.lock();
            let presses = state.pressing > 0 || (state.blocked && state.lasting == 0);
            if !presses || state.progress != progress {
                (progress, since) = (state.progress, Instant::now());
            } else if since.elapsed() >= TAKEN_WITHIN {
                return;
            }
        }
    }
}

/// The body of an answer. What it gives is held until the next is asked for.
struct Metered {
    body: Body,
    outgoing: Arc<Outgoing>,
    lasts: bool,
    /// Whether all of it is there: it is held from the beginning to the end.
    whole: bool,
    held: usize,
    /// What was there when the answer was made, until it is given.
    first: Option<Option<Result<Frame<Bytes>, BoxError>>>,
    /// The last byte, once the others have been given.
    last: Option<Bytes>,
}

impl Metered {
    /// How many bytes there were when the answer was made, and are not given yet.
    fn first_bytes(&self) -> usize {
        match &self.first {
            Some(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        }
    }

    fn hold(&mut self, bytes: usize) {
        self.held = bytes;
        let mut state = self.outgoing.state.lock();
        state.bytes += bytes;
        if !self.lasts {
            state.pressing += bytes;
        }
    }

    /// What was given is taken, or will never be.
    fn release(&mut self) {
        let bytes = std::mem::take(&mut self.held);
        if bytes == 0 {
            return;
        }
        let waiting = {
            let mut state = self.outgoing.state.lock();
            state.bytes -= bytes;
            if !self.lasts {
                state.pressing -= bytes;
            }
            state.progress += 1;
            if state.bytes < HELD_BYTES_MAX { std::mem::take(&mut state.waiting) } else { Vec::new() }
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Some(last) = self.last.take() {
            self.outgoing.state.lock().progress += 1;
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        if !self.whole {
            self.release();
            if !self.outgoing.has_room(cx) {
                return Poll::Pending;
            }
        }
        let polled = match self.first.take() {
            Some(first) => Poll::Ready(first),
            None => Pin::new(&mut self.body).poll_frame(cx),
        };
        let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
        let frame = match frame.into_data() {
            Ok(mut data) => {
                if !self.whole {
                    self.hold(data.len());
                } else if data.len() >= LAST_BYTE_FROM && self.body.is_end_stream() {
                    self.last = Some(data.split_off(data.len() - 1));
                }
                Frame::data(data)
            }
            Err(other) => other,
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.last.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let given = (self.first_bytes() + self.last.as_ref().map_or(0, Bytes::len)) as u64;
        match self.body.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(given + rest),
            None => SizeHint::default(),
        }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.release();
        if self.lasts {
            self.outgoing.state.lock().lasting -= 1;
        }
    }
}
