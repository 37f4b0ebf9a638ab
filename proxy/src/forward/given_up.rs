//! What was asked for a client that no longer waits for it.
//!
//! Clients share the connections for short requests, and a stream that is reset counts against all of them: Go's server
//! closes a connection with ENHANCE_YOUR_CALM once more than four times as many requests as it carries out at once wait
//! behind handlers whose streams were reset (`scheduleHandler` in `golang.org/x/net/http2/server.go`), and proxies
//! count resets that come early. Most answers come soon. So a stream is not reset because its client has gone; its
//! answer is read and dropped, and only one that does not end soon is reset. Until then the request occupies what it
//! did, its client's place among those under way at the cluster included: whoever asks and goes away without end is out
//! of places.

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

/// How much of an answer that nobody wants is read, in bytes. 64 KiB: most answers are shorter, and of those that are
/// not, the rest would cost more than a reset.
const BYTES_MAX: usize = 64 << 10;

/// What a request over HTTP/2 occupies until its answer has ended, or nobody waits for it any more.
pub(crate) struct Occupied {
    #[expect(dead_code, reason = "it is dropped, never read")]
    pub(crate) permit: Permit,
    /// Its stream.
    pub(crate) stream: SentStream,
    /// How long its answer is read for nobody; `None` where its stream is reset at once.
    pub(crate) patience: Option<Duration>,
}

impl Occupied {
    /// Its answer was read to the end, or nothing was sent.
    pub(crate) fn ended_well(self) {
        self.stream.ended_well();
    }

    /// Reads an answer for nobody, in a task of its own; then its stream ends, by a reset if it has not ended.
    pub(crate) fn give_up(self, answer: impl Future<Output = Option<Incoming>> + Send + 'static) {
        let (Some(patience), Ok(runtime)) = (self.patience, Handle::try_current()) else {
            // hyper resets the stream before it is counted as free.
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

/// Reads a body, and says whether that was all of it.
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

/// What comes of a request that was sent.
type ForwardAnswer = Result<Response<Incoming>, TrySendError<Request<Body>>>;

/// A request over HTTP/2 whose answer has not begun. Dropping it gives up the request.
pub(crate) struct PendingAnswer<F: Future<Output = ForwardAnswer> + Send + 'static> {
    waiting: Option<Pin<Box<F>>>,
    occupied: Option<Occupied>,
}

impl<F: Future<Output = ForwardAnswer> + Send + 'static> PendingAnswer<F> {
    /// A request that `waiting` sends, and what it occupies.
    pub(crate) fn new(waiting: F, occupied: Occupied) -> Self {
        Self { waiting: Some(Box::pin(waiting)), occupied: Some(occupied) }
    }

    /// Waits for the answer to begin; to be called until it has. Cancel: safe, the next call waits on.
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

    /// What the answer occupies that has begun.
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
