//! Known faults of other gateways for Kubernetes APIs, each with a test that has the fault's name. This module covers
//! faults of a listener, which the tests provoke with raw bytes over TLS. A member records the requests that it
//! receives. `docs/precedents.md` lists all faults.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::{Body, full};
use tributary_listener::ListenerRefusal;
use tributary_proxy::{ClientTuning, ClusterClient};
use tributary_router::{
    Answer, ClusterAddress, ClusterAuthorization, ClusterSetup, MemberRules, RequestContext, Router, RouterConfig,
};
use tributary_server::handler::Handler;

use crate::fixture::{SOON, Server, default_handler_methods, start, text};
use crate::frames::{self, Frame};

#[derive(Clone, Debug)]
pub(crate) struct Seen {
    line: String,
    pub(crate) headers: HeaderMap,
    body: Bytes,
}

/// A member that speaks only HTTP/1.1, so that ambiguous bytes would reach the member unchanged. It answers upgrade
/// requests with 101, and all other requests with an empty object.
pub(crate) struct Member {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Member {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let all = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let all = Arc::clone(&all);
                let service = service_fn(move |request| answer(request, Arc::clone(&all)));
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service).with_upgrades());
            }
        });
        Self { address, seen }
    }

    /// Returns the received requests with `part` in their request line, in order. Tributary's own requests do not
    /// contain `part`.
    pub(crate) fn recorded_requests(&self, part: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.line.contains(part)).cloned().collect()
    }
}

async fn answer(mut request: Request<Incoming>, all: Arc<Mutex<Vec<Seen>>>) -> Result<Response<Body>, Infallible> {
    let (line, headers) = (format!("{} {}", request.method(), request.uri()), request.headers().clone());
    if headers.contains_key(header::UPGRADE) {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move { upgrade.await.map(drop) });
        all.lock().unwrap().push(Seen { line, headers, body: Bytes::new() });
        let switch = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let switch = switch.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "websocket");
        return Ok(switch.body(full("")).unwrap());
    }
    let place = {
        let mut all = all.lock().unwrap();
        all.push(Seen { line, headers, body: Bytes::new() });
        all.len() - 1
    };
    // The request is already recorded without its body. If the body fails, the record stays without a body.
    if let Ok(body) = request.into_body().collect().await {
        all.lock().unwrap()[place].body = body.to_bytes();
    }
    let answer = Response::builder().header(header::CONTENT_TYPE, "application/json");
    Ok(answer.body(full("{}")).unwrap())
}

/// Starts the listener over a router with the member as cluster `one`.
async fn over(member: &Member) -> Server {
    start(router_to(member).await).await
}

pub(crate) async fn router_to(member: &Member) -> Arc<Router> {
    let config = kube::Config::new(format!("http://{}", member.address).parse().unwrap());
    let name = ClusterName::new("one").unwrap();
    let client =
        ClusterClient::connect(name.clone(), config, ClientTuning::default()).await.map_err(|error| error.to_string());
    let router = Router::new(RouterConfig::default());
    router.set_clusters(vec![ClusterSetup {
        name,
        client,
        client_generation: 0,
        address: ClusterAddress::from_description(""),
        index: None,
        impersonation: MemberRules::default(),
        authorization: ClusterAuthorization::Auto,
    }]);
    router
}

const ASKED: &str = "/api/v1/namespaces/default/configmaps";
const BODY: &str = r#"{"kind":"ConfigMap"}"#;

/// Returns the request line and the first headers of a request with the token. The caller appends more headers and the
/// body.
fn head(server: &Server, method: &str) -> String {
    format!(
        "{method} /clusters/one{ASKED} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer {}\r\n",
        server.token
    )
}

/// Returns the bytes of a smuggled request, which no server may parse as a request. The bytes contain the token, so
/// Tributary would forward the request if it parsed one.
fn smuggled(server: &Server) -> String {
    format!("GET /clusters/one/smuggled HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", server.token)
}

/// Sends bytes over TLS. Returns all bytes that the server sends until it closes the connection.
async fn exchange(server: &Server, bytes: &[u8]) -> String {
    let mut stream = server.connect(&rustls::version::TLS13, "http/1.1").await;
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    // The server may close the connection without a TLS close_notify.
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await.expect("the connection is closed");
    String::from_utf8(answer).unwrap()
}

