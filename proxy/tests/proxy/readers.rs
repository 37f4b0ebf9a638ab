//! Tests of clients' logs and of requests to workloads through `proxy`: unread bytes of one client do not affect other
//! clients.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tributary_apimachinery::body::BoxError;
use tributary_apimachinery::{ClusterName, RequestClass};
use tributary_proxy::{BoxIo, ClientTuning, ClusterClient, Connector, RequestIdentity, Sent};

use crate::member::{self, Body, Member, Options, SOON, SendRequest, eventually, get, text};

/// Number of one-byte frames that exceeds h2's budget for unread frames of a connection.
const TOO_MANY: usize = 40_000;

/// A member with three kinds of responses. `/chatty/`: one-byte frames without end. `/short/`: one frame and the end.
/// Other paths: one event, after the test has notified `happens`.
struct Chatty {
    member: Member,
    happens: Arc<Notify>,
}

impl Chatty {
    async fn start() -> Self {
        let happens = Arc::new(Notify::new());
        let event = happens.clone();
        let member = Member::start(Options::default(), move |seen, _| {
            let event = event.clone();
            async move {
                if seen.uri.path().contains("/chatty/") {
                    return Response::new(tiny_pieces());
                }
                if seen.uri.path().contains("/short/") {
                    return text(StatusCode::OK, "all".to_owned());
                }
                let event = stream::once(async move {
                    event.notified().await;
                    Ok(Frame::data(Bytes::from_static(b"event")))
                });
                Response::new(StreamBody::new(event.chain(stream::pending())).boxed_unsync())
            }
        })
        .await;
        Self { member, happens }
    }
}

fn tiny_pieces() -> Body {
    let tiny = stream::iter(0..TOO_MANY).map(|_| Ok(Frame::data(Bytes::from_static(b"x"))));
    StreamBody::new(tiny.chain(stream::pending())).boxed_unsync()
}

fn peer(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn log(pod: &str, reader: SocketAddr, class: RequestClass) -> Request<tributary_apimachinery::body::Body> {
    let mut request = get(&format!("/api/v1/namespaces/a/pods/{pod}/log?follow=true"));
    request.extensions_mut().insert(class);
    request.extensions_mut().insert(reader);
    request
}

async fn open(client: &ClusterClient, pod: &str, reader: SocketAddr) -> Response<tributary_apimachinery::body::Body> {
    let log = log(pod, reader, RequestClass::Streamed);
    let opened = tokio::time::timeout(SOON, client.send_request(log, RequestIdentity::Member));
    opened.await.expect("an answer").expect("a log")
}

/// h2 closes a connection with all its streams after too many unread small DATA frames, because such a frame needs more
/// memory than it uses of the flow-control window. A workload decides the size of the frames, and some clients do not
/// read them.
#[tokio::test]
async fn client_that_leaves_tiny_frames_unread_loses_only_its_streams() {
    let Chatty { member, happens } = Chatty::start().await;
    let client = member.client().await;
    let mut others = open(&client, "quiet", peer(2)).await.into_body();
    let mut unread = open(&client, "chatty", peer(1)).await.into_body();
    eventually("whoever does not read loses its own", || client.pool_statistics().long_connections == 1).await;
    while let Some(frame) = unread.frame().await {
        if frame.is_err() {
            break;
        }
    }
    happens.notify_one();
    let event = tokio::time::timeout(SOON, others.frame()).await.expect("an event").expect("it goes on");
    assert_eq!(event.expect("it is whole").into_data().unwrap(), "event");
    open(&client, "quiet", peer(1)).await;
}

/// One client may have 576 long-running requests, which use 36 connections.
#[tokio::test]
async fn client_with_576_long_running_requests_does_not_block_others() {
    let Chatty { member, .. } = Chatty::start().await;
    let client = member.client().await;
    let others = futures::future::join_all((2..22).map(|port| open(&client, "quiet", peer(port)))).await;
    let many = futures::future::join_all((0..576).map(|_| open(&client, "quiet", peer(1)))).await;
    let statistics = client.pool_statistics();
    assert_eq!(statistics.long_streams, 596, "{statistics:?}");
    assert!(statistics.long_connections >= 20 + 36, "{statistics:?}");
    drop((others, many));
}

#[tokio::test]
async fn clients_that_follow_pod_logs_use_separate_connections() {
    let Chatty { member, .. } = Chatty::start().await;
    let client = member.client().await;
    let logs = (0..20).map(|port| open(&client, "quiet", peer(port)));
    let logs = futures::future::join_all(logs).await;
    let statistics = client.pool_statistics();
    assert_eq!((statistics.long_connections, statistics.long_streams), (20, 20), "{statistics:?}");
    // Logs of one client share connections, up to a limit per connection.
    let own = futures::future::join_all((0..20).map(|_| open(&client, "quiet", peer(1)))).await;
    let statistics = client.pool_statistics();
    assert!((21..=22).contains(&statistics.long_connections), "{statistics:?}");
    drop((logs, own));
}

#[tokio::test]
async fn idle_connection_is_reused_for_another_client() {
    let Chatty { member, .. } = Chatty::start().await;
    let client = member.client().await;
    for port in 0..20 {
        // Like hyper's server, the test does not poll a body again after `is_end_stream`.
        let mut body = open(&client, "short", peer(port)).await.into_body();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "all");
        assert!(body.is_end_stream());
    }
    assert_eq!(member.connections(), 1, "each kubectl logs is a connection of its own");
}

