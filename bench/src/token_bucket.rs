//! A token bucket for gets that are answered from memory. Clients send requests at twice the bucket's rate. The bucket
//! must admit exactly its rate, and the same share for each user, however much each user sends.
//!
//! The member is simulated in this program, and the server is a separate process.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};
use tributary_e2e::{PeopleAuthority, Tributary};
use tributary_simulator::{SimulatedCluster, Simulator, SimulatorConfig, kubeconfig};

use crate::client::{Contestant, ContestantConnection};

pub(crate) const NAME: &str = "flow-token-bucket";

/// The rate of the bucket per second, which is also its burst.
const QPS: u32 = 10_000;
/// Request rate of each user per second. The sum is twice the bucket's rate. The first user sends more than all other
/// users together, and each user sends more than an equal share.
const OFFERED: [u32; 4] = [11_000, 3_000, 3_000, 3_000];
/// The time before the measurement. The load is twice the bucket's rate, so the load empties the full bucket within a
/// second.
const DRAIN_TIME: Duration = Duration::from_secs(4);
const COUNTED: Duration = Duration::from_secs(15);
/// The number of connections per user.
const CONNECTIONS: usize = 4;
/// The maximum number of concurrent requests per user. The load generator waits while a user has this number of
/// requests in flight.
const IN_FLIGHT_MAX: usize = 1_000;
/// The interval at which requests are sent.
const PACE: Duration = Duration::from_millis(1);
/// The interval between checks whether the users have their rights.
const PROBE: Duration = Duration::from_millis(100);

const JSON: &str = "application/json";
const RBAC: &str = "rbac.authorization.k8s.io";
const GROUP: &str = "tenants";

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct TokenBucketFigures {
    /// The rate of the bucket per second.
    pub(crate) qps: u32,
    pub(crate) users: Vec<UserRates>,
}

/// The requests of one user per second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct UserRates {
    /// The requests that were sent.
    pub(crate) offered: f64,
    /// The requests that were answered with the object.
    pub(crate) admitted: f64,
    /// The requests that were answered with 429.
    pub(crate) refused: f64,
}

#[derive(Default)]
struct Counts {
    offered: AtomicU64,
    admitted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl TokenBucketFigures {
    /// Returns the relative deviation of the admitted rate from the bucket's rate.
    pub(crate) fn inexact(&self) -> f64 {
        let admitted: f64 = self.users.iter().map(|user| user.admitted).sum();
        (admitted / f64::from(self.qps) - 1.0).abs()
    }

    /// Returns the largest relative deviation of a user's admitted rate from an equal share.
    pub(crate) fn unfair(&self) -> f64 {
        let admitted: f64 = self.users.iter().map(|user| user.admitted).sum();
        let share = admitted / self.users.len() as f64;
        self.users.iter().map(|user| (user.admitted / share - 1.0).abs()).fold(0.0, f64::max)
    }

    /// The offered rate, relative to the bucket's rate.
    pub(crate) fn offered(&self) -> f64 {
        self.users.iter().map(|user| user.offered).sum::<f64>() / f64::from(self.qps)
    }
}

/// Starts a member and a server, and measures the server.
///
/// # Errors
/// If one of them does not start, or a response is neither the object nor 429.
pub(crate) async fn run() -> anyhow::Result<TokenBucketFigures> {
    let folder = tempfile::Builder::new().prefix("tributary-bench-bucket-").tempdir().context("make a folder")?;
    let member = member().await?;
    configure(folder.path(), &member)?;
    let people = PeopleAuthority::new("the people's authority")?;
    let authority = folder.path().join("clients.crt");
    fs::write(&authority, people.pem()).context("write the authority")?;
    let server = Tributary::configured(&folder.path().join("configuration")).shared(&authority);
    let server = server.start().await.context("start tributary")?;
    let mut users = Vec::new();
    for number in 0..OFFERED.len() {
        let (name, path) = (format!("user{number}"), folder.path().join(format!("user{number}.kubeconfig")));
        server.kubeconfig_of(&path, &people.user(&name, &[GROUP])?, &[])?;
        let target = Contestant::from_kubeconfig("tributary", &path, None).await?;
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(target.connect().await?);
        }
        users.push(connections);
    }
    let path = pod(&users[0][0]).await?;
    eprintln!("measuring {NAME} …");
    let figures = measure(users, &path).await?;
    server.stop().await.context("stop tributary")?;
    Ok(figures)
}

/// Starts a member in which the tenants may read pods.
async fn member() -> anyhow::Result<SimulatedCluster> {
    let config = SimulatorConfig { name: "member1".to_owned(), pods: 100, rbac: true, ..SimulatorConfig::default() };
    let member = Simulator::start(config).await.context("start a member")?;
    let put = |kind: &str, mut object: Value| {
        object["kind"] = kind.into();
        object["apiVersion"] = format!("{RBAC}/v1").into();
        object["metadata"] = json!({"name": GROUP});
        member.apply(object).map(drop).with_context(|| format!("put a {kind}"))
    };
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    put("ClusterRole", json!({"rules": rules}))?;
    let role = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": GROUP});
    put(
        "ClusterRoleBinding",
        json!({"roleRef": role, "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": GROUP}]}),
    )?;
    Ok(member)
}