fn codes(answers: &str) -> Vec<&str> {
    answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect()
}

/// Content-Length together with Transfer-Encoding: RFC 9112 §6.3 allows a server to refuse the request, or to use the
/// Transfer-Encoding and close the connection. hyper uses the Transfer-Encoding, and so does Go's net/http in
/// kube-apiserver.
///
/// Code around hyper cannot refuse the request, because hyper removes the Content-Length before a service gets the
/// head. A second parser in front of hyper would itself make smuggling possible.
///
/// The request is harmless. hyper never parses the following bytes as a request, no matter which of the two framings a
/// proxy in front of Tributary uses. The request to the member gets new framing for the body that was read.
#[tokio::test]
async fn request_smuggling_by_two_framings_closes_the_connection() {
    let member = Member::start().await;
    let server = over(&member).await;
    let chunk = format!("{:x}\r\n{BODY}\r\n", BODY.len());
    let smuggled = smuggled(&server);
    let behind = format!("{chunk}0\r\n\r\n{smuggled}");
    let within = format!("{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len());
    for (framing, sent, body) in [
        // A server that uses the Content-Length reads all bytes as one body. Tributary uses the chunks. If Tributary
        // kept the connection open, it would answer the smuggled request after the last chunk.
        (format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", behind.len()), &behind, BODY),
        (format!("Transfer-Encoding: chunked\r\nContent-Length: {}\r\n", behind.len()), &behind, BODY),
        // A server that uses the Content-Length would end the body within the chunks and read the remainder as a second
        // request. Tributary uses the chunks.
        ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n".to_owned(), &within, &*smuggled),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n".to_owned(), &within, &*smuggled),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\nContent-Length: 9\r\n".to_owned(), &behind, BODY),
    ] {
        let before = member.recorded_requests(ASKED).len();
        let answers = exchange(&server, format!("{}{framing}\r\n{sent}", head(&server, "POST")).as_bytes()).await;
        assert_eq!(codes(&answers), ["200"], "{framing}: {answers}");
        let recorded_requests = member.recorded_requests(ASKED);
        assert_eq!(recorded_requests.len() - before, 1, "{framing}");
        assert_eq!(recorded_requests[before].body, body, "{framing}");
        let framed: Vec<_> = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING]
            .iter()
            .filter(|name| recorded_requests[before].headers.contains_key(*name))
            .cloned()
            .collect();
        assert_eq!(framed.len(), 1, "{framing}: {framed:?}");
    }
    assert!(member.recorded_requests("smuggled").is_empty());
}

/// Tributary answers ambiguous framing with 400, and the member receives no byte of the request.
#[tokio::test]
async fn request_smuggling_by_ambiguous_headers_is_400() {
    let member = Member::start().await;
    let server = over(&member).await;
    let rest = format!("{BODY}{}", smuggled(&server));
    for lines in [
        "Content-Length: 20\r\nContent-Length: 21\r\n",
        "Content-Length: 20, 20\r\n",
        "Content-Length: +20\r\n",
        "Content-Length: 0x14\r\n",
        "Content-Length: \r\n",
        "Content-Length: 20\r\n 0\r\n",
        "X-Folded: a\r\n b\r\nContent-Length: 20\r\n",
        "X-Folded: a\r\n\tTransfer-Encoding: chunked\r\nContent-Length: 20\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 20\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Content-Length: 20\r\nX-Return: a\rTransfer-Encoding: chunked\r\n",
        "Content-Length: 20\r\nX-Zero: a\0b\r\n",
        "Content-Length: 20\r\n\rX: y\r\n",
        ": no name\r\nContent-Length: 20\r\n",
        "no colon\r\nContent-Length: 20\r\n",
    ] {
        let answers = exchange(&server, format!("{}{lines}\r\n{rest}", head(&server, "POST")).as_bytes()).await;
        assert_eq!(codes(&answers), ["400"], "{lines:?}: {answers}");
    }
    let old = head(&server, "POST").replace("HTTP/1.1", "HTTP/1.0");
    let answers = exchange(&server, format!("{old}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n").as_bytes()).await;
    assert!(answers.contains(" 400 "), "{answers}");
    assert!(member.recorded_requests(ASKED).is_empty() && member.recorded_requests("smuggled").is_empty());
}