/// If a client disconnects while frames are in flight to it, these frames permanently reduce h2's budget for unread
/// frames of the connection. So only the same client may reuse the connection.
#[tokio::test]
async fn connection_with_unread_bytes_is_not_reused_for_another_client() {
    let Chatty { member, .. } = Chatty::start().await;
    let client = member.client().await;
    for (port, connections) in [(1, 1), (1, 1), (2, 2), (1, 2), (3, 3)] {
        drop(open(&client, "quiet", peer(port)).await);
        eventually("it is given back", || client.pool_statistics().long_streams == 0).await;
        assert_eq!(member.connections(), connections);
    }
}

#[tokio::test]
async fn clients_share_connections_when_the_maximum_is_reached() {
    let Chatty { member, .. } = Chatty::start().await;
    let tuning = ClientTuning { max_connections: 2, ..ClientTuning::default() };
    let client = member::connect(member.config(), tuning).await;
    assert_eq!(client.long_running_for_clients(), 96);
    // The requests are concurrent, so most of them arrive while connections are still being opened.
    let logs = futures::future::join_all((0..40).map(|port| open(&client, "quiet", peer(port)))).await;
    let statistics = client.pool_statistics();
    assert_eq!((statistics.long_connections, statistics.long_streams), (6, 40), "{statistics:?}");
    let rest = futures::future::join_all((0..56).map(|port| open(&client, "quiet", peer(port)))).await;
    let error =
        client.send_request(log("quiet", peer(99), RequestClass::Streamed), RequestIdentity::Member).await.unwrap_err();
    assert_eq!((error.status_code(), error.sent()), (StatusCode::TOO_MANY_REQUESTS, Sent::No), "{error}");
    // The pool closes an idle connection of one client to open a connection for another client.
    drop((logs, rest));
    open(&client, "quiet", peer(99)).await;
    assert_eq!(member.connections(), 7);
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Leads,
    Fails,
    /// The connection attempt stays open until the test lets it fail.
    Hangs,
}

/// A connector to a member. The test sets the result of each later connection attempt.
#[derive(Clone)]
struct Ways {
    way: Arc<Mutex<Way>>,
    dials: Arc<AtomicUsize>,
    fail: Arc<Notify>,
}

