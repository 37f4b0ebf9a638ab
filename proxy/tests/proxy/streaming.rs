//! Tests of streaming: bodies in both directions, and cancellations that reach the member.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tributary_proxy::{ClientTuning, ForwardError, RequestIdentity};

use crate::member::{self, Member, Options, SOON, SendRequest, channel, get, text};

struct Guard(Arc<Notify>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn request_and_response_bodies_are_streamed() {
    for alpn in ["h2", "http/1.1"] {
        let member = Member::start(Options { alpn: vec![alpn], ..Options::default() }, |_, body| async move {
            Response::new(body.map_err(Into::into).boxed_unsync())
        })
        .await;
        let client = member.client().await;
        let (sender, body) = channel();
        // An HTTP/1.1 member answers as soon as the head of a request has arrived. The first frame is therefore ready
        // before the request.
        sender.send(Bytes::from_static(b"one")).unwrap();
        let request = Request::post("/api/v1/x").body(body).unwrap();
        let response =
            tokio::time::timeout(SOON, client.send_request(request, RequestIdentity::Member)).await.unwrap().unwrap();
        let mut body = response.into_body();
        for piece in ["one", "two", "three"] {
            if piece != "one" {
                sender.send(Bytes::from_static(piece.as_bytes())).unwrap();
            }
            let frame = tokio::time::timeout(SOON, body.frame()).await.expect("a piece was held back");
            assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), piece);
        }
        drop(sender);
        // An HTTP/2 body may end with an empty frame.
        let rest = tokio::time::timeout(SOON, body.collect()).await.unwrap().unwrap();
        assert!(rest.to_bytes().is_empty(), "{alpn}");
    }
}

/// Go's servers end an HTTP/2 response with an empty frame after the last bytes.
#[tokio::test]
async fn end_of_a_response_body_arrives_together_with_its_last_bytes() {
    for pieces in [&["one"][..], &["one", "two"], &["one", "", "two"]] {
        let member = Member::start(Options::default(), move |_, _| {
            let (sender, body) = channel();
            for piece in pieces {
                sender.send(Bytes::from_static(piece.as_bytes())).unwrap();
            }
            async move { Response::new(body) }
        })
        .await;
        let client = member.client().await;
        let mut body = client.send_request(get("/api/v1/x"), RequestIdentity::Member).await.unwrap().into_body();
        let frame = tokio::time::timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!((frame.into_data().unwrap(), body.is_end_stream()), (pieces.concat().into(), true));
    }
}

#[tokio::test]
async fn dropped_response_is_cancelled_at_the_member() {
    let dropped = Arc::new(Notify::new());
    let notify = dropped.clone();
    let member = Member::start(Options::default(), move |_, _| {
        let guard = Guard(notify.clone());
        async move {
            let (sender, body) = channel();
            sender.send(Bytes::from_static(b"event")).unwrap();
            tokio::spawn(async move {
                sender.closed().await;
                drop(guard);
            });
            Response::new(body)
        }
    })
    .await;
    let client = member.client().await;
    let response = client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap();
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(client.pool_statistics().long_streams, 1);
    drop(body);
    tokio::time::timeout(SOON, dropped.notified()).await.expect("the member still streams");
    assert_eq!(client.pool_statistics().long_streams, 0);
    assert_eq!(client.pool_statistics().long_connections, 1);
}

#[tokio::test]
async fn dropped_request_is_cancelled_at_the_member() {
    let (started, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (start, drop_notify) = (started.clone(), dropped.clone());
    let member = Member::start(Options::default(), move |_, _| {
        let guard = Guard(drop_notify.clone());
        start.notify_one();
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    })
    .await;
    let client = member.client().await;
    let request =
        tokio::spawn(async move { client.send_request(get("/api"), RequestIdentity::Member).await.map(drop) });
    started.notified().await;
    request.abort();
    tokio::time::timeout(SOON, dropped.notified()).await.expect("the member still works");
}

#[tokio::test]
async fn time_limit_of_requests_does_not_apply_to_watches_and_streams() {
    const LIMIT: Duration = Duration::from_millis(50);
    let member = Member::start(Options::default(), |seen, _| async move {
        if seen.uri.query() != Some("watch=true") {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(LIMIT * 4).await;
        text(StatusCode::OK, "late".to_owned())
    })
    .await;
    let tuning = ClientTuning { head_timeout: LIMIT, ..ClientTuning::default() };
    let client = member::connect(member.config(), tuning).await;
    let error = client.send_request(get("/api/v1/pods"), RequestIdentity::Member).await.unwrap_err();
    assert!(matches!(error, ForwardError::HeadTimeout { .. }), "{error}");
    assert_eq!(error.status_code(), StatusCode::GATEWAY_TIMEOUT);
    let response = client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member::read(response).await, "late");
}

#[tokio::test]
async fn content_encoding_and_body_are_forwarded_unchanged() {
    let member = Member::start(Options::default(), |seen, _| async move {
        let mut response = text(StatusCode::OK, "\u{1}not really gzip".to_owned());
        let encoding = seen.headers["accept-encoding"].clone();
        response.headers_mut().insert("content-encoding", encoding);
        response
    })
    .await;
    let client = member.client().await;
    let request = Request::get("/api").header("accept-encoding", "gzip").body(member::empty()).unwrap();
    let response = client.send_request(request, RequestIdentity::Member).await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(member::read(response).await, "\u{1}not really gzip");
}

/// Measures the latency that forwarding adds, compared with a plain HTTP/2 connection. Run with `--ignored
/// --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn latency_added_by_forwarding_is_measured() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.token = Some("t".to_owned().into());
    let client = member::connect(config, ClientTuning::default()).await;
    let mut bare = bare_connection(&member).await;
    let (mut forwarded, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..5000 {
        // The two kinds of requests alternate, so that both measurements have the same noise.
        let request = listing("/api/v1/namespaces/a/pods/p");
        let start = tokio::time::Instant::now();
        let response = client.send_request(request, RequestIdentity::Member).await.unwrap();
        response.into_body().collect().await.unwrap();
        forwarded.push(start.elapsed());
        let request = listing(&format!("https://{}/api/v1/namespaces/a/pods/p", member.address));
        let start = tokio::time::Instant::now();
        bare.send_request(request).await.unwrap().into_body().collect().await.unwrap();
        direct.push(start.elapsed());
    }
    for (what, mut times) in [("forward", forwarded), ("bare HTTP/2", direct)] {
        times.sort();
        println!("{what}: p50 {:?} p90 {:?} p99 {:?}", times[2500], times[4500], times[4950]);
    }
}

fn listing(uri: &str) -> Request<tributary_apimachinery::body::Body> {
    let mut request = Request::get(uri);
    for (name, value) in [
        ("user-agent", "kubectl/v1.36.3 (linux/amd64) kubernetes/0000000"),
        ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
        ("accept-encoding", "gzip"),
        ("authorization", "Bearer client"),
        ("kubectl-command", "kubectl get"),
    ] {
        request = request.header(name, value);
    }
    request.body(member::empty()).unwrap()
}

async fn bare_connection(
    member: &Member,
) -> hyper::client::conn::http2::SendRequest<tributary_apimachinery::body::Body> {
    let mut tls = kube::client::ConfigExt::rustls_client_config(&member.config()).unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = tokio::net::TcpStream::connect(member.address).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    let name = rustls::pki_types::ServerName::from(member.address.ip());
    let tls = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(tls);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    sender
}
