//! Tests of many clients, each with its own TLS connection, and one member. Their concurrent requests and their watches
//! share few connections to the member.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::{Body, full};
use tributary_listener::Bounds;
use tributary_proxy::{ClientTuning, ClusterClient};
use tributary_router::{ClusterAddress, ClusterAuthorization, ClusterSetup, MemberRules, Router, RouterConfig};
use tributary_server::process::descriptors;

use crate::fixture::{SOON, Server, start_within, text};
use crate::spread::tls;

/// Paths that clients watch and get. Tributary sends no requests of its own for these paths.
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/asked";

/// The number of concurrent requests: ten connections with 64 streams each.
const AT_ONCE: usize = 640;

/// The maximum number of connections to the member on which Tributary may send these concurrent requests.
const CONNECTIONS: usize = 16;

/// The number of watches on one connection to the member, and the number of watches that the test opens at the same
/// time.
const WATCHES_OF_ONE: usize = 100;
const OPENED_AT_ONCE: usize = 50;

/// The maximum number of clients with one watch each: the watches of 24 connections, which is Tributary's limit for
/// each endpoint. Tributary refuses more watches (`docs/operating.md`, "Requests to one cluster").
const WATCHES_MAX: usize = 24 * WATCHES_OF_ONE;

/// The number of file descriptors for everything except the clients. Each client needs two descriptors in this process:
/// one for its own socket, and one for the listener's socket.
const OTHER_DESCRIPTORS: usize = 512;

const EVENT: &[u8] = b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"asked\"}}}\n";

/// A member that counts its TCP connections and delays the responses to short requests (not watches) until the test
/// allows them.
struct Member {
    /// The numbers of the connections on which short requests (`short`) and watches (`watches`) arrived.
    short: Mutex<BTreeSet<usize>>,
    watches: Mutex<BTreeSet<usize>>,
    /// The number of received short requests.
    asked: watch::Sender<usize>,
    /// The semaphore that holds back the answers to short requests. The test adds a permit for each request that the
    /// member may answer.
    released: Semaphore,
}

impl Member {
    async fn answer(&self, request: Request<Incoming>, connection: usize) -> Response<Body> {
        if !request.uri().path().starts_with(MAPS) {
            return object();
        }
        if request.uri().query().is_some_and(|query| query.contains("watch=")) {
            self.watches.lock().unwrap().insert(connection);
            let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(EVENT)))]);
            let body = StreamBody::new(first.chain(futures::stream::pending())).boxed_unsync();
            return Response::builder().header(header::CONTENT_TYPE, "application/json").body(body).unwrap();
        }
        self.short.lock().unwrap().insert(connection);
        self.asked.send_modify(|asked| *asked += 1);
        self.released.acquire().await.unwrap().forget();
        object()
    }
}

fn object() -> Response<Body> {
    Response::builder().header(header::CONTENT_TYPE, "application/json").body(full("{}")).unwrap()
}

