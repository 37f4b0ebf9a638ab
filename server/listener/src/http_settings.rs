//! The HTTP settings of client connections.

use std::time::Duration;

use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;

use crate::heads::HEADER_LIST_BYTES_MAX;
use crate::settings::HEADERS_MAX;
use crate::streams::StreamExecutor;

/// The most concurrent streams of an HTTP/2 connection. Many clients silently queue requests above this limit. A
/// dashboard opens one watch for each resource and namespace over one connection, so hyper's 200 and kube-apiserver's
/// 100 are too few for a merged view.
const STREAMS_MAX: u32 = 2000;
/// The flow-control window of one request body. With 1 MiB, a whole object (kube-apiserver accepts 3 MiB) arrives in a
/// few round trips.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The flow-control window of all request bodies of a connection, in bytes. A body that a slow member does not read
/// must not block the other streams of the connection.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// HTTP/2's send buffer for one answer, in bytes. A capacity of several frames keeps the socket busy. hyper's default
/// of 400 KiB would be allocated for each stream of a client that stops reading.
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// The idle time before the server sends a PING to an HTTP/2 client. The watches of a sleeping laptop must not stay
/// open forever.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The timeout for the answer to a PING. 20 s are a little longer than client-go's 15 s, and cover the short loss of a
/// mobile network.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The time limit for an HTTP/1.1 request head, including the idle time before the head. Go clients close idle
/// connections after 90 s. With a longer limit here, the client closes first, so no request is sent into a closing
/// connection.
const HTTP1_HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Creates hyper's connection builder. hyper spawns the streams of an HTTP/2 connection on `executor`.
pub(super) fn builder(executor: StreamExecutor) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(executor);
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
