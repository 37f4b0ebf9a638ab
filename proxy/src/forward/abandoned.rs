//! Reads the rest of responses that clients have abandoned, instead of resetting their streams at once.
//!
//! Clients share the connections for short requests, and a server or proxy closes a connection with too many reset
//! streams. Go's server closes a connection with ENHANCE_YOUR_CALM when too many requests wait behind handlers of reset
//! streams. The limit is four times the limit of streams (`scheduleHandler` in `golang.org/x/net/http2/server.go`).
//! Proxies also count early resets. Most responses end soon, so an abandoned response is read and dropped, and reset
//! only at a time limit. The request keeps its permits until then. A client that abandons many requests therefore runs
//! out of permits.

use std::pin::Pin;

use http::{Request, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::runtime::Handle;
use tokio::time::Duration;
use tributary_apimachinery::body::Body;
use tributary_apimachinery::{Permit, or_pending};

use crate::pool::stream_counts::SentStream;

/// Maximal number of bytes that are read of an abandoned response. 64 KiB: most responses are shorter, and reading more
/// would cost more than a reset.
const BYTES_MAX: usize = 64 << 10;

/// Resources that a request over HTTP/2 occupies until its response has ended or was reset.
pub(crate) struct StreamResources {
    #[expect(dead_code, reason = "it is dropped, never read")]
    pub(crate) permit: Permit,
    pub(crate) stream: SentStream,
    /// Time for which an abandoned response is read. `None` resets the stream at once.
    pub(crate) abandoned_read_time: Option<Duration>,
}

impl StreamResources {
    /// Frees the stream without a reset: the response was read to its end, or nothing was sent.
    pub(crate) fn complete(self) {
        self.stream.complete();
    }

    /// Reads an abandoned response in a separate task. Frees the stream after the response has ended, or after a reset.
    pub(crate) fn read_abandoned(self, answer: impl Future<Output = Option<Incoming>> + Send + 'static) {
        let (Some(abandoned_read_time), Ok(runtime)) = (self.abandoned_read_time, Handle::try_current()) else {
            // The stream is counted as free only after hyper has reset it, so `answer` is dropped first.
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
            match tokio::time::timeout(abandoned_read_time, read).await {
                Ok(true) => self.complete(),
                _ => drop(self),
            }
        });
    }
}

/// Reads a body. Returns whether the body was complete.
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

type ForwardAnswer = Result<Response<Incoming>, TrySendError<Request<Body>>>;

/// A request over HTTP/2 whose response head has not arrived yet. Dropping this value abandons the request.
pub(crate) struct PendingAnswer<F: Future<Output = ForwardAnswer> + Send + 'static> {
    waiting: Option<Pin<Box<F>>>,
    occupied: Option<StreamResources>,
}

impl<F: Future<Output = ForwardAnswer> + Send + 'static> PendingAnswer<F> {
    pub(crate) fn new(waiting: F, occupied: StreamResources) -> Self {
        Self { waiting: Some(Box::pin(waiting)), occupied: Some(occupied) }
    }

    /// Waits for the response head. Must not be called again after the head has arrived. Cancel-safe: the next call
    /// continues the wait.
    pub(crate) async fn wait_for_answer(&mut self) -> ForwardAnswer {
        let answer = or_pending(self.waiting.as_mut()).await;
        self.waiting = None;
        if answer.as_ref().is_err_and(|failed| failed.message().is_some())
            && let Some(unsent) = self.occupied.take()
        {
            unsent.complete();
        }
        answer
    }

    pub(crate) fn into_occupied(mut self) -> Option<StreamResources> {
        self.occupied.take()
    }
}

impl<F: Future<Output = ForwardAnswer> + Send + 'static> Drop for PendingAnswer<F> {
    fn drop(&mut self) {
        if let (Some(waiting), Some(occupied)) = (self.waiting.take(), self.occupied.take()) {
            occupied.read_abandoned(async { waiting.await.ok().map(Response::into_body) });
        }
    }
}
