//! The most expensive requests: while one client sends such a request as fast as possible, the router must answer other
//! clients.
//!
//! Each request is an entry of [`requests`]. [`AT_ONCE`] tasks repeat the request, on a runtime with two worker
//! threads. Another client polls `/livez`, as in [`crate::outages::liveness`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use tributary_router::limits::SELECTOR;
use tributary_simulator::SimulatorConfig;

use crate::harness::{CONFIG_MAPS, Client, Fixture, allow, config, config_map, until};
use crate::outages::liveness::{Probes, others_live};

/// The number of tasks that send the same request at the same time.
const AT_ONCE: usize = 8;

/// The minimum time for which the tasks repeat the request.
const SENT_FOR: Duration = Duration::from_millis(300);

/// Number of pods of each of the two members. A build without compiler optimization needs as much time for them as an
/// optimized build for some thousands.
const PODS: usize = 250;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const YAML_TABLE: &str = "application/yaml;as=Table;g=meta.k8s.io;v=v1";

pub(crate) struct Worst {
    name: &'static str,
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

impl Worst {
    pub(crate) fn get(name: &'static str, path: impl Into<String>) -> Self {
        Self { name, method: "GET", path: path.into(), headers: Vec::new(), body: String::new() }
    }

    /// Creates a request with a JSON body or an empty body.
    pub(crate) fn write(name: &'static str, method: &'static str, path: impl Into<String>, body: String) -> Self {
        Self { name, method, path: path.into(), headers: vec![("content-type", "application/json")], body }
    }

    fn yaml(name: &'static str, path: &str, body: String) -> Self {
        Self { name, method: "POST", path: path.to_owned(), headers: vec![("content-type", "application/yaml")], body }
    }

    pub(crate) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// Returns the requests for two members with [`PODS`] pods each.
fn requests() -> Vec<Worst> {
    vec![
        Worst::get("a whole list as Table in YAML", "/api/v1/pods?includeObject=Object").with("accept", YAML_TABLE),
        Worst::get("a page of a selector of 21,800 requirements", selected("limit=1&", &"!a,".repeat(21_800))),
        Worst::get("a page of the longest selector", selected("limit=1&", &longest())),
        Worst::get("a list of the longest selector", selected("", &longest())),
        Worst::get("a watch of the longest selector", selected("watch=1&timeoutSeconds=1&", &longest())),
        Worst::get("a page of a million", "/api/v1/pods?limit=1000000"),
        Worst::get("a watch without end", "/api/v1/pods?watch=1&timeoutSeconds=9223372036854775807"),
        Worst::yaml("a review with a long list in YAML", REVIEWS, format!("x: [{}]\n", "a,".repeat(30_000))),
        Worst::yaml("a review with maps that are merged", REVIEWS, merges()),
        Worst::yaml("a ConfigMap with a long list in YAML", CONFIG_MAPS, format!("x: [{}]\n", "a,".repeat(30_000))),
    ]
}

/// Returns YAML with a map of 2,000 keys that is merged a hundred times.
fn merges() -> String {
    let keys: Vec<_> = (0..2_000).map(|key| format!("k{key}: v")).collect();
    let merges: String = (0..100).map(|at| format!("c{at}: {{<<: *b}}\n")).collect();
    format!("b: &b {{{}}}\n{merges}", keys.join(","))
}

/// Returns the path of a list of pods with a selector. The last requirement, the label `zzz`, matches no pod.
fn selected(parameters: &str, requirements: &str) -> String {
    format!("/api/v1/pods?{parameters}labelSelector={requirements}zzz")
}

/// Returns as many requirements as a selector may have, minus one.
fn longest() -> String {
    (1..SELECTOR.requirements).map(|number| format!("!a{number},")).collect()
}

/// Repeats the request in several tasks. Returns the longest time in which another client got no response.
async fn longest_silence(client: &Client, worst: &Arc<Worst>) -> Duration {
    let over = Arc::new(AtomicBool::new(false));
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (client, worst, over) = (client.clone(), Arc::clone(worst), Arc::clone(&over));
        senders.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let mut answer = client.call(worst.method, &worst.path, &worst.headers, &worst.body).await;
                // The frames are dropped one by one, so that the test needs no memory for the whole response. Error
                // responses are allowed.
                while let Some(Ok(_)) = answer.body_mut().frame().await {}
                tokio::task::yield_now().await;
            }
        });
    }
    let probes = Probes::start(client.clone());
    tokio::time::sleep(SENT_FOR).await;
    let silence = probes.longest_silence().await;
    over.store(true, Ordering::SeqCst);
    // A stream never ends, so its task must be cancelled.
    senders.shutdown().await;
    silence
}

