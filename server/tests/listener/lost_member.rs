//! Tests of a member that dies during a watch, as a client observes it through the listener, the router and the proxy.

use std::convert::Infallible;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::{Body, full};
use tributary_proxy::{ClientTuning, ClusterClient};
use tributary_router::{ClusterAddress, ClusterAuthorization, ClusterSetup, MemberRules, Router, RouterConfig};

use crate::fixture::{SOON, Server, start};
use crate::spread::tls;

const MAPS: &str = "/clusters/one/api/v1/namespaces/default/configmaps";

const EVENT: &[u8] = b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"seen\"}}}\n";

/// Answers a watch with one event and no end, and any other request with an empty object.
async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let json = Response::builder().header(header::CONTENT_TYPE, "application/json");
    if !request.uri().query().is_some_and(|query| query.contains("watch=")) {
        return Ok(json.body(full("{}")).unwrap());
    }
    let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(EVENT)))]);
    Ok(json.body(StreamBody::new(first.chain(futures::stream::pending())).boxed_unsync()).unwrap())
}

/// Starts the listener over a router with one cluster, `one`, which has a single server. When `dies` is cancelled, the
/// server breaks its connections and accepts no new ones.
async fn over(dies: &CancellationToken) -> Server {
    let (acceptor, certificate) = tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = kube::Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
    let dies = dies.clone();
    tokio::spawn(dies.clone().run_until_cancelled_owned(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, dies) = (acceptor.clone(), dies.clone());
            let served = async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ended = connection.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            };
            tokio::spawn(dies.run_until_cancelled_owned(served));
        }
    }));
    config.root_cert = Some(vec![certificate]);
    // The member's certificate is self-signed and not a CA certificate, so the client must not verify it.
    config.accept_invalid_certs = true;
    let name = ClusterName::new("one").unwrap();
    let client = ClusterClient::connect(name.clone(), config, ClientTuning::default()).await;
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
    start(router).await
}

/// Reads at least `bytes` bytes of the body, or all bytes until the body ends or fails.
async fn read(body: &mut Incoming, bytes: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < bytes {
        let Some(Ok(frame)) = timeout(SOON, body.frame()).await.expect("more, or an end") else { break };
        read.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
    }
    read
}

/// The watch must end without a Status, as users of KubeGateway expect. A client would parse a Status at the end of a
/// watch as an event.
#[tokio::test]
async fn watch_ends_without_a_status_when_its_member_dies() {
    for is_http2 in [true, false] {
        let dies = CancellationToken::new();
        let server = over(&dies).await;
        let watch = server.request(&format!("{MAPS}?watch=1&resourceVersion=1")).body(Empty::new()).unwrap();
        // Both clients keep their connections open until the end of the round.
        let (mut http1, mut http2) = (server.http1().await, server.http2().await);
        let answer = if is_http2 { http2.send_request(watch).await } else { http1.send_request(watch).await };
        let answer = answer.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let mut body = answer.into_body();
        assert_eq!(read(&mut body, EVENT.len()).await, EVENT);
        dies.cancel();
        let rest = read(&mut body, usize::MAX).await;
        assert!(rest.is_empty(), "over HTTP/2: {is_http2}: {}", String::from_utf8_lossy(&rest));
        let request = server.request(&format!("{MAPS}/seen")).body(Empty::new()).unwrap();
        let refused = server.http2().await.send_request(request).await.unwrap();
        assert!(refused.status().is_server_error(), "{}", refused.status());
    }
}
