//! Tests of a cluster with two kube-apiservers behind the listener, the router and the proxy. The requests of one
//! client connection are distributed evenly over both servers, on one connection to each server.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::{Body, full};
use tributary_proxy::{Address, ClientTuning, ClusterClient};
use tributary_router::{ClusterAddress, ClusterAuthorization, ClusterSetup, MemberRules, Router, RouterConfig};

use crate::fixture::{SOON, Server, start, text};

/// The path of the client's requests. Tributary itself does not request this path.
const PATH: &str = "/api/v1/namespaces/default/configmaps/asked";

/// For each request of the client: the index of the server, and the number of the server's TCP connection.
type Seen = Arc<Mutex<Vec<(usize, usize)>>>;

/// Returns the TLS acceptor of a member that speaks HTTP/2, and its certificate (DER) for the proxy.
pub(crate) fn tls() -> (TlsAcceptor, Vec<u8>) {
    tls_speaking("h2")
}

/// Returns the TLS acceptor of a member with only this ALPN protocol, and its certificate (DER).
pub(crate) fn tls_speaking(protocol: &str) -> (TlsAcceptor, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    (TlsAcceptor::from(Arc::new(config)), made.cert.der().to_vec())
}

/// Starts the server with this index, which answers every request with an empty object.
async fn listen(server: usize, acceptor: TlsAcceptor, seen: Seen) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for connection in 0_usize.. {
            let Ok((stream, _)) = listener.accept().await else { break };
            let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
            let service = service_fn(move |request: Request<Incoming>| {
                if request.uri().path() == PATH {
                    seen.lock().unwrap().push((server, connection));
                }
                std::future::ready(Ok::<_, Infallible>(empty_object()))
            });
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ended = connection.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

fn empty_object() -> Response<Body> {
    Response::builder().header(header::CONTENT_TYPE, "application/json").body(full("{}")).unwrap()
}

/// Starts the listener over a router with a cluster `one` of two servers.
async fn over(seen: &Seen) -> Server {
    let (acceptor, certificate) = tls();
    let mut urls: Vec<Uri> = Vec::new();
    for server in 0..2 {
        let address = listen(server, acceptor.clone(), Arc::clone(seen)).await;
        urls.push(format!("https://{address}").parse().unwrap());
    }
    let mut config = kube::Config::new(urls[0].clone());
    config.root_cert = Some(vec![certificate]);
    // The member's certificate is self-signed and not a CA certificate, so the client must not verify it.
    config.accept_invalid_certs = true;
    let further = [Address::from(urls[1].clone())];
    // `tributary serve` uses this number of connections on a machine with eight cores.
    let tuning = ClientTuning { connections_to_spread_over: 4, ..ClientTuning::default() };
    let name = ClusterName::new("one").unwrap();
    let client = ClusterClient::connect_to_all(name.clone(), config, &further, tuning).await;
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
    // Discovery requests also alternate between the servers, so the test waits for their end.
    router.asked_once(SOON).await;
    start(router).await
}

/// Returns the number of requests and of connections at each server.
fn spread(seen: &Seen) -> [(usize, usize); 2] {
    let seen = seen.lock().unwrap();
    [0, 1].map(|server| {
        let at = || seen.iter().filter(move |(at, _)| *at == server);
        (at().count(), at().map(|(_, connection)| *connection).collect::<BTreeSet<_>>().len())
    })
}

/// Sequential requests are distributed nearly evenly. On a busy machine a request can begin before the previous request
/// is counted as ended. A few concurrent requests may be distributed less evenly, because each request goes to the
/// server with the fewest requests in flight.
///
/// With eight or more requests on a connection (`SPREAD_FROM` in `proxy/src/pool/connections.rs`) the pool opens more
/// connections: half as many as cores, at most four (`spread_over` in `server/src/commands/serve/endpoint.rs`). The
/// encryption of one connection runs on one core.
#[tokio::test]
async fn requests_of_one_connection_are_spread_evenly_over_all_endpoints() {
    let seen = Seen::default();
    let server = over(&seen).await;
    let client = server.http2().await;
    let get = async || {
        let request: Request<Empty<Bytes>> =
            server.request(&format!("/clusters/one{PATH}")).body(Empty::new()).unwrap();
        let answer = client.clone().send_request(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        text(answer).await
    };
    for _ in 0..100 {
        get().await;
    }
    for (requests, connections) in spread(&seen) {
        assert!((40..=60).contains(&requests) && connections == 1, "{:?}", spread(&seen));
    }
    for _ in 0..25 {
        join_all((0..4).map(|_| get())).await;
    }
    let [first, second] = spread(&seen);
    assert_eq!((first.0 + second.0, first.1, second.1), (200, 1, 1), "{first:?} and {second:?}");
    assert!(first.0.abs_diff(second.0) <= 50, "{first:?} and {second:?}");
}
