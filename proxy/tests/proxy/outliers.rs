//! Tests of outlier detection. Only an endpoint's own errors eject the endpoint, and the only endpoint of a member is
//! never ejected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tributary_proxy::{ClientTuning, ClusterClient, EndpointSubset, RequestIdentity};

use crate::endpoints::{Gate, client_with};
use crate::member::{Member, Options, SOON, Seen, SendRequest, eventually, get, text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The endpoint answers 500, except for `/readyz`.
    Errors,
    /// The endpoint resets each stream before the response, except for `/readyz`.
    BreaksOff,
    Slow,
}

/// The fault of each endpoint, by the authority of the endpoint's URL.
type Broken = Arc<Mutex<BTreeMap<String, Fault>>>;

/// A member with two endpoints, and the task that probes them. The test sets the fault of each endpoint.
struct Scene {
    member: Member,
    gates: [Gate; 2],
    broken: Broken,
    client: ClusterClient,
    tending: JoinHandle<()>,
}

impl Scene {
    async fn new() -> Self {
        let broken = Broken::default();
        let seen_by = broken.clone();
        let member = Member::start(Options::default(), move |seen, _| answer(seen, seen_by.clone())).await;
        let gates = [Gate::to(&member).await, Gate::to(&member).await];
        let client = client_with(ClientTuning::default(), &member, [&gates[0], &gates[1]]).await;
        let tended = client.clone();
        let tending = tokio::spawn(async move { tended.watch_over().await });
        Self { member, gates, broken, client, tending }
    }

    fn close_connections(&self, at: usize, fault: Fault) {
        self.broken.lock().insert(self.gates[at].url().authority().unwrap().to_string(), fault);
    }

    fn cause(&self) -> String {
        self.client.endpoints()[0].left_out.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    async fn status_of(&self, path: &'static str) -> StatusCode {
        self.client.send_request(get(path), RequestIdentity::Member).await.unwrap().status()
    }

    fn ejected(&self) -> [bool; 2] {
        let ejected: Vec<_> = self.client.endpoints().iter().map(|endpoint| endpoint.is_ejected).collect();
        ejected.try_into().unwrap()
    }

    /// Returns how many requests of [`load`](Self::load) each endpoint has got. Tributary's own requests have other
    /// paths.
    fn loaded(&self) -> [usize; 2] {
        let seen = self.member.seen();
        let load = || seen.iter().filter(|seen| seen.uri.path() == "/api/v1/pods");
        self.gates.each_ref().map(|gate| load().filter(|seen| seen.uri.authority() == gate.url().authority()).count())
    }

    /// Sends four parallel sequences of requests for the given time. Returns the number of requests at each endpoint.
    async fn load(&self, lasting: Duration) -> [usize; 2] {
        let before = self.loaded();
        let until = Instant::now() + lasting;
        let asking = (0..4).map(|_| async {
            while Instant::now() < until {
                self.status_of("/api/v1/pods").await;
                sleep(Duration::from_millis(5)).await;
            }
        });
        futures::future::join_all(asking).await;
        let after = self.loaded();
        [after[0] - before[0], after[1] - before[1]]
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.tending.abort();
    }
}

async fn answer(seen: Seen, broken: Broken) -> http::Response<tributary_apimachinery::body::Body> {
    let path = seen.uri.path();
    let fault = seen.uri.authority().and_then(|authority| broken.lock().get(authority.as_str()).copied());
    let of_request = match path {
        "/api/v1/broken" => Some(Fault::Errors),
        "/api/v1/resets" => Some(Fault::BreaksOff),
        "/api/v1/slow" => Some(Fault::Slow),
        _ => fault.filter(|_| path != "/readyz"),
    };
    match of_request {
        Some(Fault::Errors) => return text(StatusCode::INTERNAL_SERVER_ERROR, "broken".to_owned()),
        // A panic resets the stream of the request, as a panic in a Go handler does.
        Some(Fault::BreaksOff) => std::panic::resume_unwind(Box::new(())),
        Some(Fault::Slow) => sleep(Duration::from_secs(1)).await,
        None => {}
    }
    // The healthy endpoint answers slowly. So the faulty endpoint has the fewest requests in flight, and would attract
    // the requests.
    if path == "/api/v1/pods" {
        sleep(Duration::from_millis(10)).await;
    }
    text(StatusCode::OK, path.to_owned())
}

#[tokio::test]
async fn endpoint_with_fast_500s_is_ejected_and_recovers_slowly() {
    let scene = Scene::new().await;
    scene.close_connections(0, Fault::Errors);
    // One of these requests gets the first 500. After these 3 s, the faulty endpoint gets almost no requests.
    scene.load(Duration::from_secs(3)).await;
    assert_eq!(scene.ejected(), [true, false]);
    let [broken, sound] = scene.load(Duration::from_secs(2)).await;
    assert!(broken * 50 <= broken + sound, "{broken} of {}", broken + sound);

    scene.broken.lock().clear();
    eventually("it is used again", || scene.ejected() == [false, false]).await;
    let [back, other] = scene.load(Duration::from_secs(2)).await;
    assert!(back > 0 && back * 2 < other, "little by little: {back} and {other}");
    assert_eq!(scene.client.endpoints()[0].ejections, 1);
}

#[tokio::test]
async fn endpoint_with_errors_of_only_one_resource_is_not_ejected() {
    let scene = Scene::new().await;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        assert_eq!(scene.status_of("/api/v1/broken").await, StatusCode::INTERNAL_SERVER_ERROR);
        sleep(Duration::from_millis(2)).await;
        assert_eq!(scene.ejected(), [false, false]);
    }
    let checks = scene.member.seen().iter().filter(|seen| seen.uri.path() == "/api/v1/namespaces/default").count();
    // For each endpoint, Tributary sends a check immediately, and then once per second.
    assert!((2..=6).contains(&checks), "{checks} questions");
}

