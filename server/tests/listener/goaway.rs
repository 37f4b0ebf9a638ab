//! How clients over HTTP/2 are told to open another connection, with bytes as they are.

use std::time::Duration;

use http_body_util::Empty;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::StandIn;
use crate::fixture::{SOON, Server, start, start_sending_away, text};
use crate::frames::{self, Frame};

/// The largest number of a stream (RFC 9113 §6.8): no request of the client's is left out yet.
const LAST_STREAM_MAX: u32 = (1 << 31) - 1;

/// An HTTP/2 connection on which requests are sent by hand.
struct RawClient {
    stream: TlsStream<TcpStream>,
    authorization: Vec<u8>,
    authority: String,
    /// The PING that came last.
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

    /// The same, with these credentials.
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

    /// The next frame of this kind, which is no PING.
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
async fn a_drain_tells_clients_first_to_stop_and_then_which_request_was_the_last() {
    let server = start(StandIn::default()).await;
    let mut client = RawClient::of(&server).await;
    client.get(1, "/watch").await;
    assert_eq!(frames::status(&client.next(frames::HEADERS).await), Some(200));
    server.stop.cancel();
    let first = client.next(frames::GOAWAY).await;
    assert_eq!((frames::goaway_last(&first), frames::goaway_code(&first)), (LAST_STREAM_MAX, 0));
    // What was on its way when the server said so is answered.
    client.get(3, "/api").await;
    assert_eq!(frames::status(&client.next(frames::HEADERS).await), Some(200));
    // Until the client has shown that it heard, no request is the last.
    let ping = client.ping.take().expect("the server asks whether the client has heard");
    client.send(&frames::pong(&ping.payload)).await;
    let second = client.next(frames::GOAWAY).await;
    assert_eq!((frames::goaway_last(&second), frames::goaway_code(&second)), (3, 0));
    let rest = tokio::time::timeout(SOON, client.stream.read_to_end(&mut Vec::new())).await;
    assert!(rest.is_ok(), "the connection ends once its answers have");
    assert_eq!(tokio::time::timeout(SOON, server.serving).await.unwrap().unwrap().cut, 0);
}

/// Several of one program come over one connection: an expired token of one is not to end what another is sent.
#[tokio::test]
async fn who_is_known_after_another_was_refused_keeps_what_is_open() {
    let server = start(StandIn::default()).await;
    let mut client = RawClient::of(&server).await;
    client.get_as(1, "/api", b"Bearer wrong").await;
    assert_eq!(frames::goaway_last(&client.next(frames::GOAWAY).await), LAST_STREAM_MAX);
    // Sent before the client has heard of that.
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

/// Whoever stays unknown is not kept.
#[tokio::test]
async fn who_was_refused_and_is_not_known_is_cut_off_soon() {
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
async fn who_asks_for_nothing_hears_of_a_drain_too() {
    let server = start(StandIn::default()).await;
    let (mut http2, mut http1) = (server.http2().await, server.http1().await);
    let request = || server.request("/api").body(Empty::new()).unwrap();
    text(http2.send_request(request()).await.unwrap()).await;
    text(http1.send_request(request()).await.unwrap()).await;
    server.stop.cancel();
    // Who hears nothing is cut off at the end of the drain.
    assert_eq!(tokio::time::timeout(SOON, server.serving).await.unwrap().unwrap().cut, 0);
    drop((http2, http1));
}

#[tokio::test]
async fn by_chance_a_request_is_the_last_on_its_connection_and_what_is_open_goes_on() {
    one_of_these_is_the_last("/api").await;
}

/// As with kube-apiserver: a controller sends little else over its connection.
#[tokio::test]
async fn by_chance_what_lasts_is_the_last_on_its_connection_and_what_is_open_goes_on() {
    for path in ["/watch", "/clusters/a/api/v1/namespaces/n/pods/p/log?follow=1"] {
        one_of_these_is_the_last(path).await;
    }
}

async fn one_of_these_is_the_last(path: &str) {
    // So many are enough: that none of them is the last happens once in 10^16 times. A connection takes 2,000 at once.
    const REQUESTS: usize = 1_900;
    let server = start_sending_away("0.02".parse().unwrap(), StandIn::default()).await;
    let mut client = server.http2().await;
    let watch = client.send_request(server.request("/watch").body(Empty::new()).unwrap()).await.unwrap();
    let mut answered = Vec::new();
    while answered.len() < REQUESTS && client.ready().await.is_ok() {
        match client.send_request(server.request(path).body(Empty::new()).unwrap()).await {
            Ok(answer) => answered.push(answer),
            // It was told before it sent this one.
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
