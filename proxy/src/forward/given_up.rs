//! Answers that clients have abandoned.
//!
//! Clients share the connections for short requests, and each reset stream counts against all: Go's server closes a
//! connection with ENHANCE_YOUR_CALM when more than four times its concurrent requests wait behind handlers of reset
//! streams (`scheduleHandler` in `golang.org/x/net/http2/server.go`), and proxies count early resets. Most answers come
//! soon. So an abandoned answer is read and dropped, and reset only if it does not end soon. Until then the request
//! keeps its permits: a client that abandons requests without end runs out of them.

use std::pin::Pin;

use http::{Request, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::runtime::Handle;
use tokio::time::Duration;
use tributary_apimachinery::body::Body;
use tributary_apimachinery::{Permit, or_never};

use crate::pool::stream_counts::SentStream;

/// Bytes that are read of an abandoned answer. 64 KiB: most answers are shorter, and the rest of a longer one would
/// cost more than a reset.
const BYTES_MAX: usize = 64 << 10;

/// Resources that a request over HTTP/2 occupies until its answer has ended, or is abandoned and reset.
pub(crate) struct Occupied {
    #[expect(dead_code, reason = "it is dropped, never read")]
    pub(crate) permit: Permit,
    /// Stream of the request.
    pub(crate) stream: SentStream,
    /// Time for which an abandoned answer is read; `None` to reset the stream at once.
    pub(crate) patience: Option<Duration>,
}

impl Occupied {
    /// Its answer was read to the end, or nothing was sent.
    pub(crate) fn ended_well(self) {
        self.stream.ended_well();
    }

    /// Reads an abandoned answer in a task of its own; then the stream ends, by a reset if necessary.
    pub(crate) fn give_up(self, answer: impl Future<Output = Option<Incoming>> + Send + 'static) {
        let (Some(patience), Ok(runtime)) = (self.patience, Handle::try_current()) else {
            // hyper resets the stream before it counts as free.
            drop(answer);
            return drop(self);
        };
        runtime.spawn(async move {
            let read = async {
                match answer.await {
                    Some(body) => is_read(body).await,
                    None => false,
                }
            };
            match tokio::time::timeout(patience, read).await {
                Ok(true) => self.ended_well(),
                _ => drop(self),
            }
        });
    }
}

/// Reads a body, and returns whether it was complete.
async fn is_read(mut body: Incoming) -> bool {
    let mut length = 0;
    while !body.is_end_stream() {
        if body.size_hint().lower() > BYTES_MAX as u64 || length > BYTES_MAX {
            return false;
        }
        match body.frame().await {
            Some(Ok(frame)) => length += frame.data_ref().map_or(0, bytes::Bytes::len),
            Some(Err(_)) => return false,
            None => return true,
        }
    }
    true
}

/// Result of a sent request.
type ForwardAnswer = Result<Response<Incoming>, TrySendError<Request<Body>>>;

/// A request over HTTP/2 without an answer yet. To drop it abandons the request.
pub(crate) struct PendingAnswer<F: Future<Output = ForwardAnswer> + Send + 'static> {
    waiting: Option<Pin<Box<F>>>,
    occupied: Option<Occupied>,
}

impl<F: Future<Output = ForwardAnswer> + Send + 'static> PendingAnswer<F> {
    /// A request in `waiting`, with its resources.
    pub(crate) fn new(waiting: F, occupied: Occupied) -> Self {
        Self { waiting: Some(Box::pin(waiting)), occupied: Some(occupied) }
    }

    /// Waits for the head of the answer; call it until it has come. Cancel: safe, the next call waits on.
    pub(crate) async fn wait_for_answer(&mut self) -> ForwardAnswer {
        let answer = or_never(self.waiting.as_mut()).await;
        self.waiting = None;
        if answer.as_ref().is_err_and(|failed| failed.message().is_some())
            && let Some(unsent) = self.occupied.take()
        {
            unsent.ended_well();
        }
        answer
    }

    /// Resources of the answer, for its body.
    pub(crate) fn into_occupied(mut self) -> Option<Occupied> {
        self.occupied.take()
    }
}

impl<F: Future<Output = ForwardAnswer> + Send + 'static> Drop for PendingAnswer<F> {
    fn drop(&mut self) {
        if let (Some(waiting), Some(occupied)) = (self.waiting.take(), self.occupied.take()) {
            occupied.give_up(async { waiting.await.ok().map(Response::into_body) });
        }
    }
}
