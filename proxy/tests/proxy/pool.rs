//! Tests of connection pools: the number of connections, attempts to open connections, and lost connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;
use tributary_proxy::{ClientTuning, ForwardError, PoolStatistics, RequestIdentity, Sent, Windows};

use crate::member::{self, Authority, Member, Options, SOON, SendRequest, channel, empty, eventually, full, get, text};

/// A member whose watches stay open until they are dropped.
async fn watchable(options: Options) -> Member {
    Member::start(options, |seen, _| async move {
        if seen.uri.query() == Some("watch=true") {
            let (sender, body) = channel();
            // The task keeps the sender, so the watch stays open until the receiver drops the body.
            tokio::spawn(async move { sender.closed().await });
            Response::new(body)
        } else {
            text(StatusCode::OK, "short".to_owned())
        }
    })
    .await
}

#[tokio::test]
async fn watches_open_a_new_connection_before_streams_run_out() {
    let member = watchable(Options { max_streams: Some(5), ..Options::default() }).await;
    let client = member.client().await;
    // All watches open concurrently: no watch may wait for the end of another watch.
    let watches = (0..12).map(|_| client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member));
    let watches = tokio::time::timeout(SOON, futures::future::try_join_all(watches));
    let watches = watches.await.expect("watches wait for each other").unwrap();
    let statistics = client.pool_statistics();
    assert_eq!(statistics.long_streams, 12);
    assert!((3..=4).contains(&statistics.long_connections), "{statistics:?}");

    // Short requests reuse a separate connection.
    for _ in 0..10 {
        let response = client.send_request(get("/api/v1/pods"), RequestIdentity::Member).await.unwrap();
        assert_eq!(member::read(response).await, "short");
    }
    assert_eq!(client.pool_statistics().short_connections, 1);

    drop(watches);
    eventually("they are given back", || client.pool_statistics().long_streams == 0).await;
    let before = member.connections();
    let again = (0..8).map(|_| client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member));
    let again = futures::future::try_join_all(again).await.unwrap();
    assert_eq!(member.connections(), before, "streams were not given back");
    drop(again);
}

#[tokio::test]
async fn new_connection_opens_before_the_last_connection_is_full() {
    let member = watchable(Options { max_streams: Some(5), ..Options::default() }).await;
    let client = member.client().await;
    let mut watches = Vec::new();
    for round in 1..=4 {
        for _ in 0..5 {
            watches.push(client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap());
        }
        // No watch has to wait for a new connection, because the pool opens the next connection in advance.
        let next = || client.pool_statistics().long_connections == round + 1;
        eventually(&format!("connection {} is there before it is needed", round + 1), next).await;
    }
}

/// The runtime that opened a connection also runs its task. If one runtime ends, connections of other runtimes
/// continue.
#[tokio::test]
async fn request_prefers_a_connection_of_the_same_tokio_runtime() {
    let member = watchable(Options::default()).await;
    let [ours, clients] = [(); 2].map(|()| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());
    let client = ours.spawn(member::connect(member.config(), ClientTuning::default())).await.unwrap();
    let ask = async |runtime: &Runtime| {
        let client = client.clone();
        let status = async move { client.send_request(get("/api"), RequestIdentity::Member).await.unwrap().status() };
        assert_eq!(runtime.spawn(status).await.unwrap(), StatusCode::OK);
    };
    ask(&ours).await;
    // The request uses the existing connection. The pool opens another connection for later requests of the same
    // runtime.
    ask(&clients).await;
    eventually("clients have their own", || client.pool_statistics().short_connections == 2).await;
    for _ in 0..3 {
        ask(&ours).await;
        ask(&clients).await;
    }
    assert_eq!(member.connections(), 2, "each has its own and needs no other");
    ours.shutdown_background();
    eventually("what was driven there is gone", || member.open() == 1).await;
    ask(&clients).await;
    assert_eq!(member.connections(), 2, "what clients ask is driven where they are answered");
    clients.shutdown_background();
}

#[tokio::test]
async fn concurrent_first_requests_share_one_connection_attempt() {
    let member = watchable(Options::default()).await;
    let client = member.client().await;
    let requests = (0..50).map(|_| client.send_request(get("/api"), RequestIdentity::Member));
    futures::future::try_join_all(requests).await.unwrap();
    assert_eq!(member.connections(), 1);
}

