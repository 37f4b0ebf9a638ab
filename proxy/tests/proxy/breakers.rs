//! Tests of circuit breakers and of limits of requests in flight. After repeated failures an endpoint gets no requests
//! for a while, and then one trial request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http::{Request, Response, StatusCode};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::BoxError;
use tributary_proxy::{
    BoxIo, BreakerTuning, ClientTuning, ClusterClient, ForwardError, LeftOutReason, Probe, ReachabilityState,
    RequestIdentity, Sent, user_authorization,
};

use crate::endpoints::{Gate, client_with};
use crate::member::{self, Member, Options, SOON, Seen, SendRequest, eventually, full, get, text};

/// A client of one endpoint. The test can make the endpoint refuse connections, and counts the connection attempts.
struct Scene {
    client: ClusterClient,
    dials: Arc<AtomicUsize>,
    refuses: Arc<AtomicBool>,
}

impl Scene {
    async fn new(breaker: BreakerTuning) -> Self {
        Self::failing(breaker, "http://member.example", || BoxError::from("connection refused")).await
    }

    /// Like [`new`](Self::new), for an endpoint with this URL. While the endpoint refuses connections, each attempt
    /// fails with the error `failure`.
    async fn failing(breaker: BreakerTuning, url: &str, failure: fn() -> BoxError) -> Self {
        let (dials, refuses) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let (dial_count, refusing) = (dials.clone(), refuses.clone());
        let connector = BoxCloneSyncService::new(tower::service_fn(move |_: http::Uri| {
            dial_count.fetch_add(1, Ordering::SeqCst);
            let refused = refusing.load(Ordering::SeqCst);
            async move {
                // The connection attempt takes some time, so that concurrent requests share the attempt.
                tokio::time::sleep(Duration::from_millis(10)).await;
                if refused {
                    return Err(failure());
                }
                let (near, far) = tokio::io::duplex(1 << 20);
                tokio::spawn(serve(far));
                Ok::<BoxIo, BoxError>(Box::new(near))
            }
        }));
        let config = kube::Config::new(url.parse().unwrap());
        let tuning = ClientTuning { breaker, ..ClientTuning::default() };
        let name = ClusterName::new("c1").unwrap();
        let client = ClusterClient::connect_through(connector, name, config, tuning).await.unwrap();
        Self { client, dials, refuses }
    }

    async fn ask(&self) -> Result<StatusCode, ForwardError> {
        let answer = self.client.send_request(get("/api"), RequestIdentity::Member).await;
        answer.map(|response| response.status())
    }

    async fn at_once(&self, count: usize) -> usize {
        join_all((0..count).map(|_| self.ask())).await.into_iter().flatten().count()
    }

    fn dials(&self) -> usize {
        self.dials.load(Ordering::SeqCst)
    }

    fn openings(&self) -> u64 {
        self.client.endpoints()[0].breaker_openings
    }
}

