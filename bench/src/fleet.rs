//! A thousand clusters: `tributary demo`, which simulates the members in its own process. The measured CPU and memory
//! include Tributary and the members, so they are an upper bound for Tributary.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde::Serialize;
use tokio::time::{Instant, sleep};
use tributary_e2e::Process;

use crate::client::Contestant;
use crate::statistics::Percentiles;
use crate::usage::ServerProcesses;

pub(crate) const NAME: &str = "fleet-1000";

const CLUSTERS: usize = 1000;
const PODS: usize = 50;
/// The changes per second in each cluster.
const CHURN: &str = "0.2";

/// The timeout until the demo prints the line `ready:`.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
const SYNC_TIMEOUT: Duration = Duration::from_secs(300);
const PROBE: Duration = Duration::from_millis(20);
/// The number of pages that are measured after the sync.
const PAGES: usize = 500;
/// The idle time before the CPU is measured, and the duration of that measurement.
const REST: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(30);

const PAGE: &str = "/api/v1/pods?limit=5";
const JSON: &str = "application/json";

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct FleetFigures {
    pub(crate) clusters: usize,
    /// The number of pods per cluster.
    pub(crate) pods: usize,
    /// The seconds from the start of the process to its line `ready:`, including the start of the members.
    pub(crate) ready_seconds: f64,
    /// The seconds from the line `ready:` to a list without a warning about missing clusters.
    pub(crate) synced_seconds: f64,
    /// The latency of `/livez`, from `ready:` until the pages were read.
    pub(crate) livez: Percentiles,
    /// The longest latency of `/livez`, in milliseconds.
    pub(crate) livez_longest: f64,
    /// The latency of a page of five pods, after the sync.
    pub(crate) page: Percentiles,
    /// The CPU without reads, as a share of one core, including the simulated members.
    pub(crate) idle_cores: f64,
    /// The memory without reads in bytes, including the simulated members.
    pub(crate) resident_bytes: u64,
}

/// Starts a demo with a thousand clusters and measures its process.
///
/// # Errors
/// If the demo does not start, or its clusters are not synchronized in time.
pub(crate) async fn run() -> anyhow::Result<FleetFigures> {
    let folder = tempfile::Builder::new().prefix("tributary-bench-").tempdir().context("make a folder")?;
    let mut command = Command::new(tributary_e2e::tributary::binary()?);
    command
        .args(["demo", "--clusters", &CLUSTERS.to_string(), "--pods", &PODS.to_string(), "--churn", CHURN])
        .args(["--listen", "127.0.0.1:0"])
        // The demo creates its folder with the kubeconfig in the temporary directory.
        .env("TMPDIR", folder.path())
        .current_dir(folder.path());
    let (out, log) = (folder.path().join("demo.out"), folder.path().join("demo.log"));
    let started = Instant::now();
    let mut process = Process::spawn_with("demo", command, &out, &log, Stdio::null())?;
    process.wait_for_output(READY_TIMEOUT, |text| text.contains("Ctrl-C")).await?;
    let ready_seconds = started.elapsed().as_secs_f64();
    let target = Contestant::from_kubeconfig("demo", &kubeconfig(folder.path())?, None).await?;
    let processes = ServerProcesses { server: Some(process.pid()), storage: None };

    let over = Arc::new(AtomicBool::new(false));
    let alive = tokio::spawn(probe(target.clone(), Arc::clone(&over)));
    let synced_seconds = synced(&target).await?.as_secs_f64();
    let connection = target.connect().await?;
    let mut pages = Vec::with_capacity(PAGES);
    for _ in 0..PAGES {
        pages.push(connection.discard(PAGE, JSON).await?.elapsed);
    }
    over.store(true, Ordering::Relaxed);
    let livez = alive.await.context("the probe panicked")??;

    sleep(REST).await;
    let (before, begun) = (processes.cpu(), Instant::now());
    sleep(IDLE).await;
    let used = processes.cpu_since(before).server.context("the process's CPU cannot be read")?;
    Ok(FleetFigures {
        clusters: CLUSTERS,
        pods: PODS,
        ready_seconds,
        synced_seconds,
        livez: Percentiles::from_times(&livez),
        livez_longest: livez.iter().max().map_or(0.0, |longest| longest.as_secs_f64() * 1000.0),
        page: Percentiles::from_times(&pages),
        idle_cores: used.as_secs_f64() / begun.elapsed().as_secs_f64(),
        resident_bytes: processes.resident().context("the process's memory cannot be read")?,
    })
}

/// The path of the kubeconfig that the demo wrote into its folder.
fn kubeconfig(folder: &Path) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(folder).context("read the folder")?.filter_map(Result::ok);
    let mut files = entries.map(|entry| entry.path().join("kubeconfig")).filter(|file| file.is_file());
    files.next().context("the demo wrote no kubeconfig")
}

/// Requests `/livez` periodically on a separate connection. Returns the latencies.
async fn probe(target: Contestant, over: Arc<AtomicBool>) -> anyhow::Result<Vec<Duration>> {
    let connection = target.connect().await?;
    let mut times = Vec::new();
    while !over.load(Ordering::Relaxed) {
        times.push(connection.discard("/livez", JSON).await?.elapsed);
        sleep(PROBE).await;
    }
    Ok(times)
}

/// Waits until a list contains the objects of all clusters. Returns the waiting time.
async fn synced(target: &Contestant) -> anyhow::Result<Duration> {
    let (begun, connection) = (Instant::now(), target.connect().await?);
    loop {
        let answer = connection.send(Method::GET, PAGE, JSON, "", Bytes::new()).await?;
        let (head, body) = answer.into_parts();
        body.collect().await.context("read the body")?;
        if head.status == 200 && !head.headers.contains_key("warning") {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > SYNC_TIMEOUT {
            bail!("not synced within {} s: {} {:?}", SYNC_TIMEOUT.as_secs(), head.status, head.headers.get("warning"));
        }
        sleep(Duration::from_millis(200)).await;
    }
}
