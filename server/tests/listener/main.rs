//! Tests of the listener over a handler that replaces the router: authentication, protocols, panics, upgrades and the
//! drain.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access_log;
mod aggregated;
mod audit;
mod cancelled_requests;
#[allow(dead_code, reason = "the listener knows no differences between the doors' answers")]
#[path = "../../../router/tests/simulated/doors/table.rs"]
mod door_table;
mod doors;
mod early_answers;
mod fixture;
mod frames;
mod frozen;
mod goaway;
mod hosts;
mod lost_member;
mod many_clients;
mod precedents;
mod proxy_protocol;
mod refused;
mod refused_answers;
mod slow_readers;
mod spread;
mod traces;
mod tunnels;

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::request::Parts;
use http::{Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::RequestClass;
use tributary_apimachinery::body::{Body, full};
use tributary_listener::{BindError, Bounds, Drained};
use tributary_router::{Answer, Report, RequestContext, User};
use tributary_server::handler::Handler;

use crate::fixture::{SOON, start, start_within, text};

/// A handler that replaces the router. Its watches end with a bookmark when the server drains.
#[derive(Default)]
struct StandIn {
    draining: CancellationToken,
}

impl StandIn {
    async fn respond(&self, request: Request<Body>, context: &RequestContext) -> Response<Body> {
        let user = &context.sender.user;
        match request.uri().path() {
            "/panic" => panic!("a handler's fault"),
            "/watch" => watch(self.draining.clone()),
            "/clusters/a/api/v1/pods" => forwarded_watch(),
            "/tunnel" => tunnel(context),
            "/clusters/a/api/v1/namespaces/n/pods/p/log" => watch(self.draining.clone()),
            "/late" => late(context),
            "/peer" => Response::new(full(context.arrival.peer.unwrap().to_string())),
            "/whoami" => {
                let (mount, User { info, authority }) = (&context.arrival.mount, user);
                Response::new(full(format!("{} {authority:?} at {mount:?}", info.username)))
            }
            "/livez" => Response::new(full("[+]cluster/eu ok")),
            "/healthz" => {
                let mut response = Response::new(full("[-]cluster/eu failed: https://eu.internal:6443"));
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            }
            _ => {
                let seen = request.headers().contains_key(header::AUTHORIZATION);
                Response::new(full(format!("{} {} {seen}", user.info.username, request.headers().len())))
            }
        }
    }
}

impl Handler for StandIn {
    async fn handle(&self, request: Request<Body>, context: &RequestContext) -> Answer {
        let path = request.uri().path();
        let is_log = path == "/clusters/a/api/v1/namespaces/n/pods/p/log";
        let class = if is_log { RequestClass::Streamed } else { RequestClass::Short };
        let is_forwarded_watch = path == "/clusters/a/api/v1/pods";
        Answer { class, is_forwarded_watch, ..self.respond(request, context).await.into() }
    }

    async fn may_get_non_resource_url(
        &self,
        _head: &Parts,
        _context: &RequestContext,
    ) -> Result<(), Box<Response<Body>>> {
        Ok(())
    }

    async fn drain(&self) {
        self.draining.cancel();
    }

    fn register_metrics(&self, _register: &mut dyn FnMut(&mut Registry)) {}

    async fn report(&self) -> Report {
        Report::default()
    }

    fn expose_metrics(&self) -> String {
        "exposition\n# EOF\n".to_owned()
    }
}

fn watch(draining: CancellationToken) -> Response<Body> {
    let first = futures::stream::iter(["ADDED\n"]);
    let last = futures::stream::once(async move {
        draining.cancelled().await;
        "BOOKMARK\n"
    });
    let frames = first.chain(last).map(|line| Ok(Frame::data(Bytes::from_static(line.as_bytes()))));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// Returns a watch that does not end.
fn forwarded_watch() -> Response<Body> {
    let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"ADDED\n")))]);
    let body = StreamBody::new(first.chain(futures::stream::pending())).boxed_unsync();
    let builder = Response::builder().header(header::CONTENT_TYPE, "application/json");
    builder.body(body).unwrap()
}

/// Switches protocols and echoes every byte.
fn tunnel(context: &RequestContext) -> Response<Body> {
    let upgrade = context.arrival.upgrade.clone().unwrap();
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgrade.connection.await.unwrap());
        let mut buffer = [0; 64];
        while let Ok(read @ 1..) = io.read(&mut buffer).await {
            io.write_all(&buffer[..read]).await.unwrap();
            io.flush().await.unwrap();
        }
    });
    switched()
}

