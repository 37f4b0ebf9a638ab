//! Tests of connections that clients share. Cancelled requests of one client must not affect other clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{join_all, select_all};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tributary_apimachinery::Permit;
use tributary_apimachinery::permit::RequestPermit;
use tributary_proxy::{ClientTuning, ClusterClient, RequestIdentity};

use crate::member::{self, Authority, Body, Member, Options, SOON, SendRequest, eventually, get, text};

/// kube-apiserver's default limit of streams per connection (`MaxConcurrentStreams` in apiserver's
/// `secure_serving.go`).
const STREAMS: usize = 100;

/// Number of frames in the response to `/large`. All frames together fit into a stream's window.
const LARGE_FRAMES: usize = 800;

/// Time that the member needs for `/slow`, even after a reset.
const SLOW: Duration = Duration::from_millis(300);

/// A member that handles resets as Go's server does (`scheduleHandler` and `processResetStream` in
/// `golang.org/x/net/http2/server.go`).
///
/// A handler continues after the reset of its stream. At most [`STREAMS`] handlers run, and more requests wait. If more
/// than four times as many requests wait, the member closes the connection. `/watch` lasts until its stream is reset.
struct GoMember {
    address: SocketAddr,
    authority: Authority,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    /// Number of connections that the member closed because of too many resets.
    closed_for_resets: AtomicUsize,
    slow: AtomicUsize,
    waiting_requests: AtomicUsize,
    /// Number of `/held` requests that the member may answer.
    released: watch::Sender<usize>,
    /// Number of responses to streams that were already reset.
    reset: AtomicUsize,
}

impl Counts {
    fn of(count: &AtomicUsize) -> usize {
        count.load(Ordering::SeqCst)
    }
}

impl GoMember {
    async fn start() -> Self {
        let authority = Authority::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(member::server_config(&authority, &Options::default()));
        let counts = Arc::new(Counts::default());
        let shared = counts.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), tcp, shared.clone()));
            }
        });
        Self { address, authority, counts }
    }

    async fn client(&self, abandoned_read_time: Duration) -> ClusterClient {
        let mut config = kube::Config::new(format!("https://{}", self.address).parse().unwrap());
        config.root_cert = Some(vec![self.authority.der.to_vec()]);
        member::connect(config, ClientTuning { abandoned_read_time, ..ClientTuning::default() }).await
    }
}

async fn serve(acceptor: tokio_rustls::TlsAcceptor, tcp: TcpStream, counts: Arc<Counts>) {
    let Ok(tls) = acceptor.accept(tcp).await else { return };
    let most = u32::try_from(STREAMS).unwrap();
    let mut builder = h2::server::Builder::new();
    // h2's own limits are set high, so that the test meets only the limits of Go's server.
    builder.max_concurrent_streams(most).max_concurrent_reset_streams(10_000).max_pending_accept_reset_streams(10_000);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(tls).await else { return };
    counts.connections.fetch_add(1, Ordering::SeqCst);
    let (handlers, waiting) = (Arc::new(Semaphore::new(STREAMS)), Arc::new(AtomicUsize::new(0)));
    while let Some(Ok((request, respond))) = connection.accept().await {
        if handlers.available_permits() == 0 && waiting.load(Ordering::SeqCst) > 4 * STREAMS {
            counts.closed_for_resets.fetch_add(1, Ordering::SeqCst);
            connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
            continue;
        }
        waiting.fetch_add(1, Ordering::SeqCst);
        let (handlers, waiting, counts) = (handlers.clone(), waiting.clone(), counts.clone());
        tokio::spawn(async move {
            let _handler = handlers.acquire().await.unwrap();
            waiting.fetch_sub(1, Ordering::SeqCst);
            handle(request.uri().path(), respond, &counts).await;
        });
    }
}

