//! An HTTP client for the tests of the simulator.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tributary_simulator::{SimulatedCluster, Simulator, SimulatorConfig};

/// The time limit for expected events. The limit detects missing events and does not measure speed.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, wait).await.unwrap_or_else(|_| panic!("the condition does not become true: {what}"));
}

/// A simulated member, and an HTTP/2 connection to the member.
pub(crate) struct Fixture {
    pub(crate) member: SimulatedCluster,
    sender: SendRequest<Full<Bytes>>,
}

/// A response whose body has been read completely.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.json()["items"])
    }
}

pub(crate) fn names(items: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |item: &Value| format!("{}/{}", text(&item["metadata"]["namespace"]), text(&item["metadata"]["name"]));
    items.as_array().expect("items").iter().map(of).collect()
}

pub(crate) async fn connect(member: &SimulatedCluster) -> std::io::Result<SendRequest<Full<Bytes>>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(member.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(member.address()).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(std::io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

impl Fixture {
    pub(crate) async fn start(config: SimulatorConfig) -> Self {
        let member = Simulator::start(config).await.expect("the member starts");
        let sender = connect(&member).await.expect("the member accepts");
        Self { member, sender }
    }

    pub(crate) async fn small() -> Self {
        Self::start(SimulatorConfig { pods: 60, namespaces: 3, ..SimulatorConfig::default() }).await
    }

    pub(crate) fn request(&self, method: &str, path: &str, content_type: &str, body: &str) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.member.url()))
            .header("authorization", format!("Bearer {}", self.member.token()))
            .header("content-type", content_type)
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.sender.clone().send_request(request).await
    }

    pub(crate) async fn answer(&self, request: Request<Full<Bytes>>) -> Answer {
        let response = tokio::time::timeout(SOON, self.send(request)).await.expect("in time").expect("an answer");
        let (parts, body) = response.into_parts();
        Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body: body.collect().await.expect("a whole body").to_bytes(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.answer(self.request("GET", path, "application/json", "")).await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        let mut request = self.request("GET", path, "application/json", "");
        request.headers_mut().insert("accept", accept.parse().unwrap());
        self.answer(request).await
    }

    pub(crate) async fn write(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Answer {
        self.answer(self.request(method, path, content_type, &body.to_string())).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Events {
        let response = self.send(self.request("GET", path, "application/json", "")).await.expect("an answer");
        assert_eq!(response.status(), 200, "{path}");
        Events { body: response.into_body(), buffer: BytesMut::new() }
    }

    /// Returns an existing pod whose phase is Running.
    pub(crate) async fn some_pod(&self) -> Value {
        let list = self.get("/api/v1/pods?fieldSelector=status.phase%3DRunning&limit=1").await.json();
        let mut pod = list["items"][0].clone();
        pod["kind"] = "Pod".into();
        pod["apiVersion"] = "v1".into();
        pod
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Eof,
    /// The stream ended with an error before its regular end.
    Cut,
}

pub(crate) struct Events {
    pub(crate) body: Incoming,
    buffer: BytesMut,
}

impl Events {
    /// Returns the next line of the watch, or the end of the stream.
    pub(crate) async fn line(&mut self) -> Result<String, End> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return Ok(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            match tokio::time::timeout(SOON, self.body.frame()).await.expect("an event in time") {
                None => return Err(End::Eof),
                Some(Err(_)) => return Err(End::Cut),
                Some(Ok(frame)) => self.buffer.extend_from_slice(frame.data_ref().expect("data")),
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Result<Value, End> {
        self.line().await.map(|line| serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")))
    }

    /// Returns the next event, which must have this type.
    pub(crate) async fn expect(&mut self, event_type: &str) -> Value {
        let event = self.next().await.expect("an event");
        assert_eq!(event["type"], event_type, "{event}");
        event["object"].clone()
    }

    /// Reads ADDED events, up to the bookmark at the end of the initial events.
    pub(crate) async fn initial(&mut self) -> (Vec<Value>, Value) {
        let mut added = Vec::new();
        loop {
            let event = self.next().await.expect("an event");
            if event["type"] == "BOOKMARK" {
                assert_eq!(event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
                return (added, event["object"].clone());
            }
            assert_eq!(event["type"], "ADDED");
            added.push(event["object"].clone());
        }
    }

    /// Returns whether no event arrives within 300 ms.
    pub(crate) async fn quiet(&mut self) -> bool {
        self.buffer.is_empty() && tokio::time::timeout(Duration::from_millis(300), self.body.frame()).await.is_err()
    }
}

pub(crate) fn version(value: &Value) -> String {
    value["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}
