//! The HTTP settings of client connections.

use std::time::Duration;

use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;

use crate::heads::HEADER_LIST_BYTES_MAX;
use crate::settings::HEADERS_MAX;
use crate::streams::Begun;

/// Streams of one HTTP/2 connection. A dashboard opens one watch per resource and namespace over one connection, and
/// many clients queue silently beyond the limit; hyper's 200 and kube-apiserver's 100 are too few for a merged view.
const STREAMS_MAX: u32 = 2000;
/// The flow-control window of one request body: 1 MiB, so that a whole object (kube-apiserver takes 3 MiB) arrives in
/// few round trips.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The window of all request bodies of a connection, in bytes: a body that a slow member does not take must not stop
/// the connection's others.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// The buffer of HTTP/2 for one answer before the socket. Two frames keep the socket busy; hyper's own 400 KiB would be
/// held for each stream of a stuck reader.
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// The idle time before an HTTP/2 client is pinged: a laptop that went to sleep must not hold its watches for ever.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The timeout of a ping: longer than the tunnel of a train, and a little more than in client-go (15 s).
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The limit of an HTTP/1.1 request head, including the idle time before it. Go clients drop idle connections after 90
/// s, so they close first, and no request meets a closing connection.
const HTTP1_HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// The connection builder. It leaves the streams of an HTTP/2 connection in `begun`.
pub(super) fn builder(begun: Begun) -> auto::Builder<Begun> {
    let mut builder = auto::Builder::new(begun);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HTTP1_HEAD_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_LIST_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
