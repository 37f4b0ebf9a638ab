//! Tests of tunnels through the listener, the router and the proxy: a client opens a shell over TLS, and a member
//! switches protocols. Each side may close its half of the connection, and an idle tunnel stays open.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::{Body, full};
use tributary_proxy::{ClientTuning, ClusterClient, PermitPool, Probe};
use tributary_router::{ClusterAddress, ClusterAuthorization, ClusterSetup, MemberRules, Router, RouterConfig};

use crate::fixture::{SOON, Server, start};
use crate::slow_readers::until;
use crate::spread::tls_speaking;

const EXEC: &str = "/api/v1/namespaces/default/pods/p/exec?command=sh&stdin=true&stdout=true";

/// The size of the last message, in bytes. The message is larger than all buffers between the tunnel's two sides, so
/// that it arrives only while the receiver reads.
const LONG_BYTES: usize = 8 << 20;

const SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The step by which the paused clock advances. The step exceeds every idle timeout, so each step lets every timeout
/// expire.
const LEAP: Duration = Duration::from_secs(30 * 60);

/// The client's end of a tunnel, and the member's end.
type Ends = (TlsStream<TcpStream>, TokioIo<Upgraded>);

/// A member over HTTP/1.1. It answers upgrade requests with 101, and all other requests with an empty object.
#[derive(Clone)]
struct Member {
    opened: UnboundedSender<OnUpgrade>,
    /// The number of received health probes.
    asked: Arc<watch::Sender<usize>>,
}

impl Member {
    fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        if request.headers().contains_key(header::UPGRADE) {
            let _the_test_may_be_over = self.opened.send(hyper::upgrade::on(&mut request));
            let switch = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
            let switch = switch.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "websocket");
            return switch.body(full("")).unwrap();
        }
        if request.uri().path() == "/readyz" {
            self.asked.send_modify(|asked| *asked += 1);
        }
        Response::builder().header(header::CONTENT_TYPE, "application/json").body(full("{}")).unwrap()
    }

    async fn listen(self) -> (String, Vec<u8>) {
        let (acceptor, certificate) = tls_speaking("http/1.1");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, member) = (acceptor.clone(), self.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        let answer = member.answer(request);
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ended = connection.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
                });
            }
        });
        (url, certificate)
    }
}

/// The complete server: a listener over a router with the member as cluster `one`.
struct Whole {
    server: Server,
    tuning: ClientTuning,
    opened: UnboundedReceiver<OnUpgrade>,
    asked: watch::Receiver<usize>,
}

impl Whole {
    async fn start() -> Self {
        Self::with(ClientTuning::default()).await
    }

    async fn with(tuning: ClientTuning) -> Self {
        let (sender, opened) = unbounded_channel();
        let asked = Arc::new(watch::Sender::new(0));
        let receiver = asked.subscribe();
        let (url, certificate) = Member { opened: sender, asked }.listen().await;
        let mut config = kube::Config::new(url.parse().unwrap());
        config.root_cert = Some(vec![certificate]);
        // The member's certificate is self-signed and not a CA certificate, so the client must not verify it.
        config.accept_invalid_certs = true;
        // If the clock advances during a health probe, the probe fails by its timeout. One such failure must not make
        // the member unreachable, so the threshold is two failures.
        let probe = Probe { failure_threshold: 2, ..Probe::default() };
        let tuning = ClientTuning { probe, ..tuning };
        let name = ClusterName::new("one").unwrap();
        let client = ClusterClient::connect(name.clone(), config, tuning.clone()).await;
        let router = Router::new(RouterConfig::default());
        router.set_clusters(vec![ClusterSetup {
            name,
            client: client.map_err(|error| error.to_string()),
            client_generation: 0,
            address: ClusterAddress::from_description(""),
            index: None,
            impersonation: MemberRules::default(),
            authorization: ClusterAuthorization::Auto,
        }]);
        router.asked_once(SOON).await;
        Self { server: start(router).await, tuning, opened, asked: receiver }
    }

    /// Requests a shell in a pod. Returns the connection and the head of the response.
    async fn ask(&self, version: &'static SupportedProtocolVersion) -> (TlsStream<TcpStream>, String) {
        let mut client = self.server.connect(version, "http/1.1").await;
        let head = format!(
            "GET /clusters/one{EXEC} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nOrigin: https://x\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.server.token
        );
        client.write_all(head.as_bytes()).await.unwrap();
        client.flush().await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(soon(client.read_u8()).await.unwrap());
        }
        (client, String::from_utf8(answer).unwrap())
    }

    async fn open(&mut self, version: &'static SupportedProtocolVersion) -> Ends {
        let (client, answer) = self.ask(version).await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        let opened = soon(self.opened.recv()).await.unwrap();
        (client, TokioIo::new(soon(opened).await.unwrap()))
    }

    fn is_open(&self) -> bool {
        self.tuning.tunnels.len() == 1 && self.server.connections.get() == 1
    }

    async fn ended(&self) {
        until(|| self.tuning.tunnels.is_empty() && self.server.connections.get() == 0).await;
    }

    /// Waits until the member has received one more health probe.
    async fn asked_again(&mut self) {
        let before = *self.asked.borrow();
        soon(self.asked.wait_for(|asked| *asked > before)).await.unwrap();
    }
}

