//! Tests of clients that do not read their responses: the number of bytes that the listener buffers for these clients,
//! and for how long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::RequestClass;
use tributary_apimachinery::body::{Body, BoxError, full};
use tributary_router::{Answer, RequestContext};
use tributary_server::handler::Handler;

use tributary_listener::{Bounds, ListenerRefusal};

use crate::aggregated;
use crate::fixture::{SOON, Server, default_handler_methods, start, start_within, text};

const LARGE_BYTES: usize = 1 << 20;

/// The size of an object that HTTP/2 buffers completely, in bytes.
const MEDIUM_BYTES: usize = 100 << 10;

/// The size of a frame of an endless response, in bytes.
const FRAME_BYTES: usize = 64 << 10;

/// The size (in bytes) and the number of the frames of a response that then sends no more data. HTTP/2 can buffer all
/// these frames of one stream.
const SHORT_FRAME_BYTES: usize = 15 << 10;
const SHORT_FRAMES: usize = 8;

/// A handler with large responses, which the clients of the tests do not read completely.
#[derive(Clone, Default)]
pub(crate) struct Talker(pub(crate) Arc<Made>);

/// Counters of the handler's response bodies.
#[derive(Default)]
pub(crate) struct Made {
    bytes: AtomicUsize,
    objects: AtomicUsize,
    /// The number of large objects in memory.
    held: AtomicUsize,
    /// The number of requests whose handler waits for `go`, or for the end of the request's body.
    pub(crate) late: AtomicUsize,
    pub(crate) go: Notify,
    /// The number of endless responses whose bodies are in memory.
    open: AtomicUsize,
}

/// A body that announces a gigabyte, yields one byte, and then stays pending.
struct Promised {
    first: Option<Bytes>,
}

impl http_body::Body for Promised {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.first.take().map_or(Poll::Pending, |first| Poll::Ready(Some(Ok(Frame::data(first)))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(1 << 30)
    }
}

/// A guard that counts an endless response as closed when it is dropped.
struct Open(Arc<Made>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The bytes of a large object. Dropping the value counts the object as freed.
struct Object {
    bytes: Vec<u8>,
    made: Arc<Made>,
}

impl AsRef<[u8]> for Object {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.made.held.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Talker {
    fn object(&self) -> Response<Body> {
        self.object_of(LARGE_BYTES)
    }

    fn object_of(&self, bytes: usize) -> Response<Body> {
        self.0.objects.fetch_add(1, Ordering::SeqCst);
        self.0.held.fetch_add(1, Ordering::SeqCst);
        let object = Object { bytes: vec![b'x'; bytes], made: Arc::clone(&self.0) };
        Response::new(full(Bytes::from_owner(object)))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::SeqCst)
    }

    fn objects(&self) -> usize {
        self.0.objects.load(Ordering::SeqCst)
    }

    fn open(&self) -> usize {
        self.0.open.load(Ordering::SeqCst)
    }

    /// Returns an endless response: lines of JSON.
    fn endless(&self) -> Response<Body> {
        self.0.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(Arc::clone(&self.0));
        let frames = futures::stream::repeat_with(move || {
            open.0.bytes.fetch_add(FRAME_BYTES, Ordering::SeqCst);
            let mut line = vec![b' '; FRAME_BYTES];
            line[FRAME_BYTES - 1] = b'\n';
            Ok(Frame::data(Bytes::from(line)))
        });
        let body = StreamBody::new(frames).boxed_unsync();
        Response::builder().header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
    }

    /// Returns a response that simulates a followed log: a few short frames, and then a pending body.
    fn silent(&self) -> Response<Body> {
        self.0.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(Arc::clone(&self.0));
        let frames = futures::stream::iter(0..SHORT_FRAMES).map(move |_| {
            open.0.bytes.fetch_add(SHORT_FRAME_BYTES, Ordering::SeqCst);
            Ok(Frame::data(Bytes::from(vec![b'x'; SHORT_FRAME_BYTES])))
        });
        Response::new(StreamBody::new(frames.chain(futures::stream::pending())).boxed_unsync())
    }
}

impl Talker {
    /// Reads the request's body, and then answers with a large object.
    async fn write(&self, request: Request<Body>) -> Response<Body> {
        self.0.late.fetch_add(1, Ordering::SeqCst);
        match request.into_body().collect().await {
            Ok(_) => self.object(),
            Err(_) => Response::builder().status(StatusCode::BAD_REQUEST).body(full("")).unwrap(),
        }
    }

    /// Returns a watch without events.
    fn quiet(&self) -> Response<Body> {
        self.0.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(Arc::clone(&self.0));
        let frames = futures::stream::once(async move {
            let _open = open;
            std::future::pending().await
        });
        let body = StreamBody::new(frames).boxed_unsync();
        Response::builder().header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
    }

    /// Returns an endless response with frames of one byte.
    fn crumbs(&self) -> Response<Body> {
        let made = Arc::clone(&self.0);
        let frames = futures::stream::repeat_with(move || {
            made.held.fetch_add(1, Ordering::SeqCst);
            let crumb = Object { bytes: vec![b'x'], made: Arc::clone(&made) };
            Ok(Frame::data(Bytes::from_owner(crumb)))
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

impl Talker {
    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path();
        match path.strip_prefix(aggregated::ALL).unwrap_or(path) {
            "/endless" | "/api/v1/pods" => self.endless(),
            "/log" => self.endless(),
            "/idle" => {
                let frames = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"ADDED\n")))]);
                Response::new(StreamBody::new(frames.chain(futures::stream::pending())).boxed_unsync())
            }
            "/silent" => self.silent(),
            "/api/v1/namespaces/quiet/pods" => self.quiet(),
            "/crumbs" => self.crumbs(),
            "/large" => self.object(),
            "/write" => self.write(request).await,
            "/medium" => self.object_of(MEDIUM_BYTES),
            path @ ("/late" | "/late/refused") => {
                let go = self.0.go.notified();
                self.0.late.fetch_add(1, Ordering::SeqCst);
                go.await;
                let mut answer = self.object();
                if path == "/late/refused" {
                    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                }
                answer
            }
            // This response simulates a member's response with a Content-Length whose body arrives slowly.
            "/promised" => Response::new(Promised { first: Some(Bytes::from_static(b"x")) }.boxed_unsync()),
            _ => Response::new(full("ok")),
        }
    }
}

