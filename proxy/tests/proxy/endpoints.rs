//! Tests of a member with two addresses. Requests spread over both endpoints. An unreachable endpoint gets no requests
//! until its recovery.

use std::net::SocketAddr;
use std::time::Duration;

use futures::FutureExt;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::Body;
use tributary_proxy::{
    ClientTuning, ClusterClient, EndpointStatus, ForwardError, Reachability, ReachabilityState, RequestIdentity,
};

use crate::member::{self, Member, Options, Port, SOON, Seen, SendRequest, channel, eventually, full, get, read, text};

/// An endpoint address. While the gate is open, it forwards connections to a member.
pub(crate) struct Gate {
    port: Port,
    to: SocketAddr,
    /// Returns the delay of a connection. Parameters: the connection's number (from 0), and the client's first bytes.
    delay: Option<Delay>,
    task: Option<JoinHandle<()>>,
}

type Delay = fn(usize, &[u8]) -> Duration;

impl Gate {
    pub(crate) async fn to(member: &Member) -> Self {
        let mut gate = Self { port: Port::reserve(), to: member.address, delay: None, task: None };
        gate.open().await;
        gate
    }

    /// A gate that delays each connection after it has received the client's first bytes.
    async fn slow(member: &Member, delay: Delay) -> Self {
        let mut gate = Self { port: Port::reserve(), to: member.address, delay: Some(delay), task: None };
        gate.open().await;
        gate
    }

