//! Tests of connection attempts: TLS errors, HTTP proxies, unreachable and silent members, and the resulting
//! reachability.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tower::ServiceExt;
use tributary_apimachinery::ClusterName;
use tributary_proxy::{ClientTuning, ClusterClient, ConnectError, ForwardError, ReachabilityState, RequestIdentity};

use crate::endpoints::exec;
use crate::member::{self, Authority, Member, Options, Port, SOON, SendRequest, channel, eventually, get, text};
use crate::proxies::{connect_proxy, socks_proxy};

#[tokio::test]
async fn untrusted_server_certificate_gives_an_error_that_names_the_ca_setting() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.root_cert = Some(vec![Authority::new().der.to_vec()]);
    let client = member::connect(config.clone(), ClientTuning::default()).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ForwardError::Tls { .. }), "{text}");
    assert!(text.contains("cluster c1") && text.contains("certificate-authority-data"), "{text}");
    assert_eq!(error.status_code(), StatusCode::BAD_GATEWAY);

    // Without a configured certificate authority, the client verifies with the system's root certificates.
    config.root_cert = None;
    let client = member::connect(config.clone(), ClientTuning::default()).await;
    assert!(matches!(
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err(),
        ForwardError::Tls { .. }
    ));

    config.accept_invalid_certs = true;
    let client = member::connect(config, ClientTuning::default()).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
}

#[tokio::test]
async fn server_certificate_is_checked_against_the_server_name() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.tls_server_name = Some("other.example".to_owned());
    let client = member::connect(config.clone(), ClientTuning::default()).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert!(error.to_string().contains("tls-server-name"), "{error}");
    // Here the certificate contains the configured TLS server name instead of the URL's host.
    config.cluster_url = format!("https://localhost:{}", member.address.port()).parse().unwrap();
    config.tls_server_name = Some("127.0.0.1".to_owned());
    let client = member::connect(config, ClientTuning::default()).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
}

#[tokio::test]
async fn ca_certificate_as_server_certificate_is_refused_with_the_reason() {
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(member::self_signed(&authority));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = kube::Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.root_cert = Some(vec![authority.der.to_vec()]);
    tokio::spawn(async move { acceptor.accept(listener.accept().await.unwrap().0).await.map(drop) });
    let client = member::connect(config, ClientTuning::default()).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert!(error.to_string().contains("the authority has signed"), "{error}");
}

#[tokio::test]
async fn invalid_client_configurations_are_refused() {
    let connect = |url: &str, proxy: Option<&str>| {
        let mut config = kube::Config::new(url.parse().unwrap());
        config.proxy_url = proxy.map(|proxy| proxy.parse().unwrap());
        async move { ClusterClient::connect(ClusterName::new("c1").unwrap(), config, ClientTuning::default()).await }
    };
    let error = connect("ftp://host", None).await.unwrap_err();
    assert!(matches!(error, ConnectError::Server { .. }), "{error}");
    let error = connect("https://user:secret@host", None).await.unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    let error = connect("https://host", Some("gopher://user:secret@proxy")).await.unwrap_err();
    assert!(matches!(error, ConnectError::ProxyUrl { .. }) && !error.to_string().contains("secret"), "{error}");
    let mut config = kube::Config::new("https://host".parse().unwrap());
    config.root_cert = Some(vec![b"garbage".to_vec()]);
    let error =
        ClusterClient::connect(ClusterName::new("c1").unwrap(), config, ClientTuning::default()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. }), "{error}");
}