/// Tributary aborts a request whose chunks two servers could delimit differently. The member may receive the head, but
/// neither the end of the body nor any byte after the body.
#[tokio::test]
async fn request_smuggling_by_malformed_chunks_aborts_the_request() {
    let member = Member::start().await;
    let server = over(&member).await;
    let smuggled = smuggled(&server);
    for chunks in [
        format!("14\n{BODY}\r\n0\r\n\r\n{smuggled}"),
        format!("14;a\nb\r\n{BODY}\r\n0\r\n\r\n{smuggled}"),
        format!("14\r\n{BODY}xx0\r\n\r\n{smuggled}"),
        format!("14\r\n{BODY}\n0\r\n\r\n{smuggled}"),
        format!("-14\r\n{BODY}\r\n0\r\n\r\n{smuggled}"),
        format!("0x14\r\n{BODY}\r\n0\r\n\r\n{smuggled}"),
        format!("10000000000000014\r\n{BODY}\r\n0\r\n\r\n{smuggled}"),
    ] {
        let bytes = format!("{}Transfer-Encoding: chunked\r\n\r\n{chunks}", head(&server, "POST"));
        let answers = exchange(&server, bytes.as_bytes()).await;
        assert!(codes(&answers).iter().all(|code| *code != "200"), "{chunks:?}: {answers}");
    }
    assert!(member.recorded_requests(ASKED).iter().all(|seen| seen.body.is_empty()));
    assert!(member.recorded_requests("smuggled").is_empty());
}

/// A bare line feed ends a line: RFC 9112 §2.2 allows it, and Go's net/textproto in kube-apiserver accepts it. The line
/// feed is harmless, because Tributary writes a new head for the member. The member receives each header once, and no
/// second request.
#[tokio::test]
async fn request_smuggling_by_bare_line_feeds_is_one_request() {
    let member = Member::start().await;
    let server = over(&member).await;
    let bare =
        format!("{}Traceparent: a\nContent-Length: {}\nConnection: close\n\n{BODY}", head(&server, "POST"), BODY.len());
    for bytes in [bare.clone(), bare.replace("\r\n", "\n")] {
        let before = member.recorded_requests(ASKED).len();
        let answers = exchange(&server, bytes.as_bytes()).await;
        assert_eq!(codes(&answers), ["200"], "{answers}");
        let recorded_requests = member.recorded_requests(ASKED);
        assert_eq!(
            (
                recorded_requests.len() - before,
                &recorded_requests[before].headers["traceparent"],
                &recorded_requests[before].body[..]
            ),
            (1, &"a".parse().unwrap(), BODY.as_bytes())
        );
        assert!(!recorded_requests[before].headers.contains_key(header::AUTHORIZATION));
    }
}

/// The authority in a request target of absolute form selects neither a member nor a path.
#[tokio::test]
async fn request_smuggling_by_absolute_targets_reaches_no_other_server() {
    let member = Member::start().await;
    let server = over(&member).await;
    let target = format!("http://evil.example:1/clusters/one{ASKED}");
    let bytes =
        head(&server, "GET").replacen(&format!("/clusters/one{ASKED}"), &target, 1) + "Connection: close\r\n\r\n";
    assert_eq!(codes(&exchange(&server, bytes.as_bytes()).await), ["200"]);
    let recorded_requests = member.recorded_requests("");
    let seen = recorded_requests.iter().find(|seen| seen.line.contains(ASKED)).unwrap();
    assert_eq!(
        (&*seen.line, &seen.headers["host"]),
        (&*format!("GET {ASKED}"), &member.address.to_string().parse().unwrap())
    );
    assert!(recorded_requests.iter().all(|seen| !format!("{seen:?}").contains("evil")), "{recorded_requests:?}");
    // Tributary refuses paths that leave the cluster's prefix.
    for target in
        ["//evil.example/api", "/clusters/one/../two/api", "/clusters/one/%2e%2e/two", "/clusters/one//api", "*"]
    {
        let bytes = format!(
            "GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            server.token
        );
        let answers = exchange(&server, bytes.as_bytes()).await;
        assert!(matches!(codes(&answers)[..], ["400" | "404" | "405"]), "{target}: {answers}");
    }
    assert!(member.recorded_requests("evil").is_empty() && member.recorded_requests("two").is_empty());
}

