//! Tests under paused time, with endpoints in the test's process. In real time these tests would take seconds or an
//! hour.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::BoxError;
use tributary_proxy::{
    Address, BoxIo, ClientTuning, ClusterClient, Connector, EndpointSubset, ForwardError, Impersonation,
    ReachabilityState, RequestIdentity, Sent,
};

use crate::member::{Authority, Body, Options, SendRequest, channel, full, get, server_config};

pub(crate) const ENDPOINTS: [&str; 2] = ["first.example", "second.example"];

#[derive(Clone)]
pub(crate) enum ConnectionBehavior {
    /// Accepts HTTP/2 connections without TLS, without delay.
    Plain,
    /// Accepts HTTP/1.1 connections, with one request per connection, after a TLS handshake of this duration.
    Http1(TlsAcceptor, Duration),
    Refuses,
}

/// Answers with the request's path. Watches stay open.
async fn answer(request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
    if !request.uri().query().is_some_and(|query| query.contains("watch")) {
        return Ok(Response::new(full(request.uri().path().to_owned())));
    }
    let (sender, body) = channel();
    sender.send("{}\n".into())?;
    tokio::spawn(async move { sender.closed().await });
    Ok(Response::new(body))
}

async fn serve(takes: ConnectionBehavior, stream: DuplexStream) {
    match takes {
        ConnectionBehavior::Plain => {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ended = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        }
        ConnectionBehavior::Http1(acceptor, handshake) => {
            sleep(handshake).await;
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let mut server = hyper::server::conn::http1::Builder::new();
            let server = server.keep_alive(false).serve_connection(TokioIo::new(stream), service_fn(answer));
            let _ended = server.await;
        }
        ConnectionBehavior::Refuses => std::future::pending().await,
    }
}

async fn client(
    scheme: &str,
    authority: &Authority,
    takes: [ConnectionBehavior; 2],
    tuning: ClientTuning,
) -> ClusterClient {
    client_of(scheme, authority, &Arc::new(Mutex::new(takes)), tuning).await
}

/// A client of two endpoints. The test can change the behavior of each endpoint between connections.
pub(crate) async fn client_of(
    scheme: &str,
    authority: &Authority,
    takes: &Arc<Mutex<[ConnectionBehavior; 2]>>,
    tuning: ClientTuning,
) -> ClusterClient {
    client_at(ENDPOINTS.map(|host| format!("{scheme}://{host}")), authority, takes, tuning).await
}

/// Like [`client_of`], for endpoints with these URLs. Their hosts are [`ENDPOINTS`].
async fn client_at(
    addresses: [String; 2],
    authority: &Authority,
    takes: &Arc<Mutex<[ConnectionBehavior; 2]>>,
    tuning: ClientTuning,
) -> ClusterClient {
    let takes = Arc::clone(takes);
    let connector = tower::service_fn(move |uri: Uri| {
        let at = ENDPOINTS.iter().position(|host| uri.host() == Some(host)).unwrap();
        let takes = takes.lock()[at].clone();
        async move {
            match takes {
                ConnectionBehavior::Refuses => return Err(BoxError::from("connection refused")),
                ConnectionBehavior::Plain | ConnectionBehavior::Http1(..) => {}
            }
            let (near, far) = tokio::io::duplex(1 << 20);
            tokio::spawn(serve(takes, far));
            Ok::<BoxIo, BoxError>(Box::new(near))
        }
    });
    let [first, second] = addresses.map(|address| address.parse::<Uri>().unwrap());
    let mut config = kube::Config::new(first);
    config.root_cert = Some(vec![authority.der.to_vec()]);
    // The host name in the servers' certificate.
    config.tls_server_name = Some("127.0.0.1".to_owned());
    let (name, further) = (ClusterName::new("c1").unwrap(), [Address::from(second)]);
    let connector = Connector::new(connector);
    ClusterClient::connect_to_all_through(connector, name, config, &further, tuning).await.unwrap()
}

/// Returns how often each endpoint became reachable, including the first time.
fn recoveries(client: &ClusterClient) -> Vec<u64> {
    client.endpoints().iter().map(|endpoint| endpoint.reachability.recoveries).collect()
}