    pub(crate) async fn open(&mut self) {
        let (listener, to, delay) = (self.port.listen().await, self.to, self.delay);
        self.task = Some(tokio::spawn(async move {
            let mut passing = JoinSet::new();
            for number in 0.. {
                let Ok((mut near, _)) = listener.accept().await else { break };
                passing.spawn(async move {
                    let mut far = TcpStream::connect(to).await.unwrap();
                    if let Some(delay) = delay {
                        let mut first = vec![0; 16 << 10];
                        let read = near.read(&mut first).await.unwrap();
                        tokio::time::sleep(delay(number, &first[..read])).await;
                        far.write_all(&first[..read]).await.unwrap();
                    }
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        }));
    }

    pub(crate) async fn close(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    pub(crate) fn url(&self) -> http::Uri {
        format!("https://{}", self.port.address()).parse().unwrap()
    }
}

pub(crate) async fn client(member: &Member, gates: [&Gate; 2]) -> ClusterClient {
    client_with(ClientTuning::default(), member, gates).await
}

pub(crate) async fn client_with(tuning: ClientTuning, member: &Member, gates: [&Gate; 2]) -> ClusterClient {
    let mut config = member.config();
    config.cluster_url = gates[0].url();
    let name = ClusterName::new("c1").unwrap();
    ClusterClient::connect_to_all(name, config, &[gates[1].url().into()], tuning).await.unwrap()
}

/// A member that answers with the request's path. Its watches stay open.
async fn busy_member() -> Member {
    member_that_holds(CancellationToken::new()).await
}

/// Like [`busy_member`], but answers `/slow` only after `released` is cancelled.
async fn member_that_holds(released: CancellationToken) -> Member {
    Member::start(Options::default(), move |seen, _| answer(seen, released.clone())).await
}

async fn answer(seen: Seen, released: CancellationToken) -> http::Response<Body> {
    if seen.uri.query().is_some_and(|query| query.contains("watch")) {
        let (sender, body) = channel();
        sender.send("{}\n".into()).unwrap();
        tokio::spawn(async move { sender.closed().await });
        return http::Response::new(body);
    }
    if seen.uri.path() == "/slow" {
        released.cancelled().await;
    }
    text(StatusCode::OK, seen.uri.path().to_owned())
}

pub(crate) fn requests(client: &ClusterClient) -> [u64; 2] {
    let counts: Vec<_> = client.endpoints().iter().map(|endpoint| endpoint.requests).collect();
    counts.try_into().unwrap()
}

fn is_lost(status: &EndpointStatus) -> bool {
    matches!(status.reachability.state, ReachabilityState::Unreachable { .. })
}

#[tokio::test]
async fn requests_are_spread_over_the_endpoints() {
    let member = busy_member().await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    for _ in 0..20 {
        assert_eq!(read(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap()).await, "/api");
    }
    assert_eq!(requests(&client), [10, 10], "one after the other they take turns");
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap());
    }
    let outstanding = || client.endpoints().iter().map(|endpoint| endpoint.outstanding).collect::<Vec<_>>();
    assert_eq!(outstanding(), [5, 5]);
    // All watches of one endpoint end, so new watches go to this endpoint.
    let mut ended = false;
    watches.retain(|_| {
        ended = !ended;
        !ended
    });
    eventually("half of them have ended", || [[5, 0], [0, 5]].contains(&[outstanding()[0], outstanding()[1]])).await;
    for _ in 0..5 {
        watches.push(client.send_request(get("/api/v1/pods?watch=true"), RequestIdentity::Member).await.unwrap());
    }
    assert_eq!(outstanding(), [5, 5]);
    drop(watches);
    eventually("nothing is in flight", || outstanding() == [0, 0]).await;
}

#[tokio::test]
async fn unreachable_endpoint_gets_no_requests_until_its_recovery() {
    let member = busy_member().await;
    let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
    gates[0].close().await;
    let client = client(&member, [&gates[0], &gates[1]]).await;
    for _ in 0..20 {
        let post = Request::post("/api").body(full("{}")).unwrap();
        assert_eq!(client.send_request(post, RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(requests(&client), [0, 20]);
    assert!(client.reachability().borrow().is_reachable(), "the member is well");
    assert!(is_lost(&client.endpoints()[0]) && !is_lost(&client.endpoints()[1]));

    let tended = client.clone();
    let tending = tokio::spawn(async move { tended.watch_over().await });
    gates[0].open().await;
    eventually("the endpoint is back", || !is_lost(&client.endpoints()[0])).await;
    let before = member.seen().len();
    for _ in 0..70 {
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    }
    tending.abort();
    let is_first = |seen: &&Seen| seen.uri.path() == "/api" && seen.uri.authority() == gates[0].url().authority();
    let first = member.seen()[before..].iter().filter(is_first).count();
    // The endpoint is in slow start (`slow_start.rs`), so it gets few requests.
    assert!((1..=40).contains(&first), "{first} of 70");
}

/// Discovery sends requests to single endpoints, to read facts that differ between servers.
#[tokio::test]
async fn request_that_fails_at_one_endpoint_does_not_make_the_member_unreachable() {
    let member = busy_member().await;
    let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    gates[1].close().await;
    eventually("its connections are gone", || client.pool_statistics().short_connections < 2).await;
    let reachability = client.reachability();
    let recoveries = reachability.borrow().recoveries;
    let error = tower::ServiceExt::oneshot(client.transport_to(1), get("/api")).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    eventually("it is known to be lost", || is_lost(&client.endpoints()[1])).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    let known = reachability.borrow();
    assert!(known.is_reachable() && known.recoveries == recoveries, "the other has been well all the time: {known:?}");
}

#[tokio::test]
async fn loss_of_an_endpoint_under_load_breaks_only_writes_and_watches() {
    let released = CancellationToken::new();
    let member = member_that_holds(released.clone()).await;
    let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    let mut watches = Vec::new();
    for _ in 0..2 {
        let mut body =
            client.send_request(get("/api/v1/pods?watch=1"), RequestIdentity::Member).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        watches.push(body);
    }
    let load = |method: Method, path: &'static str| {
        let client = client.clone();
        tokio::spawn(async move {
            let body = if method == Method::GET { member::empty() } else { full("{}") };
            let request = Request::builder().method(method).uri(path).body(body).unwrap();
            client.send_request(request, RequestIdentity::Member).await
        })
    };
    // Requests are in flight at both endpoints when one endpoint's connections close.
    let reads: Vec<_> = (0..40).map(|_| load(Method::GET, "/slow")).collect();
    let writes: Vec<_> = (0..40).map(|_| load(Method::POST, "/slow")).collect();
    let slow = || member.seen().iter().filter(|seen| seen.uri.path() == "/slow").count();
    eventually("all are in flight", || slow() == 80).await;
    gates[1].close().await;
    eventually("the reads of the endpoint that was cut are in flight again", || slow() == 100).await;
    released.cancel();
    for read in reads {
        assert_eq!(read.await.unwrap().unwrap().status(), StatusCode::OK, "a read is sent again");
    }
    let mut broken = 0;
    for write in writes {
        match write.await.unwrap() {
            Ok(response) => assert_eq!(response.status(), StatusCode::OK),
            // The member may have processed a write before its connection broke, so the proxy must not retry the write.
            Err(error) => {
                assert!(matches!(error, ForwardError::Send { sent: tributary_proxy::Sent::Maybe, .. }), "{error}");
                broken += 1;
            }
        }
    }
    assert_eq!(broken, 20, "the writes of the endpoint that was cut");
    // One watch has ended, so one endpoint has no watch, and a new watch goes to this endpoint.
    let ended = futures::future::select_all(watches.iter_mut().map(|watch| watch.frame()));
    let (frame, over, _) = tokio::time::timeout(SOON, ended).await.expect("a watch that is over");
    assert!(frame.unwrap().is_err());
    assert!(watches[1 - over].frame().now_or_never().is_none(), "the other goes on");
    client.send_request(get("/api/v1/pods?watch=1"), RequestIdentity::Member).await.unwrap();
    for _ in 0..40 {
        assert_eq!(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
        let post = Request::post("/api").body(full("{}")).unwrap();
        assert_eq!(client.send_request(post, RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
    }
    assert!(client.reachability().borrow().is_reachable());
}

#[tokio::test]
async fn silent_endpoint_delays_only_one_request_by_a_second() {
    let member = busy_member().await;
    // A listener that accepts connections and never sends a byte.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gate = Gate::to(&member).await;
    let name = ClusterName::new("c1").unwrap();
    let mut config = member.config();
    config.cluster_url = format!("https://{}", silent.local_addr().unwrap()).parse().unwrap();
    let client =
        ClusterClient::connect_to_all(name, config, &[gate.url().into()], ClientTuning::default()).await.unwrap();
    let started = Instant::now();
    for _ in 0..20 {
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(10), "not a second for each: {:?}", started.elapsed());
    assert_eq!(requests(&client), [0, 20]);
    assert!(is_lost(&client.endpoints()[0]));
}

/// Returns how often each endpoint became reachable, including the first time.
fn recoveries(client: &ClusterClient) -> Vec<u64> {
    client.endpoints().iter().map(|endpoint| endpoint.reachability.recoveries).collect()
}

/// Returns a WebSocket upgrade request, with the extension that hyper's server adds.
pub(crate) fn exec() -> Request<Body> {
    let mut exec = get("/api/v1/namespaces/a/pods/p/exec");
    exec.headers_mut().insert("connection", "Upgrade".parse().unwrap());
    exec.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    let switch = hyper::upgrade::on(&mut exec);
    exec.extensions_mut().insert(switch);
    exec
}

#[tokio::test]
async fn slow_http1_handshake_does_not_make_a_responding_endpoint_unreachable() {
    let member = busy_member().await;
    // Only a connection attempt for a tunnel does not offer HTTP/2 in ALPN, so the gate delays only these attempts.
    let delay: Delay = |_, hello| match hello.windows(3).any(|bytes| bytes == b"\x02h2") {
        true => Duration::ZERO,
        false => Duration::from_millis(1_200),
    };
    let gates = [Gate::slow(&member, delay).await, Gate::slow(&member, delay).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    let ask = async || drop(read(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap()).await);
    for _ in 0..4 {
        ask().await;
    }
    let before = recoveries(&client);
    let busy = async {
        loop {
            ask().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let answered = tokio::select! {
        answered = client.send_request(exec(), RequestIdentity::Member) => answered,
        () = busy => unreachable!("it goes on"),
    };
    assert_eq!(answered.unwrap().status(), StatusCode::OK, "this member switches nothing");
    assert!(!client.endpoints().iter().any(is_lost));
    assert_eq!(recoveries(&client), before, "none was taken for lost meanwhile");
}

/// Over HTTP/1.1 each request has a separate connection, and a busy member sends nothing before its response. So a
/// silent connection does not mean that the endpoint is unreachable.
#[tokio::test]
async fn http1_endpoint_stays_reachable_if_another_connection_succeeds() {
    let released = CancellationToken::new();
    let options = Options { alpn: vec!["http/1.1"], ..Options::default() };
    let holding = released.clone();
    let member = Member::start(options, move |seen, _| answer(seen, holding.clone())).await;
    let first: Delay = |number, _| Duration::from_millis(if number == 0 { 900 } else { 2_000 });
    let second: Delay = |number, _| Duration::from_millis(if number == 0 { 900 } else { 0 });
    let gates = [Gate::slow(&member, first).await, Gate::slow(&member, second).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    let slow = || {
        let client = client.clone();
        tokio::spawn(async move {
            client.send_request(get("/slow"), RequestIdentity::Member).await.map(|answer| answer.status())
        })
    };
    let mut pending = vec![slow(), slow()];
    tokio::time::sleep(Duration::from_millis(500)).await;
    // The third request also chooses the first endpoint, and gets no connection from it within a second. The request
    // then goes to the second endpoint.
    pending.push(slow());
    eventually("all three are being answered", || member.seen().len() == 3).await;
    assert!(!client.endpoints().iter().any(is_lost), "{:?}", client.endpoints());
    assert_eq!(requests(&client), [1, 2], "it was tried at the first in vain");
    released.cancel();
    for one in pending {
        assert_eq!(one.await.unwrap().unwrap(), StatusCode::OK);
    }
}

#[tokio::test]
async fn member_is_unreachable_until_an_endpoint_recovers() {
    let member = busy_member().await;
    let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    for gate in &mut gates {
        gate.close().await;
    }
    let mut reachability = client.reachability();
    reachability.borrow_and_update();
    eventually("an error", || client.pool_statistics().short_connections == 0).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert_eq!(error.status_code(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(error.to_string().contains("cluster c1"), "{error}");
    reachability.wait_for(|known| !known.is_reachable()).await.unwrap();
    gates[1].open().await;
    let tended = client.clone();
    let tending = tokio::spawn(async move { tended.watch_over().await });
    reachability.wait_for(Reachability::is_reachable).await.unwrap();
    tending.abort();
    assert_eq!(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
}