/// Waits for an event that happens without an advance of the paused clock.
async fn soon<T>(coming: impl Future<Output = T>) -> T {
    timeout(SOON, coming).await.expect("it does not come")
}

/// `speaker` sends its last bytes and closes its half of the connection. `hearer` must receive the bytes and the end.
async fn finishes(speaker: &mut (impl AsyncWrite + Unpin), hearer: &mut (impl AsyncRead + Unpin), words: &[u8]) {
    let speaks = async {
        speaker.write_all(words).await.unwrap();
        speaker.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let ((), read) = soon(async { tokio::join!(speaks, hearer.read_to_end(&mut heard)) }).await;
    read.expect("an end that is none of a break");
    assert!(heard == words, "{} bytes came of {}", heard.len(), words.len());
}

/// `speaker` sends bytes, and `hearer` must receive the bytes immediately.
async fn says(speaker: &mut (impl AsyncWrite + Unpin), hearer: &mut (impl AsyncRead + Unpin), words: &[u8]) {
    speaker.write_all(words).await.unwrap();
    speaker.flush().await.unwrap();
    let mut heard = vec![0; words.len()];
    soon(hearer.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, words);
}

fn long() -> Vec<u8> {
    b"and I have this to say. ".iter().copied().cycle().take(LONG_BYTES).collect()
}

#[tokio::test]
async fn half_closed_client_receives_the_remaining_bytes() {
    for version in [&TLS12, &TLS13] {
        let mut whole = Whole::start().await;
        let (mut client, mut member) = whole.open(version).await;
        says(&mut member, &mut client, b"what now?").await;
        finishes(&mut client, &mut member, b"that was all").await;
        assert!(whole.is_open(), "one half is, over {version:?}");
        says(&mut member, &mut client, b"well,").await;
        finishes(&mut member, &mut client, &long()).await;
        drop((client, member));
        whole.ended().await;
    }
}

#[tokio::test]
async fn half_closed_member_receives_the_remaining_bytes() {
    for version in [&TLS12, &TLS13] {
        let mut whole = Whole::start().await;
        let (mut client, mut member) = whole.open(version).await;
        says(&mut client, &mut member, b"what now?").await;
        finishes(&mut member, &mut client, b"that was all").await;
        assert!(whole.is_open(), "one half is, over {version:?}");
        says(&mut client, &mut member, b"well,").await;
        finishes(&mut client, &mut member, &long()).await;
        drop((client, member));
        whole.ended().await;
    }
}

#[tokio::test]
async fn silent_or_half_closed_tunnel_stays_open_for_a_day() {
    let mut whole = Whole::start().await;
    let (mut client, mut member) = whole.open(&TLS13).await;
    for halves in ["both", "one"] {
        for _ in 0..SILENCE.as_secs() / LEAP.as_secs() {
            tokio::time::pause();
            tokio::time::advance(LEAP).await;
            tokio::time::resume();
            // A new health probe proves that the timers have run after the clock's advance.
            whole.asked_again().await;
        }
        assert!(whole.is_open(), "{halves}");
        says(&mut member, &mut client, b"still there?").await;
        if halves == "both" {
            says(&mut client, &mut member, b"still there.").await;
            finishes(&mut client, &mut member, b"that was all").await;
        }
    }
    finishes(&mut member, &mut client, b"that was all").await;
    drop((client, member));
    whole.ended().await;
}

/// If the limit of tunnels is reached, a request for a tunnel gets 429 with Retry-After, and the proxy opens no
/// connection for the request.
#[tokio::test]
async fn tunnel_above_the_limit_gets_a_429() {
    let tuning = ClientTuning { tunnel_permits: PermitPool::new(1), ..ClientTuning::default() };
    let mut whole = Whole::with(tuning).await;
    let (client, member) = whole.open(&TLS13).await;
    let (_refused, answer) = whole.ask(&TLS13).await;
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after: "), "{answer}");
    assert!(whole.opened.try_recv().is_err(), "the member was asked");
    drop((client, member));
    until(|| whole.tuning.tunnel_permits.taken() == 0).await;
    let (mut client, mut member) = whole.open(&TLS13).await;
    says(&mut client, &mut member, b"now it is my turn").await;
}
