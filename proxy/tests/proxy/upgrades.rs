//! Tests of upgrades through a server like Tributary's. Bytes flow in both directions after a 101, and never after
//! another response.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tributary_apimachinery::Permit;
use tributary_apimachinery::body::{Body, BoxError};
use tributary_proxy::{
    ClientTuning, ClientUpgrade, ClusterClient, ForwardContext, PermitPool, RequestIdentity, Sent, TunnelEnd,
};

use crate::credentials::KUBERNETES_401;
use crate::member::{self, Authority, Member, Options, Port, SOON, eventually, get, text};

pub(crate) const WEBSOCKET: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: a2V5\r\n";

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// A member without an HTTP library. It answers each request head with `answer` and records all later bytes. After a
/// 101, it sends these bytes back in capitals.
pub(crate) struct RawMember {
    pub(crate) config: kube::Config,
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
    pub(crate) after: Arc<Mutex<Vec<u8>>>,
}

impl RawMember {
    /// Starts a member that prefers HTTP/2, which the proxy must not offer for an upgrade.
    pub(crate) async fn start(answer: &'static str) -> Self {
        Self::start_with(Options::default(), answer).await
    }

    async fn start_with(options: Options, answer: &'static str) -> Self {
        let authority = Authority::new();
        let acceptor = tokio_rustls::TlsAcceptor::from(member::server_config(&authority, &options));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = kube::Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
        config.root_cert = Some(vec![authority.der.to_vec()]);
        config.auth_info.token = Some("member-token".to_owned().into());
        let (heads, after) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (all_heads, all_after) = (heads.clone(), after.clone());
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let mut tls = acceptor.accept(tcp).await.unwrap();
                if tls.get_ref().1.alpn_protocol() != Some(&b"http/1.1"[..]) {
                    continue;
                }
                let (heads, after) = (all_heads.clone(), all_after.clone());
                tokio::spawn(async move {
                    let head = read_head(&mut tls).await;
                    heads.lock().unwrap().push(head);
                    tls.write_all(answer.as_bytes()).await.unwrap();
                    tls.flush().await.unwrap();
                    let mut buffer = [0; 4096];
                    while let Ok(count @ 1..) = tls.read(&mut buffer).await {
                        after.lock().unwrap().extend_from_slice(&buffer[..count]);
                        if answer.starts_with("HTTP/1.1 101") {
                            tls.write_all(&buffer[..count].to_ascii_uppercase()).await.unwrap();
                            tls.flush().await.unwrap();
                        }
                    }
                });
            }
        });
        Self { config, heads, after }
    }
}

pub(crate) async fn read_head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the connection ended before a head"));
    }
    String::from_utf8(head).unwrap()
}

/// Starts a server that forwards every request to one member.
pub(crate) async fn front(client: ClusterClient) -> SocketAddr {
    front_that_keeps(client, || ()).await
}

/// Like [`front`], but each tunnel stores a value from `keep` until the tunnel ends.
async fn front_that_keeps<K: Send + 'static>(
    client: ClusterClient,
    keep: impl Fn() -> K + Clone + Send + 'static,
) -> SocketAddr {
    front_that_adds(client, move |context| {
        if let Some(upgrade) = &context.upgrade {
            upgrade.permits.push(Permit::from_guard(keep()));
        }
    })
    .await
}

/// Like [`front`], but `add` changes the context of each request before the server forwards it.
async fn front_that_adds(
    client: ClusterClient,
    add: impl Fn(&mut ForwardContext) + Clone + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (client, add) = (client.clone(), add.clone());
            let service = service_fn(move |mut request: Request<Incoming>| {
                let client = client.clone();
                let mut context = ForwardContext::from(RequestIdentity::Member);
                context.upgrade = request.extensions_mut().remove().map(ClientUpgrade::new);
                add(&mut context);
                async move {
                    let request = request.map(|body| body.map_err(BoxError::from).boxed_unsync());
                    let response = client.forward(request, context).await;
                    Ok::<Response<Body>, BoxError>(
                        response.unwrap_or_else(|error| text(error.status_code(), error.to_string())),
                    )
                }
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), service);
            tokio::spawn(connection.with_upgrades());
        }
    });
    address
}

pub(crate) async fn ask(address: SocketAddr, headers: &str) -> (TcpStream, String) {
    ask_for(address, "/api/v1/namespaces/a/pods/p/exec?command=sh", headers).await
}

async fn ask_for(address: SocketAddr, path: &str, headers: &str) -> (TcpStream, String) {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(format!("GET {path} HTTP/1.1\r\nhost: front\r\n{headers}\r\n").as_bytes()).await.unwrap();
    let head = tokio::time::timeout(SOON, read_head(&mut tcp)).await.expect("no answer");
    (tcp, head)
}

