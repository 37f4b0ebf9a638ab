//! Tests of configured probes: path, interval, time limit, and thresholds.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::uri::PathAndQuery;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tributary_proxy::{ClientTuning, ClusterClient, Probe, ReachabilityState, RequestIdentity};

use crate::endpoints::{Gate, client_with, requests};
use crate::member::{Member, Options, SendRequest, eventually, get, text};

const PATH: &str = "/healthz";

/// A member with two endpoints, and the task that probes them. The test decides the response to each probe of the first
/// endpoint. The member never answers `/livez/ping`.
struct Scene {
    member: Member,
    gates: [Gate; 2],
    answers: mpsc::UnboundedSender<StatusCode>,
    client: ClusterClient,
    tending: JoinHandle<()>,
}

impl Scene {
    async fn new(probe: Probe) -> Self {
        let (answers, statuses) = mpsc::unbounded_channel();
        let statuses = Arc::new(Mutex::new(statuses));
        let second = Arc::new(std::sync::OnceLock::new());
        let is_second = second.clone();
        let member = Member::start(Options::default(), move |seen, _| {
            let (statuses, second) = (statuses.clone(), is_second.clone());
            async move {
                let is_first = seen.uri.authority() != second.get();
                let status = match seen.uri.path() {
                    PATH if is_first => statuses.lock().await.recv().await,
                    "/livez/ping" if is_first => None,
                    _ => Some(StatusCode::OK),
                };
                // The probe stays open until its connection closes.
                let Some(status) = status else { return std::future::pending().await };
                text(status, seen.uri.path().to_owned())
            }
        })
        .await;
        let gates = [Gate::to(&member).await, Gate::to(&member).await];
        second.set(gates[1].url().authority().unwrap().clone()).unwrap();
        let tuning = ClientTuning { probe, ..ClientTuning::default() };
        let client = client_with(tuning, &member, [&gates[0], &gates[1]]).await;
        let tended = client.clone();
        let tending = tokio::spawn(async move { tended.watch_over().await });
        Self { member, gates, answers, client, tending }
    }

    fn count_probes(&self) -> usize {
        let authority = self.gates[0].url().authority().unwrap().clone();
        let seen = self.member.seen();
        seen.iter().filter(|seen| seen.uri.path() == PATH && seen.uri.authority() == Some(&authority)).count()
    }

    /// Answers the next probe of the first endpoint with this status. Waits for the probe after it, which shows that
    /// the client has processed the response. Returns whether the endpoint is ready.
    async fn after(&self, status: u16) -> bool {
        eventually("it is asked", || self.count_probes() > 0).await;
        let before = self.count_probes();
        self.answers.send(StatusCode::from_u16(status).unwrap()).unwrap();
        eventually("it is asked again", || self.count_probes() > before).await;
        self.client.endpoints()[0].is_ready
    }

    fn reason(&self) -> Option<String> {
        match &self.client.endpoints()[0].reachability.state {
            ReachabilityState::Unreachable { reason, .. } => Some(reason.to_string()),
            ReachabilityState::Unknown | ReachabilityState::Reachable => None,
        }
    }

    /// Sends ten concurrent requests. Returns how many each endpoint got. The unanswered probe counts as a request in
    /// flight at the first endpoint.
    async fn ten(&self) -> [u64; 2] {
        let before = requests(&self.client);
        let asking = (0..10).map(|_| self.client.send_request(get("/api"), RequestIdentity::Member));
        futures::future::try_join_all(asking).await.unwrap();
        let after = requests(&self.client);
        [after[0] - before[0], after[1] - before[1]]
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.tending.abort();
    }
}

fn probe() -> Probe {
    Probe {
        path: PathAndQuery::from_static(PATH),
        interval: Duration::from_millis(250),
        // Longer than the test needs to answer a probe, so no probe times out.
        answer_within: Duration::from_secs(60),
        ..Probe::default()
    }
}

#[tokio::test]
async fn endpoint_gets_no_requests_between_a_failed_and_a_successful_probe() {
    let scene = Scene::new(probe()).await;
    assert!(scene.after(200).await);
    assert!(!scene.after(500).await);
    let [first, second] = scene.ten().await;
    // The number of requests includes probes of the second endpoint.
    assert!(first == 0 && second >= 10, "{first} and {second}");
    assert!(scene.after(200).await);
    // In slow start, the endpoint is a candidate for at least seven of seventy requests.
    let mut first = 0;
    for _ in 0..7 {
        first += scene.ten().await[0];
    }
    assert!(first > 0);
    // For a configured probe path, status 404 is a failure.
    assert!(!scene.after(404).await);
}

#[tokio::test]
async fn endpoint_readiness_changes_after_consecutive_probes_up_to_the_threshold() {
    let scene = Scene::new(Probe { success_threshold: 2, failure_threshold: 3, ..probe() }).await;
    let mut ready = Vec::new();
    for status in [500, 500, 200, 500, 500, 500, 200, 500, 200, 200] {
        ready.push((status, scene.after(status).await));
    }
    let expected = [
        (500, true),
        (500, true),
        (200, true),
        (500, true),
        (500, true),
        (500, false),
        (200, false),
        (500, false),
        (200, false),
        (200, true),
    ];
    assert_eq!(ready, expected);
}

#[tokio::test]
async fn probe_successes_before_an_outage_do_not_make_the_endpoint_ready() {
    let interval = Duration::from_secs(2);
    let mut scene = Scene::new(Probe { success_threshold: 2, interval, ..probe() }).await;
    eventually("it is asked", || scene.count_probes() > 0).await;
    scene.answers.send(StatusCode::OK).unwrap();
    sleep(Duration::from_millis(200)).await;
    // A client's request, between two probes, detects that the endpoint is unreachable.
    scene.gates[0].close().await;
    while scene.reason().is_none() {
        scene.ten().await;
    }
    let before = scene.count_probes();
    scene.gates[0].open().await;
    eventually("it is asked", || scene.count_probes() > before).await;
    scene.after(200).await;
    assert!(scene.reason().is_some(), "one answer is not enough");
    scene.after(200).await;
    assert_eq!(scene.reason(), None);
}

#[tokio::test]
async fn endpoint_is_silent_after_the_configured_number_of_unanswered_probes() {
    let answer_within = Duration::from_secs(1);
    let scene = Scene::new(Probe { failure_threshold: 2, answer_within, ..probe() }).await;
    eventually("it is silent", || scene.reason().is_some()).await;
    assert!(scene.count_probes() >= 2, "after the second: {}", scene.count_probes());
    let reason = scene.reason().unwrap();
    assert!(reason.contains("no answer to /healthz within 1 s"), "{reason}");
}
