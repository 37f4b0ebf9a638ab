//! An HTTP/2 connection for watches of several clients.
//!
//! hyper returns a stream's window when a frame is requested, so data for a client that does not read could only stay
//! in h2, where it counts against the connection. So these connections use h2 itself: [`follow`] takes each frame off
//! as it comes, and the window is returned when the client reads.

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

/// Watches on one connection: kube-apiserver's limit, and the number that breaks together with a connection.
pub(crate) const STREAMS: usize = 100;

/// Flow-control window of a watch, in bytes: data that the cluster may send before the client reads. 64 KiB: 2 MB/s at
/// 30 ms round-trip time (21 MB/s at 3 ms), far more than a resource's events; and 100 clients that do not read take
/// 6.4 MB.
pub const WATCH_STREAM_BYTES: u32 = 64 << 10;

/// Windows of such a connection: room for the unread data of all its watches, so that no watch waits for a different
/// one to be read.
pub(crate) fn windows() -> Windows {
    Windows { stream: WATCH_STREAM_BYTES, connection: WATCH_STREAM_BYTES }.for_streams(STREAMS)
}

/// h2's limit for the cost of small frames: the maximum, because here they take little memory. They are taken off at
/// once ([`Sips`]), and only their bytes are kept.
const FRAMES_BUDGET: usize = usize::MAX / 2;

/// Reset streams that are remembered while data for them is under way: about as many as clients of a connection abandon
/// in a round trip.
const RESET_STREAMS: usize = 256;

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) max_header_list_size: u32,
    pub(crate) max_frame_size: u32,
    /// Quiet time after which it is pinged.
    pub(crate) keep_alive_interval: Duration,
    /// Time limit of the answer to a ping.
    pub(crate) keep_alive_timeout: Duration,
}

/// Why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// Nothing came after a ping.
    #[error("keep-alive timed out")]
    Silent,
    /// HTTP/2 could not go on.
    #[error(transparent)]
    Broke(h2::Error),
}

type KeepAlive = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The connection; poll it to make progress. Ready after it has ended.
pub(crate) struct WatchConnection {
    connection: Connection<ReadThrough<BoxIo, Sips>, Bytes>,
    /// Ready once the member is silent.
    keep_alive: KeepAlive,
    waker: Arc<AtomicWaker>,
}

impl WatchConnection {
    /// Streams that the cluster allows; 0 before its SETTINGS.
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

/// Sends requests on a connection. After a drop, the connection closes with its last request.
pub(crate) struct WatchSender {
    // Dropped first, because the woken connection looks at it.
    requests: Mutex<SendRequest<Bytes>>,
    starter: Starter,
    wake: WakeOnDrop,
}

/// Wakes the connection on drop, because h2 does not (hyperium/hyper#3041).
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

/// Result of a request: the answer with a followed body.
pub(crate) type Head = oneshot::Receiver<Result<Response<WatchBody>, h2::Error>>;

impl WatchSender {
    /// Whether it takes no more requests: it has ended, or got GOAWAY.
    pub(crate) fn is_closed(&self) -> bool {
        let polled = self.requests.lock().poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(Err(_)))
    }

    /// Sends a request without a body. To drop the returned value, or the answer's body, abandons the request.
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
        // Data of older reset streams is no fault of the connection.
        .max_local_error_reset_streams(None);
    let (requests, mut connection) = builder.handshake(Sips::wrap(stream, heard.clone())).await?;
    let keep_alive: KeepAlive = match connection.ping_pong() {
        Some(pings) => Box::pin(silence(pings, heard, setup)),
        // The ping handle can be taken once.
        None => Box::pin(std::future::pending()),
    };
    let (starter, waker) = (Starter::default(), Arc::new(AtomicWaker::new()));
    let sender =
        WatchSender { requests: Mutex::new(requests), starter: starter.clone(), wake: WakeOnDrop(waker.clone()) };
    Ok((sender, ConnectionTask::new(WatchConnection { connection, keep_alive, waker }, starter)))
}

/// Pings a silent server, and returns if nothing comes after that.
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
                // The connection itself reports the cause.
                Ok(Err(_)) => return std::future::pending().await,
                // The answer waits behind data on a slow network.
                Err(_) if heard.swap(false, Ordering::Relaxed) => {}
                Err(_) => return,
            }
        }
    }
}