#[tokio::test]
async fn upgrade_uses_a_reachable_endpoint() {
    let member = RawMember::start(SWITCHED).await;
    let lost = Port::reserve();
    let mut config = member.config.clone();
    let reached = std::mem::replace(&mut config.cluster_url, format!("https://{}", lost.address()).parse().unwrap());
    let further = [reached.into()];
    let name = tributary_apimachinery::ClusterName::new("c1").unwrap();
    let client = ClusterClient::connect_to_all(name, config, &further, ClientTuning::default()).await.unwrap();
    let address = front(client.clone()).await;
    let mut tunnels = Vec::new();
    for _ in 0..3 {
        let (tcp, head) = ask(address, WEBSOCKET).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        tunnels.push(tcp);
    }
    let endpoints = client.endpoints();
    assert_eq!((endpoints[0].requests, endpoints[1].requests), (0, 3));
    assert_eq!((endpoints[0].outstanding, endpoints[1].outstanding), (0, 3), "a tunnel counts for as long as it lasts");
    drop(tunnels);
    eventually("the tunnels end", || client.endpoints()[1].outstanding == 0).await;
}

#[tokio::test]
async fn tunnel_copies_bytes_in_both_directions_after_101() {
    let tuning = ClientTuning::default();
    for (protocol, answer) in [
        (
            "websocket",
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\nSet-Cookie: a=b\r\n\r\nhello",
        ),
        ("SPDY/3.1", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nhello"),
    ] {
        let member = RawMember::start(answer).await;
        let client = member::connect(member.config.clone(), tuning.clone()).await;
        let address = front(client).await;
        let headers = format!(
            "connection: keep-alive, Upgrade\r\nupgrade: {protocol}\r\nauthorization: Bearer client\r\n\
             impersonate-user: root\r\nsec-websocket-protocol: v5.channel.k8s.io, \
             base64url.bearer.authorization.k8s.io.Y2xpZW50\r\n"
        );
        let (mut tcp, head) = ask(address, &headers).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let lower = head.to_lowercase();
        assert!(
            lower.contains("connection: upgrade") && lower.contains(&format!("upgrade: {}", protocol.to_lowercase())),
            "{head}"
        );
        assert!(!lower.contains("set-cookie"), "{head}");
        // The member sent these bytes immediately after its 101.
        let mut hello = [0; 5];
        tcp.read_exact(&mut hello).await.unwrap();
        assert_eq!(&hello, b"hello");
        for round in 0..3 {
            let sent = format!("round {round} ").repeat(5000);
            let (mut read, mut write) = tcp.split();
            let mut received = vec![0; sent.len()];
            let (written, received_all) =
                tokio::join!(write.write_all(sent.as_bytes()), read.read_exact(&mut received));
            written.unwrap();
            received_all.unwrap();
            assert!(received == sent.to_ascii_uppercase().as_bytes(), "bytes changed on the way");
        }
        assert_eq!(tuning.tunnels.len(), 1);
        drop(tcp);
        eventually("the tunnel ends with its client", || tuning.tunnels.is_empty()).await;

        let seen = member.heads.lock().unwrap().pop().unwrap().to_lowercase();
        assert!(seen.starts_with("get /api/v1/namespaces/a/pods/p/exec?command=sh http/1.1"), "{seen}");
        assert!(seen.contains("authorization: bearer member-token"), "{seen}");
        assert!(!seen.contains("client") && !seen.contains("impersonate") && !seen.contains("y2xpzw50"), "{seen}");
        assert!(seen.contains("sec-websocket-protocol: v5.channel.k8s.io\r\n"), "{seen}");
    }
}

#[tokio::test]
async fn idle_tunnel_stays_open_for_a_day() {
    let member = RawMember::start(SWITCHED).await;
    let address = front(member::connect(member.config.clone(), ClientTuning::default()).await).await;
    let (mut tcp, head) = ask(address, WEBSOCKET).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    tokio::time::resume();
    tcp.write_all(b"still open").await.unwrap();
    let mut echo = [0; 10];
    tokio::time::timeout(SOON, tcp.read_exact(&mut echo)).await.unwrap().unwrap();
    assert_eq!(&echo, b"STILL OPEN");
}

/// Returns the configuration of a member that accepts one connection, switches protocols, and then calls `does` with
/// the connection.
pub(crate) async fn member_that_switches<F>(
    does: impl FnOnce(TlsStream<TcpStream>) -> F + Send + 'static,
) -> kube::Config
where
    F: Future<Output = ()> + Send + 'static,
{
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = kube::Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.root_cert = Some(vec![authority.der.to_vec()]);
    let options = Options { alpn: vec!["http/1.1"], ..Options::default() };
    let acceptor = tokio_rustls::TlsAcceptor::from(member::server_config(&authority, &options));
    tokio::spawn(async move {
        let mut tls = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        read_head(&mut tls).await;
        tls.write_all(SWITCHED.as_bytes()).await.unwrap();
        does(tls).await;
    });
    config
}

#[tokio::test]
async fn tunnel_carries_member_bytes_after_the_client_finished() {
    let config = member_that_switches(|mut tls| async move {
        let mut received = Vec::new();
        tls.read_to_end(&mut received).await.unwrap();
        received.make_ascii_uppercase();
        tls.write_all(&received).await.unwrap();
        tls.shutdown().await.unwrap();
    })
    .await;
    let address = front(member::connect(config, ClientTuning::default()).await).await;
    let (mut tcp, head) = ask(address, WEBSOCKET).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    tcp.write_all(b"all of it").await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(SOON, tcp.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, b"ALL OF IT");
}

#[tokio::test]
async fn tunnel_carries_client_bytes_after_the_member_finished() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let config = member_that_switches(|mut tls| async move {
        tls.write_all(b"that was all").await.unwrap();
        tls.shutdown().await.unwrap();
        let mut received = Vec::new();
        tls.read_to_end(&mut received).await.unwrap();
        sender.send(received).unwrap();
    })
    .await;
    let tuning = ClientTuning::default();
    let address = front(member::connect(config, tuning.clone()).await).await;
    let (mut tcp, head) = ask(address, WEBSOCKET).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let mut answer = Vec::new();
    tokio::time::timeout(SOON, tcp.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, b"that was all");
    // The message is longer than all buffers together. So the proxy must forward the beginning before it has received
    // the end.
    let message = b"and I have this to say. ".repeat(50_000);
    tokio::time::timeout(SOON, tcp.write_all(&message)).await.unwrap().unwrap();
    assert_eq!(tuning.tunnels.len(), 1, "one half is open");
    tcp.shutdown().await.unwrap();
    assert!(tokio::time::timeout(SOON, receiver).await.unwrap().unwrap() == message, "bytes changed on the way");
    eventually("the tunnel ends with both halves", || tuning.tunnels.is_empty()).await;
}