#[tokio::test]
async fn member_becomes_unreachable_and_then_reachable_after_recovery() {
    let port = Port::reserve();
    let address = port.address();
    let client =
        member::connect(kube::Config::new(format!("http://{address}").parse().unwrap()), ClientTuning::default()).await;
    let mut reachability = client.reachability();
    assert!(matches!(reachability.borrow().state, ReachabilityState::Unknown));
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert!(matches!(error, ForwardError::Dial { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    assert_eq!(error.status_code(), StatusCode::SERVICE_UNAVAILABLE);
    reachability.changed().await.unwrap();
    assert!(matches!(&reachability.borrow_and_update().state, ReachabilityState::Unreachable { reason, .. }
        if reason.contains(&address.to_string())));
    assert_eq!(client.since_last_answer(), None);

    let listener = port.listen().await;
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            let _ = tcp.read(&mut head).await.unwrap();
            tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
    });
    let health = client.health().await.unwrap();
    assert!(health.ready && health.detail == "ok");
    reachability.changed().await.unwrap();
    assert!(reachability.borrow_and_update().is_reachable());
    assert!(client.since_last_answer().unwrap() < SOON);
}

#[tokio::test]
async fn member_health_contains_the_status_and_body_of_readyz() {
    let member = Member::start(Options::default(), |seen, _| async move {
        assert_eq!(seen.uri.path(), "/readyz");
        text(StatusCode::INTERNAL_SERVER_ERROR, "[-]etcd failed".to_owned())
    })
    .await;
    let health = member.client().await.health().await.unwrap();
    assert_eq!((health.ready, health.status), (false, StatusCode::INTERNAL_SERVER_ERROR));
    assert_eq!(health.detail, "[-]etcd failed");
}

#[tokio::test]
async fn connection_attempt_to_a_silent_server_times_out() {
    // A listener that accepts connections and never sends a byte.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = kube::Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
    let tuning = ClientTuning { connect_timeout: Duration::from_millis(200), ..ClientTuning::default() };
    let client = member::connect(config, tuning).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert!(matches!(error, ForwardError::DialTimeout { step: "TLS handshake", .. }), "{error}");
}

/// A stopped kube-apiserver, or a load balancer without a backend, accepts connections and does not answer.
#[tokio::test]
async fn upgrade_to_a_silent_member_is_refused_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = kube::Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
    let tuning = ClientTuning { connect_timeout: Duration::from_secs(2), ..ClientTuning::default() };
    let client = member::connect(config, tuning).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    for _ in 0..3 {
        let begun = Instant::now();
        let error = client.send_request(exec(), RequestIdentity::Member).await.unwrap_err();
        assert!(matches!(error, ForwardError::Unreachable { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn transport_adds_the_host_and_port_of_the_member_to_the_request_uri() {
    let member = Member::echo().await;
    let response = member.client().await.transport().oneshot(get("/apis?x=1")).await.unwrap();
    assert_eq!(member::read(response).await, "/apis");
    assert_eq!(member.last().uri.authority().unwrap().as_str(), member.address.to_string());
}

/// A TCP relay that can stop forwarding without closing connections, like a firewall that has lost the state of a
/// connection.
async fn relay(to: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let frozen = Arc::new(AtomicBool::new(false));
    let flag = frozen.clone();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = TcpStream::connect(to).await.unwrap().into_split();
            tokio::spawn(copy(near_read, far_write, flag.clone()));
            tokio::spawn(copy(far_read, near_write, flag.clone()));
        }
    });
    (address, frozen)
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    frozen: Arc<AtomicBool>,
) {
    let mut buffer = vec![0; 65536];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        while frozen.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if count == 0 || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn half_open_connection_is_detected_by_pings() {
    let member = Member::start(Options::default(), |_, _| async {
        let (sender, body) = channel();
        tokio::spawn(async move { sender.closed().await });
        http::Response::new(body)
    })
    .await;
    let (address, frozen) = relay(member.address).await;
    let mut config = member.config();
    config.cluster_url = format!("https://{address}").parse().unwrap();
    let tuning = ClientTuning {
        keep_alive_interval: Duration::from_millis(100),
        // Long enough for a ping response on a busy machine.
        keep_alive_timeout: Duration::from_secs(2),
        ..ClientTuning::default()
    };
    let client = member::connect(config, tuning).await;
    let response = client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap();
    assert!(client.reachability().borrow().is_reachable());
    // An idle connection stays open, because the member answers pings.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(client.pool_statistics().long_connections, 1);

    frozen.store(true, Ordering::SeqCst);
    let frame = tokio::time::timeout(SOON, response.into_body().frame()).await.expect("not noticed");
    let error = frame.unwrap().unwrap_err();
    assert!(error.to_string().contains("cluster c1"), "{error}");
    eventually("the member counts as unreachable", || !client.reachability().borrow().is_reachable()).await;
    assert_eq!(client.pool_statistics().long_connections, 0);

    frozen.store(false, Ordering::SeqCst);
    client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap();
    assert!(client.reachability().borrow().is_reachable());
}

#[tokio::test]
async fn http_proxy_tunnels_tls_connections() {
    let member = Member::echo().await;
    let (proxy, mut heads) = connect_proxy().await;
    let mut config = member.config();
    config.proxy_url = Some(format!("http://user:p%40ss@{proxy}").parse().unwrap());
    let client = member::connect(config, ClientTuning::default()).await;
    let response = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member::read(response).await, "/api");
    let head = heads.recv().await.unwrap();
    assert!(head.starts_with(&format!("CONNECT {}", member.address)), "{head}");
    assert!(head.to_lowercase().contains("proxy-authorization: basic dxnlcjpwqhnz"), "{head}");
    assert!(!member.last().headers.contains_key("proxy-authorization"));
}

#[tokio::test]
async fn socks5_proxy_tunnels_tls_connections() {
    let member = Member::echo().await;
    let (proxy, _asked) = socks_proxy().await;
    let mut config = member.config();
    config.proxy_url = Some(format!("socks5://user:p%40ss!@{proxy}").parse().unwrap());
    let client = member::connect(config, ClientTuning::default()).await;
    let response = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member::read(response).await, "/api");
}