async fn serve(io: tokio::io::DuplexStream) {
    let service = service_fn(|_: Request<hyper::body::Incoming>| async {
        Ok::<_, std::convert::Infallible>(Response::new(full("here")))
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(io), service).await;
}

fn three_failures() -> BreakerTuning {
    BreakerTuning { consecutive_failures: 3, open_for: Duration::from_secs(20), ..BreakerTuning::default() }
}

#[tokio::test(start_paused = true)]
async fn open_circuit_breaker_stops_connection_attempts_until_a_trial_request() {
    let scene = Scene::new(three_failures()).await;
    for failures in 1..=3 {
        assert_eq!(scene.ask().await.unwrap_err().status_code(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(scene.dials(), failures);
    }
    assert_eq!(scene.openings(), 1);
    for _ in 0..20 {
        let error = scene.ask().await.unwrap_err();
        assert_eq!(error.status_code(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(error.to_string().contains("connection refused"), "the reason stays: {error}");
    }
    assert_eq!(scene.dials(), 3, "nobody tries");
    let left_out = scene.client.endpoints()[0].left_out.clone().unwrap();
    assert_eq!(left_out.reason, LeftOutReason::Breaker);

    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!((scene.at_once(20).await, scene.dials()), (0, 4), "one tries, in vain");
    assert_eq!((scene.at_once(20).await, scene.dials()), (0, 4));

    scene.refuses.store(false, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!((scene.at_once(20).await, scene.dials()), (1, 5), "one tries, and the others do not wait for it");
    assert_eq!(scene.at_once(20).await, 20);
    assert_eq!((scene.openings(), scene.client.endpoints()[0].left_out.clone()), (1, None));
}

/// A shortage of free ports or file descriptors on this machine is no fault of the member. So no circuit breaker may
/// open.
#[tokio::test(start_paused = true)]
async fn circuit_breaker_stays_closed_when_local_resources_are_exhausted() {
    type Failure = fn() -> BoxError;
    let failures: [(Failure, [&str; 2]); 2] = [
        (
            || std::io::Error::from(std::io::ErrorKind::AddrNotAvailable).into(),
            ["this machine has no free local port for the connection", "net.ipv4.ip_local_port_range"],
        ),
        // The error EMFILE of Linux: too many open files.
        (
            || std::io::Error::from_raw_os_error(24).into(),
            ["this process has reached its limit of open files", "ulimit -n"],
        ),
    ];
    for (failure, words) in failures {
        let scene = Scene::failing(BreakerTuning::default(), "http://127.0.0.1", failure).await;
        for dials in 1..=2 * BreakerTuning::default().consecutive_failures {
            let error = scene.ask().await.unwrap_err();
            assert!(matches!(error, ForwardError::Exhausted { .. }), "{error:?}");
            assert_eq!((error.status_code(), error.sent()), (StatusCode::SERVICE_UNAVAILABLE, Sent::No));
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)) && text.contains("is not at fault"), "{text}");
            assert_eq!(u32::try_from(scene.dials()), Ok(dials), "it is tried each time");
        }
        let endpoint = &scene.client.endpoints()[0];
        assert_eq!((endpoint.breaker_openings, endpoint.left_out.clone()), (0, None));
        assert!(matches!(endpoint.reachability.state, ReachabilityState::Unknown), "{:?}", endpoint.reachability);
        scene.refuses.store(false, Ordering::SeqCst);
        assert_eq!(scene.ask().await.unwrap(), StatusCode::OK);
    }
}

/// Linux reports the same error (EADDRNOTAVAIL) if no local port is free and if this machine has no source address for
/// the member's address, for example without IPv6.
#[tokio::test(start_paused = true)]
async fn missing_source_address_opens_the_circuit_breaker_of_the_endpoint() {
    // A link-local address without an interface name is unreachable from every machine.
    let failure: fn() -> BoxError = || std::io::Error::from(std::io::ErrorKind::AddrNotAvailable).into();
    let scene = Scene::failing(three_failures(), "http://[fe80::1]", failure).await;
    for dials in 1..=3 {
        let error = scene.ask().await.unwrap_err();
        assert!(matches!(error, ForwardError::Dial { .. }), "{error:?}");
        assert_eq!(scene.dials(), dials);
    }
    let endpoint = &scene.client.endpoints()[0];
    assert!(matches!(endpoint.reachability.state, ReachabilityState::Unreachable { .. }), "{endpoint:?}");
    assert_eq!(endpoint.left_out.clone().map(|why| why.reason), Some(LeftOutReason::Breaker));
    scene.ask().await.unwrap_err();
    assert_eq!((scene.dials(), scene.openings()), (3, 1), "nobody tries");
}

#[tokio::test(start_paused = true)]
async fn internal_request_of_tributary_passes_and_closes_an_open_circuit_breaker() {
    let scene = Scene::new(three_failures()).await;
    let transport = scene.client.transport();
    for _ in 0..5 {
        transport.clone().oneshot(get("/api")).await.unwrap_err();
    }
    assert_eq!((scene.dials(), scene.openings()), (5, 1));
    scene.ask().await.unwrap_err();
    assert_eq!(scene.dials(), 5);
    scene.refuses.store(false, Ordering::SeqCst);
    transport.oneshot(get("/api")).await.unwrap();
    assert_eq!(scene.at_once(20).await, 20);
}

#[tokio::test(start_paused = true)]
async fn cancelled_trial_request_is_followed_by_a_new_trial() {
    let scene = Scene::new(three_failures()).await;
    for _ in 0..3 {
        scene.ask().await.unwrap_err();
    }
    scene.refuses.store(false, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(20)).await;
    let given_up = tokio::time::timeout(Duration::from_millis(1), scene.ask()).await;
    assert!(given_up.is_err());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(scene.ask().await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn error_message_lists_each_endpoint_if_all_circuit_breakers_are_open() {
    let member = Member::echo().await;
    let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
    for gate in &mut gates {
        gate.close().await;
    }
    let breaker = BreakerTuning { open_for: Duration::from_secs(60), ..three_failures() };
    let tuning = ClientTuning { breaker, ..ClientTuning::default() };
    let client = client_with(tuning, &member, [&gates[0], &gates[1]]).await;
    let mut last = None;
    for _ in 0..4 {
        last = Some(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err());
    }
    let error = last.unwrap();
    let ForwardError::NoEndpoint { is_chosen: false, left_out, .. } = &error else { panic!("{error}") };
    assert!(left_out.len() == 2 && left_out.iter().all(|(_, why)| why.reason == LeftOutReason::Breaker), "{error}");
    assert!(error.retry_after().is_some_and(|after| after > Duration::from_secs(30)), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn requests_in_flight_are_limited_per_endpoint_and_per_member() {
    let released = CancellationToken::new();
    let until = released.clone();
    let member = Member::start(Options::default(), move |seen, _| {
        let until = until.clone();
        async move {
            if seen.uri.path() == "/slow" {
                until.cancelled().await;
            }
            text(StatusCode::OK, String::new())
        }
    })
    .await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    for (breaker, most) in [
        (BreakerTuning { max_in_flight_per_endpoint: Some(2), ..BreakerTuning::default() }, 4),
        (BreakerTuning { max_in_flight: Some(3), ..BreakerTuning::default() }, 3),
    ] {
        let tuning = ClientTuning { breaker, ..ClientTuning::default() };
        let client = client_with(tuning, &member, [&gates[0], &gates[1]]).await;
        assert_eq!(client.short_for_clients(), most, "clients share what there may be, not what connections carry");
        let slow: Vec<_> = (0..most)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.send_request(get("/slow"), RequestIdentity::Member).await.unwrap() })
            })
            .collect();
        let in_flight = || client.endpoints().iter().map(|endpoint| endpoint.outstanding).sum::<usize>();
        eventually("all are in flight", || in_flight() == most).await;
        let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
        assert_eq!(error.status_code(), StatusCode::TOO_MANY_REQUESTS, "{error}");
        // The limit does not apply to watches and to Tributary's own requests.
        client.send_request(get("/api/v1/pods?watch=1"), RequestIdentity::Member).await.unwrap();
        client.transport().oneshot(get("/api")).await.unwrap();
        slow.iter().for_each(tokio::task::JoinHandle::abort);
        join_all(slow).await;
        eventually("none is in flight", || in_flight() == 0).await;
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    }
    released.cancel();
}

/// Returns a user's own token, which the proxy sends on connections without Tributary's credentials.
fn own() -> RequestIdentity {
    RequestIdentity::UserToken { authorization: user_authorization(b"anns").unwrap(), impersonation: None }
}

/// A member that answers requests without a token with 401, and other requests with 200. `/hang` with a token gets no
/// response.
async fn only_with_a_token(seen: Seen) -> Response<tributary_apimachinery::body::Body> {
    if seen.all("authorization").is_empty() {
        return text(StatusCode::UNAUTHORIZED, "who are you".to_owned());
    }
    if seen.uri.path() == "/hang" {
        std::future::pending::<()>().await;
    }
    text(StatusCode::OK, seen.uri.path().to_owned())
}

/// While a circuit breaker is open, the endpoint gets only trial requests. A trial request may never get a response.
#[tokio::test]
async fn unanswered_trial_request_delays_the_next_trial_by_one_interval() {
    let member = Member::start(Options::default(), |seen, _| only_with_a_token(seen)).await;
    let mut gate = Gate::to(&member).await;
    let mut config = member.config();
    config.cluster_url = gate.url();
    let breaker = BreakerTuning { open_for: Duration::from_millis(300), ..three_failures() };
    let tuning = ClientTuning { breaker, ..ClientTuning::default() };
    let client = member::connect(config.clone(), tuning.clone()).await;
    let client = client.enable_user_tokens(&config, &[], tuning).await.unwrap();
    gate.close().await;
    for _ in 0..3 {
        client.send_request(get("/api"), own()).await.unwrap_err();
    }
    gate.open().await;
    let hangs = async {
        loop {
            let mut request = get("/hang");
            request.extensions_mut().insert(tributary_apimachinery::RequestClass::Streamed);
            let refused = client.send_request(request, own()).await.unwrap_err();
            assert_eq!(refused.status_code(), StatusCode::SERVICE_UNAVAILABLE);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let others = async {
        eventually("the trial is under way", || !member.seen().is_empty()).await;
        while client.send_request(get("/api"), own()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = hangs => {}
        let_in = tokio::time::timeout(Duration::from_secs(10), others) => let_in.expect("nobody else is let in"),
    }
}

#[tokio::test]
async fn recovered_endpoint_gets_requests_with_user_tokens_again() {
    let member = Member::start(Options::default(), |seen, _| only_with_a_token(seen)).await;
    let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
    let probe = Probe { interval: Duration::from_millis(250), ..Probe::default() };
    let tuning = ClientTuning { probe, ..ClientTuning::default() };
    let client = client_with(tuning.clone(), &member, [&gates[0], &gates[1]]).await;
    let mut config = member.config();
    config.cluster_url = gates[0].url();
    let client = client.enable_user_tokens(&config, &[gates[1].url().into()], tuning).await.unwrap();
    let tended = client.clone();
    let tending = tokio::spawn(async move { tended.watch_over().await });
    gates[0].close().await;
    for _ in 0..4 {
        client.send_request(get("/api"), own()).await.unwrap();
    }
    gates[0].open().await;
    let back = gates[0].url();
    let is_back = async {
        loop {
            client.send_request(get("/api"), own()).await.unwrap();
            let last = member.seen().into_iter().rfind(|seen| !seen.all("authorization").is_empty()).unwrap();
            if last.uri.authority() == back.authority() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, is_back).await.expect("one that is back is not used");
    tending.abort();
}
