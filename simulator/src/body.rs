//! Response bodies with simulated faults: cut on command, cut after a number of bytes, or slow.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::time::Sleep;

use tributary_apimachinery::or_pending;

use crate::control::{Faults, WriteAnswers};

pub(crate) use tributary_apimachinery::body::{Body, BoxError, full};

/// The number of chunks per second into which a slow stream is divided.
const PIECES_PER_SECOND: u64 = 10;
/// The maximum number of chunks that wait for a slow client. A chunk is a batch of events or 64 KiB of a list.
const CHUNKS_MAX: usize = 8;
/// The delay between the last byte of a body and a cut of its stream. Without the delay, an HTTP/2 RST_STREAM would
/// overtake unwritten bytes.
const CUT_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
#[error("the stream was cut on command")]
struct Cut;

pub(crate) fn endless() -> Body {
    Endless(Bytes::from(vec![b' '; 64 << 10])).boxed_unsync()
}

struct Endless(Bytes);

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(Some(Ok(Frame::data(self.0.clone()))))
    }
}

/// Applies the configured fault of write responses to the body of a write's response.
pub(crate) fn for_write_response(body: Body, answers: WriteAnswers) -> Body {
    let (left, breaks) = match answers {
        WriteAnswers::Whole => return body,
        WriteAnswers::BrokenAfter(bytes) => (bytes, true),
        WriteAnswers::SilentAfter(bytes) => (bytes, false),
    };
    Unfinished { body, left, breaks, pause: None }.boxed_unsync()
}

/// A body that fails or becomes silent before its end.
struct Unfinished {
    body: Body,
    /// The number of bytes that the body still sends before the fault.
    left: usize,
    breaks: bool,
    pause: Option<Pin<Box<Sleep>>>,
}

impl hyper::body::Body for Unfinished {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.left > 0
            && let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context))
        {
            let mut data = frame?.into_data().unwrap_or_default();
            data.truncate(self.left);
            self.left -= data.len();
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if !self.breaks {
            return Poll::Pending;
        }
        ready!(self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(CUT_DELAY))).as_mut().poll(context));
        Poll::Ready(Some(Err(Cut.into())))
    }
}

/// Creates a body that is written chunk by chunk. The `closed` future of the returned sender completes when the client
/// has disconnected.
pub(crate) fn streamed(faults: &Arc<Faults>) -> (mpsc::Sender<Bytes>, Body) {
    streamed_within(faults, None)
}

/// Creates the body of a list. The body is cut after the configured request timeout, if one is set.
pub(crate) fn list(faults: &Arc<Faults>) -> (mpsc::Sender<Bytes>, Body) {
    streamed_within(faults, faults.request_timeout())
}

pub(crate) fn page(faults: &Arc<Faults>, bytes: Vec<u8>) -> Body {
    if faults.request_timeout().is_none() {
        return full(bytes);
    }
    let (sender, body) = list(faults);
    // Sending cannot fail, because the channel has capacity for one chunk.
    let _ = sender.try_send(bytes.into());
    body
}

fn streamed_within(faults: &Arc<Faults>, limit: Option<Duration>) -> (mpsc::Sender<Bytes>, Body) {
    let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
    let mut cut = faults.cut.subscribe();
    cut.mark_unchanged();
    let body = Streamed {
        chunks,
        cut: Box::pin(async move {
            let cut = async {
                if cut.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = or_pending(limit.map(tokio::time::sleep)) => {}
                () = cut => {}
            }
        }),
        left: faults.cut_after(),
        faults: faults.clone(),
        rest: Bytes::new(),
        pause: None,
    };
    (sender, body.boxed_unsync())
}

struct Streamed {
    chunks: mpsc::Receiver<Bytes>,
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    left: Option<u64>,
    faults: Arc<Faults>,
    /// The unsent bytes of the current chunk of a slow stream.
    rest: Bytes,
    pause: Option<Pin<Box<Sleep>>>,
}

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.cut.as_mut().poll(context).is_ready() {
            // A completed future must not be polled again, so a pending future replaces the cut.
            self.cut = Box::pin(std::future::pending());
            return Poll::Ready(Some(Err(Cut.into())));
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        if self.left == Some(0) {
            return Poll::Ready(Some(Err(Cut.into())));
        }
        if self.rest.is_empty() {
            match ready!(self.chunks.poll_recv(context)) {
                Some(chunk) => self.rest = chunk,
                None => return Poll::Ready(None),
            }
        }
        let mut piece = std::mem::take(&mut self.rest);
        if let Some(speed) = self.faults.bytes_per_second() {
            let size = usize::try_from(speed / PIECES_PER_SECOND).unwrap_or(usize::MAX).clamp(1, piece.len().max(1));
            self.rest = piece.split_off(size);
            let pause = Duration::from_secs(1) * u32::try_from(size).unwrap_or(u32::MAX)
                / u32::try_from(speed).unwrap_or(u32::MAX);
            self.pause = Some(Box::pin(tokio::time::sleep(pause)));
        }
        if let Some(left) = self.left {
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - piece.len() as u64;
            self.left = Some(left);
            if left == 0 {
                self.pause = Some(Box::pin(tokio::time::sleep(CUT_DELAY)));
            }
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}