/// Repeats the request, and checks that other clients get responses in the meantime.
pub(crate) async fn others_are_answered(fixture: &Fixture, worst: Worst) {
    let worst = Arc::new(worst);
    others_live(worst.name, async || longest_silence(&fixture.client(), &worst).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_clients_are_served_during_one_clients_expensive_requests() {
    let pods = |name| SimulatorConfig { pods: PODS, namespaces: 3, ..config(name) };
    let fixture = Fixture::with(["a", "b"].map(pods), allow()).await;
    fixture.get("/api/v1/pods?limit=1").await.ok();
    for worst in requests() {
        others_are_answered(&fixture, worst).await;
    }
}

/// The number of clients that read the large object at the same time.
const READERS: usize = 40;

fn large() -> String {
    format!("{CONFIG_MAPS}/large")
}

async fn with_large_object() -> Fixture {
    let fixture = Fixture::start(["a"]).await;
    let mut object = config_map("large", "");
    let data = (0..40_000).map(|number| (format!("key-{number}"), format!("a: {number}")));
    object["data"] = data.collect::<HashMap<_, _>>().into_iter().collect();
    let revision = fixture.member("a").apply(object).unwrap();
    fixture.see("a", revision).await;
    fixture
}

/// Sends a request from [`READERS`] tasks, and then three requests of another client for `/livez`. Returns the number
/// of the first requests that have no response yet. The test needs no clock: if the router is fair, short requests
/// overtake earlier long requests.
async fn count_overtaken(client: Client, worst: Worst) -> usize {
    let worst = Arc::new(worst);
    let asked = async move {
        let done = Arc::new(AtomicUsize::new(0));
        let mut readers = tokio::task::JoinSet::new();
        for _ in 0..READERS {
            let (client, worst, done) = (client.clone(), Arc::clone(&worst), Arc::clone(&done));
            readers.spawn(async move {
                client.send(worst.method, &worst.path, &worst.headers, &worst.body).await;
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        // Each sleep represents a wait for a socket. A worker thread checks timers and sockets only between ready
        // tasks.
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            client.send("GET", "/livez", &[], "").await;
        }
        let overtaken = READERS - done.load(Ordering::SeqCst);
        readers.shutdown().await;
        overtaken
    };
    // As on a server connection, the request runs in its own task, which waits behind other ready tasks.
    tokio::spawn(asked).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_yaml_response_does_not_delay_other_clients() {
    let fixture = with_large_object().await;
    for path in [large(), CONFIG_MAPS.to_owned()] {
        let worst = Worst::get("a large object", path).with("accept", "application/yaml");
        let overtaken = count_overtaken(fixture.client(), worst).await;
        assert!(overtaken >= READERS / 2, "of {READERS} who read a large object {overtaken} were overtaken");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_request_bodies_do_not_delay_other_clients() {
    let fixture = Fixture::start(["a"]).await;
    let list = format!("metadata: {{name: x}}\nx: [{}]\n", "a,".repeat(5_000));
    // The text `tributary.dev` may be an annotation of the merged view. So the router must parse this body, even at the
    // path of a cluster.
    let own = format!("/clusters/a{CONFIG_MAPS}");
    let may_hold_ours = format!("{list}y: !!str tributary.dev\n");
    let options = |path: &str| Worst { method: "DELETE", ..Worst::yaml("options", path, list.clone()) };
    for worst in [
        Worst::yaml("a review", REVIEWS, list.clone()),
        Worst::yaml("a new object", CONFIG_MAPS, list.clone()),
        options(&format!("{CONFIG_MAPS}/x")),
        options(CONFIG_MAPS),
        options(&format!("{own}/x")),
        Worst::yaml("a new object of a cluster", &own, may_hold_ours),
    ] {
        let name = format!("{} {} {}", worst.name, worst.method, worst.path);
        let overtaken = count_overtaken(fixture.client(), worst).await;
        assert!(overtaken >= READERS / 2, "of {READERS} with {name} in YAML {overtaken} were overtaken");
    }
}

/// Like the tests before, this test needs no clock: a write must overtake nearly all waiting requests of another
/// connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_reads_of_one_client_do_not_delay_another_clients_write() {
    let fixture = with_large_object().await;
    let [begun, done] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..READERS {
        let (client, begun, done) = (fixture.connection(1), Arc::clone(&begun), Arc::clone(&done));
        readers.spawn(async move {
            begun.fetch_add(1, Ordering::SeqCst);
            client.send("GET", &large(), &[("accept", "application/yaml")], "").await;
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    until(|| async { begun.load(Ordering::SeqCst) == READERS }).await;
    let object = config_map("own", &"x".repeat(100 << 10)).to_string();
    let writer = fixture.connection(2);
    let write = async move { writer.send("POST", CONFIG_MAPS, &[("content-type", "application/json")], &object).await };
    tokio::spawn(write).await.unwrap().ok();
    let overtaken = READERS - done.load(Ordering::SeqCst);
    readers.shutdown().await;
    assert!(overtaken >= READERS / 2, "of {READERS} reads of one connection another's write overtook {overtaken}");
}