#[tokio::test(start_paused = true)]
async fn idle_http1_endpoint_with_slow_handshakes_stays_healthy() {
    let authority = Authority::new();
    let options = Options { alpn: vec!["http/1.1"], ..Options::default() };
    let acceptor = TlsAcceptor::from(server_config(&authority, &options));
    let takes =
        [0, 1_800].map(|handshake| ConnectionBehavior::Http1(acceptor.clone(), Duration::from_millis(handshake)));
    let client = client("https", &authority, takes, ClientTuning::default()).await;
    let tended = client.clone();
    let tending = tokio::spawn(async move { tended.watch_over().await });
    sleep(Duration::from_secs(15)).await;
    let (requests_before, before) = (client.endpoints()[1].requests, recoveries(&client));
    for _ in 0..20 {
        sleep(Duration::from_secs(3)).await;
        let answered = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
        assert_eq!(answered.status(), StatusCode::OK);
        answered.into_body().collect().await.unwrap();
        for endpoint in client.endpoints() {
            assert!(matches!(endpoint.reachability.state, ReachabilityState::Reachable), "{endpoint:?}");
            assert!(endpoint.left_out.is_none() && endpoint.ejections == 0, "{endpoint:?}");
        }
    }
    assert_eq!(recoveries(&client), before);
    assert!(client.endpoints()[1].requests - requests_before >= 8, "it has its part: {:?}", client.endpoints());
    tending.abort();
}

async fn watches(client: &ClusterClient) -> Vec<Body> {
    let mut watches = Vec::new();
    for _ in ENDPOINTS {
        let watch = client.send_request(get("/api/v1/pods?watch=1"), RequestIdentity::Member).await.unwrap();
        let mut body = watch.into_body();
        body.frame().await.unwrap().unwrap();
        watches.push(body);
    }
    assert!(client.endpoints().iter().all(|endpoint| endpoint.outstanding == 1), "{:?}", client.endpoints());
    watches
}

fn under_way(watches: &mut [Body]) -> usize {
    watches.iter_mut().filter_map(|watch| watch.frame().now_or_never().is_none().then_some(())).count()
}

/// The longest duration of a watch at kube-apiserver.
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn drained_endpoint_aborts_its_requests_after_an_hour() {
    let client = client(
        "http",
        &Authority::new(),
        [ConnectionBehavior::Plain, ConnectionBehavior::Plain],
        ClientTuning::default(),
    )
    .await;
    let mut watches = watches(&client).await;
    client.set_drained(&EndpointSubset::new(&[format!("http://{}", ENDPOINTS[0])]));
    sleep(HOUR - Duration::from_secs(2)).await;
    assert_eq!(under_way(&mut watches), 2);
    sleep(Duration::from_secs(4)).await;
    let mut broken = Vec::new();
    for watch in &mut watches {
        broken.extend(watch.frame().now_or_never());
    }
    assert!(matches!(broken[..], [Some(Err(_))]), "one of them is told that it broke off: {broken:?}");
    sleep(HOUR).await;
    assert_eq!(under_way(&mut watches), 1, "the other goes on");
    assert_eq!(client.endpoints()[0].outstanding, 0);
    let watch = client.send_request(get("/api/v1/pods?watch=1"), RequestIdentity::Member).await.unwrap();
    assert_eq!(client.endpoints()[1].outstanding, 2);
    drop(watch);
}

#[tokio::test(start_paused = true)]
async fn endpoint_undrained_within_the_hour_keeps_its_requests() {
    let client = client(
        "http",
        &Authority::new(),
        [ConnectionBehavior::Plain, ConnectionBehavior::Plain],
        ClientTuning::default(),
    )
    .await;
    let mut watches = watches(&client).await;
    client.set_drained(&EndpointSubset::new(&[format!("http://{}", ENDPOINTS[0])]));
    sleep(HOUR / 2).await;
    client.set_drained(&EndpointSubset::default());
    sleep(HOUR).await;
    assert_eq!(under_way(&mut watches), 2);
    // The first drain does not shorten the second drain, which again lasts a full hour.
    client.set_drained(&EndpointSubset::new(&[format!("http://{}", ENDPOINTS[0])]));
    sleep(HOUR - Duration::from_secs(2)).await;
    assert_eq!(under_way(&mut watches), 2);
}