async fn handle(path: &str, mut respond: h2::server::SendResponse<Bytes>, counts: &Counts) {
    if path == "/slow" {
        counts.slow.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(SLOW).await;
    }
    if path == "/held" {
        let mine = counts.waiting_requests.fetch_add(1, Ordering::SeqCst) + 1;
        let _ = counts.released.subscribe().wait_for(|released| *released >= mine).await;
    }
    let is_watch = path == "/watch";
    let Ok(mut body) = respond.send_response(Response::new(()), false) else {
        counts.reset.fetch_add(1, Ordering::SeqCst);
        return;
    };
    if path == "/large" {
        for _ in 0..LARGE_FRAMES {
            let _ = body.send_data(Bytes::from_static(&[b'x'; 300]), false);
        }
    }
    let _ = body.send_data(Bytes::from_static(b"answer"), !is_watch);
    if is_watch {
        let _reset = std::future::poll_fn(|cx| body.poll_reset(cx)).await;
    }
}

/// Returns a request of the client with port `of`. The request occupies one of the client's permits (`places`).
async fn client_request(path: &str, of: u16, places: &Arc<Semaphore>) -> http::Request<Body> {
    let mut request = get(path);
    let place = places.clone().acquire_owned().await.unwrap();
    request.extensions_mut().insert(RequestPermit::from(Permit::from_guard(place)));
    request.extensions_mut().insert(SocketAddr::from(([127, 0, 0, 1], of)));
    request
}

/// Sends many parallel requests for `/slow` and cancels each request after 2 ms. Ends when the member has received
/// `requests` requests.
async fn asks_and_gives_up(client: &ClusterClient, counts: &Counts, requests: usize) {
    let places = Arc::new(Semaphore::new(128));
    let one = async || {
        while Counts::of(&counts.slow) < requests {
            let request = client_request("/slow", 1, &places).await;
            let cancelled_after = Duration::from_millis(2);
            let _ = tokio::time::timeout(cancelled_after, client.send_request(request, RequestIdentity::Member)).await;
        }
    };
    join_all((0..128).map(|_| one())).await;
}

#[tokio::test]
async fn shared_connection_stays_open_despite_many_resets_of_one_client() {
    let member = GoMember::start().await;
    // The proxy waits 20 ms for an abandoned response, and the member needs longer for `/slow`. So the proxy resets
    // every stream.
    let client = member.client(Duration::from_millis(20)).await;
    let over = AtomicBool::new(false);
    let request_of = async |of: u16, path: &'static str| {
        let request = client_request(path, of, &Arc::new(Semaphore::new(1))).await;
        let answer = client.send_request(request, RequestIdentity::Member).await;
        answer.unwrap_or_else(|error| panic!("client {of}: {error}"))
    };
    let begin_watch = async || {
        let mut request = get("/watch?watch=true");
        request.extensions_mut().insert(tributary_apimachinery::RequestClass::Streamed);
        request.extensions_mut().insert(SocketAddr::from(([127, 0, 0, 1], 2)));
        client.send_request(request, RequestIdentity::Member).await.unwrap().into_body()
    };
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(begin_watch().await);
    }
    let answered = AtomicUsize::new(0);
    let other = async |of: u16| {
        while !over.load(Ordering::SeqCst) {
            let answer = request_of(of, "/quick").await;
            let body = answer.into_body().collect().await;
            assert_eq!(body.unwrap_or_else(|error| panic!("client {of}: {error}")).to_bytes(), "answer");
            answered.fetch_add(1, Ordering::SeqCst);
        }
    };
    let attack = async {
        asks_and_gives_up(&client, &member.counts, 5_000).await;
        over.store(true, Ordering::SeqCst);
    };
    futures::join!(attack, join_all((3..13).map(&other)));
    assert!(Counts::of(&member.counts.reset) > 2_000, "{} were reset", Counts::of(&member.counts.reset));
    assert_eq!(Counts::of(&member.counts.closed_for_resets), 0, "connections that the member closed");
    assert!(answered.load(Ordering::SeqCst) > 100, "{answered:?}");
    for watch in &mut watches {
        assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "answer");
    }
    let ends = watches.iter_mut().map(|watch| Box::pin(watch.frame()));
    let is_ended = tokio::time::timeout(Duration::from_millis(50), select_all(ends)).await.is_ok();
    assert!(!is_ended, "a watch has ended");
    drop(watches);
    eventually("all that was given up has ended", || client.pool_statistics().short_streams == 0).await;
}