/// Sends requests with and without spreading over several connections, and measures each connection's share of the
/// requests.
#[tokio::test]
async fn many_short_requests_spread_over_several_connections() {
    for (over, expected) in [(1, 1), (3, 3)] {
        let member = Member::start(Options::default(), |_, _| async move {
            let (sender, body) = channel();
            tokio::spawn(async move { sender.closed().await });
            Response::new(body)
        });
        let member = member.await;
        let tuning = ClientTuning { connections_to_spread_over: over, ..ClientTuning::default() };
        let client = member::connect(member.config(), tuning).await;
        let mut under_way = Vec::new();
        let mut ask = async |count: usize| {
            for _ in 0..count {
                under_way.push(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap());
            }
        };
        ask(8).await;
        assert_eq!(member.connections(), 1, "few requests need one connection");
        for connections in 2..=expected {
            ask(9).await;
            eventually("the next one is dialed", || client.pool_statistics().short_connections == connections).await;
        }
        ask(20).await;
        assert_eq!(member.connections(), expected, "over {over}");
    }
}

#[tokio::test]
async fn http2_connections_are_limited() {
    let member = watchable(Options { max_streams: Some(2), ..Options::default() }).await;
    let client = member::connect(member.config(), ClientTuning { max_connections: 2, ..ClientTuning::default() }).await;
    let mut watches = Vec::new();
    for _ in 0..4 {
        watches.push(client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap());
    }
    let error = client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap_err();
    assert_eq!((error.status_code(), error.sent()), (StatusCode::TOO_MANY_REQUESTS, Sent::No), "{error}");
    assert!(
        error.to_string().contains("all 2 connections for watches of clients to the cluster are in use"),
        "{error}"
    );
    watches.pop();
    eventually("its place is given back", || client.pool_statistics().long_streams < 4).await;
    client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap();
}