async fn listen(member: Arc<Member>, acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for connection in 0_usize.. {
            let Ok((stream, _)) = listener.accept().await else { break };
            let (acceptor, member) = (acceptor.clone(), Arc::clone(&member));
            let service = service_fn(move |request: Request<Incoming>| {
                let member = Arc::clone(&member);
                async move { Ok::<_, Infallible>(member.answer(request, connection).await) }
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

/// Starts the listener over a router with the member as cluster `one`, with limits for `clients` clients of one user.
async fn over(member: &Arc<Member>, clients: usize) -> Server {
    let (acceptor, certificate) = tls();
    let address = listen(Arc::clone(member), acceptor).await;
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(vec![certificate]);
    // The member's certificate is self-signed and not a CA certificate, so the client must not verify it.
    config.accept_invalid_certs = true;
    let name = ClusterName::new("one").unwrap();
    let client = ClusterClient::connect_to_all(name.clone(), config, &[], ClientTuning::default()).await;
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
    // One user may use a quarter of the connections, and all unauthenticated clients together another quarter. So the
    // limit is four times the number of clients, and some more.
    let bounds = Bounds { connections: 4 * clients.max(AT_ONCE) + 64, ..Bounds::default() };
    start_within(bounds, router).await
}

async fn call(server: &Server, client: &mut SendRequest<Empty<Bytes>>, path: &str) -> Response<Incoming> {
    let request = server.request(&format!("/clusters/one{path}")).body(Empty::new()).unwrap();
    let answer = client.send_request(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    answer
}

/// Returns the maximum number of clients within this process's limit of open files.
fn room() -> usize {
    descriptors::raise_limit();
    descriptors::limit_connections(usize::MAX).saturating_sub(OTHER_DESCRIPTORS / 2)
}

/// Each client connects, gets one object, and watches a collection.
async fn clients_share_connections(clients: usize) {
    assert!(clients >= AT_ONCE, "the limit of open files has room for {clients} clients only");
    let member = Arc::new(Member {
        short: Mutex::default(),
        watches: Mutex::default(),
        asked: watch::Sender::new(0),
        released: Semaphore::new(0),
    });
    let server = over(&member, clients).await;

    // Each round of this loop adds `AT_ONCE` new clients. The member receives all requests of a round before it answers
    // any request.
    let (mut all, mut asked) = (Vec::new(), 0);
    let mut come = member.asked.subscribe();
    while all.len() < clients {
        let mut batch = join_all((0..AT_ONCE.min(clients - all.len())).map(|_| server.http2())).await;
        let new = batch.len();
        asked += new;
        let server = &server;
        let answers = batch.iter_mut().map(|client| async move { text(call(server, client, MAP).await).await });
        let release = async {
            tokio::time::timeout(SOON, come.wait_for(|come| *come >= asked)).await.expect("all of them come").unwrap();
            member.released.add_permits(new);
        };
        let (answers, ()) = futures::join!(join_all(answers), release);
        assert!(answers.iter().all(|answer| answer == "{}"), "{answers:?}");
        all.append(&mut batch);
    }
    let short = member.short.lock().unwrap().len();
    assert!(short <= CONNECTIONS, "{AT_ONCE} requests at once of {clients} clients took {short} connections");
    assert_eq!(server.connections.get(), i64::try_from(clients).unwrap(), "each client has its own");

    let watching = clients.min(WATCHES_MAX);
    let mut watches = Vec::new();
    let follow = format!("{MAPS}?watch=1&resourceVersion=1");
    for some in all[..watching].chunks_mut(OPENED_AT_ONCE) {
        let (server, follow) = (&server, &follow);
        let opened = some.iter_mut().map(|client| async move {
            let mut watch = call(server, client, follow).await.into_body();
            let event = watch.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(event.starts_with(b"{\"type\":\"ADDED\""), "{event:?}");
            watch
        });
        watches.extend(join_all(opened).await);
    }
    let carried = member.watches.lock().unwrap().len();
    let most = watching.div_ceil(WATCHES_OF_ONE) + 1;
    assert!(carried <= most, "{watching} watches took {carried} connections, not {most} at most");
    // While all watches are open, the member still answers other requests.
    member.released.add_permits(1);
    text(call(&server, &mut all[0], MAP).await).await;
    assert_eq!(watches.len(), watching);
    assert!(member.short.lock().unwrap().is_disjoint(&member.watches.lock().unwrap()), "watches have their own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_clients_share_few_connections_to_a_member() {
    clients_share_connections(1_000.min(room())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 10,000 descriptors, and more than 20 s on two cores"]
async fn five_thousand_clients_share_few_connections_to_a_member() {
    const CLIENTS: usize = 5_000;
    let needed = 2 * CLIENTS + OTHER_DESCRIPTORS;
    assert!(room() >= CLIENTS, "the hard limit of open files (`ulimit -Hn`) has to be {needed} at least");
    clients_share_connections(CLIENTS).await;
}