impl Handler for Talker {
    async fn handle(&self, request: Request<Body>, _context: &RequestContext) -> Answer {
        let is_opaque = matches!(request.uri().path(), "/log" | "/silent");
        let class = if is_opaque { RequestClass::Streamed } else { RequestClass::Short };
        Answer { class, ..self.respond(request).await.into() }
    }

    default_handler_methods!();
}

/// Opens a client with an HTTP/2 stream window of one byte. The window grows only when the test reads the response.
pub(crate) async fn reluctant<B>(server: &Server) -> SendRequest<B>
where
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let stream = server.connect(&rustls::version::TLS13, "h2").await;
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1).initial_connection_window_size(1 << 30);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Returns the length of a response's body, or the error that ended the body.
async fn text_or_error(response: Response<Incoming>) -> Result<usize, hyper::Error> {
    let collected = tokio::time::timeout(SOON, response.into_body().collect());
    Ok(collected.await.expect("it ends")?.to_bytes().len())
}

pub(crate) fn get(server: &Server, path: &str) -> Request<Empty<Bytes>> {
    server.request(path).body(Empty::new()).unwrap()
}

/// Advances the paused clock in small steps. A short real sleep after each step lets the network deliver bytes.
async fn pass(time: Duration) {
    const LEAP: Duration = Duration::from_secs(5);
    for _ in 0..time.as_secs() / LEAP.as_secs() {
        tokio::time::pause();
        tokio::time::advance(LEAP).await;
        tokio::time::resume();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn until(holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, waited).await.expect("it does not come true");
}

/// Waits until a number stops growing, and returns the number.
pub(crate) async fn settled(number: impl Fn() -> usize) -> usize {
    let (mut last, mut since) = (number(), 0);
    while since < 20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = number();
        (last, since) = if now == last { (last, since + 1) } else { (now, 0) };
    }
    last
}