#[tokio::test(start_paused = true)]
async fn removed_endpoint_aborts_its_requests_after_an_hour() {
    let client = client(
        "http",
        &Authority::new(),
        [ConnectionBehavior::Plain, ConnectionBehavior::Plain],
        ClientTuning::default(),
    )
    .await;
    let mut watches = watches(&client).await;
    let config = kube::Config::new(format!("http://{}", ENDPOINTS[1]).parse().unwrap());
    assert!(client.set_addresses(&config, &[]).await.unwrap());
    sleep(HOUR - Duration::from_secs(2)).await;
    assert_eq!((under_way(&mut watches), client.leaving_endpoints().len()), (2, 1));
    sleep(Duration::from_secs(4)).await;
    assert_eq!(under_way(&mut watches), 1);
}

async fn ask(client: &ClusterClient) -> Result<StatusCode, ForwardError> {
    client.send_request(get("/api"), RequestIdentity::Member).await.map(|answer| answer.status())
}

/// Sends an upgrade request as this user, to a path that never switches protocols.
async fn ask_to_switch(client: &ClusterClient, user: &str) -> Result<StatusCode, ForwardError> {
    ask_to_switch_at(client, user, "/apis/example.com/v1/widgets").await
}

async fn ask_to_switch_at(client: &ClusterClient, user: &str, path: &str) -> Result<StatusCode, ForwardError> {
    let mut request = get(path);
    request.headers_mut().insert("connection", "Upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    request.extensions_mut().insert(hyper::upgrade::on(Request::new(())));
    let user = Impersonation::new(user, [], None, []).unwrap();
    client.send_request(request, RequestIdentity::Impersonate(user)).await.map(|answer| answer.status())
}

/// A client of a member that answers every upgrade request with 200. `path` is the path of the endpoints' URLs.
async fn client_of_one_that_never_switches(path: &str) -> ClusterClient {
    let authority = Authority::new();
    let options = Options { alpn: vec!["http/1.1"], ..Options::default() };
    let acceptor = TlsAcceptor::from(server_config(&authority, &options));
    let takes = Arc::new(Mutex::new([(); 2].map(|()| ConnectionBehavior::Http1(acceptor.clone(), Duration::ZERO))));
    let addresses = ENDPOINTS.map(|host| format!("https://{host}{path}"));
    client_at(addresses, &authority, &takes, ClientTuning::default()).await
}

/// If the first attempt of an exec gets a 403, kubectl sends the exec again: first with WebSocket, then with SPDY.
#[tokio::test(start_paused = true)]
async fn number_of_denied_exec_and_proxy_upgrades_is_not_limited() {
    // The server URL of a cluster behind Rancher has a path. Paths in clients' requests do not contain it.
    for below in ["", "/k8s/clusters/c-1"] {
        let client = client_of_one_that_never_switches(below).await;
        for path in ["/api/v1/namespaces/n/pods/p/exec", "/api/v1/namespaces/n/services/s/proxy/ws"] {
            for number in 0..100 {
                let answered = ask_to_switch_at(&client, "ann", path).await;
                assert_eq!(answered.unwrap(), StatusCode::OK, "{below}{path} {number}");
            }
        }
        assert_eq!(ask_to_switch(&client, "ann").await.unwrap(), StatusCode::OK, "of those none counts");
    }
}

#[tokio::test(start_paused = true)]
async fn many_failed_upgrades_of_one_user_block_only_that_user() {
    let client = client_of_one_that_never_switches("").await;
    let connections = || client.endpoints().iter().map(|endpoint| endpoint.requests).sum::<u64>();
    let mut answered = 0;
    let refused = loop {
        match ask_to_switch(&client, "eve").await {
            Ok(status) => assert_eq!(status, StatusCode::OK),
            Err(refused) => break refused,
        }
        answered += 1;
    };
    assert_eq!((answered, connections()), (64, 64), "nothing is dialed for one that is refused");
    assert_eq!((refused.status_code(), refused.sent()), (StatusCode::TOO_MANY_REQUESTS, Sent::No), "{refused}");
    let wait = refused.retry_after().unwrap();
    assert!(wait <= Duration::from_millis(250), "{wait:?}");
    assert_eq!(ask_to_switch(&client, "ann").await.unwrap(), StatusCode::OK, "she has had none");
    // Requests without upgrade headers are not limited.
    assert_eq!(ask(&client).await.unwrap(), StatusCode::OK);
    sleep(wait).await;
    assert_eq!(ask_to_switch(&client, "eve").await.unwrap(), StatusCode::OK, "one is forgotten");
    ask_to_switch(&client, "eve").await.unwrap_err();
}
