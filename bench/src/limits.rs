//! The behaviour under many concurrent requests: the memory of Tributary, and the latency for other clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Contestant, ContestantConnection};
use crate::load;
use crate::reads::Side;
use crate::statistics::Percentiles;

const JSON: &str = "application/json";
/// The interval between two memory samples during a storm.
const SAMPLE: Duration = Duration::from_millis(10);
/// The time for memory to settle before it is read at rest.
const REST: Duration = Duration::from_secs(3);
/// The duration of the measurement of another client's requests before a storm.
const ALONE: Duration = Duration::from_secs(2);
/// The timeout for a storm, and for the reconnection of all watchers.
const STORM_TIMEOUT: Duration = Duration::from_secs(300);

/// Many concurrent reads of all pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storm {
    pub(crate) name: &'static str,
    path: &'static str,
    gzip: bool,
    requests: usize,
    connections: usize,
}

const LIST: &str = "/api/v1/pods?resourceVersion=0";

/// All storms: plain lists, gzip-compressed lists as client-go requests them, and the streamed lists of informers
/// (watches with `sendInitialEvents`).
pub(crate) const STORMS: [Storm; 4] = [
    Storm { name: "storm-lists", path: LIST, gzip: false, requests: 1000, connections: 100 },
    Storm { name: "storm-lists-unshared", path: LIST, gzip: false, requests: 1000, connections: 1000 },
    Storm { name: "storm-lists-gzip", path: LIST, gzip: true, requests: 1000, connections: 100 },
    Storm {
        name: "storm-informers",
        path: "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        gzip: false,
        requests: 1000,
        connections: 100,
    },
];

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct StormResult {
    pub(crate) name: String,
    pub(crate) requests: usize,
    pub(crate) connections: usize,
    /// The number of requests that were answered completely.
    pub(crate) answered: usize,
    /// The number of requests that the server refused or cut off.
    pub(crate) refused: usize,
    /// The seconds until the last response.
    pub(crate) seconds: f64,
    /// The memory before the storm in bytes, with open connections.
    pub(crate) idle_bytes: u64,
    /// The peak memory during the storm in bytes.
    pub(crate) peak_bytes: u64,
    /// The latency of another client's get before the storm.
    pub(crate) get_alone: Percentiles,
    /// The latency of another client's get during the storm.
    pub(crate) get_during: Percentiles,
    /// The latency of another client's list of 100 pods before the storm.
    pub(crate) list_alone: Percentiles,
    /// The latency of another client's list of 100 pods during the storm.
    pub(crate) list_during: Percentiles,
}

impl Storm {
    /// Runs the storm against Tributary.
    ///
    /// # Errors
    /// If the connections cannot be opened, or the storm takes longer than [`STORM_TIMEOUT`].
    pub(crate) async fn run(&self, side: &Side) -> anyhow::Result<StormResult> {
        let other = side.target.connect().await?;
        let (get_alone, list_alone) = measure_other_client(&other, || true, Some(ALONE)).await?;
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            connections.push(side.target.connect().await?);
        }
        sleep(REST).await;
        let idle_bytes = side.processes.resident().context("the process's memory cannot be read")?;
        let over = Arc::new(AtomicBool::new(false));
        let sampler = tokio::spawn(peak(side.processes, Arc::clone(&over)));
        let start = Instant::now();
        let storm = timeout(STORM_TIMEOUT, self.send_all(connections));
        let rage = async {
            let answered = storm.await.context("the storm is not over in time");
            over.store(true, Ordering::SeqCst);
            answered
        };
        let (answered, during) =
            tokio::join!(rage, measure_other_client(&other, || !over.load(Ordering::SeqCst), None));
        let (answered, (get_during, list_during)) = (answered??, during?);
        Ok(StormResult {
            name: self.name.to_owned(),
            requests: self.requests,
            connections: self.connections,
            answered,
            refused: self.requests - answered,
            seconds: start.elapsed().as_secs_f64(),
            idle_bytes,
            peak_bytes: sampler.await.context("memory was not followed")?,
            get_alone,
            get_during,
            list_alone,
            list_during,
        })
    }

    /// Sends all requests at once. Returns the number of complete responses.
    async fn send_all(&self, connections: Vec<ContestantConnection>) -> anyhow::Result<usize> {
        let together = Arc::new(Barrier::new(self.requests));
        let mut requests = JoinSet::new();
        for number in 0..self.requests {
            let (connection, together, path) =
                (connections[number % connections.len()].clone(), Arc::clone(&together), self.path);
            let connection = if self.gzip { connection.compressed() } else { connection };
            requests.spawn(async move {
                together.wait().await;
                if path.contains("watch=1") {
                    initial_events(&connection, path).await
                } else {
                    connection.discard(path, JSON).await.map(drop)
                }
            });
        }
        let mut answered = 0;
        while let Some(ended) = requests.join_next().await {
            match ended.context("a request panicked")? {
                Ok(()) => answered += 1,
                Err(error) if answered == 0 => eprintln!("  {error:#}"),
                Err(_) => {}
            }
        }
        Ok(answered)
    }
}

