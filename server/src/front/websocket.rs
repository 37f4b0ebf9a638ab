//! Watches over WebSocket, for browsers: one event per message.
//!
//! ```text
//! GET …?watch=1, Upgrade: websocket ─▶ take: a plain watch ─▶ handler ─▶ 200 and events ─▶ 101 and messages
//!                                                                   └─▶ any other answer: unchanged
//! ```
//!
//! Handshakes and refusals follow golang.org/x/net/websocket, as in kube-apiserver (`pkg/endpoints/handlers/watch.go`).
//! An Origin is required. One subprotocol is optional, and is echoed. JSON is sent as text and protobuf as binary,
//! whatever the subprotocol. Messages of the client are ignored, and pings are answered.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, CONTENT_TYPE, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE, WARNING,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tributary_apimachinery::Verb;
use tributary_router::{ClientUpgrade, RequestArrival};

use crate::authentication::is_websocket;
use crate::handler::{Body, BoxError, empty, full};

/// The size limit of a client's message, in bytes. The server ignores all messages.
const RECEIVED_BYTES_MAX: usize = 64 << 10;
/// The time limit for a client to read data that the server has written: a frame of events, or a pong. The limit is the
/// same as for a watch over HTTP.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit for the last messages after the end of the watch, because the client may not read them.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A client's handshake, stored until the watch has been opened.
pub(crate) struct Handshake {
    /// The client's connection, and the permits that the WebSocket owns until it closes.
    upgrade: Option<ClientUpgrade>,
    accepted: Result<Accepted, HandshakeError>,
}

struct Accepted {
    key: String,
    protocol: Option<HeaderValue>,
}

/// The reason why a handshake fails: the status and the text that golang.org/x/net/websocket sends.
struct HandshakeError(StatusCode, &'static str);

/// Removes the WebSocket handshake from a request's head, so that the handler receives a plain watch. Returns `None`
/// for every other request. A watch of a cluster's own view is forwarded with its handshake.
pub(crate) fn remove_handshake(head: &mut Parts, arrival: &mut RequestArrival) -> Option<Handshake> {
    if head.method != Method::GET || head.version != Version::HTTP_11 || !is_websocket(&head.headers) {
        return None;
    }
    let info = arrival.reading.info().ok()?;
    if info.verb != Verb::Watch || info.cluster.is_some() {
        return None;
    }
    let accepted = accept(&head.headers);
    for name in [
        CONNECTION,
        UPGRADE,
        SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_VERSION,
        SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_EXTENSIONS,
    ] {
        head.headers.remove(name);
    }
    Some(Handshake { upgrade: arrival.upgrade.take(), accepted })
}

/// Checks the handshake's headers, in the order of golang.org/x/net/websocket.
fn accept(headers: &HeaderMap) -> Result<Accepted, HandshakeError> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let key = text(SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(HandshakeError(StatusCode::BAD_REQUEST, "mismatch challenge/response"));
    }
    if text(SEC_WEBSOCKET_VERSION) != "13" {
        return Err(HandshakeError(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version"));
    }
    if !is_absolute(text(ORIGIN)) {
        return Err(HandshakeError(StatusCode::FORBIDDEN, ""));
    }
    let protocols = text(SEC_WEBSOCKET_PROTOCOL).trim();
    if protocols.contains(',') {
        return Err(HandshakeError(StatusCode::BAD_REQUEST, ""));
    }
    let protocol = (!protocols.is_empty()).then(|| HeaderValue::from_str(protocols).ok()).flatten();
    Ok(Accepted { key: derive_accept_key(key.as_bytes()), protocol })
}

/// Returns whether Go's `url.ParseRequestURI` accepts this origin.
fn is_absolute(origin: &str) -> bool {
    origin.parse::<Uri>().is_ok_and(|uri| uri.scheme().is_some() || (origin.starts_with('/') && origin.len() > 1))
}

impl Handshake {
    /// Converts the answer to the plain watch into the answer to the handshake. An error answer to the watch is
    /// returned unchanged.
    pub(crate) fn switch_protocol(self, watch: Response<Body>) -> Response<Body> {
        if watch.status() != StatusCode::OK {
            return watch;
        }
        let (accepted, upgrade) = match (self.accepted, self.upgrade) {
            (Ok(accepted), Some(upgrade)) => (accepted, upgrade),
            (Ok(_), None) => return refuse(&HandshakeError(StatusCode::BAD_REQUEST, "the connection cannot switch")),
            (Err(refusal), _) => return refuse(&refusal),
        };
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        if let Ok(key) = HeaderValue::from_str(&accepted.key) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, key);
        }
        if let Some(protocol) = accepted.protocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        for warning in watch.headers().get_all(WARNING) {
            headers.append(WARNING, warning.clone());
        }
        let is_json = watch.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
        let events = WatchEvents { body: watch.into_body(), buffer: BytesMut::new(), searched: 0, is_json };
        tokio::spawn(async move {
            serve(upgrade.connection, events).await;
            drop(upgrade.permits);
        });
        response
    }
}