impl Ways {
    async fn client(member: &Member) -> (Self, ClusterClient) {
        let ways = Self { way: Arc::new(Mutex::new(Way::Leads)), dials: Arc::default(), fail: Arc::new(Notify::new()) };
        let (address, shared) = (member.address, ways.clone());
        let connector = tower::service_fn(move |_: Uri| {
            let ways = shared.clone();
            async move {
                ways.dials.fetch_add(1, Ordering::SeqCst);
                let way = *ways.way.lock().unwrap();
                if way == Way::Hangs {
                    ways.fail.notified().await;
                }
                match way {
                    Way::Leads => Ok(Box::new(TcpStream::connect(address).await?) as BoxIo),
                    Way::Fails | Way::Hangs => Err(BoxError::from("no more connections")),
                }
            }
        });
        let name = ClusterName::new("c1").unwrap();
        let tuning = ClientTuning { connect_timeout: Duration::from_secs(3600), ..ClientTuning::default() };
        let client = ClusterClient::connect_through(Connector::new(connector), name, member.config(), tuning).await;
        (ways, client.unwrap())
    }

    fn become_such(&self, way: Way) {
        *self.way.lock().unwrap() = way;
    }
}

#[tokio::test]
async fn clients_share_connections_if_new_connections_fail() {
    let Chatty { member, .. } = Chatty::start().await;
    let (ways, client) = Ways::client(&member).await;
    let first = open(&client, "quiet", peer(1)).await;
    ways.become_such(Way::Fails);
    let mut others = Vec::new();
    for port in 2..8 {
        others.push(open(&client, "quiet", peer(port)).await);
    }
    assert_eq!(client.pool_statistics().long_streams, 7);
    assert_eq!(ways.dials.load(Ordering::SeqCst), 2, "who comes soon after one that failed begins no other");
    assert!(client.reachability().borrow().is_reachable());
    drop((first, others));
}

#[tokio::test]
async fn clients_share_connections_while_a_connection_attempt_hangs() {
    let Chatty { member, .. } = Chatty::start().await;
    let (ways, client) = Ways::client(&member).await;
    let first = open(&client, "quiet", peer(1)).await;
    ways.become_such(Way::Hangs);
    let others = futures::future::join_all((2..8).map(|port| open(&client, "quiet", peer(port)))).await;
    assert_eq!((client.pool_statistics().long_connections, client.pool_statistics().long_streams), (1, 7));
    drop((first, others));
}

#[tokio::test]
async fn late_connection_failure_does_not_affect_later_attempts() {
    let Chatty { member, .. } = Chatty::start().await;
    let (ways, client) = Ways::client(&member).await;
    ways.become_such(Way::Hangs);
    let (log, late) = (log("quiet", peer(1), RequestClass::Streamed), client.clone());
    let late = tokio::spawn(async move { late.send_request(log, RequestIdentity::Member).await });
    eventually("it is being dialed", || ways.dials.load(Ordering::SeqCst) == 1).await;
    ways.become_such(Way::Leads);
    let mut logs = vec![open(&client, "quiet", peer(2)).await, open(&client, "quiet", peer(3)).await];
    ways.fail.notify_one();
    late.await.unwrap().expect("it shares another's");
    for port in 4..6 {
        logs.push(open(&client, "quiet", peer(port)).await);
    }
    assert_eq!(client.pool_statistics().long_connections, 4, "each has its own");
}

#[tokio::test]
async fn streams_of_other_clients_continue_when_an_idle_connection_closes() {
    let Chatty { member, .. } = Chatty::start().await;
    let tuning = ClientTuning { idle_timeout: Duration::from_millis(50), ..ClientTuning::default() };
    let client = member::connect(member.config(), tuning).await;
    let stays = open(&client, "quiet", peer(1)).await;
    let other = open(&client, "quiet", peer(2)).await;
    assert_eq!(client.pool_statistics().long_connections, 2);
    drop(other);
    eventually("one is closed", || client.pool_statistics().long_connections == 1).await;
    assert_eq!(client.pool_statistics().long_streams, 1);
    drop(stays);
    eventually("none is left", || client.pool_statistics().long_connections == 0).await;
}