/// Reads a stream up to the bookmark that ends its initial events.
async fn initial_events(connection: &ContestantConnection, path: &str) -> anyhow::Result<()> {
    const END: &[u8] = b"k8s.io/initial-events-end";
    let response = connection.send(Method::GET, path, JSON, "", Bytes::new()).await?;
    anyhow::ensure!(response.status() == 200, "answered {}", response.status());
    let mut body = response.into_body();
    let mut before: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.context("read the events")?;
        let Some(data) = frame.data_ref() else { continue };
        // The annotation may be split between two frames.
        before.extend_from_slice(&data[..data.len().min(END.len())]);
        if memchr::memmem::find(&before, END).is_some() || memchr::memmem::find(data, END).is_some() {
            return Ok(());
        }
        before = data[data.len() - data.len().min(END.len())..].to_vec();
    }
    anyhow::bail!("the stream ended before its initial events did")
}

/// Alternates gets and lists of a client that takes no part in the storm, for a fixed time or as long as `go_on`
/// returns true.
async fn measure_other_client(
    connection: &ContestantConnection,
    go_on: impl Fn() -> bool,
    time: Option<Duration>,
) -> anyhow::Result<(Percentiles, Percentiles)> {
    let namespace = format!("/api/v1/namespaces/{}/pods", load::namespace(0));
    let (get, list) = (format!("{namespace}/{}", load::pod_name(7)), format!("{namespace}?resourceVersion=0"));
    let (mut gets, mut lists) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while go_on() && time.is_none_or(|time| start.elapsed() < time) {
        for (path, times) in [(&get, &mut gets), (&list, &mut lists)] {
            let asked = Instant::now();
            if let Err(error) = connection.discard(path, JSON).await {
                // A failed request counts with its duration, because a refusal after a long wait is the worst response
                // for a client.
                eprintln!("  another client: {error:#}");
            }
            times.push(asked.elapsed());
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok((Percentiles::from_times(&gets), Percentiles::from_times(&lists)))
}

async fn peak(processes: crate::usage::ServerProcesses, over: Arc<AtomicBool>) -> u64 {
    let mut peak = 0;
    while !over.load(Ordering::SeqCst) {
        peak = peak.max(processes.resident().unwrap_or_default());
        sleep(SAMPLE).await;
    }
    peak
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleWatchers {
    pub(crate) watchers: usize,
    /// The number of connections that the watchers share.
    pub(crate) connections: usize,
}

pub(crate) const IDLE_WATCHERS: IdleWatchers = IdleWatchers { watchers: 1000, connections: 10 };

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct IdleWatchersCost {
    pub(crate) watchers: usize,
    /// The memory per watcher, in bytes.
    pub(crate) bytes_each: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Resumed {
    pub(crate) watchers: usize,
    /// The number of watches that resumed at their version.
    pub(crate) resumed: usize,
    /// The number of watchers that had to list again.
    pub(crate) relisted: usize,
    /// The number of lists and streamed lists of pods that the member received.
    pub(crate) member_lists: u64,
    /// The seconds from the restarted server's first response until the last watch is open.
    pub(crate) seconds: f64,
}

pub(crate) struct OpenWatches {
    /// The resourceVersion at which the watches were opened.
    version: String,
    streams: Vec<Incoming>,
}

impl IdleWatchers {
    /// Opens the watches, and measures the memory per watcher.
    ///
    /// # Errors
    /// If a watch is refused.
    pub(crate) async fn open(&self, side: &Side) -> anyhow::Result<(IdleWatchersCost, OpenWatches)> {
        // The first watcher also allocates memory that all watchers share, so the benchmark opens one watcher before
        // the measurement.
        let version = version(&side.target.connect().await?).await?;
        let first = self.watch(&side.target, &version, 1).await?;
        sleep(REST).await;
        let before = side.processes.resident().context("the process's memory cannot be read")?;
        let streams = self.watch(&side.target, &version, self.watchers).await?;
        sleep(REST).await;
        let after = side.processes.resident().context("the process's memory cannot be read")?;
        drop(first);
        let bytes_each = after.saturating_sub(before) as f64 / self.watchers as f64;
        Ok((IdleWatchersCost { watchers: self.watchers, bytes_each }, OpenWatches { version, streams }))
    }

    /// Reconnects all watchers after a restart, as informers do. A watcher resumes at its last version, or lists again
    /// if the server refuses the version.
    ///
    /// # Errors
    /// If a watch or list is refused for another reason.
    pub(crate) async fn resume(&self, target: &Contestant, open: OpenWatches) -> anyhow::Result<(usize, usize, f64)> {
        drop(open.streams);
        let start = Instant::now();
        let relisted = Arc::new(AtomicU64::new(0));
        let mut returning = JoinSet::new();
        for _ in 0..self.connections {
            let (target, relisted, version) = (target.clone(), Arc::clone(&relisted), open.version.clone());
            let share = self.watchers / self.connections;
            returning.spawn(async move {
                let connection = target.connect().await?;
                let mut streams = Vec::new();
                for _ in 0..share {
                    streams.push(resume_watcher(&connection, &version, &relisted).await?);
                }
                anyhow::Ok((connection, streams))
            });
        }
        let mut kept = Vec::new();
        while let Some(ended) = returning.join_next().await {
            kept.push(ended.context("a watcher panicked")??);
        }
        let relisted = usize::try_from(relisted.load(Ordering::SeqCst)).unwrap_or(usize::MAX);
        Ok((self.watchers - relisted.min(self.watchers), relisted, start.elapsed().as_secs_f64()))
    }

    async fn watch(&self, target: &Contestant, version: &str, watchers: usize) -> anyhow::Result<Vec<Incoming>> {
        let mut connections = Vec::new();
        for _ in 0..self.connections.min(watchers) {
            connections.push(target.connect().await?);
        }
        let mut streams = Vec::new();
        for number in 0..watchers {
            streams.push(watch(&connections[number % connections.len()], version).await?);
        }
        Ok(streams)
    }
}

async fn version(connection: &ContestantConnection) -> anyhow::Result<String> {
    let list: Value =
        serde_json::from_slice(&connection.read("/api/v1/pods?limit=1").await?).context("read the list")?;
    Ok(list["metadata"]["resourceVersion"].as_str().context("the list has no version")?.to_owned())
}

async fn watch(connection: &ContestantConnection, version: &str) -> anyhow::Result<Incoming> {
    let path = format!("/api/v1/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion={version}");
    let response = connection.send(Method::GET, &path, JSON, "", Bytes::new()).await?;
    anyhow::ensure!(response.status() == 200, "a watch was answered {}", response.status());
    Ok(response.into_body())
}

/// Reconnects one watcher after the restart. Lists again if the server refuses the watcher's version.
async fn resume_watcher(
    connection: &ContestantConnection,
    version: &str,
    relisted: &AtomicU64,
) -> anyhow::Result<Incoming> {
    let deadline = Instant::now() + STORM_TIMEOUT;
    loop {
        let opened = watch(connection, version).await;
        let Ok(mut body) = opened else {
            // The server answers 429 until it has listed the member's pods.
            anyhow::ensure!(Instant::now() < deadline, "the watch is refused for too long");
            sleep(Duration::from_millis(200)).await;
            continue;
        };
        // A server that refuses a resourceVersion sends an ERROR event at once. If no event arrives within 50 ms, the
        // server has resumed the watch.
        return match timeout(Duration::from_millis(50), body.frame()).await {
            Ok(Some(Ok(frame))) if frame.data_ref().is_some_and(|data| data.starts_with(b"{\"type\":\"ERROR\"")) => {
                relisted.fetch_add(1, Ordering::SeqCst);
                connection.discard("/api/v1/pods", JSON).await?;
                let version = self::version(connection).await?;
                watch(connection, &version).await
            }
            _ => Ok(body),
        };
    }
}

/// The number of lists and streamed lists of pods that a kube-apiserver has received, according to its metrics.
///
/// # Errors
/// If it returns no metrics.
pub(crate) async fn lists_of_pods(member: &Contestant) -> anyhow::Result<u64> {
    let text = member.connect().await?.read("/metrics").await?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter(|line| {
        // The member counts a watch with initial events only in `apiserver_watch_list_duration_seconds_count`.
        (line.starts_with("apiserver_request_total{") && line.contains("verb=\"LIST\""))
            || line.starts_with("apiserver_watch_list_duration_seconds_count{")
    });
    let of_pods = lines.filter(|line| line.contains("resource=\"pods\""));
    let counts = of_pods.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(counts.sum::<f64>() as u64)
}