fn refuse(HandshakeError(status, text): &HandshakeError) -> Response<Body> {
    let mut response = Response::new(full(*text));
    *response.status_mut() = *status;
    if text.contains("Version") {
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    }
    response
}

/// Sends the events of a watch until the watch ends or the client disconnects. Dropping the events ends the watch.
async fn serve(client: OnUpgrade, mut events: WatchEvents) {
    let Ok(upgraded) = client.await else { return };
    let config =
        WebSocketConfig::default().max_message_size(Some(RECEIVED_BYTES_MAX)).max_frame_size(Some(RECEIVED_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let code = loop {
        tokio::select! {
            received = socket.next() => match received {
                // The next message is read only after the pong was flushed, so that pongs cannot accumulate.
                Some(Ok(message)) if !message.is_close() => match taken(socket.flush()).await {
                    true => {}
                    false => return,
                },
                _ => break CloseCode::Normal,
            },
            event = events.next() => match event {
                Some(Ok(event)) => match taken(send(&mut socket, event, &mut events)).await {
                    true => {}
                    false => return,
                },
                Some(Err(error)) => {
                    tracing::debug!(error, "a watch over WebSocket broke");
                    break CloseCode::Error;
                }
                None => break CloseCode::Normal,
            },
        }
    };
    let farewell = socket.close(Some(CloseFrame { code, reason: Utf8Bytes::default() }));
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, farewell).await;
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Waits until the client reads the written data. Returns `false` after the time limit, or after a failed write.
async fn taken(written: impl Future<Output = Result<(), tokio_tungstenite::tungstenite::Error>>) -> bool {
    let Ok(written) = tokio::time::timeout(READ_TIMEOUT, written).await else {
        tracing::debug!("the client reads nothing; its watch over WebSocket is closed");
        return false;
    };
    written.is_ok()
}

/// Sends this event and all complete events in the buffer to the client, with one flush.
async fn send(
    socket: &mut Socket,
    event: Message,
    events: &mut WatchEvents,
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    socket.feed(event).await?;
    while let Some(event) = events.ready() {
        socket.feed(event).await?;
    }
    socket.flush().await
}

/// The events of a watch, parsed from its body.
struct WatchEvents {
    body: Body,
    buffer: BytesMut,
    /// The length of the buffer's beginning that was already searched, and contains no end of an event.
    searched: usize,
    /// True if events are lines of JSON. Otherwise, each event is protobuf after a length of four bytes.
    is_json: bool,
}

impl WatchEvents {
    /// Returns the next event; `None` at the end of the watch. Cancel: safe, received data stays in the buffer.
    async fn next(&mut self) -> Option<Result<Message, BoxError>> {
        loop {
            if let Some(event) = self.ready() {
                return Some(Ok(event));
            }
            match self.body.frame().await? {
                Ok(frame) => self.buffer.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Returns the next complete watch event of the buffer.
    fn ready(&mut self) -> Option<Message> {
        if self.is_json {
            let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.buffer.split_to(self.searched + end + 1).freeze();
            self.searched = 0;
            return Some(Utf8Bytes::try_from(line.clone()).map_or(Message::Binary(line), Message::Text));
        }
        let length: [u8; 4] = self.buffer.get(..4)?.try_into().ok()?;
        let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
        if self.buffer.len() - 4 < length {
            return None;
        }
        self.buffer.advance(4);
        Some(Message::Binary(self.buffer.split_to(length).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use tributary_apimachinery::Mount;

    use super::*;

    fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    const UPGRADES: [(&str, &str); 5] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
        ("origin", "https://example.test"),
    ];

    fn take(head: &mut Parts) -> Option<Handshake> {
        let mut arrival = RequestArrival::new(Mount::Merged, &head.method, &head.uri);
        remove_handshake(head, &mut arrival)
    }

    #[test]
    fn websocket_handshake_uses_the_parsed_request() {
        let mut head = head("GET", "/version", &UPGRADES);
        head.version = Version::HTTP_11;
        let read = Uri::from_static("/api/v1/pods?watch=1");
        let mut arrival = RequestArrival::new(Mount::Merged, &Method::GET, &read);
        assert!(remove_handshake(&mut head, &mut arrival).is_some());
    }

    #[test]
    fn websocket_handshakes_are_handled_only_for_merged_watches() {
        for (method, uri, taken) in [
            ("GET", "/api/v1/pods?watch=1", true),
            ("GET", "/api/v1/watch/namespaces/n/pods/p", true),
            ("GET", "/api/v1/pods", false),
            ("POST", "/api/v1/pods?watch=1", false),
            ("GET", "/api/v1/namespaces/n/pods/p/exec?watch=1", false),
            ("GET", "/clusters/a/api/v1/pods?watch=1", false),
            ("GET", "/k8s/clusters/a/api/v1/pods?watch=1", false),
        ] {
            let mut asked = head(method, uri, &UPGRADES);
            assert_eq!(take(&mut asked).is_some(), taken, "{method} {uri}");
            assert_eq!(asked.headers.contains_key(UPGRADE), !taken, "{method} {uri}");
        }
        assert!(take(&mut head("GET", "/api/v1/pods?watch=1", &[])).is_none());
    }

    #[test]
    fn websocket_handshakes_are_handled_below_the_mount_of_the_merged_view() {
        for (path, taken) in [("views/all", true), ("clusters/a", false)] {
            let uri = format!("/apis/aggregation.tributary.dev/v1alpha1/{path}/proxy/api/v1/pods?watch=1");
            let mut asked = head("GET", &uri, &UPGRADES);
            let mut arrival = RequestArrival::new(Mount::aggregated(), &asked.method, &asked.uri);
            assert_eq!(remove_handshake(&mut asked, &mut arrival).is_some(), taken, "{uri}");
        }
    }

    #[test]
    fn websocket_handshake_follows_the_checks_of_go() {
        let judged = |name: &'static str, value: &'static str| {
            let changed = UPGRADES.iter().filter(|(known, _)| *known != name).copied().chain([(name, value)]);
            let headers: Vec<_> = changed.filter(|(_, value)| !value.is_empty()).collect();
            match accept(&head("GET", "/", &headers).headers) {
                Ok(accepted) => (101, accepted.key),
                Err(HandshakeError(status, text)) => (status.as_u16(), text.to_owned()),
            }
        };
        let key = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned();
        assert_eq!(judged("x-other", "1"), (101, key.clone()));
        assert_eq!(judged("sec-websocket-protocol", "base64.binary.k8s.io"), (101, key));
        assert_eq!(judged("sec-websocket-protocol", "binary.k8s.io, base64.binary.k8s.io"), (400, String::new()));
        assert_eq!(judged("origin", ""), (403, String::new()));
        assert_eq!(judged("origin", "null"), (403, String::new()));
        assert_eq!(judged("sec-websocket-key", ""), (400, "mismatch challenge/response".to_owned()));
        assert_eq!(judged("sec-websocket-version", "8"), (400, "missing or bad WebSocket Version".to_owned()));
    }

    async fn messages(is_json: bool, frames: &[&'static [u8]]) -> Vec<Message> {
        let frames: Vec<_> = frames.iter().map(|frame| Ok(Frame::data(Bytes::from_static(frame)))).collect();
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let mut events = WatchEvents { body, buffer: BytesMut::new(), searched: 0, is_json };
        let mut messages = Vec::new();
        while let Some(event) = events.next().await {
            messages.push(event.unwrap());
        }
        messages
    }

    #[tokio::test]
    async fn each_watch_event_becomes_one_websocket_message_despite_split_frames() {
        let text = |text: &str| Message::text(text);
        assert_eq!(
            messages(true, &[b"{\"a\"", b":1}\n{}", b"\n", b"{}\n{}\n"]).await,
            [text("{\"a\":1}\n"), text("{}\n"), text("{}\n"), text("{}\n")]
        );
        let frames: [&[u8]; 3] = [b"\0\0\0\x03ab", b"c\0\0", b"\0\x01d\0\0\0\0"];
        assert_eq!(
            messages(false, &frames).await,
            ["abc", "d", ""].map(|data| Message::binary(data.as_bytes().to_vec()))
        );
    }
}
