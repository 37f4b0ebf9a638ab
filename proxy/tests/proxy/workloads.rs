//! Logs and what is proxied to workloads: what one client leaves unread is nobody else's matter.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::Notify;
use tributary_apimachinery::RequestClass;
use tributary_proxy::{ClientTuning, ClusterClient, Peer, RequestIdentity};

use crate::member::{self, Body, Member, Options, SOON, eventually, get};

/// So many pieces of one byte cost more than the budget of a connection's unread frames.
const TOO_MANY: usize = 40_000;

/// A member that writes a log in pieces of one byte, after which nothing comes; other logs, and watches, have one event
/// once it happens.
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

fn peer(port: u16) -> Peer {
    Peer(([127, 0, 0, 1], port).into())
}

/// A request for a log by this client.
fn log(pod: &str, reader: Peer) -> Request<tributary_apimachinery::body::Body> {
    let mut request = get(&format!("/api/v1/namespaces/a/pods/{pod}/log?follow=true"));
    request.extensions_mut().insert(RequestClass::LongRunning);
    request.extensions_mut().insert(reader);
    request
}

async fn open(client: &ClusterClient, pod: &str, reader: Peer) -> Response<tributary_apimachinery::body::Body> {
    let opened = tokio::time::timeout(SOON, client.forward(log(pod, reader), RequestIdentity::Member));
    opened.await.expect("an answer").expect("a log")
}

/// h2 ends a connection with all its streams once too many tiny DATA frames have not been read, because each takes far
/// more memory than the window counts. How small they are a workload decides, and whether they are read a client.
#[tokio::test]
async fn a_log_in_tiny_pieces_that_is_not_read_breaks_nobody_elses_stream() {
    let Chatty { member, happens } = Chatty::start().await;
    let client = member.client().await;
    let mut watch = get("/api/v1/pods?watch=true");
    watch.extensions_mut().insert(RequestClass::Watch);
    watch.extensions_mut().insert(peer(1));
    let watch = client.forward(watch, RequestIdentity::Member).await.unwrap();
    let others = open(&client, "quiet", peer(2)).await;
    let mut unread = open(&client, "chatty", peer(1)).await.into_body();
    assert_eq!(client.pool_statistics().long_connections, 3);
    eventually("whoever does not read loses its own", || client.pool_statistics().long_connections == 2).await;
    while let Some(frame) = unread.frame().await {
        if frame.is_err() {
            break;
        }
    }
    for mut body in [watch.into_body(), others.into_body()] {
        happens.notify_waiters();
        happens.notify_one();
        let event = tokio::time::timeout(SOON, body.frame()).await.expect("an event").expect("it goes on");
        assert_eq!(event.expect("it is whole").into_data().unwrap(), "event");
    }
    open(&client, "quiet", peer(1)).await;
}

#[tokio::test]
async fn clients_that_read_logs_at_once_share_no_connection() {
    let Chatty { member, .. } = Chatty::start().await;
    let client = member.client().await;
    let logs = (0..20).map(|port| open(&client, "quiet", peer(port)));
    let logs = futures::future::join_all(logs).await;
    let statistics = client.pool_statistics();
    assert_eq!((statistics.long_connections, statistics.long_streams), (20, 20), "{statistics:?}");
    // One client's own logs do, but not too many of them.
    let own = futures::future::join_all((0..20).map(|_| open(&client, "quiet", peer(1)))).await;
    let statistics = client.pool_statistics();
    assert!((21..=22).contains(&statistics.long_connections), "{statistics:?}");
    drop((logs, own));
}

#[tokio::test]
async fn a_connection_that_is_idle_is_anybodys() {
    let Chatty { member, .. } = Chatty::start().await;
    let client = member.client().await;
    for port in 0..20 {
        drop(open(&client, "quiet", peer(port)).await);
        eventually("it is given back", || client.pool_statistics().long_streams == 0).await;
    }
    assert_eq!(member.connections(), 1, "each kubectl logs is a connection of its own");
}

#[tokio::test]
async fn where_there_are_too_many_clients_they_share() {
    let Chatty { member, .. } = Chatty::start().await;
    let tuning = ClientTuning { max_connections: 2, ..ClientTuning::default() };
    let client = member::connect(member.config(), tuning).await;
    let mut logs = Vec::new();
    for port in 0..40 {
        logs.push(open(&client, "quiet", peer(port)).await);
    }
    let statistics = client.pool_statistics();
    assert_eq!((statistics.long_connections, statistics.long_streams), (8, 40), "{statistics:?}");
}

#[tokio::test]
async fn what_is_forgotten_of_one_reader_takes_nothing_from_another() {
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
