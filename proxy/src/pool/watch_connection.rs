//! An HTTP/2 connection for watches of several clients.
//!
//! hyper extends a stream's window when the caller requests a frame. If a client did not read, its data would have to
//! stay in h2, where it counts against the whole connection. So these connections use h2 directly. [`receive_watch`]
//! takes each frame out of h2 at once, and the window is extended when the client reads.

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

use crate::pool::byte_stream::BoxIo;
use crate::pool::connection_task::{ConnectionTask, Starter};
use crate::pool::read_through::ReadThrough;
use crate::pool::watch_stream::{WatchBody, WatchResources, receive_watch};
use crate::pool::yielding_reads::YieldingReads;
use crate::tuning::Windows;

/// Maximal number of watches on one connection. 100, kube-apiserver's default limit of streams. All watches of a
/// connection break together with the connection.
pub(crate) const STREAMS: usize = 100;

/// Flow-control window of a watch, in bytes: data that the cluster may send before the client reads. 64 KiB give 2 MB/s
/// at 30 ms round-trip time (21 MB/s at 3 ms), far more than the events of a resource. 100 clients that do not read
/// take 6.4 MB of memory.
pub const WATCH_STREAM_BYTES: u32 = 64 << 10;

/// Returns the flow-control windows of a connection for watches. The window suffices for the unread data of all
/// watches, so that no watch waits for the reader of another watch.
pub(crate) fn windows() -> Windows {
    Windows { stream: WATCH_STREAM_BYTES, connection: WATCH_STREAM_BYTES }.for_streams(STREAMS)
}

/// h2's budget for the cost of small frames. Unlimited, because `follow` takes each frame out of h2 at once, and
/// [`YieldingReads`] limits how many frames arrive before. Only the bytes of the frames are stored.
const FRAMES_BUDGET: usize = usize::MAX / 2;

/// Number of reset streams that h2 remembers, because data for them may still arrive. 256: about as many as the clients
/// of a connection abandon in one round trip.
const RESET_STREAMS: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) max_header_list_size: u32,
    pub(crate) max_frame_size: u32,
    /// Time without received data after which a ping is sent.
    pub(crate) keep_alive_interval: Duration,
    pub(crate) keep_alive_timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// No bytes arrived within the time limit of a ping.
    #[error("keep-alive timed out")]
    Silent,
    /// The HTTP/2 connection failed with this error.
    #[error(transparent)]
    Broke(h2::Error),
}

type KeepAlive = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection for watches. Polling makes progress; ready after the end of the connection.
pub(crate) struct WatchConnection {
    connection: Connection<ReadThrough<BoxIo, YieldingReads>, Bytes>,
    /// Resolves when the member is silent: no bytes arrived after a ping.
    keep_alive: KeepAlive,
    waker: Arc<AtomicWaker>,
}

impl WatchConnection {
    /// Returns the number of streams that the cluster allows; 0 before its SETTINGS frame.
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

/// Sends requests on a connection. After the sender is dropped, the connection closes when its last request ends.
pub(crate) struct WatchSender {
    // Dropped before the field that wakes the connection: the woken connection checks whether a sender still exists.
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

/// Result of a request: the response head and the body.
pub(crate) type PendingResponse = oneshot::Receiver<Result<Response<WatchBody>, h2::Error>>;

impl WatchSender {
    /// Returns whether the connection accepts no more requests: it has ended, or has received GOAWAY.
    pub(crate) fn is_closed(&self) -> bool {
        let polled = self.requests.lock().poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(Err(_)))
    }

    /// Sends a request without a body. Dropping the returned value, or the response body, abandons the request.
    ///
    /// # Errors
    /// h2's error, if h2 did not accept the request. The request was not sent.
    pub(crate) fn send(&self, request: Request<()>, resources: WatchResources) -> Result<PendingResponse, h2::Error> {
        // Each request uses a separate clone of the sender. While the last request of a clone waits for a free stream,
        // h2 sends nothing more from this clone.
        let mut requests = self.requests.lock().clone();
        let answer = match requests.send_request(request, true) {
            Ok((answer, _)) => answer,
            Err(error) => {
                resources.sent.complete();
                return Err(error);
            }
        };
        let (head_sender, head) = oneshot::channel();
        self.starter.execute(receive_watch(answer, head_sender, resources));
        self.wake.0.wake();
        Ok(head)
    }
}

/// Starts HTTP/2 on a byte stream.
///
/// # Errors
/// An error if the connection preface could not be written.
pub(crate) async fn start(
    stream: BoxIo,
    windows: Windows,
    setup: Setup,
) -> Result<(WatchSender, ConnectionTask<WatchConnection>), h2::Error> {
    let has_data = Arc::new(AtomicBool::new(false));
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .max_frame_size(setup.max_frame_size)
        .max_header_list_size(setup.max_header_list_size)
        // Zero means that the limit of streams is unknown until the SETTINGS frame arrives; see `settings` in
        // `dial.rs`.
        .initial_max_send_streams(0)
        .initial_window_size(windows.stream)
        .initial_connection_window_size(windows.connection)
        .data_frame_budget(FRAMES_BUDGET)
        .max_concurrent_reset_streams(RESET_STREAMS)
        // h2 also limits the streams that it resets because of unexpected data. This limit is switched off, because
        // late data for an older reset stream, which h2 no longer remembers, is not a fault of the connection.
        .max_local_error_reset_streams(None);
    let (requests, mut connection) = builder.handshake(YieldingReads::wrap(stream, has_data.clone())).await?;
    let keep_alive: KeepAlive = match connection.ping_pong() {
        Some(pings) => Box::pin(silence(pings, has_data, setup)),
        // This case does not occur, because only a second call of `ping_pong` returns `None`.
        None => Box::pin(std::future::pending()),
    };
    let (starter, waker) = (Starter::default(), Arc::new(AtomicWaker::new()));
    let sender =
        WatchSender { requests: Mutex::new(requests), starter: starter.clone(), wake: WakeOnDrop(waker.clone()) };
    Ok((sender, ConnectionTask::new(WatchConnection { connection, keep_alive, waker }, starter)))
}

/// Pings a server that has sent no data for the keep-alive interval. Returns when no bytes arrive after a ping.
async fn silence(mut pings: PingPong, has_data: Arc<AtomicBool>, setup: Setup) {
    loop {
        has_data.store(false, Ordering::Relaxed);
        tokio::time::sleep(setup.keep_alive_interval).await;
        if has_data.load(Ordering::Relaxed) {
            continue;
        }
        let mut pong = std::pin::pin!(pings.ping(Ping::opaque()));
        loop {
            match timeout(setup.keep_alive_timeout, pong.as_mut()).await {
                Ok(Ok(_)) => break,
                // The ping failed together with the connection, which reports the cause itself.
                Ok(Err(_)) => return std::future::pending().await,
                // Other bytes arrived before the response to the ping. On a slow network, the response waits behind
                // other data.
                Err(_) if has_data.swap(false, Ordering::Relaxed) => {}
                Err(_) => return,
            }
        }
    }
}