/// Checks that the client's connection is open, and that the server answers another request on this connection.
async fn others_are_answered(client: &mut SendRequest<Empty<Bytes>>, server: &Server) {
    client.ready().await.expect("the connection is open");
    let answer = tokio::time::timeout(SOON, client.send_request(get(server, "/"))).await;
    assert_eq!(answer.expect("another answer").unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn unread_response_is_cut_after_a_minute() {
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let (mut stuck, mut idle, mut pages) = (reluctant(&server).await, server.http2().await, reluctant(&server).await);
    let unread = stuck.send_request(get(&server, "/endless")).await.unwrap();
    let _idle = idle.send_request(get(&server, "/idle")).await.unwrap();
    let _log = pages.send_request(get(&server, "/log")).await.unwrap();
    pass(Duration::from_secs(50)).await;
    assert_eq!(talker.open(), 2, "a minute is not over");
    pass(Duration::from_secs(45)).await;
    until(|| talker.open() == 1).await;
    assert!(text_or_error(unread).await.is_err(), "the client is told that its answer broke off");
    others_are_answered(&mut stuck, &server).await;
    // Connections without unread responses stay open, and so does the connection of a client that reads a log slowly.
    pass(Duration::from_secs(60)).await;
    idle.ready().await.unwrap();
    pages.ready().await.unwrap();
    assert_eq!(talker.open(), 1);
}

#[tokio::test]
async fn memory_of_an_unread_large_object_is_freed_after_a_timeout() {
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let mut stuck = reluctant(&server).await;
    let unread = stuck.send_request(get(&server, "/large")).await.unwrap();
    pass(Duration::from_secs(95)).await;
    until(|| talker.0.held.load(Ordering::SeqCst) == 0).await;
    assert!(text_or_error(unread).await.is_err());
    assert_eq!(server.unread.get(), 0);
}

#[tokio::test]
async fn unread_response_is_cut_while_other_responses_are_read() {
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let mut client = reluctant(&server).await;
    let _endless = client.send_request(get(&server, "/endless")).await.unwrap();
    let _large = client.send_request(get(&server, "/large")).await.unwrap();
    for _ in 0..6 {
        pass(Duration::from_secs(15)).await;
        others_are_answered(&mut client, &server).await;
    }
    until(|| talker.open() == 0 && talker.0.held.load(Ordering::SeqCst) == 0).await;
    others_are_answered(&mut client, &server).await;
}

#[tokio::test]
async fn concurrent_responses_to_a_slow_client_are_limited() {
    const WAITING: usize = 100;
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let mut stuck = reluctant(&server).await;
    let late = |method: &str| {
        let mut request = get(&server, "/late");
        *request.method_mut() = method.parse().unwrap();
        request
    };
    let asked: Vec<_> = (0..WAITING).map(|_| stuck.send_request(late("GET"))).collect();
    let asked = tokio::spawn(join_all(asked));
    until(|| talker.0.late.load(Ordering::SeqCst) == WAITING).await;
    talker.0.go.notify_waiters();
    let answers = tokio::time::timeout(SOON, asked).await.expect("all are answered").unwrap();
    let (given, refused): (Vec<_>, Vec<_>) =
        answers.into_iter().map(Result::unwrap).partition(|answer| answer.status() == StatusCode::OK);
    assert!((1..=20).contains(&given.len()), "{} are held for a client that takes none", given.len());
    assert_eq!(talker.0.held.load(Ordering::SeqCst), given.len());
    for answer in &refused {
        assert_eq!(
            (answer.status(), &answer.headers()[header::RETRY_AFTER]),
            (StatusCode::TOO_MANY_REQUESTS, &"1".parse().unwrap())
        );
    }
    assert_eq!(server.refused(ListenerRefusal::TooManyUnread), refused.len() as u64);
    // The listener never withholds the response to a write that the handler has executed.
    let mut stuck = reluctant(&server).await;
    let asked: Vec<_> = (0..20).map(|_| stuck.send_request(late("POST"))).collect();
    let asked = tokio::spawn(join_all(asked));
    until(|| talker.0.late.load(Ordering::SeqCst) == WAITING + 20).await;
    talker.0.go.notify_waiters();
    let answers = tokio::time::timeout(SOON, asked).await.expect("all are answered").unwrap();
    assert!(answers.into_iter().all(|answer| answer.unwrap().status() == StatusCode::OK));
}

/// The handler itself may refuse a request. If its error response exceeds the free memory, the listener withholds this
/// response, and counts the request as refused.
#[tokio::test]
async fn withheld_error_response_is_counted_as_refused() {
    const WAITING: usize = 100;
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let mut stuck = reluctant(&server).await;
    let asked: Vec<_> = (0..WAITING).map(|_| stuck.send_request(get(&server, "/late/refused"))).collect();
    let asked = tokio::spawn(join_all(asked));
    until(|| talker.0.late.load(Ordering::SeqCst) == WAITING).await;
    talker.0.go.notify_waiters();
    let answers = tokio::time::timeout(SOON, asked).await.expect("all are answered").unwrap();
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert!(answers.iter().all(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS));
    // Only the listener's own 429 has a Retry-After.
    let ours = answers.iter().filter(|answer| answer.headers().contains_key(header::RETRY_AFTER)).count();
    assert!((WAITING - 20..WAITING).contains(&ours), "{ours} are refused for want of room");
    assert_eq!(server.refused(ListenerRefusal::TooManyUnread), ours as u64);
}

#[tokio::test]
async fn write_with_a_late_body_is_refused_if_memory_is_short() {
    const WRITES: usize = 100;
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let mut stuck = reluctant::<Body>(&server).await;
    let come = CancellationToken::new();
    let asked: Vec<_> = (0..WRITES)
        .map(|_| {
            let come = come.clone().cancelled_owned();
            let body = futures::stream::once(come.map(|()| Ok(Frame::data(Bytes::from_static(b"{}")))));
            let write = server.request("/write").method(Method::PATCH);
            stuck.send_request(write.body(StreamBody::new(body).boxed_unsync()).unwrap())
        })
        .collect();
    let asked = tokio::spawn(join_all(asked));
    until(|| talker.0.late.load(Ordering::SeqCst) == WRITES).await;
    come.cancel();
    let answers = tokio::time::timeout(SOON, asked).await.expect("all are answered").unwrap();
    let (made, refused): (Vec<_>, Vec<_>) =
        answers.into_iter().map(Result::unwrap).partition(|answer| answer.status() == StatusCode::OK);
    let held = talker.0.held.load(Ordering::SeqCst);
    assert!(held * LARGE_BYTES <= 17 << 20, "{held} objects are held for a client that takes none");
    assert_eq!(talker.objects(), made.len(), "what is refused must not have been carried out");
    assert_eq!(server.refused(ListenerRefusal::TooManyUnread), refused.len() as u64);
    assert!(refused.iter().all(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS));
}

#[tokio::test]
async fn unread_bytes_of_all_connections_are_limited() {
    const CONNECTIONS: usize = 16;
    const STREAMS: usize = 20;
    let talker = Talker::default();
    let server = start_within(Bounds { unread_bytes: 4 << 20, ..Bounds::default() }, talker.clone()).await;
    let mut stuck = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = reluctant(&server).await;
        let asked: Vec<_> = (0..STREAMS).map(|_| client.send_request(get(&server, "/log"))).collect();
        stuck.push((tokio::spawn(join_all(asked)), client));
    }
    until(|| talker.bytes() > 0).await;
    // Without the limit, each connection would have 20 MiB of unread bytes. The limit is checked before each frame, so
    // each connection may exceed the limit by one frame.
    let made = settled(|| talker.bytes()).await;
    assert!(made <= (4 << 20) + (CONNECTIONS + 1) * FRAME_BYTES, "{made} bytes are made for clients that take none");
    // The listener does not delay clients that read.
    let mut other = server.http2().await;
    let answer = tokio::time::timeout(SOON, other.send_request(get(&server, "/large"))).await.expect("it is answered");
    assert_eq!(text(answer.unwrap()).await.len(), LARGE_BYTES);
    // The limit for all connections is exceeded, so even followed logs may not stay unread. The listener cuts these log
    // responses one by one.
    for _ in 0..12 {
        pass(Duration::from_secs(30)).await;
    }
    until(|| talker.open() * FRAME_BYTES <= 4 << 20).await;
    assert!(server.unread.get() <= 4 << 20);
}

#[tokio::test]
async fn first_connections_do_not_use_all_memory_for_unread_bytes() {
    const STREAMS: usize = 80;
    let talker = Talker::default();
    let server = start_within(Bounds { unread_bytes: 4 << 20, ..Bounds::default() }, talker.clone()).await;
    let mut greedy = Vec::new();
    let mut before = 0;
    // Each new connection may use half of the free memory, and one additional frame, because the check happens before
    // the frame.
    for most in [2 << 20, 1 << 20, 512 << 10, 256 << 10] {
        let mut client = reluctant(&server).await;
        let asked: Vec<_> = (0..STREAMS).map(|_| client.send_request(get(&server, "/log"))).collect();
        greedy.push((tokio::spawn(join_all(asked)), client));
        until(|| talker.bytes() > before).await;
        let made = settled(|| talker.bytes()).await;
        let given = made - before;
        assert!(given <= most + 2 * FRAME_BYTES, "{given} bytes, of which it may have {most}");
        assert!(given >= most / 2, "{given} bytes, of which it may have {most}");
        before = made;
    }
    let mut pages = reluctant(&server).await;
    let log = pages.send_request(get(&server, "/log")).await.unwrap();
    pass(Duration::from_secs(120)).await;
    // The listener cuts responses of clients with many unread bytes. The response to a client that reads a log slowly
    // continues.
    let mut log = log.into_body();
    for _ in 0..100 {
        let frame = tokio::time::timeout(SOON, log.frame()).await.expect("the log goes on").expect("no end");
        assert_eq!(frame.expect("it is not cut").into_data().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn unread_bytes_of_one_connection_are_limited() {
    const STREAMS: usize = 400;
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let mut stuck = reluctant(&server).await;
    let asked: Vec<_> = (0..STREAMS).map(|_| stuck.send_request(get(&server, "/endless"))).collect();
    let _flood = tokio::spawn(join_all(asked));
    until(|| talker.bytes() > 0).await;
    let made = settled(|| talker.bytes()).await;
    assert!(made <= 17 << 20, "{made} bytes are made for a client that takes none");

    let mut stuck = reluctant(&server).await;
    let asked: Vec<_> = (0..STREAMS).map(|_| stuck.send_request(get(&server, "/large"))).collect();
    let _flood = tokio::spawn(join_all(asked));
    until(|| talker.objects() > 0).await;
    let made = settled(|| talker.objects()).await;
    assert!(made <= 20, "{made} objects of 1 MiB are made for a client that takes none");
    let mut other = server.http2().await;
    let answer = tokio::time::timeout(SOON, other.send_request(get(&server, "/livez")));
    assert_eq!(answer.await.expect("others are answered meanwhile").unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn requests_without_free_memory_get_a_429() {
    const STREAMS: usize = 20;
    /// The size of an unusually large response head, in bytes.
    const HEAD_BYTES: usize = 200 << 10;
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let mut stuck = reluctant(&server).await;
    let asked: Vec<_> = (0..STREAMS).map(|_| stuck.send_request(get(&server, "/large"))).collect();
    let _flood = tokio::spawn(join_all(asked));
    until(|| talker.objects() > 0).await;
    let before = settled(|| talker.objects()).await;
    let head: Vec<_> = (0..HEAD_BYTES / 1024).map(|at| (format!("x-{at}"), "x".repeat(1024))).collect();
    let refused = Arc::new(AtomicUsize::new(0));
    for at in 0..100 {
        let method = if at % 2 == 0 { Method::GET } else { Method::PATCH };
        let request = server.request("/large").method(method);
        let request = head.iter().fold(request, |request, (name, value)| request.header(name, value));
        let (asked, refused) = (stuck.send_request(request.body(Empty::new()).unwrap()), Arc::clone(&refused));
        tokio::spawn(async move {
            let answer = asked.await.unwrap();
            assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
            refused.fetch_add(1, Ordering::SeqCst);
        });
    }
    let refused = || refused.load(Ordering::SeqCst);
    until(|| refused() > 0).await;
    let waiting = 100 - settled(refused).await;
    assert!(waiting > 0 && waiting * HEAD_BYTES <= 4 << 20, "{waiting} heads of 200 KiB are held");
    pass(Duration::from_secs(15)).await;
    until(|| refused() == 100).await;
    assert_eq!(talker.objects(), before, "what is refused must not have been carried out");
}

/// A client's connection that reads nothing while `is_deaf` is true.
struct Deaf<S> {
    stream: S,
    is_deaf: Arc<AtomicBool>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Deaf<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.is_deaf.load(Ordering::SeqCst) {
            true => Poll::Pending,
            false => Pin::new(&mut self.stream).poll_read(cx, buf),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Deaf<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Opens a client with large HTTP/2 windows. Also returns the switch that makes its connection read nothing.
async fn deafened(server: &Server) -> (SendRequest<Empty<Bytes>>, Arc<AtomicBool>) {
    let is_deaf = Arc::new(AtomicBool::new(false));
    let stream = server.connect(&rustls::version::TLS13, "h2").await;
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1 << 20).initial_connection_window_size((1 << 31) - 1);
    let deaf = Deaf { stream, is_deaf: Arc::clone(&is_deaf) };
    let (mut client, connection) = builder.handshake(TokioIo::new(deaf)).await.unwrap();
    tokio::spawn(connection);
    others_are_answered(&mut client, server).await;
    (client, is_deaf)
}

#[tokio::test]
async fn bytes_buffered_by_http2_count_as_unread() {
    const STREAMS: usize = 400;
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let (mut client, is_deaf) = deafened(&server).await;
    // Here, the HTTP/2 windows allow all responses. Only the full buffers of the socket stop the server.
    is_deaf.store(true, Ordering::SeqCst);
    let asked: Vec<_> = (0..STREAMS).map(|_| client.send_request(get(&server, "/medium"))).collect();
    let _flood = tokio::spawn(join_all(asked));
    let held = || talker.0.held.load(Ordering::SeqCst);
    until(|| held() > 0).await;
    settled(|| talker.objects()).await;
    assert!(held() * MEDIUM_BYTES <= 17 << 20, "{} objects are held for a client that takes none", held());
    assert!(server.unread.get() > 0, "what is held is counted");
    // HTTP/2 has buffered the complete responses, so the listener can only close the connection.
    pass(Duration::from_secs(95)).await;
    until(|| held() == 0).await;
    assert_eq!(server.unread.get(), 0);
}

#[tokio::test]
async fn stream_bytes_buffered_by_http2_count_as_unread() {
    const STREAMS: usize = 400;
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let (mut client, is_deaf) = deafened(&server).await;
    is_deaf.store(true, Ordering::SeqCst);
    let asked: Vec<_> = (0..STREAMS).map(|_| client.send_request(get(&server, "/silent"))).collect();
    let _flood = tokio::spawn(join_all(asked));
    until(|| talker.bytes() > 0).await;
    let made = settled(|| talker.bytes()).await;
    let counted = usize::try_from(server.unread.get()).unwrap();
    // The bytes that are not counted are in the kernel's buffers.
    assert!(counted >= made / 2, "of {made} bytes {counted} are counted");
    assert!(counted <= 17 << 20, "{counted} bytes are held for a client that takes none");
    // The server sends no keep-alive PINGs to a client that continues to send requests. So a missing answer to a PING
    // is not the reason for the end of the connection.
    let mut asked = Vec::new();
    while talker.open() > 0 || server.connections.get() > 0 {
        assert!(asked.len() < 20, "{} answers are held for a client that takes none", talker.open());
        asked.push(client.send_request(get(&server, "/livez")));
        pass(Duration::from_secs(20)).await;
    }
    until(|| server.unread.get() == 0).await;
}

#[tokio::test]
async fn small_response_frames_count_with_their_memory_overhead() {
    const STREAMS: usize = 4;
    /// The minimum size of a frame in the accounting, in bytes, whatever its content.
    const FRAME_COSTS: usize = 256;
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let (mut client, is_deaf) = deafened(&server).await;
    is_deaf.store(true, Ordering::SeqCst);
    let asked: Vec<_> = (0..STREAMS).map(|_| client.send_request(get(&server, "/crumbs"))).collect();
    let _flood = tokio::spawn(join_all(asked));
    let held = || talker.0.held.load(Ordering::SeqCst);
    until(|| held() > 0).await;
    // The frames that are not counted are in the kernel's buffers.
    let held = settled(held).await;
    assert!(held * FRAME_COSTS <= 17 << 20, "{held} frames are held for a client that takes none");
}

#[tokio::test]
async fn connection_without_unread_bytes_may_write_when_memory_is_full() {
    const BYTES: usize = 1 << 20;
    let talker = Talker::default();
    let server = start_within(Bounds { unread_bytes: BYTES, ..Bounds::default() }, talker.clone()).await;
    let write = || {
        let mut request = get(&server, "/large");
        *request.method_mut() = Method::PATCH;
        request
    };
    // No connection may use all free memory, and each connection may exceed the limit by one frame.
    let mut stuck = Vec::new();
    while server.unread.get() < i64::try_from(BYTES).unwrap() {
        let mut client = reluctant(&server).await;
        let before = talker.bytes();
        let asked: Vec<_> = (0..16).map(|_| client.send_request(get(&server, "/log"))).collect();
        stuck.push((tokio::spawn(join_all(asked)), client));
        until(|| talker.bytes() > before).await;
        settled(|| talker.bytes()).await;
    }
    // A write on a connection with many unread bytes waits for free memory until it is refused.
    let _waiting = stuck[0].1.send_request(write());
    // A write on a connection without unread bytes is not refused, so that a few slow clients cannot block all writes.
    assert!(server.unread.get() >= i64::try_from(BYTES).unwrap());
    let mut other = server.http2().await;
    let made = other.send_request(write()).await.unwrap();
    assert_eq!(made.status(), StatusCode::OK);
    assert_eq!(text(made).await.len(), LARGE_BYTES);
    assert_eq!(talker.objects(), 1, "what there is no room for must not be carried out");
}

#[tokio::test]
async fn reading_client_receives_every_byte_of_many_responses() {
    let server = start(Talker::default()).await;
    let mut client = server.http2().await;
    let asked: Vec<_> = (0..50).map(|_| client.send_request(get(&server, "/large"))).collect();
    let answers = join_all(asked.into_iter().map(|asked| async { text(asked.await.unwrap()).await }));
    let answers = tokio::time::timeout(SOON, answers).await.expect("all in time");
    assert!(answers.iter().all(|answer| answer.len() == LARGE_BYTES));
    let mut http1 = server.http1().await;
    let answer = http1.send_request(get(&server, "/large")).await.unwrap();
    assert_eq!(answer.headers()[header::CONTENT_LENGTH], LARGE_BYTES.to_string());
    assert_eq!(text(answer).await.len(), LARGE_BYTES);
}

/// Opens a watch over WebSocket, and returns the upgraded connection. The test sends and receives frames as raw bytes.
pub(crate) async fn watch_over_websocket(server: &Server, path: &str) -> TokioIo<Upgraded> {
    let mut client = server.http1().await;
    let request = server
        .request(path)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::ORIGIN, "https://example.test");
    let response = client.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    TokioIo::new(hyper::upgrade::on(response).await.unwrap())
}

#[tokio::test]
async fn unread_websocket_watch_is_closed() {
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let _unread = watch_over_websocket(&server, "/api/v1/pods?watch=1").await;
    until(|| talker.bytes() > 0).await;
    settled(|| talker.bytes()).await;
    assert_eq!(talker.open(), 1);
    pass(Duration::from_secs(70)).await;
    until(|| talker.open() == 0).await;
}

#[tokio::test]
async fn unread_websocket_pongs_do_not_accumulate() {
    /// A number of bytes that exceeds the kernel's buffers in both directions.
    const BYTES_MAX: usize = 48 << 20;
    /// A WebSocket ping with the largest payload (125 bytes): a head of two bytes, a zero mask of four bytes (RFC 6455
    /// §5.2), and the payload.
    const PING: [u8; 131] = {
        let mut ping = [b'x'; 131];
        (ping[0], ping[1]) = (0x89, 0x80 | 125);
        (ping[2], ping[3], ping[4], ping[5]) = (0, 0, 0, 0);
        ping
    };
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let mut socket = watch_over_websocket(&server, "/api/v1/namespaces/quiet/pods?watch=1").await;
    let (pings, mut sent) = (PING.repeat(500), 0);
    while let Ok(written) = tokio::time::timeout(Duration::from_secs(3), socket.write_all(&pings)).await {
        written.expect("the connection is open");
        sent += pings.len();
        assert!(sent < BYTES_MAX, "{sent} bytes of pings are taken from a client that reads no pong");
    }
    assert_eq!(talker.open(), 1);
    pass(Duration::from_secs(70)).await;
    until(|| talker.open() == 0).await;
}

#[tokio::test]
async fn response_with_a_long_content_length_blocks_no_other_response() {
    let talker = Talker::default();
    let server = start(talker.clone()).await;
    let mut client = reluctant(&server).await;
    let mut promised = Vec::new();
    for _ in 0..4 {
        promised.push(client.send_request(get(&server, "/promised")).await.unwrap());
    }
    pass(Duration::from_secs(95)).await;
    let answer = tokio::time::timeout(SOON, client.send_request(get(&server, "/"))).await;
    assert_eq!(answer.expect("others wait for what is not there yet").unwrap().status(), StatusCode::OK);
}
