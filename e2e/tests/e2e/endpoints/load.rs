//! A cluster of several endpoints behind Tributary, and a steady load of requests.

use crate::context::TestContext;
use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tributary_e2e::{HttpClient, HttpResponse, TestCluster, Tributary, guard, namespace};

/// Interval between two requests, which gives 200 requests per second.
const PERIOD: Duration = Duration::from_millis(5);

/// Smallest accepted number of requests per second, which is half of the intended rate. With fewer requests, the
/// absence of lost requests proves little.
pub(super) const RATE_MIN: f64 = 100.0;

/// Largest number of concurrent requests. On a slow machine the client waits at this number, because otherwise
/// Tributary's flow control would refuse requests. A fast machine needs only a few.
const AT_ONCE_MAX: usize = 256;

/// Number of requests for each write: every tenth request is a write.
const REQUESTS_FOR_EACH_WRITE: usize = 10;

/// Number of attempts for a write, if the answer has a Retry-After header. client-go uses the same number.
const WRITE_TRIES: usize = 10;

/// File with the certificate authorities of the member's servers.
const AUTHORITY: &str = "authority.pem";

/// Tributary process in front of the kube-apiservers of one member.
pub(super) struct Scene {
    pub(super) http: HttpClient,
    pub(super) member: TestCluster,
    /// Path of the object that the load reads and writes.
    object: String,
    // The process is declared before `folder`, so that Tributary ends before its folder is removed.
    _tributary: Arc<Tributary>,
    folder: tempfile::TempDir,
}

#[derive(Default)]
pub(super) struct LoadCounts {
    pub(super) reads: AtomicUsize,
    pub(super) writes: AtomicUsize,
    /// Errors of the failed requests.
    pub(super) lost: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Scene {
    /// Starts Tributary for the member's servers at these addresses. Tributary trusts certificates that the member's
    /// certificate authority or one of `authorities` has signed.
    pub(super) async fn new(
        context: &TestContext,
        member: TestCluster,
        endpoints: &[String],
        authorities: &str,
    ) -> anyhow::Result<Self> {
        let folder = guard::temporary_folder("endpoints")?;
        let authority = format!("{}{authorities}", member.access().certificate_authority);
        fs::write(folder.path().join(AUTHORITY), authority)?;
        describe(folder.path(), &member, endpoints)?;
        let tributary = context.fixture.watch_log(Tributary::configured(folder.path()).start().await?).await;
        let namespace = namespace::unique_name("endpoints");
        namespace::create(&namespace, &[&member]).await?;
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
        member.http().post(&maps, &map).send().await?.expect(201)?;
        let http = tributary.http().await?;
        let object = format!("/clusters/{}{maps}/one", member.name());
        http.get(&object).send().await?.expect(200)?;
        Ok(Self { http, member, object, _tributary: tributary, folder })
    }

    /// Writes the endpoints of the member into the configuration.
    pub(super) fn describe(&self, endpoints: &[String]) -> anyhow::Result<()> {
        describe(self.folder.path(), &self.member, endpoints)
    }

    pub(super) fn collection(&self) -> &str {
        self.object.trim_end_matches("/one")
    }

    /// Sends 200 requests per second until `part` has ended, and waits for the last answers.
    ///
    /// # Errors
    /// If `part` fails, or fewer than [`RATE_MIN`] requests per second were sent.
    pub(super) async fn under_load<T>(
        &self,
        writes: bool,
        part: impl AsyncFnOnce(Arc<LoadCounts>) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Arc<LoadCounts>)> {
        let load_counts = Arc::<LoadCounts>::default();
        let load = async {
            let (mut tick, mut asking) = (interval(PERIOD), JoinSet::new());
            tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
            for number in 0_usize.. {
                tick.tick().await;
                if load_counts.stop.load(Ordering::Relaxed) {
                    break;
                }
                let (load_counts, http, object) = (Arc::clone(&load_counts), self.http.clone(), self.object.clone());
                asking.spawn(async move {
                    match writes && number.is_multiple_of(REQUESTS_FOR_EACH_WRITE) {
                        true => load_counts.write(&http, &object, number).await,
                        false => load_counts.read(&http, &object).await,
                    }
                });
                while asking.try_join_next().is_some() {}
                while asking.len() >= AT_ONCE_MAX && asking.join_next().await.is_some() {}
            }
            asking.join_all().await;
        };
        let part = async {
            let begun = Instant::now();
            let outcome = part(Arc::clone(&load_counts)).await;
            load_counts.stop.store(true, Ordering::Relaxed);
            outcome.map(|outcome| (outcome, load_counts.sent() as f64 / begun.elapsed().as_secs_f64()))
        };
        let (outcome, ()) = tokio::join!(part, load);
        let (outcome, rate) = outcome?;
        let (name, meant) = (self.member.name(), PERIOD.as_secs_f64().recip());
        println!("endpoints: {name}: {rate:.0} requests a second of {meant:.0}");
        ensure!(
            rate >= RATE_MIN,
            "{rate:.0} requests a second were sent of {meant:.0}: the machine has too much to do"
        );
        Ok((outcome, load_counts))
    }

    /// Returns the number of requests in flight to an endpoint. The number may briefly include a health check.
    pub(super) async fn outstanding(&self, port: u16) -> anyhow::Result<u64> {
        self.metric("tributary_endpoint_outstanding_requests", &format!("127.0.0.1:{port}")).await
    }

    pub(super) async fn metric(&self, name: &str, address: &str) -> anyhow::Result<u64> {
        let metrics = self.http.get("/metrics").send().await?.expect(200)?.text();
        let name = format!("{name}{{cluster=\"{}\",endpoint=\"{address}\"}} ", self.member.name());
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).context("no such metric")?;
        Ok(line.parse()?)
    }
}

fn describe(folder: &Path, member: &TestCluster, endpoints: &[String]) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": member.name()},
        "spec": {"endpoints": endpoints, "caFile": folder.join(AUTHORITY), "credentials": {"token": member.access().token}},
    });
    // Renames the file, because a rename is atomic. Otherwise the server could read a half-written file and would
    // refuse it.
    fs::write(folder.join("new"), object.to_string())?;
    Ok(fs::rename(folder.join("new"), folder.join("member.yaml"))?)
}

impl LoadCounts {
    /// Returns the number of requests since the start. A repeated request counts once.
    fn sent(&self) -> usize {
        self.reads.load(Ordering::Relaxed) + self.writes.load(Ordering::Relaxed)
    }

    async fn read(&self, http: &HttpClient, object: &str) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let answer = http.get(object).send().await;
        self.note("read", answer.and_then(|answer| answer.expect(200)));
    }

    /// Sends a write. The function repeats the write only after an answer with Retry-After, because the server has
    /// changed nothing in this case.
    async fn write(&self, http: &HttpClient, object: &str, number: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let patch = json!({"data": {"number": number.to_string()}});
        for _ in 0..WRITE_TRIES {
            match http.patch(object, "merge-patch+json", &patch).send().await {
                Ok(answer) if answer.status != 200 && !answer.header("retry-after").is_empty() => {
                    sleep(Duration::from_secs(1)).await;
                }
                answer => return self.note("write", answer.and_then(|answer| answer.expect(200))),
            }
        }
        self.lost.lock().push("write: told to come again ten times".to_owned());
    }

    fn note(&self, what: &str, outcome: anyhow::Result<HttpResponse>) {
        if let Err(error) = outcome {
            self.lost.lock().push(format!("{what}: {error:#}"));
        }
    }
}
