//! Tests of many clients' watches on a few connections. Slow readers, disconnected clients, and thousands of new
//! clients do not affect other clients.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::sync::mpsc::UnboundedSender;
use tributary_proxy::{ClientTuning, ClusterClient, RequestIdentity};

use crate::endpoints::Gate;
use crate::member::{self, Body, Member, Options, SOON, SendRequest, channel, eventually, get, text};

/// Flow-control window of a watch, in bytes (decision 52).
const WINDOW_BYTES: usize = 64 << 10;

/// A member that sends bytes to a watch when the test commands it. The path identifies the watch.
struct Teller {
    member: Member,
    watches: Arc<Mutex<HashMap<String, UnboundedSender<Bytes>>>>,
    bodies: Arc<AtomicUsize>,
}

impl Teller {
    async fn start() -> Self {
        let watches = Arc::<Mutex<HashMap<_, _>>>::default();
        let bodies = Arc::<AtomicUsize>::default();
        let (opened, with_body) = (watches.clone(), bodies.clone());
        let member = Member::start(Options::default(), move |seen, body| {
            let opened = opened.clone();
            with_body.fetch_add(usize::from(!body.is_end_stream()), Ordering::SeqCst);
            async move {
                if seen.uri.query() != Some("watch=true") {
                    return text(StatusCode::OK, "short".to_owned());
                }
                let (sender, body) = channel();
                opened.lock().unwrap().insert(seen.uri.path().to_owned(), sender);
                Response::new(body)
            }
        })
        .await;
        Self { member, watches, bodies }
    }

    fn tell(&self, watch: u16, bytes: impl Into<Bytes>) {
        self.watches.lock().unwrap()[&path(watch)].send(bytes.into()).unwrap();
    }

    fn end(&self, watch: u16) {
        self.watches.lock().unwrap().remove(&path(watch)).unwrap();
    }

    /// Returns whether the proxy has reset the stream of this watch, as the member sees it.
    fn is_stream_reset(&self, watch: u16) -> bool {
        self.watches.lock().unwrap()[&path(watch)].is_closed()
    }
}

fn path(of: u16) -> String {
    format!("/api/v1/namespaces/of-{of}/pods")
}

fn client_request(path: &str, of: u16) -> http::Request<Body> {
    let mut request = get(path);
    request.extensions_mut().insert(SocketAddr::from(([127, 0, 0, 1], of)));
    request
}

async fn watch(client: &ClusterClient, of: u16) -> Body {
    let watch = client.send_request(client_request(&format!("{}?watch=true", path(of)), of), RequestIdentity::Member);
    tokio::time::timeout(SOON, watch).await.expect("an answer").expect("a watch").into_body()
}

async fn next(watch: &mut Body) -> Option<Bytes> {
    let frame = tokio::time::timeout(SOON, watch.frame()).await.expect("something comes")?;
    Some(frame.expect("it goes on").into_data().unwrap())
}

/// Reads at least `length` bytes of a watch. Returns the number of bytes that were read.
async fn read(watch: &mut Body, length: usize) -> usize {
    let mut received = 0;
    while received < length {
        received += next(watch).await.expect("there is more").len();
    }
    received
}

/// Returns the numbers of the next clients that open watches: at most 1,000, because not more may wait for a connection
/// at once. Returns `None` if all clients have opened their watches.
fn next_batch(there: usize, all: u16) -> Option<std::ops::Range<u16>> {
    let next = u16::try_from(there).unwrap();
    (next < all).then(|| next..all.min(next + 1_000))
}

async fn few_connections_carry(watches: u16, tuning: ClientTuning) {
    let teller = Teller::start().await;
    let client = member::connect(teller.member.config(), tuning).await;
    let mut all = Vec::new();
    while let Some(more) = next_batch(all.len(), watches) {
        all.extend(join_all(more.map(|of| watch(&client, of))).await);
    }
    let statistics = client.pool_statistics();
    assert_eq!(statistics.long_streams, usize::from(watches));
    let most = usize::from(watches).div_ceil(100) + 1;
    assert!(statistics.long_connections <= most, "{statistics:?}");
    let short = async |of: u16| {
        let answer = client.send_request(client_request("/api/v1/pods", of), RequestIdentity::Member).await.unwrap();
        assert_eq!(member::read(answer).await, "short");
    };
    for round in 0..watches.div_ceil(500) {
        join_all((round * 500..watches.min((round + 1) * 500)).map(short)).await;
    }
    assert!(client.pool_statistics().short_connections <= 16, "{:?}", client.pool_statistics());
    let connections = teller.member.connections();
    assert!(connections <= most + 16, "{connections} connections");
    for of in 0..watches {
        teller.tell(of, format!("event of {of}"));
    }
    for (of, watch) in all.iter_mut().enumerate() {
        assert_eq!(next(watch).await.unwrap(), format!("event of {of}"));
    }
    // New watches can use the streams of watches that have ended.
    all.truncate(all.len() / 2);
    let remaining = all.len();
    eventually("they are given back", || client.pool_statistics().long_streams == remaining).await;
    while let Some(more) = next_batch(all.len(), watches) {
        all.extend(join_all(more.map(|of| watch(&client, of))).await);
    }
    assert!(client.pool_statistics().long_connections <= most, "{:?}", client.pool_statistics());
}

