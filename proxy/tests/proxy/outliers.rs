//! An endpoint that answers, and whose answers are errors: it is left out by its own fault only, and never the last one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tributary_proxy::{ClusterClient, RequestIdentity};

use crate::endpoints::{Gate, client};
use crate::member::{Member, Options, Seen, eventually, get, text};

/// The authorities at which everything but `/readyz` is answered 500.
type Broken = Arc<Mutex<BTreeSet<String>>>;

/// A member with two addresses, both of which it can break, and a task that watches over them.
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
        let client = client(&member, [&gates[0], &gates[1]]).await;
        let tended = client.clone();
        let tending = tokio::spawn(async move { tended.watch_over().await });
        Self { member, gates, broken, client, tending }
    }

    fn break_off(&self, at: usize) {
        self.broken.lock().insert(self.gates[at].url().authority().unwrap().to_string());
    }

    async fn status_of(&self, path: &'static str) -> StatusCode {
        self.client.forward(get(path), RequestIdentity::Member).await.unwrap().status()
    }

    fn ejected(&self) -> [bool; 2] {
        let ejected: Vec<_> = self.client.endpoints().iter().map(|endpoint| endpoint.is_ejected).collect();
        ejected.try_into().unwrap()
    }

    /// How many of the requests of [`load`](Self::load) each endpoint was sent: our own questions are for other paths.
    fn loaded(&self) -> [usize; 2] {
        let seen = self.member.seen();
        let load = || seen.iter().filter(|seen| seen.uri.path() == "/api/v1/pods");
        self.gates.each_ref().map(|gate| load().filter(|seen| seen.uri.authority() == gate.url().authority()).count())
    }

    /// Asks for so long, some requests at once, and gives how many went to each endpoint.
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
    let is_broken = seen.uri.authority().is_some_and(|authority| broken.lock().contains(authority.as_str()));
    if path == "/api/v1/broken" || (is_broken && path != "/readyz") {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "broken".to_owned());
    }
    // A sound one takes its time, so that the broken one has the fewest in flight.
    if path == "/api/v1/pods" {
        sleep(Duration::from_millis(10)).await;
    }
    text(StatusCode::OK, path.to_owned())
}

#[tokio::test]
async fn one_that_answers_500_at_once_gets_little_and_comes_back_slowly() {
    let scene = Scene::new().await;
    scene.break_off(0);
    // Its first 500 is among these; 3 s after it, it has next to nothing.
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
async fn a_broken_resource_ejects_nobody_and_costs_few_questions() {
    let scene = Scene::new().await;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        assert_eq!(scene.status_of("/api/v1/broken").await, StatusCode::INTERNAL_SERVER_ERROR);
        sleep(Duration::from_millis(2)).await;
        assert_eq!(scene.ejected(), [false, false]);
    }
    let asked = scene.member.seen().iter().filter(|seen| seen.uri.path() == "/api/v1/namespaces/default").count();
    // At each of two endpoints one a second, and one at once.
    assert!((2..=6).contains(&asked), "{asked} questions");
}

#[tokio::test]
async fn where_all_are_broken_all_are_asked() {
    let scene = Scene::new().await;
    scene.break_off(0);
    scene.break_off(1);
    scene.load(Duration::from_secs(1)).await;
    assert_eq!(scene.ejected(), [true, true]);
    let [first, second] = scene.load(Duration::from_millis(500)).await;
    assert!(first > 5 && second > 5, "{first} and {second}");
    assert_eq!(scene.status_of("/api").await, StatusCode::INTERNAL_SERVER_ERROR, "the member's own answer");
}