/// Writes a configuration in which every request passes the bucket.
fn configure(folder: &Path, member: &SimulatedCluster) -> anyhow::Result<()> {
    let configuration = folder.join("configuration");
    fs::create_dir(&configuration).context("make a folder for the configuration")?;
    fs::write(configuration.join("members.kubeconfig"), kubeconfig([member])).context("write the kubeconfig")?;
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "tributary.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let name = member.name();
    let cluster = json!({"kubeconfig": {"path": "members.kubeconfig", "context": name}, "authorization": "RBAC"});
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]});
    let bucket = json!({"name": "bucket", "tokenBucket": {"qps": QPS, "queueing": {}}});
    let merged = json!({"dispatchPolicies": [{"rules": [all], "flowControlSchemaName": "bucket"}],
        "flowControl": {"flowControlSchemas": [bucket]}});
    // JSON is valid YAML.
    let text =
        format!("{}\n---\n{}\n", object("UpstreamCluster", name, cluster), object("MergedEndpoint", "all", merged));
    fs::write(configuration.join("all.yaml"), text).context("write the configuration")
}

/// Waits until the users have their rights and the pods are cached. Returns the path of a pod.
async fn pod(connection: &ContestantConnection) -> anyhow::Result<String> {
    loop {
        let listed = connection.read("/api/v1/pods?limit=1").await;
        let list: Value = match &listed {
            Ok(text) => serde_json::from_slice(text).context("read a list")?,
            Err(_) => Value::Null,
        };
        let metadata = &list["items"][0]["metadata"];
        if let (Some(namespace), Some(name)) = (metadata["namespace"].as_str(), metadata["name"].as_str()) {
            return Ok(format!("/api/v1/namespaces/{namespace}/pods/{name}?resourceVersion=0"));
        }
        sleep(PROBE).await;
    }
}

async fn measure(users: Vec<Vec<ContestantConnection>>, path: &str) -> anyhow::Result<TokenBucketFigures> {
    let counts: Vec<_> = users.iter().map(|_| Arc::<Counts>::default()).collect();
    let mut offering = JoinSet::new();
    for ((connections, rate), counts) in users.into_iter().zip(OFFERED).zip(&counts) {
        offering.spawn(offer(connections, rate, path.to_owned(), Arc::clone(counts)));
    }
    sleep(DRAIN_TIME).await;
    let read = || counts.iter().map(|counts| counts.read()).collect::<Vec<_>>();
    let (began, before) = (Instant::now(), read());
    sleep(COUNTED).await;
    let (seconds, after) = (began.elapsed().as_secs_f64(), read());
    offering.shutdown().await;
    let failed: u64 = counts.iter().map(|counts| counts.failed.load(Ordering::Relaxed)).sum();
    anyhow::ensure!(failed == 0, "{failed} requests were answered neither with their object nor with 429");
    let rate = |before: u64, after: u64| (after - before) as f64 / seconds;
    let rates = before.iter().zip(&after).map(|(before, after)| UserRates {
        offered: rate(before[0], after[0]),
        admitted: rate(before[1], after[1]),
        refused: rate(before[2], after[2]),
    });
    Ok(TokenBucketFigures { qps: QPS, users: rates.collect() })
}

impl Counts {
    fn read(&self) -> [u64; 3] {
        [&self.offered, &self.admitted, &self.refused].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Sends `rate` requests per second, without waiting for responses. Cancellation: requests in flight continue.
async fn offer(connections: Vec<ContestantConnection>, rate: u32, path: String, counts: Arc<Counts>) {
    let (room, path) = (Arc::new(Semaphore::new(IN_FLIGHT_MAX)), Arc::<str>::from(path));
    let mut pace = interval(PACE);
    let began = Instant::now();
    let mut sent = 0_u64;
    loop {
        pace.tick().await;
        let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        for number in sent..due {
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
            counts.offered.fetch_add(1, Ordering::Relaxed);
            let connection = connections[number as usize % connections.len()].clone();
            let (path, counts) = (Arc::clone(&path), Arc::clone(&counts));
            tokio::spawn(async move {
                let _place = place;
                counts.counter_for(get(&connection, &path).await).fetch_add(1, Ordering::Relaxed);
            });
        }
        sent = due;
    }
}

impl Counts {
    /// The counter for a response with this status.
    fn counter_for(&self, answered: anyhow::Result<u16>) -> &AtomicU64 {
        match answered {
            Ok(200) => &self.admitted,
            Ok(429) => &self.refused,
            _ => &self.failed,
        }
    }
}

/// The status of a response that was read to its end.
async fn get(connection: &ContestantConnection, path: &str) -> anyhow::Result<u16> {
    let mut answer = connection.send(Method::GET, path, JSON, "", Bytes::new()).await?;
    while let Some(frame) = answer.body_mut().frame().await {
        frame.context("read the body")?;
    }
    Ok(answer.status().as_u16())
}