#[tokio::test]
async fn watches_of_hundreds_of_clients_share_a_few_connections() {
    few_connections_carry(450, ClientTuning::default()).await;
    few_connections_carry(1_000, ClientTuning::default()).await;
}

#[tokio::test]
async fn watches_of_five_thousand_clients_share_a_few_connections() {
    few_connections_carry(5_000, ClientTuning { max_connections: 80, ..ClientTuning::default() }).await;
}

/// A watch whose request body has not ended still uses a stream for watches, and no stream for logs.
#[tokio::test]
async fn watches_whose_bodies_do_not_end_take_no_stream_from_logs() {
    let teller = Teller::start().await;
    let tuning = ClientTuning { max_connections: 2, ..ClientTuning::default() };
    let client = member::connect(teller.member.config(), tuning).await;
    let all = u16::try_from(client.long_running_for_clients()).unwrap();
    assert_eq!(all, 96);
    // Three clients together open as many such watches as there are permits for logs.
    let (mut watches, mut bodies) = (Vec::new(), Vec::new());
    for of in 0..all {
        let mut request = client_request(&format!("{}?watch=true", path(of)), of % 3);
        let (sender, body) = channel();
        *request.body_mut() = body;
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        let watch = tokio::time::timeout(SOON, client.send_request(request, RequestIdentity::Member));
        watches.push(watch.await.expect("an answer").expect("a watch"));
        bodies.push(sender);
    }
    assert_eq!(client.pool_statistics().long_streams, usize::from(all));
    let log =
        client.send_request(client_request("/api/v1/namespaces/a/pods/p/log?follow=true", 3), RequestIdentity::Member);
    let log = tokio::time::timeout(SOON, log).await.expect("an answer").expect("a fourth client's log");
    assert_eq!(log.status(), StatusCode::OK);
    // The proxy sends no byte of the watches' request bodies to the member.
    assert_eq!(teller.bodies.load(Ordering::SeqCst), 0);
    assert!(teller.member.seen().iter().all(|seen| seen.all("content-type").is_empty()));
    drop((watches, bodies));
}

#[tokio::test]
async fn unread_watch_does_not_delay_other_watches_of_its_connection() {
    let teller = Teller::start().await;
    let client = teller.member.client().await;
    // 80 watches share a connection before the pool opens another connection.
    let mut slow = join_all((1..80).map(|of| watch(&client, of))).await;
    let mut fast = watch(&client, 0).await;
    assert_eq!(client.pool_statistics().long_connections, 1);
    for of in 1..80 {
        teller.tell(of, vec![b'x'; 16 * WINDOW_BYTES]);
    }
    // The fast watch receives more data than the windows of all watches together allow.
    for _ in 0..200 {
        teller.tell(0, vec![b'x'; WINDOW_BYTES]);
        assert_eq!(read(&mut fast, WINDOW_BYTES).await, WINDOW_BYTES);
    }
    // The unread watches have lost no data and are still open.
    for slow in &mut slow {
        assert_eq!(read(slow, 16 * WINDOW_BYTES).await, 16 * WINDOW_BYTES);
    }
    assert_eq!(client.pool_statistics().long_connections, 1);
}

/// The member stops after one window of unread bytes, so the number of streams limits the memory.
#[tokio::test]
async fn unread_watch_buffers_one_window_of_bytes() {
    let teller = Teller::start().await;
    let client = teller.member.client().await;
    let (mut slow, mut fast) = (watch(&client, 1).await, watch(&client, 2).await);
    teller.tell(1, vec![b'x'; 4 * WINDOW_BYTES]);
    // The frames of a connection arrive in order. So when the fast watch has received its bytes, all earlier bytes of
    // the slow watch have arrived, too.
    for _ in 0..3 {
        teller.tell(2, vec![b'x'; WINDOW_BYTES]);
        read(&mut fast, WINDOW_BYTES).await;
    }
    assert_eq!(next(&mut slow).await.unwrap().len(), WINDOW_BYTES);
    assert_eq!(read(&mut slow, 3 * WINDOW_BYTES).await, 3 * WINDOW_BYTES);
}

/// h2 closes a connection after too many unread small frames. The size of the events decides the size of the frames.
#[tokio::test]
async fn unread_tiny_events_break_no_watch() {
    const EVENTS: usize = 40_000;
    let teller = Teller::start().await;
    let client = teller.member.client().await;
    let (mut slow, mut fast) = (watch(&client, 1).await, watch(&client, 2).await);
    for _ in 0..EVENTS {
        teller.tell(1, Bytes::from_static(b"x"));
    }
    // In each round, one more client cancels its watch while the member sends events.
    for of in 3..9 {
        let given_up = watch(&client, of).await;
        for _ in 0..EVENTS {
            teller.tell(of, Bytes::from_static(b"x"));
        }
        drop(given_up);
    }
    for of in 3..9 {
        eventually("the member is told", || teller.is_stream_reset(of)).await;
    }
    teller.tell(2, Bytes::from_static(b"event"));
    assert_eq!(next(&mut fast).await.unwrap(), "event");
    assert_eq!(read(&mut slow, EVENTS).await, EVENTS);
    teller.end(1);
    assert_eq!(next(&mut slow).await, None);
    assert_eq!(teller.member.connections(), 1);
}