/// Switches protocols and connects the client's tunnel with a peer. The peer sends the received bytes back only after
/// the client has closed its half of the tunnel.
fn late(context: &RequestContext) -> Response<Body> {
    let upgrade = context.arrival.upgrade.clone().unwrap();
    let (mut near, mut far) = tokio::io::duplex(64);
    tokio::spawn(async move {
        let mut client = TokioIo::new(upgrade.connection.await.unwrap());
        let _ = tokio::io::copy_bidirectional(&mut client, &mut near).await;
    });
    tokio::spawn(async move {
        let mut said = Vec::new();
        far.read_to_end(&mut said).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        far.write_all(&said).await.unwrap();
        // The peer's stream stays open, because a close would flush its bytes, and the tunnel itself must flush them.
        std::future::pending::<()>().await;
    });
    switched()
}

fn switched() -> Response<Body> {
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .body(full(""))
        .unwrap()
}

#[tokio::test]
async fn plain_http_request_gets_400() {
    let server = start(StandIn::default()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 400") && answer.contains("HTTP request to an HTTPS server"), "{answer}");
}

#[tokio::test]
async fn unauthenticated_clients_get_a_quarter_of_the_connections() {
    let server = start_within(Bounds { connections: 8, ..Bounds::default() }, StandIn::default()).await;
    let mut known = server.http2().await;
    let answer = known.send_request(server.request("/api").body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut first = server.connect(&rustls::version::TLS13, "h2").await;
    let (_second, _third) =
        (server.connect(&rustls::version::TLS13, "h2").await, server.connect(&rustls::version::TLS13, "h2").await);
    let ended = tokio::time::timeout(SOON, first.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "the oldest stranger is sent away");
    let answer = known.send_request(server.request("/api").body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200, "who is known stays");
}

#[tokio::test]
async fn requests_without_the_token_get_a_401() {
    let server = start(StandIn::default()).await;
    for path in
        ["/api/v1/pods", "/metrics", "/readyz?verbose", "/tributary/status", "/tributary/policy-test?user=a", "/"]
    {
        let mut client = server.http2().await;
        let response = client.send_request(server.bare(path).body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert!(response.headers().contains_key(header::WWW_AUTHENTICATE));
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let status: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(
            (&status["kind"], &status["reason"], &status["code"]),
            (&"Status".into(), &"Unauthorized".into(), &401.into())
        );
    }
    let wrong = Request::get("https://x/api").header(header::AUTHORIZATION, "Bearer wrong").body(Empty::new()).unwrap();
    let response = server.http2().await.send_request(wrong).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let mut client = server.http2().await;
    let healthy = client.send_request(server.bare("/readyz").body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(healthy.status(), StatusCode::OK);
    assert_eq!(text(healthy).await, "ok");
    let failing = client.send_request(server.bare("/healthz").body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(failing.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(text(failing).await, "failed", "who is not known is told one word");
    let report = client.send_request(server.request("/tributary/status").body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(
        (report.status(), &report.headers()[header::CONTENT_TYPE]),
        (StatusCode::OK, &"application/json".parse().unwrap())
    );
    let report: Report = serde_json::from_str(&text(report).await).unwrap();
    let connections = report.limits.iter().find(|limit| limit.limit == "connections").unwrap();
    assert!(connections.used > 0 && connections.max > connections.used, "the listener adds its own: {report:?}");
    let told = client.send_request(server.request("/healthz").body(Empty::new()).unwrap()).await.unwrap();
    assert!(text(told).await.contains("cluster/eu"));
    let known = client.send_request(server.request("/api").body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(text(known).await, "tributary:personal 0 false", "the handler does not see the credential");
    let scrape = client.send_request(server.request("/metrics").body(Empty::new()).unwrap()).await.unwrap();
    assert!(scrape.headers()[header::CONTENT_TYPE].to_str().unwrap().starts_with("application/openmetrics-text"));
    assert_eq!(text(scrape).await, "exposition\n# EOF\n");
}

#[tokio::test]
async fn policy_test_returns_the_decision_or_the_error() {
    let server = start(StandIn::default()).await;
    let mut client = server.http2().await;
    let mut ask = async |query: &str| {
        let request = server.request(&format!("/tributary/policy-test{query}")).body(Empty::new()).unwrap();
        let answer = client.send_request(request).await.unwrap();
        (answer.status().as_u16(), text(answer).await)
    };
    let (status, told) = ask("?user=ann&group=a%20%26%20b&verb=get&path=%2Fversion").await;
    let expected = "MergedEndpoint all:\n  No policy is enforced: the request continues\nVerdict:\n  the merged view: \
                    The request continues\n  /clusters/NAME: The request continues\n";
    assert_eq!((status, told.as_str()), (200, expected));
    for (query, expected) in [
        ("", "needs a user and a verb"),
        ("?user=ann&verb=get&path=%2Fversion&unknown=1", "is not a parameter"),
        ("?user=ann&verb=get&resource=pods&cluster=eu", "there is no UpstreamCluster"),
    ] {
        let (status, told) = ask(query).await;
        assert!(status == 400 && told.contains("BadRequest") && told.contains(expected), "{query}: {status} {told}");
    }
    let mut post = server.request("/tributary/policy-test?user=ann&verb=get&path=%2F").body(Empty::new()).unwrap();
    *post.method_mut() = http::Method::POST;
    assert_eq!(server.http2().await.send_request(post).await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn large_request_heads_are_accepted_over_http1_and_http2() {
    let server = start(StandIn::default()).await;
    let mut large = server.request("/api");
    for group in 0..900 {
        large = large.header("impersonate-group", format!("{group:0>100}"));
    }
    let large = large.body(Empty::new()).unwrap();
    let response = server.http2().await.send_request(large.clone()).await.unwrap();
    assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_2));
    let response = server.http1().await.send_request(large).await.unwrap();
    assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_11));
}

#[tokio::test]
async fn panic_returns_500_and_the_connection_stays_open() {
    let server = start(StandIn::default()).await;
    let mut client = server.http1().await;
    let response = client.send_request(server.request("/panic").body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let status = text(response).await;
    assert!(status.contains("InternalError") && !status.contains("fault"), "{status}");
    client.ready().await.unwrap();
    let response = client.send_request(server.request("/api").body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn drain_ends_watches_after_a_bookmark() {
    let server = start(StandIn::default()).await;
    let (mut http1, mut http2) = (server.http1().await, server.http2().await);
    let watch = || server.request("/watch").body(Empty::new()).unwrap();
    let first = http1.send_request(watch()).await.unwrap();
    let second = http2.send_request(watch()).await.unwrap();
    let forwarded = server.request("/clusters/a/api/v1/pods?watch=true").body(Empty::new()).unwrap();
    let third = http2.send_request(forwarded).await.unwrap();
    server.stop.cancel();
    assert_eq!(text(first).await, "ADDED\nBOOKMARK\n");
    assert_eq!(text(third).await, "ADDED\n", "a forwarded watch ends, too");
    assert_eq!(text(second).await, "ADDED\nBOOKMARK\n");
    let drained = tokio::time::timeout(SOON, server.serving).await.unwrap().unwrap();
    assert_eq!(drained, Drained { cut: 0 });
    assert!(TcpStream::connect(server.address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn drain_waits_for_open_tunnels() {
    let server = start(StandIn::default()).await;
    let mut client = server.http1().await;
    let request = server.request("/tunnel").header(header::CONNECTION, "upgrade").header(header::UPGRADE, "SPDY/3.1");
    let response = client.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    server.stop.cancel();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!server.serving.is_finished(), "an open tunnel is waited for");
    tunnel.write_all(b"still open").await.unwrap();
    tunnel.flush().await.unwrap();
    let mut echo = [0; 10];
    tunnel.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"still open");
    drop(tunnel);
    let drained = tokio::time::timeout(SOON, server.serving).await.unwrap().unwrap();
    assert_eq!(drained, Drained { cut: 0 });
}

#[tokio::test]
async fn silent_tunnel_stays_open_for_a_day() {
    let server = start(StandIn::default()).await;
    let mut client = server.http1().await;
    let request = server.request("/tunnel").header(header::CONNECTION, "upgrade").header(header::UPGRADE, "SPDY/3.1");
    let response = client.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    tokio::time::resume();
    tunnel.write_all(b"still open").await.unwrap();
    tunnel.flush().await.unwrap();
    let mut echo = [0; 10];
    tokio::time::timeout(SOON, tunnel.read_exact(&mut echo)).await.unwrap().unwrap();
    assert_eq!(&echo, b"still open");
}

#[tokio::test]
async fn tunnel_delivers_data_after_its_client_has_finished() {
    let server = start(StandIn::default()).await;
    let mut client = server.http1().await;
    let request = server.request("/late").header(header::CONNECTION, "upgrade").header(header::UPGRADE, "SPDY/3.1");
    let response = client.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    tunnel.write_all(b"late").await.unwrap();
    tunnel.shutdown().await.unwrap();
    let mut got = [0; 4];
    tokio::time::timeout(SOON, tunnel.read_exact(&mut got)).await.unwrap().unwrap();
    assert_eq!(&got, b"late");
}

#[tokio::test]
async fn listen_error_names_the_used_port() {
    let server = start(StandIn::default()).await;
    let error = tributary_listener::bind(server.address).unwrap_err();
    assert!(matches!(error, BindError::InUse(address) if address == server.address));
    assert!(error.to_string().contains("--listen"), "{error}");
}

#[tokio::test]
async fn client_without_tls_does_not_affect_other_clients() {
    let server = start(StandIn::default()).await;
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    let response = server.http2().await.send_request(server.bare("/livez").body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}
