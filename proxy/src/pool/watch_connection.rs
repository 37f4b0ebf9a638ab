//! An HTTP/2 connection for watches of several clients.
//!
//! hyper gives a member its window back as soon as an answer is asked for a frame, so nothing could be taken off a
//! stream for a client that does not read; and what is left on the stream costs the connection, with all that others
//! have on it. So these connections are spoken with h2 itself: [`follow`] takes each frame off as it comes, and the
//! member's window is given back when the client reads.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures::task::AtomicWaker;
use h2::client::{Connection, SendRequest};
use h2::{Ping, PingPong};
use http::{Request, Response};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Duration, timeout};

use crate::pool::connection_task::{ConnectionTask, Starter};
use crate::pool::line::BoxIo;
use crate::pool::read_through::ReadThrough;
use crate::pool::sips::Sips;
use crate::pool::watch_stream::{WatchBody, WatchHold, follow};
use crate::tuning::Windows;

/// The most watches on one connection: what a kube-apiserver allows, and what breaks together when a connection does.
pub(crate) const STREAMS: usize = 100;

/// The flow-control window of a watch, in bytes: what the member may send of it before its client has read some. 64
/// KiB: 2 MB/s at 30 ms round-trip time (21 MB/s at 3 ms), far more than a resource's events; and 100 clients that read
/// nothing hold 6.4 MB.
pub const WATCH_STREAM_BYTES: u32 = 64 << 10;

/// The windows of such a connection: all that its watches may leave unread has room in it, so that none of them ever
/// waits for another to be read.
pub(crate) fn windows() -> Windows {
    Windows { stream: WATCH_STREAM_BYTES, connection: WATCH_STREAM_BYTES }.for_streams(STREAMS)
}

/// What small frames may cost h2 before it ends a connection. As much as can be said: what it defends is memory, and
/// of that they take little here. They are taken off at once ([`Sips`]), and what is held of them is their bytes alone.
const FRAMES_BUDGET: usize = usize::MAX / 2;

/// So many streams are remembered that were reset while something was on its way on them: about as many as clients of
/// one connection give up in a round trip.
const RESET_STREAMS: usize = 256;

/// How a connection is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) max_header_list_size: u32,
    pub(crate) max_frame_size: u32,
    /// The quiet time after which it is pinged.
    pub(crate) keep_alive_interval: Duration,
    /// How long nothing may come after that.
    pub(crate) keep_alive_timeout: Duration,
}

/// Why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// Nothing came of a ping, nor anything else.
    #[error("keep-alive timed out")]
    Silent,
    /// HTTP/2 could not go on.
    #[error(transparent)]
    Broke(h2::Error),
}

type KeepAlive = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The connection itself; it has to be polled for anything to happen. Ready once it has ended.
pub(crate) struct WatchConnection {
    connection: Connection<ReadThrough<BoxIo, Sips>, Bytes>,
    /// Ready once the member is silent.
    keep_alive: KeepAlive,
    waker: Arc<AtomicWaker>,
}

impl WatchConnection {
    /// How many streams the member allows; 0 while it has not said.
    pub(crate) fn max_send_streams(&self) -> usize {
        self.connection.max_concurrent_send_streams()
    }
}

impl Future for WatchConnection {
    type Output = Result<(), ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.waker.register(cx.waker());
        if let Poll::Ready(ended) = Pin::new(&mut self.connection).poll(cx) {
            return Poll::Ready(ended.map_err(ConnectionError::Broke));
        }
        self.keep_alive.as_mut().poll(cx).map(|()| Err(ConnectionError::Silent))
    }
}

/// Sends requests on a connection. The connection closes when the last request on it has ended after this is dropped.
pub(crate) struct WatchSender {
    // Dropped first: the connection looks at it when it is woken.
    requests: Mutex<SendRequest<Bytes>>,
    starter: Starter,
    wake: WakeOnDrop,
}

/// Wakes the connection when it is dropped: h2 does not where its last handle is (hyperium/hyper#3041).
struct WakeOnDrop(Arc<AtomicWaker>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl fmt::Debug for WatchSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchSender")
    }
}

/// What comes of a request: the answer, whose body is followed.
pub(crate) type Head = oneshot::Receiver<Result<Response<WatchBody>, h2::Error>>;

impl WatchSender {
    /// Whether it takes no more requests: it has ended, or the member goes away.
    pub(crate) fn is_closed(&self) -> bool {
        let polled = self.requests.lock().poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(Err(_)))
    }

    /// Sends a request without a body. Dropping what is given here, or the answer's body, gives up the request.
    ///
    /// # Errors
    /// The request was not sent.
    pub(crate) fn send(&self, request: Request<()>, asked: WatchHold) -> Result<Head, h2::Error> {
        // A clone of its own: of one, h2 sends nothing more where its last request waits for the member to allow it.
        let mut requests = self.requests.lock().clone();
        let answer = match requests.send_request(request, true) {
            Ok((answer, _)) => answer,
            Err(error) => {
                asked.sent.ended_well();
                return Err(error);
            }
        };
        let (told, head) = oneshot::channel();
        self.starter.execute(follow(answer, told, asked));
        self.wake.0.wake();
        Ok(head)
    }
}

/// Begins HTTP/2 on a byte stream.
///
/// # Errors
/// Where the preface cannot be written.
pub(crate) async fn start(
    stream: BoxIo,
    windows: Windows,
    setup: Setup,
) -> Result<(WatchSender, ConnectionTask<WatchConnection>), h2::Error> {
    let heard = Arc::new(AtomicBool::new(false));
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .max_frame_size(setup.max_frame_size)
        .max_header_list_size(setup.max_header_list_size)
        // Zero stands for "not known yet"; see `settings` in `dial.rs`.
        .initial_max_send_streams(0)
        .initial_window_size(windows.stream)
        .initial_connection_window_size(windows.connection)
        .data_frame_budget(FRAMES_BUDGET)
        .max_concurrent_reset_streams(RESET_STREAMS)
        // What still comes of a stream that was reset longer ago is no fault of the connection.
        .max_local_error_reset_streams(None);
    let (requests, mut connection) = builder.handshake(Sips::wrap(stream, heard.clone())).await?;
    let keep_alive: KeepAlive = match connection.ping_pong() {
        Some(pings) => Box::pin(silence(pings, heard, setup)),
        // It is there once.
        None => Box::pin(std::future::pending()),
    };
    let (starter, waker) = (Starter::default(), Arc::new(AtomicWaker::new()));
    let sender =
        WatchSender { requests: Mutex::new(requests), starter: starter.clone(), wake: WakeOnDrop(waker.clone()) };
    Ok((sender, ConnectionTask::new(WatchConnection { connection, keep_alive, waker }, starter)))
}

/// Pings a member of which nothing is heard, and returns once nothing comes of that.
async fn silence(mut pings: PingPong, heard: Arc<AtomicBool>, setup: Setup) {
    loop {
        heard.store(false, Ordering::Relaxed);
        tokio::time::sleep(setup.keep_alive_interval).await;
        if heard.load(Ordering::Relaxed) {
            continue;
        }
        let mut pong = std::pin::pin!(pings.ping(Ping::opaque()));
        loop {
            match timeout(setup.keep_alive_timeout, pong.as_mut()).await {
                Ok(Ok(_)) => break,
                // The connection itself says why.
                Ok(Err(_)) => return std::future::pending().await,
                // It waits behind what a slow line still carries.
                Err(_) if heard.swap(false, Ordering::Relaxed) => {}
                Err(_) => return,
            }
        }
    }
}