#[tokio::test]
async fn watches_end_when_the_member_ends_them_and_survive_goaway() {
    let teller = Teller::start().await;
    let client = teller.member.client().await;
    let (mut ended, mut goes_on, mut other) =
        (watch(&client, 1).await, watch(&client, 2).await, watch(&client, 3).await);
    teller.tell(1, Bytes::from_static(b"last"));
    teller.end(1);
    assert_eq!(next(&mut ended).await.unwrap(), "last");
    assert_eq!(next(&mut ended).await, None);
    // After a GOAWAY, open watches continue to their end, and new watches use another connection.
    teller.member.goaway();
    teller.tell(2, Bytes::from_static(b"event"));
    assert_eq!(next(&mut goes_on).await.unwrap(), "event");
    eventually("it takes no more", || client.pool_statistics().long_connections == 1).await;
    let mut later = Vec::new();
    for of in 4..8 {
        later.push(watch(&client, of).await);
    }
    assert_eq!(teller.member.connections(), 2);
    teller.end(2);
    assert_eq!(next(&mut goes_on).await, None);
    teller.end(3);
    assert_eq!(next(&mut other).await, None);
    eventually("the one that went away is closed", || teller.member.open() == 1).await;
}

#[tokio::test]
async fn watches_of_a_lost_connection_fail_and_can_be_reopened() {
    let teller = Teller::start().await;
    let mut gate = Gate::to(&teller.member).await;
    let mut config = teller.member.config();
    config.cluster_url = gate.url();
    let client = member::connect(config, ClientTuning::default()).await;
    let mut watches = join_all((0..50).map(|of| watch(&client, of))).await;
    assert_eq!(client.pool_statistics().long_connections, 1);
    // The client still gets an event that the member sent before the end of the connection.
    teller.tell(0, Bytes::from_static(b"event"));
    teller.tell(1, Bytes::from_static(b"event"));
    assert_eq!(next(&mut watches[1]).await.unwrap(), "event");
    gate.close().await;
    assert_eq!(next(&mut watches[0]).await.unwrap(), "event");
    for watch in &mut watches {
        let lost = tokio::time::timeout(SOON, watch.frame()).await.expect("it ends").expect("no clean end");
        let error = lost.expect_err("it is lost").to_string();
        assert!(error.contains("cluster c1: the response broke off"), "{error}");
    }
    gate.open().await;
    let mut again = watch(&client, 0).await;
    teller.tell(0, Bytes::from_static(b"event"));
    assert_eq!(next(&mut again).await.unwrap(), "event");
}

#[tokio::test]
async fn abandoned_new_watch_is_reset_after_a_delay() {
    let teller = Teller::start().await;
    let patience = Duration::from_millis(300);
    let tuning = ClientTuning { abandoned_read_time: patience, ..ClientTuning::default() };
    let client = member::connect(teller.member.config(), tuning).await;
    let begun = tokio::time::Instant::now();
    let young = watch(&client, 1).await;
    drop(young);
    eventually("the member is told", || teller.is_stream_reset(1)).await;
    assert!(begun.elapsed() >= patience, "{:?}", begun.elapsed());
    eventually("its place is given back", || client.pool_statistics().long_streams == 0).await;
    let old = watch(&client, 2).await;
    tokio::time::sleep(patience).await;
    drop(old);
    eventually("it is told at once", || teller.is_stream_reset(2)).await;
    // Resets of watches that have lasted some time do not cause a replacement of the connection.
    for of in 0..150 {
        drop(watch(&client, of).await);
    }
    eventually("they are given back", || client.pool_statistics().long_streams == 0).await;
    assert!(teller.member.connections() <= 2, "more than 80 at once have another dialed");
}

#[tokio::test]
async fn connection_with_many_watches_reset_before_responses_is_replaced() {
    let request_count = Arc::new(AtomicUsize::new(0));
    let seen = request_count.clone();
    let member = Member::start(Options::default(), move |_, _| {
        seen.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    })
    .await;
    let tuning = ClientTuning { abandoned_read_time: Duration::ZERO, ..ClientTuning::default() };
    let client = member::connect(member.config(), tuning).await;
    for round in 1..=130 {
        let response =
            client.send_request(client_request(&format!("{}?watch=true", path(1)), 1), RequestIdentity::Member);
        tokio::select! {
            answer = response => panic!("{answer:?}"),
            () = eventually("it is asked", || request_count.load(Ordering::SeqCst) >= round) => {}
        }
        eventually("it is given up", || client.pool_statistics().long_streams == 0).await;
    }
    eventually("another is dialed", || member.connections() == 2).await;
}
