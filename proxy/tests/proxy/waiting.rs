//! Requests that wait for a connection to a member that gives none.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::poll_fn;
use futures::stream::{FuturesUnordered, StreamExt};
use http::{Request, StatusCode, Uri};
use tower::ServiceExt;
use tributary_apimachinery::body::BoxError;
use tributary_apimachinery::{ClusterName, RequestClass};
use tributary_proxy::{BoxIo, ClientTuning, ClusterClient, Connector, Peer, RequestIdentity, Sent};

use crate::member::{self, Body, Member, SendRequest, get};

/// A client of a member to which every dial hangs.
async fn hanging(tuning: ClientTuning) -> ClusterClient {
    let connector = tower::service_fn(|_: Uri| async { std::future::pending::<Result<BoxIo, BoxError>>().await });
    let config = Member::echo().await.config();
    let name = ClusterName::new("c1").unwrap();
    ClusterClient::connect_through(Connector::new(connector), name, config, tuning).await.unwrap()
}

fn asked(of: u16) -> Request<Body> {
    // In every lane, each of another client.
    let mut request = get("/api/v1/pods");
    let classes = [RequestClass::Short, RequestClass::Watch, RequestClass::Opaque];
    request.extensions_mut().insert(classes[usize::from(of) % 3]);
    request.extensions_mut().insert(Peer(([127, 0, 0, 1], of).into()));
    request
}

#[tokio::test]
async fn as_many_wait_for_a_connection_as_may_and_the_next_is_refused_at_once() {
    let tuning = ClientTuning {
        max_waiting_requests: 30,
        connect_timeout: Duration::from_secs(3600),
        ..ClientTuning::default()
    };
    let client = hanging(tuning).await;
    let forward = |of| client.send_request(asked(of), RequestIdentity::Member);
    let mut waiting: FuturesUnordered<_> = (0..30).map(forward).collect();
    let is_waiting = futures::poll!(waiting.next()).is_pending();
    assert!(is_waiting, "none of them is refused");
    for of in 30..33 {
        let error = tokio::time::timeout(member::SOON, forward(of)).await.expect("at once").unwrap_err();
        assert_eq!((error.status_code(), error.sent()), (StatusCode::TOO_MANY_REQUESTS, Sent::No), "{error}");
        let told = "cluster c1: all 30 places for requests that wait for a connection to it are in use";
        assert!(error.to_string().contains(told), "{error}");
    }
    // What this process asks for itself waits beside them.
    let mut own = pin!(client.transport().oneshot(get("/api")));
    assert!(poll_fn(|cx| std::task::Poll::Ready(own.as_mut().poll(cx).is_pending())).await);
    // Who goes away makes room.
    drop(waiting);
    let mut next = pin!(forward(33));
    assert!(futures::poll!(next.as_mut()).is_pending());
}

#[tokio::test]
async fn who_finds_room_on_a_connection_does_not_wait() {
    let member = Member::echo().await;
    let tuning = ClientTuning { max_waiting_requests: 1, ..ClientTuning::default() };
    let client = member::connect(member.config(), tuning).await;
    assert_eq!(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
    let many = (0..40).map(|_| client.send_request(get("/api"), RequestIdentity::Member));
    futures::future::try_join_all(many).await.unwrap();
}

/// A client of a member that answers over the first connection, and hangs at each other.
async fn hanging_after_the_first(tuning: ClientTuning) -> ClusterClient {
    let is_first = std::sync::Arc::new(AtomicBool::new(true));
    let connector = tower::service_fn(move |_: Uri| {
        let first = is_first.swap(false, Ordering::SeqCst).then(|| {
            let (near, far) = tokio::io::duplex(1 << 20);
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(far).await.unwrap();
                while let Some(Ok((_request, mut respond))) = connection.accept().await {
                    respond.send_response(http::Response::new(()), true).unwrap();
                }
            });
            near
        });
        async move {
            match first {
                Some(near) => Ok::<BoxIo, BoxError>(Box::new(near)),
                None => std::future::pending().await,
            }
        }
    });
    let config = kube::Config::new("http://member.example".parse().unwrap());
    let name = ClusterName::new("c1").unwrap();
    ClusterClient::connect_through(Connector::new(connector), name, config, tuning).await.unwrap()
}

#[tokio::test]
async fn who_takes_over_the_connection_of_another_does_not_wait() {
    let client = hanging_after_the_first(ClientTuning { max_waiting_requests: 1, ..ClientTuning::default() }).await;
    let log = async |of| {
        let mut request = get("/api/v1/namespaces/a/pods/b/log?follow=true");
        request.extensions_mut().insert(RequestClass::Opaque);
        request.extensions_mut().insert(Peer(([127, 0, 0, 1], of).into()));
        client.send_request(request, RequestIdentity::Member).await
    };
    drop(log(1).await.unwrap());
    let mut waiting = pin!(client.send_request(get("/api"), RequestIdentity::Member));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    let other = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert_eq!(other.status_code(), StatusCode::TOO_MANY_REQUESTS, "no more than one may wait: {other}");
    assert_eq!(log(2).await.unwrap().status(), StatusCode::OK);
}