struct Raw {
    read: ReadHalf<TlsStream<TcpStream>>,
    write: WriteHalf<TlsStream<TcpStream>>,
}

impl Raw {
    async fn open(server: &Server) -> Self {
        let (read, mut write) = tokio::io::split(server.connect(&rustls::version::TLS13, "h2").await);
        write.write_all(frames::PREFACE).await.unwrap();
        Self { read, write }
    }

    /// Returns the header block of a request with the token.
    fn headers(server: &Server, method: &str, path: &str, more: &[(&str, &[u8])]) -> Vec<u8> {
        let token = format!("Bearer {}", server.token);
        let own: [(&str, &[u8]); 5] = [
            (":method", method.as_bytes()),
            (":scheme", b"https"),
            (":authority", b"x"),
            (":path", path.as_bytes()),
            ("authorization", token.as_bytes()),
        ];
        own.iter().chain(more).flat_map(|(name, value)| frames::literal(name, value)).collect()
    }

    /// Reads frames until `wanted` accepts one. Returns `None` if the connection ends first.
    async fn until(&mut self, mut wanted: impl FnMut(&Frame) -> bool) -> Option<Frame> {
        let next = async {
            loop {
                match Frame::read(&mut self.read).await {
                    Ok(frame) if wanted(&frame) => return Some(frame),
                    Ok(_) => {}
                    Err(_) => return None,
                }
            }
        };
        tokio::time::timeout(SOON, next).await.expect("a frame, or the end of the connection")
    }
}

/// A header value with a line end is malformed in HTTP/2 (RFC 9113 §8.2.1). The listener resets the stream before it
/// authenticates or forwards the request.
#[tokio::test]
async fn request_smuggling_from_http2_to_http1_is_refused_before_the_member() {
    let member = Member::start().await;
    let server = over(&member).await;
    let path = format!("/clusters/one{ASKED}");
    let split = format!("{path} HTTP/1.1\r\nImpersonate-User: root\r\nX: y");
    let smuggled = smuggled(&server);
    let injected = format!("a\r\n\r\n{smuggled}");
    type Headers<'a> = Vec<(&'a str, &'a [u8])>;
    let cases: [(&str, Headers<'_>); 11] = [
        (&path, vec![("traceparent", b"a\r\nImpersonate-User: root")]),
        (&path, vec![("traceparent", injected.as_bytes())]),
        (&path, vec![("traceparent", b"a\nb")]),
        (&path, vec![("traceparent", b"a\rb")]),
        (&path, vec![("traceparent", b"a\0b")]),
        (&path, vec![("traceparent\r\nimpersonate-user", b"root")]),
        (&path, vec![("traceparent: a\r\nx", b"b")]),
        (&path, vec![("X-Upper", b"a")]),
        (&path, vec![("transfer-encoding", b"chunked")]),
        (&path, vec![("connection", b"upgrade"), ("upgrade", b"websocket")]),
        (&split, vec![]),
    ];
    for (path, more) in cases {
        let mut client = Raw::open(&server).await;
        let block = Raw::headers(&server, "GET", path, &more);
        client.write.write_all(&frames::headers(1, &block, true)).await.unwrap();
        client.write.flush().await.unwrap();
        let refused = client
            .until(|frame| matches!(frame.kind, frames::RST_STREAM | frames::GOAWAY) || frame.kind == frames::HEADERS)
            .await;
        // The listener may also answer 400, if it cannot parse the path.
        let is_refused =
            refused.as_ref().is_none_or(|frame| frame.kind != frames::HEADERS || frames::status(frame) == Some(400));
        assert!(is_refused, "{path:?} {more:?}: {refused:?}");
    }
    // The body is longer than its Content-Length. The member must not parse the excess bytes as a request.
    let mut client = Raw::open(&server).await;
    let length = BODY.len().to_string();
    let more: [(&str, &[u8]); 2] = [("content-type", b"application/json"), ("content-length", length.as_bytes())];
    let block = Raw::headers(&server, "POST", &path, &more);
    let data = frames::data(1, format!("{BODY}{smuggled}").as_bytes(), true);
    client.write.write_all(&[frames::headers(1, &block, false), data].concat()).await.unwrap();
    client.write.flush().await.unwrap();
    let answer =
        client.until(|frame| matches!(frame.kind, frames::RST_STREAM | frames::GOAWAY | frames::HEADERS)).await;
    assert!(answer.is_none_or(|frame| frames::status(&frame) != Some(200)));
    assert!(member.recorded_requests(ASKED).iter().all(|seen| seen.body.is_empty()));
    assert!(member.recorded_requests("smuggled").is_empty());
}

/// A handler that answers immediately, and counts requests other than health checks.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl Counting {
    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        if request.uri().path() != "/livez" {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Response::new(full("ok"))
    }
}