#[tokio::test]
async fn response_that_arrives_soon_after_a_client_disconnects_is_read() {
    const PLACES: usize = 50;
    let member = GoMember::start().await;
    let client = member.client(SOON).await;
    let places = Arc::new(Semaphore::new(PLACES));
    let waiting = || Counts::of(&member.counts.waiting_requests);
    for round in 1..=4 {
        let gives_up = async || {
            let request = client_request("/held", 1, &places).await;
            tokio::select! {
                answer = client.send_request(request, RequestIdentity::Member) => panic!("round {round}: {answer:?}"),
                () = eventually("all are under way", || waiting() == round * PLACES) => {}
            }
        };
        join_all((0..PLACES).map(|_| gives_up())).await;
        assert_eq!(places.available_permits(), 0, "who has gone still has their place");
        member.counts.released.send_replace(round * PLACES);
        eventually("the answers were read", || client.pool_statistics().short_streams == 0).await;
        assert_eq!(places.available_permits(), PLACES);
    }
    let answer =
        client.send_request(client_request("/quick", 1, &places).await, RequestIdentity::Member).await.unwrap();
    drop(answer.into_body());
    eventually("the rest was read", || client.pool_statistics().short_streams == 0).await;
    assert_eq!((Counts::of(&member.counts.reset), Counts::of(&member.counts.connections)), (0, 1));
}

#[tokio::test]
async fn late_bytes_of_reset_streams_do_not_end_other_streams() {
    let member = GoMember::start().await;
    let client = member.client(SOON).await;
    let places = Arc::new(Semaphore::new(64));
    let pending = client.send_request(client_request("/held", 2, &places).await, RequestIdentity::Member);
    let gives_up = async || {
        let answer =
            client.send_request(client_request("/large", 1, &places).await, RequestIdentity::Member).await.unwrap();
        // The proxy reads only a limited part of a dropped response. It resets the stream while the member is sending.
        drop(answer.into_body());
    };
    let others = async {
        for _ in 0..3 {
            join_all((0..63).map(|_| gives_up())).await;
            eventually("they were reset", || client.pool_statistics().short_streams <= 1).await;
        }
        member.counts.released.send_replace(1);
    };
    let (answer, ()) = futures::join!(pending, others);
    assert_eq!(member::read(answer.unwrap()).await, "answer");
}

