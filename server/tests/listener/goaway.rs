//! Tests of the GOAWAY frames with which the listener makes HTTP/2 clients open a new connection. The client sends raw
//! frames.

use std::time::Duration;

use http_body_util::Empty;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::StandIn;
use crate::fixture::{SOON, Server, start, start_with_goaway, text};
use crate::frames::{self, Frame};

/// The largest stream identifier (RFC 9113 §6.8). A GOAWAY with this identifier refuses no request.
const LAST_STREAM_MAX: u32 = (1 << 31) - 1;

/// An HTTP/2 connection on which a test sends raw frames.
struct RawClient {
    stream: TlsStream<TcpStream>,
    authorization: Vec<u8>,
    authority: String,
    ping: Option<Frame>,
}

impl RawClient {
    async fn of(server: &Server) -> Self {
        let mut stream = server.connect(&rustls::version::TLS13, "h2").await;
        stream.write_all(frames::PREFACE).await.unwrap();
        let authorization = format!("Bearer {}", server.token).into_bytes();
        Self { stream, authorization, authority: server.address.to_string(), ping: None }
    }

    async fn get(&mut self, stream: u32, path: &str) {
        let authorization = self.authorization.clone();
        self.get_as(stream, path, &authorization).await;
    }

    async fn get_as(&mut self, stream: u32, path: &str, authorization: &[u8]) {
        let block = [
            frames::literal(":method", b"GET"),
            frames::literal(":scheme", b"https"),
            frames::literal(":authority", self.authority.as_bytes()),
            frames::literal(":path", path.as_bytes()),
            frames::literal("authorization", authorization),
        ];
        self.send(&frames::headers(stream, &block.concat(), true)).await;
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Returns the next frame of this kind, which must not be PING. Stores the last PING frame that arrived before the
    /// returned frame.
    async fn next(&mut self, kind: u8) -> Frame {
        let found = async {
            loop {
                let frame = Frame::read(&mut self.stream).await.unwrap();
                if frame.kind == kind {
                    return frame;
                }
                if frame.kind == frames::PING {
                    self.ping = Some(frame);
                }
            }
        };
        tokio::time::timeout(SOON, found).await.expect("the frame comes")
    }
}

#[tokio::test]
async fn drain_sends_a_goaway_and_then_the_last_stream_number() {
    let server = start(StandIn::default()).await;
    let mut client = RawClient::of(&server).await;
    client.get(1, "/watch").await;
    assert_eq!(frames::status(&client.next(frames::HEADERS).await), Some(200));
    server.stop.cancel();
    let first = client.next(frames::GOAWAY).await;
    assert_eq!((frames::goaway_last(&first), frames::goaway_code(&first)), (LAST_STREAM_MAX, 0));
    // The server still answers a request that was in transit when the server sent GOAWAY.
    client.get(3, "/api").await;
    assert_eq!(frames::status(&client.next(frames::HEADERS).await), Some(200));
    // The server sends a PING after the first GOAWAY. Only after the client has acknowledged this PING, a second GOAWAY
    // contains the number of the last stream.
    let ping = client.ping.take().expect("the server asks whether the client has heard");
    client.send(&frames::pong(&ping.payload)).await;
    let second = client.next(frames::GOAWAY).await;
    assert_eq!((frames::goaway_last(&second), frames::goaway_code(&second)), (3, 0));
    let rest = tokio::time::timeout(SOON, client.stream.read_to_end(&mut Vec::new())).await;
    assert!(rest.is_ok(), "the connection ends once its answers have");
    assert_eq!(tokio::time::timeout(SOON, server.serving).await.unwrap().unwrap().cut, 0);
}

/// Several users of one program share a connection. The expired token of one user must not end the response to another
/// user.
#[tokio::test]
async fn goaway_after_a_401_does_not_end_open_streams() {
    let server = start(StandIn::default()).await;
    let mut client = RawClient::of(&server).await;
    client.get_as(1, "/api", b"Bearer wrong").await;
    assert_eq!(frames::goaway_last(&client.next(frames::GOAWAY).await), LAST_STREAM_MAX);
    // The test sends this request like a client that has not yet read the GOAWAY. So the server must answer the
    // request.
    client.get(3, "/watch").await;
    client.next(frames::DATA).await;
    let ping = client.ping.take().expect("the server asks whether the client has heard");
    client.send(&frames::pong(&ping.payload)).await;
    assert_eq!(frames::goaway_last(&client.next(frames::GOAWAY).await), 3);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    server.stop.cancel();
    assert_eq!(client.next(frames::DATA).await.payload, b"BOOKMARK\n");
    let rest = tokio::time::timeout(SOON, client.stream.read_to_end(&mut Vec::new())).await;
    assert!(rest.is_ok(), "the connection ends once its answers have");
}

#[tokio::test]
async fn connection_without_an_authenticated_user_is_closed_after_a_401() {
    let server = start(StandIn::default()).await;
    let mut client = RawClient::of(&server).await;
    client.get_as(1, "/api", b"Bearer wrong").await;
    client.next(frames::GOAWAY).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    let rest = tokio::time::timeout(SOON, client.stream.read_to_end(&mut Vec::new())).await;
    assert!(rest.is_ok(), "it has heard nothing, and the connection is closed all the same");
}

#[tokio::test]
async fn idle_connections_close_during_a_drain() {
    let server = start(StandIn::default()).await;
    let (mut http2, mut http1) = (server.http2().await, server.http1().await);
    let request = || server.request("/api").body(Empty::new()).unwrap();
    text(http2.send_request(request()).await.unwrap()).await;
    text(http1.send_request(request()).await.unwrap()).await;
    server.stop.cancel();
    // Idle connections close during the drain, so no connection is open at the end of the drain.
    assert_eq!(tokio::time::timeout(SOON, server.serving).await.unwrap().unwrap().cut, 0);
    drop((http2, http1));
}

#[tokio::test]
async fn random_goaway_after_a_request_keeps_open_streams() {
    one_of_these_is_the_last("/api").await;
}

/// As in kube-apiserver, long-running requests also cause random GOAWAYs, because a controller's connection carries few
/// requests other than watches.
#[tokio::test]
async fn random_goaway_after_a_long_running_request_keeps_open_streams() {
    for path in ["/watch", "/clusters/a/api/v1/namespaces/n/pods/p/log?follow=1"] {
        one_of_these_is_the_last(path).await;
    }
}

async fn one_of_these_is_the_last(path: &str) {
    // With 1,900 requests, the probability that no request causes a GOAWAY is 10^-16. A connection allows 2,000
    // concurrent requests.
    const REQUESTS: usize = 1_900;
    let server = start_with_goaway("0.02".parse().unwrap(), StandIn::default()).await;
    let mut client = server.http2().await;
    let watch = client.send_request(server.request("/watch").body(Empty::new()).unwrap()).await.unwrap();
    let mut answered = Vec::new();
    while answered.len() < REQUESTS && client.ready().await.is_ok() {
        match client.send_request(server.request(path).body(Empty::new()).unwrap()).await {
            Ok(answer) => answered.push(answer),
            // The client received the GOAWAY before it could send this request, so the request fails in the client.
            Err(error) => {
                assert!(error.is_canceled() || error.is_closed(), "{error:?}");
                break;
            }
        }
    }
    assert!(answered.len() < REQUESTS, "none was the last");
    assert!(answered.iter().all(|answer| answer.status() == 200));
    assert!(server.http2().await.send_request(server.request("/api").body(Empty::new()).unwrap()).await.is_ok());
    server.stop.cancel();
    assert_eq!(text(watch).await, "ADDED\nBOOKMARK\n", "the watch on that connection ends as all do");
}