#[tokio::test]
async fn http1_watches_beyond_their_limit_are_refused_and_reads_still_work() {
    let member = watchable(Options { alpn: vec!["http/1.1"], ..Options::default() }).await;
    let client =
        member::connect(member.config(), ClientTuning { max_http1_requests: 2, ..ClientTuning::default() }).await;
    let mut watches = Vec::new();
    for _ in 0..2 {
        watches.push(client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap());
    }
    let error = client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap_err();
    assert_eq!((error.status_code(), error.sent()), (StatusCode::TOO_MANY_REQUESTS, Sent::No), "{error}");
    assert!(error.to_string().contains("all 2 HTTP/1.1 connections"), "{error}");
    assert!(member.connections() <= 3, "nothing is dialed for what is refused: {}", member.connections());
    let response = client.send_request(get("/api/v1/pods"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member::read(response).await, "short");
    // When the connection of the dropped watch has ended, its permit is free.
    watches.pop();
    while let Err(error) = client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await {
        assert_eq!(error.status_code(), StatusCode::TOO_MANY_REQUESTS, "{error}");
        tokio::task::yield_now().await;
    }
}

async fn until_refused<F, T, E>(open: impl Fn() -> F) -> (Vec<T>, E)
where
    F: Future<Output = Result<T, E>>,
{
    let mut opened = Vec::new();
    loop {
        match open().await {
            Ok(answer) => opened.push(answer),
            Err(error) => return (opened, error),
        }
    }
}

#[tokio::test]
async fn client_requests_leave_connections_for_internal_requests_of_tributary() {
    let http1 = Options { alpn: vec!["http/1.1"], ..Options::default() };
    let http2 = Options { max_streams: Some(2), ..Options::default() };
    // Over HTTP/1.1, all origins of requests share eight connections. Over HTTP/2 with two streams per connection,
    // Tributary's own requests have four connections, cachers of single namespaces have three, and clients' watches
    // have three.
    for (options, shared, [of_clients, of_namespaces, of_ours]) in [(http1, true, [4, 2, 2]), (http2, false, [6, 6, 8])]
    {
        let member = watchable(options).await;
        let tuning = ClientTuning { max_http1_requests: 8, max_connections: 4, ..ClientTuning::default() };
        let client = member::connect(member.config(), tuning).await;
        let watch = || get("/api/v1/pods?watch=true");
        // After the first response, the pool knows the member's HTTP version.
        client.transport().oneshot(get("/api/v1/pods")).await.unwrap();
        let (mut watches, error) = until_refused(|| client.send_request(watch(), RequestIdentity::Member)).await;
        assert_eq!((error.status_code(), error.sent()), (StatusCode::TOO_MANY_REQUESTS, Sent::No), "{error}");
        assert!(error.to_string().contains("clients to the cluster"), "{error}");
        let carried = || client.watches_for_clients().unwrap_or_else(|| client.long_running_for_clients());
        assert_eq!((watches.len(), carried()), (of_clients, of_clients));
        let (namespaces, error) = until_refused(|| client.transport_for_namespaces().oneshot(watch())).await;
        assert!(error.to_string().contains("for caches of single namespaces are in use"), "{error}");
        assert_eq!(namespaces.len(), of_namespaces);
        let (mut own, error) = until_refused(|| client.transport().oneshot(watch())).await;
        assert!(error.to_string().contains("for Tributary's own requests are in use"), "{error}");
        assert_eq!((own.len(), carried()), (of_ours, of_clients));
        // Over HTTP/1.1, any origin of requests may take connections that clients have freed. Clients never take the
        // reserve of Tributary's own requests.
        watches.clear();
        if !shared {
            let all_streams = of_clients + of_namespaces + of_ours;
            eventually("a place is given back", || client.pool_statistics().long_streams < all_streams).await;
            assert!(client.send_request(watch(), RequestIdentity::Member).await.is_ok());
            continue;
        }
        let remaining = namespaces.len() + own.len();
        eventually("the clients' watches have ended", || client.pool_statistics().long_streams <= remaining).await;
        while own.len() < 4 {
            match client.transport().oneshot(watch()).await {
                Ok(response) => own.push(response),
                Err(error) => {
                    assert!(error.to_string().contains("for Tributary's own requests are in use"), "{error}");
                    tokio::task::yield_now().await;
                }
            }
        }
        assert_eq!(carried(), 2, "a quarter is theirs");
        let (watches, _) = until_refused(|| client.send_request(watch(), RequestIdentity::Member)).await;
        assert_eq!(watches.len(), 2);
    }
}

/// Unread bytes of one stream also fill the window of the whole connection (RFC 9113 §5.2). Nevertheless, a client that
/// does not read must not delay other clients.
#[tokio::test]
async fn client_is_not_blocked_by_unread_responses_of_another_client() {
    let member = Member::start(Options::default(), |seen, _| async move {
        let large = seen.uri.path() == "/large";
        text(StatusCode::OK, if large { "x".repeat(1 << 20) } else { "short".to_owned() })
    })
    .await;
    let client_windows = Windows { stream: 64 << 10, connection: 256 << 10 };
    let tuning =
        ClientTuning { client_windows, own_windows: client_windows, max_connections: 4, ..ClientTuning::default() };
    let client = member::connect(member.config(), tuning).await;
    let ask = |path| client.send_request(get(path), RequestIdentity::Member);
    // Twelve streams exist: three connections with four streams each. Eleven unread responses leave one stream free.
    let mut unread = Vec::new();
    for _ in 0..11 {
        unread.push(ask("/large").await.unwrap());
    }
    assert_eq!(client.short_for_clients(), 12);
    for _ in 0..3 {
        let read = tokio::time::timeout(SOON, member::read(ask("/large").await.unwrap()));
        assert_eq!(read.await.expect("another client's answer").len(), 1 << 20);
        let own = client.transport().oneshot(get("/large")).await.unwrap();
        assert_eq!(tokio::time::timeout(SOON, member::read(own)).await.expect("our own").len(), 1 << 20);
    }
    unread.push(ask("/large").await.unwrap());
    let error = ask("/api").await.unwrap_err();
    assert_eq!((error.status_code(), error.sent()), (StatusCode::TOO_MANY_REQUESTS, Sent::No), "{error}");
    for answer in unread.split_off(6) {
        assert_eq!(tokio::time::timeout(SOON, member::read(answer)).await.expect("the rest").len(), 1 << 20);
    }
    drop(unread);
    for _ in 0..40 {
        drop(ask("/large").await.unwrap());
    }
    let read = tokio::time::timeout(SOON, member::read(ask("/large").await.unwrap()));
    assert_eq!(read.await.expect("an answer after many that were dropped").len(), 1 << 20);
}

#[tokio::test]
async fn idle_http2_connections_are_closed() {
    let member = watchable(Options::default()).await;
    let tuning = ClientTuning { idle_timeout: Duration::from_millis(50), ..ClientTuning::default() };
    let client = member::connect(member.config(), tuning).await;
    let watch = client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap();
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.open(), 2);
    eventually("the short lane's connection is closed", || member.open() == 1).await;
    assert_eq!(client.pool_statistics().long_connections, 1);
    drop(watch);
    eventually("the long lane's connection is closed", || member.open() == 0).await;
    assert_eq!(client.pool_statistics(), PoolStatistics::default());
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
}

