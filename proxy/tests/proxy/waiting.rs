//! Tests of requests that wait for a connection to a member that does not accept connections.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{StatusCode, Uri};
use tower::BoxError;
use tributary_apimachinery::{ClusterName, RequestClass};
use tributary_proxy::{BoxIo, ClientTuning, ClusterClient, Connector, RequestIdentity};

use crate::member::{self, SendRequest, get};

/// A client of a member that accepts one connection. Each later connection attempt stays pending.
async fn hanging_after_the_first() -> ClusterClient {
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
    ClusterClient::connect_through(Connector::new(connector), name, config, ClientTuning::default()).await.unwrap()
}

#[tokio::test]
async fn client_reuses_an_idle_connection_while_a_connection_attempt_hangs() {
    let client = hanging_after_the_first().await;
    let log = async |of| {
        let mut request = get("/api/v1/namespaces/a/pods/b/log?follow=true");
        request.extensions_mut().insert(RequestClass::Streamed);
        request.extensions_mut().insert(SocketAddr::from(([127, 0, 0, 1], of)));
        client.send_request(request, RequestIdentity::Member).await
    };
    drop(log(1).await.unwrap());
    let mut waiting = pin!(client.send_request(get("/api"), RequestIdentity::Member));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    let taken_over = tokio::time::timeout(member::SOON, log(2)).await.expect("it does not wait");
    assert_eq!(taken_over.unwrap().status(), StatusCode::OK);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
}