#[tokio::test]
async fn tunnels_end_on_shutdown() {
    let member = RawMember::start(SWITCHED).await;
    let tuning = ClientTuning::default();
    let address = front(member::connect(member.config.clone(), tuning.clone()).await).await;
    let (mut tcp, _) = ask(address, WEBSOCKET).await;
    assert_eq!(tuning.tunnels.len(), 1);
    tuning.tunnels.close();
    tuning.shutdown.cancel();
    tokio::time::timeout(SOON, tuning.tunnels.wait()).await.expect("a tunnel goes on");
    assert!(matches!(tcp.read(&mut [0; 1]).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn tunnel_end_signal_ends_only_its_own_tunnel() {
    let member = RawMember::start(SWITCHED).await;
    let tuning = ClientTuning::default();
    let client = member::connect(member.config.clone(), tuning.clone()).await;
    let (end_senders, enders) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let all = Arc::clone(&enders);
    let address = front_that_adds(client, move |context| {
        let (end, ender) = TunnelEnd::new();
        context.tunnel_end = Some(end);
        all.lock().unwrap().push(ender);
    })
    .await;
    let (mut first, mut second) = (ask(address, WEBSOCKET).await.0, ask(address, WEBSOCKET).await.0);
    for (place, ender) in enders.lock().unwrap().drain(..).enumerate() {
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        end_senders.lock().unwrap().push(end);
        // Only the first tunnel gets a signal that ends the tunnel.
        if place == 0 {
            ender.end_when(Box::pin(async { drop(ended.await) }));
        }
    }
    for tunnel in [&mut first, &mut second] {
        tunnel.write_all(b"x").await.unwrap();
        assert_eq!(tunnel.read_u8().await.unwrap(), b'X');
    }
    end_senders.lock().unwrap().clear();
    assert!(matches!(first.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    eventually("it is over", || tuning.tunnels.len() == 1).await;
    second.write_all(b"x").await.unwrap();
    assert_eq!(second.read_u8().await.unwrap(), b'X');
}

#[tokio::test]
async fn permits_are_freed_at_the_tunnel_end_or_without_101() {
    for (answer, lasts) in [(SWITCHED, true), ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", false)] {
        let member = RawMember::start(answer).await;
        let client = member::connect(member.config.clone(), ClientTuning::default()).await;
        let guard = Arc::new(());
        let each = Arc::clone(&guard);
        let address = front_that_keeps(client, move || Arc::clone(&each)).await;
        // The server itself has one reference to the value, and each accepted connection has another one.
        let (mut tcp, head) = ask(address, WEBSOCKET).await;
        assert_eq!(head.starts_with("HTTP/1.1 101"), lasts, "{head}");
        if lasts {
            tcp.write_all(b"x").await.unwrap();
            assert_eq!(tcp.read_u8().await.unwrap(), b'X');
            assert_eq!(Arc::strong_count(&guard), 3, "kept while bytes flow");
        }
        drop(tcp);
        eventually("it is let go", || Arc::strong_count(&guard) == 2).await;
    }
}

#[tokio::test]
async fn upgrade_header_without_connection_header_is_an_ordinary_request() {
    let member = Member::echo().await;
    let client = member.client().await;
    let mut request = get("/api");
    request.headers_mut().insert("upgrade", "h2c".parse().unwrap());
    assert_eq!(client.forward(request, RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
    assert!(!member.last().headers.contains_key("upgrade"));
}

#[tokio::test]
async fn upgrade_401_reaches_the_client_unless_tributarys_credentials_are_rejected() {
    for (own, expected) in [(StatusCode::OK, "HTTP/1.1 401"), (StatusCode::UNAUTHORIZED, "HTTP/1.1 502")] {
        let member = Member::start(Options::default(), move |seen, _| async move {
            let code = if seen.uri.path() == "/api" { own } else { StatusCode::UNAUTHORIZED };
            text(code, "who are you".to_owned())
        })
        .await;
        let client = member.client().await;
        let (_tcp, head) = ask(front(client.clone()).await, WEBSOCKET).await;
        assert!(head.starts_with(expected), "{head}");
        assert_eq!(client.reachability().borrow().is_reachable(), own == StatusCode::OK);
    }
}

/// The upgrade gets kube-apiserver's 401, although the member accepts the same credentials at `/api`. A kubelet's 401
/// has a different text, and a workload's 401 may have any text.
#[tokio::test]
async fn kube_apiserver_401_to_an_upgrade_does_not_reach_the_client() {
    let pod = "/api/v1/namespaces/a/pods/p";
    let console = "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/v/console";
    let member = Member::start(Options::default(), move |seen, _| async move {
        let code = if seen.uri.path() == "/api" { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        text(code, KUBERNETES_401.to_owned())
    })
    .await;
    let client = member.client().await;
    let address = front(client.clone()).await;
    for (path, expected) in [
        (format!("{pod}/exec?command=sh"), "HTTP/1.1 503"),
        (format!("{pod}/attach"), "HTTP/1.1 503"),
        (format!("{pod}/portforward"), "HTTP/1.1 503"),
        (console.to_owned(), "HTTP/1.1 503"),
        (format!("{pod}/proxy/"), "HTTP/1.1 401"),
        ("/api/v1/namespaces/a/services/pay:80/proxy/".to_owned(), "HTTP/1.1 401"),
    ] {
        let (_tcp, head) = ask_for(address, &path, WEBSOCKET).await;
        assert!(head.starts_with(expected), "{path}: {head}");
    }
    assert!(client.reachability().borrow().is_reachable());
}

#[tokio::test]
async fn unrequested_101_does_not_reach_the_client() {
    let options = Options { alpn: vec!["http/1.1"], ..Options::default() };
    let member = RawMember::start_with(options, SWITCHED).await;
    let client = member::connect(member.config.clone(), ClientTuning::default()).await;
    let error = client.forward(get("/api/v1/pods"), RequestIdentity::Member).await.unwrap_err();
    assert_eq!((error.status_code(), error.sent()), (StatusCode::BAD_GATEWAY, Sent::Maybe), "{error}");
    assert!(error.to_string().contains("101"), "{error}");
}

#[tokio::test]
async fn number_of_concurrent_tunnels_is_limited() {
    let member = RawMember::start(SWITCHED).await;
    let tuning = ClientTuning { tunnel_permits: PermitPool::new(2), ..ClientTuning::default() };
    let address = front(member::connect(member.config.clone(), tuning.clone()).await).await;
    let (mut open, head) = ask(address, WEBSOCKET).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let (other, _) = ask(address, WEBSOCKET).await;
    let (_tcp, head) = ask(address, WEBSOCKET).await;
    assert!(head.starts_with("HTTP/1.1 429"), "{head}");
    assert_eq!(member.heads.lock().unwrap().len(), 2, "nothing is dialed for it");
    drop(other);
    eventually("a place is free", || tuning.tunnel_permits.taken() == 1).await;
    let (_tcp, head) = ask(address, WEBSOCKET).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    open.write_all(b"x").await.unwrap();
    assert_eq!(open.read_u8().await.unwrap(), b'X');
}