#[tokio::test]
async fn endpoint_that_resets_all_streams_is_ejected() {
    let scene = Scene::new().await;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        scene.client.send_request(get("/api/v1/resets"), RequestIdentity::Member).await.unwrap_err();
        assert_eq!(scene.ejected(), [false, false]);
    }
    assert!(scene.client.endpoints().iter().all(|endpoint| endpoint.breaker_openings == 0));
    scene.close_connections(0, Fault::BreaksOff);
    let until = Instant::now() + SOON;
    while scene.ejected() != [true, false] {
        // The proxy retries a request after a reset, within the retry budget.
        let _ = scene.client.send_request(get("/api/v1/pods"), RequestIdentity::Member).await;
        assert!(Instant::now() < until, "{:?}", scene.client.endpoints());
    }
    assert!(scene.cause().contains("broke before a response"), "{}", scene.cause());
    scene.broken.lock().clear();
    eventually("it is used again", || scene.ejected() == [false, false]).await;
}

#[tokio::test]
async fn endpoint_with_slow_requests_of_one_client_is_not_ejected() {
    let scene = Scene::new().await;
    let first = EndpointSubset::new(&[scene.gates[0].url().to_string()]);
    for _ in 0..2 {
        let slow = (0..20).map(|_| {
            let mut request = get("/api/v1/slow");
            request.extensions_mut().insert(first.clone());
            scene.client.send_request(request, RequestIdentity::Member)
        });
        futures::future::try_join_all(slow).await.unwrap();
        assert_eq!(scene.ejected(), [false, false]);
    }
}

#[tokio::test]
async fn all_endpoints_are_used_if_all_return_errors() {
    let scene = Scene::new().await;
    scene.close_connections(0, Fault::Errors);
    scene.close_connections(1, Fault::Errors);
    scene.load(Duration::from_secs(1)).await;
    assert_eq!(scene.ejected(), [true, true]);
    let [first, second] = scene.load(Duration::from_millis(500)).await;
    assert!(first > 5 && second > 5, "{first} and {second}");
    assert_eq!(scene.status_of("/api").await, StatusCode::INTERNAL_SERVER_ERROR, "the member's own answer");
}