/// The pool replaces a connection after many resets. The old connection stays open until its last stream ends. Until
/// then, the maximum number of connections includes it.
#[tokio::test]
async fn maximum_number_of_connections_includes_those_with_many_resets() {
    let member = GoMember::start().await;
    let mut config = kube::Config::new(format!("https://{}", member.address).parse().unwrap());
    config.root_cert = Some(vec![member.authority.der.to_vec()]);
    let tuning = ClientTuning { max_connections: 2, abandoned_read_time: Duration::ZERO, ..ClientTuning::default() };
    let client = member::connect(config, tuning).await;
    let places = Arc::new(Semaphore::new(1_000));
    let mut all_pending = Vec::new();
    for connections in 1..=3_usize {
        // One request remains open on each connection.
        let pending = client.send_request(client_request("/held", 2, &places).await, RequestIdentity::Member);
        let mut pending = Box::pin(pending);
        tokio::select! {
            answer = pending.as_mut() => panic!("{answer:?}"),
            () = eventually("it is asked", || Counts::of(&member.counts.waiting_requests) == connections) => {}
        }
        all_pending.push(pending);
        // On a busy machine, some requests are cancelled before they are sent, so they cause no reset. The test
        // therefore cancels requests until the expected number of connections is open.
        let expected = (connections + 1).min(2);
        let mut given_up = 0;
        while given_up < 130 || Counts::of(&member.counts.connections) < expected {
            assert!(given_up < 5_000, "another is dialed");
            let request = client_request("/slow", 1, &places).await;
            let _ =
                tokio::time::timeout(Duration::from_millis(2), client.send_request(request, RequestIdentity::Member))
                    .await;
            given_up += 1;
        }
        eventually("they were reset", || client.pool_statistics().short_streams == connections).await;
        let answer =
            client.send_request(client_request("/quick", 3, &places).await, RequestIdentity::Member).await.unwrap();
        assert_eq!(member::read(answer).await, "answer");
    }
    let statistics = client.pool_statistics();
    assert_eq!((Counts::of(&member.counts.connections), statistics.short_connections), (2, 2), "{statistics:?}");
    // After its last stream has ended, each old connection no longer counts towards the maximum.
    member.counts.released.send_replace(3);
    for pending in all_pending {
        assert_eq!(member::read(pending.await.unwrap()).await, "answer");
    }
    for _ in 0..2 {
        let answer =
            client.send_request(client_request("/quick", 3, &places).await, RequestIdentity::Member).await.unwrap();
        assert_eq!(member::read(answer).await, "answer");
    }
    eventually("a new one is dialed", || Counts::of(&member.counts.connections) >= 3).await;
    assert_eq!(Counts::of(&member.counts.closed_for_resets), 0);
}

#[tokio::test]
async fn short_requests_of_5000_clients_share_a_few_connections() {
    const CLIENTS: u16 = 5_000;
    const AT_ONCE: usize = 640;
    let member = Member::start(Options::default(), |_, _| async {
        // All parallel requests overlap within this time.
        tokio::time::sleep(Duration::from_millis(20)).await;
        text(StatusCode::OK, "short".to_owned())
    })
    .await;
    let client = member.client().await;
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let one = async |of: u16| {
        let answer = client
            .send_request(client_request("/api/v1/pods", of, &places).await, RequestIdentity::Member)
            .await
            .unwrap();
        assert_eq!(member::read(answer).await, "short");
    };
    for _ in 0..2 {
        join_all((1..=CLIENTS).map(&one)).await;
    }
    assert!(member.connections() <= 16, "{} connections", member.connections());
}

#[tokio::test]
async fn request_resent_with_new_credentials_uses_the_same_concurrency_permit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "old").unwrap();
    let renewed = path.clone();
    let (sender, released) = watch::channel(false);
    let member = Member::start(Options::default(), move |seen, _| {
        let mut released = released.clone();
        if seen.all("authorization") == ["Bearer old"] {
            std::fs::write(&renewed, "new").unwrap();
        }
        async move {
            if seen.all("authorization") == ["Bearer old"] {
                return text(StatusCode::UNAUTHORIZED, String::new());
            }
            released.wait_for(|is| *is).await.unwrap();
            text(StatusCode::OK, String::new())
        }
    })
    .await;
    let mut config = member.config();
    config.auth_info.token_file = Some(path.to_str().unwrap().to_owned());
    let tuning = ClientTuning {
        credential_retry_interval: Duration::ZERO,
        token_file_interval: Duration::from_secs(3600),
        abandoned_read_time: SOON,
        ..ClientTuning::default()
    };
    let client = member::connect(config, tuning).await;
    let places = Arc::new(Semaphore::new(1));
    let is_sent_again = || member.seen().iter().any(|seen| seen.all("authorization") == ["Bearer new"]);
    let request = client_request("/held", 1, &places).await;
    tokio::select! {
        answer = client.send_request(request, RequestIdentity::Member) => panic!("{answer:?}"),
        () = eventually("it is sent again", is_sent_again) => {}
    }
    assert_eq!(places.available_permits(), 0);
    sender.send(true).unwrap();
    eventually("its answer was read", || places.available_permits() == 1).await;
}
