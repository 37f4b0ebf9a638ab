//! Tests under paused time of slow start: a recovered or new endpoint gets a growing share of requests, unless it is
//! the only usable endpoint.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::time::sleep;
use tower::ServiceExt;
use tributary_proxy::{Address, ClientTuning, ClusterClient, EndpointSubset, RequestIdentity};

use crate::member::{Authority, SendRequest, get};
use crate::paused::{ConnectionBehavior, ENDPOINTS, client_of};

/// Number of requests in a round. Slow start has ten steps. In each step, an endpoint is a candidate for seven more of
/// these seventy requests.
const ROUND: usize = 70;

/// A client of two endpoints. The test decides whether each endpoint refuses connections.
struct Scene {
    client: ClusterClient,
    takes: Arc<Mutex<[ConnectionBehavior; 2]>>,
}

impl Scene {
    async fn new(takes: [ConnectionBehavior; 2]) -> Self {
        let takes = Arc::new(Mutex::new(takes));
        let client = client_of("http", &Authority::new(), &takes, ClientTuning::default()).await;
        Self { client, takes }
    }

    async fn with_the_first_lost() -> Self {
        let scene = Self::new([ConnectionBehavior::Refuses, ConnectionBehavior::Plain]).await;
        for _ in ENDPOINTS {
            scene.ask().await;
        }
        assert!(!scene.client.endpoints()[0].reachability.is_reachable());
        scene
    }

    async fn ask(&self) {
        let answer = self.client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer.into_body().collect().await.unwrap();
    }

    /// Sends a round of requests, one after the other. Returns how many the first endpoint got.
    async fn of_a_round(&self) -> u64 {
        let sent = || self.client.endpoints()[0].requests;
        let before = sent();
        for _ in 0..ROUND {
            self.ask().await;
        }
        sent() - before
    }

    /// Makes an endpoint accept connections again. A request for `/readyz` then detects the recovery.
    async fn is_back(&self, at: usize) {
        self.takes.lock()[at] = ConnectionBehavior::Plain;
        let answer = self.client.transport_to(at).oneshot(get("/readyz")).await.unwrap();
        answer.into_body().collect().await.unwrap();
        assert!(self.client.endpoints()[at].reachability.is_reachable());
    }

    fn drain(&self, hosts: &[&str]) {
        let urls: Vec<_> = hosts.iter().map(|host| format!("http://{host}")).collect();
        self.client.set_drained(&EndpointSubset::new(&urls));
    }

    async fn move_to(&self, hosts: &[&str]) {
        let url = |host: &str| -> http::Uri { format!("http://{host}").parse().unwrap() };
        let further: Vec<Address> = hosts[1..].iter().map(|host| url(host).into()).collect();
        assert!(self.client.set_addresses(&kube::Config::new(url(hosts[0])), &further).await.unwrap());
    }

    /// Checks that the recovered first endpoint gets a growing share of the requests.
    async fn expect_a_slow_start(&self, how: &str) {
        let mut shares = vec![self.of_a_round().await];
        sleep(Duration::from_secs(5)).await;
        shares.push(self.of_a_round().await);
        sleep(Duration::from_secs(5)).await;
        shares.push(self.of_a_round().await);
        // In the first step of slow start, the endpoint is a candidate for a tenth of the requests, later for six
        // tenths, and at the end for all. It gets half of the requests for which it is a candidate.
        for (share, expected) in shares.iter().zip([2..=6, 19..=23, 34..=36]) {
            assert!(expected.contains(share), "{how}: {shares:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn new_or_recovered_endpoint_gets_a_gradually_growing_share_of_requests() {
    let scene = Scene::with_the_first_lost().await;
    scene.is_back(0).await;
    scene.expect_a_slow_start("it was lost").await;

    scene.drain(&[ENDPOINTS[0]]);
    assert_eq!(scene.of_a_round().await, 0);
    scene.drain(&[]);
    scene.expect_a_slow_start("it was drained").await;

    scene.move_to(&[ENDPOINTS[1]]).await;
    scene.ask().await;
    scene.move_to(&ENDPOINTS).await;
    scene.expect_a_slow_start("it joins another").await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_present_at_the_start_get_their_full_share_of_requests_at_once() {
    let scene = Scene::new([ConnectionBehavior::Plain, ConnectionBehavior::Plain]).await;
    assert_eq!(scene.of_a_round().await, 35);
}

#[tokio::test(start_paused = true)]
async fn recovered_endpoint_does_not_get_every_new_watch() {
    let scene = Scene::with_the_first_lost().await;
    scene.is_back(0).await;
    let mut watches = Vec::new();
    for _ in 0..ROUND {
        let watch = scene.client.send_request(get("/api/v1/pods?watch=1"), RequestIdentity::Member).await.unwrap();
        watches.push(watch.into_body());
    }
    let outstanding: Vec<_> = scene.client.endpoints().iter().map(|endpoint| endpoint.outstanding).collect();
    // The endpoint has the fewest watches. So it gets each watch for which slow start makes it a candidate.
    assert!((4..=9).contains(&outstanding[0]), "{outstanding:?}");
    assert_eq!(outstanding.iter().sum::<usize>(), ROUND);
    sleep(Duration::from_secs(10)).await;
    for _ in 0..20 {
        let watch = scene.client.send_request(get("/api/v1/pods?watch=1"), RequestIdentity::Member).await.unwrap();
        watches.push(watch.into_body());
    }
    assert_eq!(scene.client.endpoints()[0].outstanding, outstanding[0] + 20, "then it catches up");
}

#[tokio::test(start_paused = true)]
async fn only_usable_endpoint_gets_all_requests_without_slow_start() {
    // The second endpoint is drained, so the first endpoint is the only usable endpoint.
    let scene = Scene::with_the_first_lost().await;
    scene.is_back(0).await;
    scene.drain(&[ENDPOINTS[1]]);
    assert_eq!(scene.of_a_round().await, ROUND as u64);

    // The second endpoint is unreachable, so the first endpoint is the only usable endpoint.
    let scene = Scene::new([ConnectionBehavior::Refuses, ConnectionBehavior::Refuses]).await;
    let error = scene.client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert_eq!(error.status_code(), StatusCode::SERVICE_UNAVAILABLE);
    scene.is_back(0).await;
    assert_eq!(scene.of_a_round().await, ROUND as u64);

    // Both endpoints recover one after the other, and then share the requests equally.
    let scene = Scene::new([ConnectionBehavior::Refuses, ConnectionBehavior::Refuses]).await;
    scene.client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    scene.is_back(0).await;
    scene.is_back(1).await;
    assert_eq!(scene.of_a_round().await, 35);
}