impl Handler for Counting {
    async fn handle(&self, request: Request<Body>, _context: &RequestContext) -> Answer {
        self.respond(request).await.into()
    }

    default_handler_methods!();
}

/// The maximum median time of another client's `/livez` requests during a flood. On a busy machine any single response
/// may be late, so the test uses the median.
const LIVEZ_WITHIN: Duration = Duration::from_secs(1);

const LIVEZ_TIMES: usize = 21;

const FLOODS: usize = 4;

/// Sends the pieces on a new connection until the server accepts no more, and waits until the server closes the
/// connection. Returns the error code of the server's GOAWAY, if the client received a GOAWAY.
async fn flood(server: &Server, pieces: &[Vec<u8>]) -> Option<u32> {
    let Raw { mut read, mut write } = Raw::open(server).await;
    let reading = async {
        let mut code = None;
        while let Ok(frame) = Frame::read(&mut read).await {
            if frame.kind == frames::GOAWAY {
                code = Some(frames::goaway_code(&frame));
            }
        }
        code
    };
    let writing = async {
        for piece in pieces {
            if write.write_all(piece).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, async { tokio::join!(reading, writing).0 })
        .await
        .expect("the server closes the connection")
}

/// Floods repeatedly from several connections. Checks that the server closes each of them and still answers other
/// clients. Returns the number of closed connections.
async fn floods_are_ended(server: &Server, pieces: &[Vec<u8>]) -> usize {
    let is_over = AtomicBool::new(false);
    let floods = (0..FLOODS).map(async |_| {
        let mut ended = 0;
        while !is_over.load(Ordering::SeqCst) {
            let code = flood(server, pieces).await;
            // The client may not receive the GOAWAY, because the server closes the socket.
            assert!(matches!(code, None | Some(frames::ENHANCE_YOUR_CALM)), "{code:?}");
            ended += 1;
        }
        ended
    });
    let health = async {
        let mut client = server.http2().await;
        let mut took = Vec::new();
        for _ in 0..LIVEZ_TIMES {
            let begun = Instant::now();
            let request = server.bare("/livez").body(Empty::new()).unwrap();
            let answered = async { text(client.send_request(request).await.unwrap()).await };
            assert_eq!(tokio::time::timeout(SOON, answered).await.expect("an answer"), "ok");
            took.push(begun.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        is_over.store(true, Ordering::SeqCst);
        took.sort();
        took
    };
    let (ended, took) = tokio::join!(futures::future::join_all(floods), health);
    assert!(took[LIVEZ_TIMES / 2] < LIVEZ_WITHIN, "/livez took {took:?}");
    let closed = async {
        while server.connections.get() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, closed).await.expect("their connections are closed");
    ended.iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2023_44487_rapid_resets_end_their_connection() {
    const STREAMS: u32 = 5_000;
    let handler = Counting::default();
    let server = start(handler.clone()).await;
    let block = Raw::headers(&server, "GET", "/api/v1/pods", &[]);
    let streams: Vec<_> = (0..STREAMS).map(|number| 2 * number + 1).collect();
    let reset = |stream: &u32| [frames::headers(*stream, &block, true), frames::reset(*stream)].concat();
    let pieces: Vec<Vec<u8>> = streams.chunks(100).map(|chunk| chunk.iter().flat_map(reset).collect()).collect();
    let ended = floods_are_ended(&server, &pieces).await;
    let (begun, sent) = (handler.0.load(Ordering::SeqCst), ended * STREAMS as usize);
    assert!(begun < sent / 10, "{begun} requests of {sent} were begun");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2023_44487_floods_of_continuations_end_their_connection() {
    let handler = Counting::default();
    let server = start(handler.clone()).await;
    let begun = Raw::headers(&server, "GET", "/api/v1/pods", &[]);
    for more in [Vec::new(), frames::literal("x", b"y"), frames::literal("x-large", &[b'a'; 16_000])] {
        let more = std::iter::repeat_n(frames::continuation(1, &more), 2_000);
        let pieces: Vec<_> = std::iter::once(frames::headers_begun(1, &begun)).chain(more).collect();
        floods_are_ended(&server, &pieces).await;
    }
    assert_eq!(handler.0.load(Ordering::SeqCst), 0);
}

const UNFINISHED: usize = 200;

/// Opens connections that send `bytes` and then nothing. Returns the connections as soon as the server keeps at most
/// `at_most` of them open.
async fn unfinished(server: &Server, alpn: &str, bytes: &[u8], at_most: i64) -> Vec<TlsStream<TcpStream>> {
    let opened = futures::future::join_all((0..UNFINISHED).map(async |_| {
        let mut stream = server.connect(&rustls::version::TLS13, alpn).await;
        // The server may have closed the connection already, so a failed write is ignored.
        let _ = stream.write_all(bytes).await;
        let _ = stream.flush().await;
        stream
    }));
    let opened = opened.await;
    let few_left = async {
        while server.connections.get() > at_most {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // The test's time limit is shorter than the timeout of unauthenticated connections, so the timeout is not the cause
    // of a close.
    tokio::time::timeout(Duration::from_secs(20), few_left).await.expect("those for which there is no room are closed");
    opened
}

/// An unfinished head needs memory before its headers can be counted: in HTTP/2 one byte can encode a header of 72
/// bytes. The listener therefore has a fixed number of permits for long heads. While all permits are in use, the
/// listener still answers requests with heads of the usual size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2023_44487_number_of_unfinished_heads_is_limited() {
    /// The number of permits for long heads, for all connections together.
    const LONG_HEADS_MAX: i64 = 64;
    let handler = Counting::default();
    let server = start(handler.clone()).await;
    // The header `age` without a value is one byte, an index of the static table (RFC 7541 appendix A). The unfinished
    // head consists of two frames.
    let small = |count| vec![0x95; count];
    let over_http2 =
        [frames::PREFACE, &frames::headers_begun(1, &small(16_000)), &frames::continuation(1, &small(14_000))].concat();
    let authority = server.address.to_string();
    // The trailers belong to a stream that stays open because the client does not read the response.
    let head = [(":method", "GET"), (":scheme", "https"), (":authority", &*authority), (":path", "/api")];
    let head = head.map(|(name, value)| frames::literal(name, value.as_bytes())).concat();
    let trailers = [
        frames::PREFACE,
        &frames::no_window(),
        &frames::headers(1, &head, false),
        &frames::headers(1, &small(7_400), true),
    ];
    let over_http1 = |count| [b"GET /api HTTP/1.1\r\nHost: x\r\nX-Long: ".to_vec(), vec![b'a'; count]].concat();
    for (alpn, bytes, at_most) in [
        ("h2", trailers.concat(), 0),
        ("h2", over_http2, LONG_HEADS_MAX),
        ("http/1.1", over_http1(240_000), LONG_HEADS_MAX),
        ("http/1.1", over_http1(900_000), 0),
    ] {
        let held = unfinished(&server, alpn, &bytes, at_most).await;
        let request = || server.request("/api").body(Empty::new()).unwrap();
        assert_eq!(server.http2().await.send_request(request()).await.unwrap().status(), StatusCode::OK);
        assert_eq!(server.http1().await.send_request(request()).await.unwrap().status(), StatusCode::OK);
        drop(held);
        let closed = async {
            while server.connections.get() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(SOON, closed).await.expect("nothing is left of them");
    }
    assert_eq!(handler.0.load(Ordering::SeqCst), 8);
    assert_eq!(server.refused(ListenerRefusal::TooManyTrailers), UNFINISHED as u64);
}

/// h2 keeps trailers in memory until their stream ends, and a client can keep its stream open.
#[tokio::test]
async fn cve_2023_44487_connection_with_many_trailers_is_closed() {
    let server = start(Counting::default()).await;
    let mut stream = server.connect(&rustls::version::TLS13, "h2").await;
    let (authority, authorization) = (server.address.to_string(), format!("Bearer {}", server.token));
    let head = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", &*authority),
        (":path", "/api"),
        ("authorization", &*authorization),
    ];
    let head = head.map(|(name, value)| frames::literal(name, value.as_bytes())).concat();
    let with_trailers = |number, count| {
        [frames::headers(number, &head, false), frames::headers(number, &vec![0x95; count], true)].concat()
    };
    stream
        .write_all(&[frames::PREFACE, &frames::no_window(), &frames::headers(1, &head, true)].concat())
        .await
        .unwrap();
    let answered = async |stream: &mut TlsStream<TcpStream>| {
        let answer = async {
            loop {
                if frames::status(&frames::Frame::read(stream).await?) == Some(200) {
                    return std::io::Result::Ok(());
                }
            }
        };
        tokio::time::timeout(SOON, answer).await.expect("an answer or an end")
    };
    answered(&mut stream).await.expect("somebody is known now");
    stream.write_all(&with_trailers(3, 100)).await.unwrap();
    answered(&mut stream).await.expect("a few harm nobody");
    stream.write_all(&with_trailers(5, 400)).await.unwrap();
    while answered(&mut stream).await.is_ok() {}
}

#[tokio::test]
async fn cve_2023_44487_connection_is_closed_unless_it_has_authenticated() {
    let handler = Counting::default();
    let server = start(handler.clone()).await;
    let mut stranger = server.http2().await;
    let response = stranger.send_request(server.bare("/api").body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(text(response).await.contains("Unauthorized"), "the answer is whole");
    let closed = async {
        while stranger.ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, closed).await.unwrap();
    let mut known = server.http2().await;
    let ask = |builder: http::request::Builder| builder.body(Empty::new()).unwrap();
    assert_eq!(known.send_request(ask(server.request("/api"))).await.unwrap().status(), StatusCode::OK);
    for _ in 0..3 {
        assert_eq!(known.send_request(ask(server.bare("/api"))).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(known.send_request(ask(server.request("/api"))).await.unwrap().status(), StatusCode::OK);
    assert_eq!(handler.0.load(Ordering::SeqCst), 2);
}

/// A repeated header is one byte in HTTP/2 and about a hundred bytes in memory. Requests that wait for authentication
/// could use gigabytes.
#[tokio::test]
async fn cve_2023_44487_request_with_ten_thousand_headers_is_431() {
    let handler = Counting::default();
    let server = start(handler.clone()).await;
    let mut client = server.http2().await;
    for (headers, expected) in [(900, StatusCode::OK), (10_000, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)] {
        let request = (0..headers).fold(server.request("/api"), |request, _| request.header("x-a", "b"));
        let answer = client.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), expected, "{headers}");
    }
    assert_eq!(handler.0.load(Ordering::SeqCst), 1);
}

/// An exec can also begin with a GET that opens a WebSocket. The router must forward each such GET as an upgrade, and
/// must never answer it from its cache.
#[tokio::test]
async fn kubernikus_996_exec_by_get_is_never_answered_from_memory() {
    let member = Member::start().await;
    let server = over(&member).await;
    let exec = "/api/v1/namespaces/default/pods/p/exec?command=sh&stdin=true";
    for round in 1..=3 {
        let mut stream = server.connect(&rustls::version::TLS13, "http/1.1").await;
        let request = format!(
            "GET /clusters/one{exec} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Origin: https://x\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            server.token
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut begin = [0; 12];
        tokio::time::timeout(SOON, stream.read_exact(&mut begin)).await.expect("an answer").unwrap();
        assert_eq!(&begin, b"HTTP/1.1 101");
        let recorded_requests = member.recorded_requests("/exec");
        assert_eq!(recorded_requests.len(), round);
        assert_eq!(recorded_requests[round - 1].line, format!("GET {exec}"));
        assert_eq!(
            (&recorded_requests[round - 1].headers["upgrade"], &recorded_requests[round - 1].headers["connection"]),
            (&"websocket".parse().unwrap(), &"Upgrade".parse().unwrap())
        );
        assert!(!recorded_requests[round - 1].headers.contains_key(header::AUTHORIZATION), "the token is ours");
    }
}