#[tokio::test]
async fn new_requests_use_another_connection_after_goaway() {
    let member = watchable(Options::default()).await;
    let client = member.client().await;
    let watch = client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap();
    for round in 0..20 {
        // The GOAWAY arrives while the requests are at various stages.
        member.goaway();
        let request = Request::post("/api/v1/pods").body(full(format!("round {round}"))).unwrap();
        let (get, post) = tokio::join!(
            client.send_request(get("/api"), RequestIdentity::Member),
            client.send_request(request, RequestIdentity::Member)
        );
        assert_eq!(get.unwrap().status(), StatusCode::OK);
        if let Err(error) = post {
            assert!(matches!(error, ForwardError::Send { .. }), "{error}");
        }
    }
    assert!(member.connections() > 5, "{}", member.connections());
    // The proxy never sends a body twice.
    let posts = member.seen().iter().filter(|seen| seen.method == Method::POST).count();
    assert!(posts <= 20, "{posts}");
    drop(watch);
}

/// A member that closes its first `broken` connections after a request, and answers on later connections.
async fn breaking(broken: usize) -> (kube::Config, Arc<AtomicUsize>) {
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(member::server_config(&authority, &Options::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let request_count = requests.clone();
    tokio::spawn(async move {
        let mut connections = 0;
        while let Ok((tcp, _)) = listener.accept().await {
            connections += 1;
            let is_broken = connections <= broken;
            let (acceptor, requests) = (acceptor.clone(), request_count.clone());
            tokio::spawn(async move {
                let mut h2 = h2::server::handshake(acceptor.accept(tcp).await.unwrap()).await.unwrap();
                while let Some(Ok((request, mut respond))) = h2.accept().await {
                    requests.fetch_add(1, Ordering::SeqCst);
                    match request.uri().path() {
                        "/refused" if is_broken => {
                            respond.send_reset(h2::Reason::REFUSED_STREAM);
                        }
                        _ if is_broken => return,
                        _ => {
                            respond.send_response(Response::new(()), true).unwrap();
                        }
                    }
                }
            });
        }
    });
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(vec![authority.der.to_vec()]);
    (config, requests)
}

#[tokio::test]
async fn read_request_is_retried_after_its_connection_breaks() {
    let (config, requests) = breaking(2).await;
    let client = member::connect(config, ClientTuning::default()).await;
    let response = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn write_request_is_not_retried_after_it_was_sent() {
    let (config, requests) = breaking(1).await;
    let client = member::connect(config, ClientTuning::default()).await;
    let request = Request::delete("/api/v1/namespaces/a/pods/p").body(empty()).unwrap();
    let error = client.send_request(request, RequestIdentity::Member).await.unwrap_err();
    assert_eq!(error.sent(), Sent::Maybe, "{error}");
    assert!(error.to_string().contains("cluster c1"), "{error}");
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn refused_http2_streams_are_resent_with_and_without_a_body() {
    let (config, requests) = breaking(usize::MAX).await;
    let client = member::connect(config, ClientTuning::default()).await;
    let request = Request::delete("/refused").body(empty()).unwrap();
    let error = client.send_request(request, RequestIdentity::Member).await.unwrap_err();
    assert_eq!((error.sent(), requests.load(Ordering::SeqCst)), (Sent::No, 3), "{error}");
    let request = Request::post("/refused").body(full("x")).unwrap();
    let error = client.send_request(request, RequestIdentity::Member).await.unwrap_err();
    assert_eq!((error.sent(), requests.load(Ordering::SeqCst)), (Sent::No, 6), "{error}");
}

#[tokio::test]
async fn http1_connection_carries_one_request_and_is_reused() {
    for options in
        [Options { alpn: vec!["http/1.1"], ..Options::default() }, Options { plain: true, ..Options::default() }]
    {
        let member = watchable(options).await;
        let client = member.client().await;
        for _ in 0..5 {
            let response = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
            assert_eq!(member::read(response).await, "short");
            eventually("the connection is idle", || client.pool_statistics().idle_http1_connections == 1).await;
        }
        assert_eq!(member.connections(), 1);
        assert_eq!(member.last().all("host"), [member.address.to_string()]);
        let watches = (0..3).map(|_| client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member));
        let watches = futures::future::try_join_all(watches).await.unwrap();
        assert_eq!(member.connections(), 3);
        drop(watches);
        eventually("unfinished responses close their connections", || member.open() == 0).await;
        let response = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
        assert_eq!(member::read(response).await, "short");
    }
}
