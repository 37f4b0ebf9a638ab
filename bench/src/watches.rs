//! Watch scenarios: the latency from a write to each watcher's event, and the cost.
//!
//! Writes go to the member. Each write puts a number into an annotation of a pod; watchers search for that number in
//! the received bytes and parse nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use memchr::memmem;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use crate::client::{Contestant, ContestantConnection};
use crate::load;
use crate::reads::Side;
use crate::statistics::Percentiles;

/// Text that precedes the number of a write in the annotation, and the number of digits.
const MARKER: &[u8] = b"\"tributary-bench\":\"";
const DIGITS: usize = 10;
/// The searcher for the marker. It is built once, because its construction takes as long as the search in an event.
static FINDER: LazyLock<memmem::Finder<'_>> = LazyLock::new(|| memmem::Finder::new(MARKER));
/// The timeout for events after the last write: a hundred times the 99th percentile.
const GRACE: Duration = Duration::from_secs(2);
/// The number of rounds. In each round, all servers are measured. The cost of a write drifts by a millisecond within a
/// minute on a shared disk, and short rounds distribute this drift equally.
const ROUNDS: u32 = 4;
/// The duration of unmeasured writes at the beginning, which warm up the path.
const WARM_UP: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchScenario {
    pub(crate) name: &'static str,
    pub(crate) watchers: usize,
    /// The number of connections that the watchers share.
    pub(crate) connections: usize,
    /// The number of writes per second.
    pub(crate) writes_per_second: u32,
}

pub(crate) const SCENARIOS: [WatchScenario; 3] = [
    WatchScenario { name: "watch-1", watchers: 1, connections: 1, writes_per_second: 50 },
    WatchScenario { name: "watch-100", watchers: 100, connections: 2, writes_per_second: 50 },
    WatchScenario { name: "watch-500", watchers: 500, connections: 5, writes_per_second: 20 },
];

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct WatchMeasurement {
    pub(crate) writes: usize,
    pub(crate) delivered: usize,
    /// The number of events that reached no watcher.
    pub(crate) lost: usize,
    /// The number of streams that ended too early.
    pub(crate) cut: usize,
    /// The time from sending the write to the event.
    pub(crate) from_send: Percentiles,
    /// The time from the response to the write until the event arrives; negative if the event arrives before the
    /// response.
    pub(crate) from_response: Percentiles,
    /// The server's CPU time per delivered event in milliseconds, without the writes.
    pub(crate) cpu_ms: Option<f64>,
    /// CPU time of the server per delivered event in milliseconds, including the CPU time of the writes, which only the
    /// member has.
    pub(crate) cpu_with_writes_ms: Option<f64>,
}

/// The number that the next write puts into the annotation. Writing an earlier number again would change nothing and
/// cause no event.
static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);
/// Annotation numbers repeat after this number of seconds, so that two runs with one member have different numbers.
const RUNS: u64 = 10_000;
/// The number of annotation values per run.
const NUMBERS_PER_RUN: u64 = 1_000_000;

/// The times when each write was sent and answered, in nanoseconds since `start`; 0 if the write is not sent or
/// answered yet.
struct Clock {
    start: Instant,
    /// The number of the first write.
    first: usize,
    sent: Vec<AtomicU64>,
    answered: Vec<AtomicU64>,
}

impl Clock {
    fn new(writes: usize) -> Self {
        let zeros = || (0..writes).map(|_| AtomicU64::new(0)).collect();
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let run = usize::try_from(seconds % RUNS * NUMBERS_PER_RUN).unwrap_or(0);
        NEXT_NUMBER.compare_exchange(0, run.max(1), Ordering::SeqCst, Ordering::SeqCst).ok();
        let first = NEXT_NUMBER.fetch_add(writes, Ordering::SeqCst);
        Self { start: Instant::now(), first, sent: zeros(), answered: zeros() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

struct WatcherRecord {
    /// The number of the write, and the arrival time of its event.
    events: Vec<(usize, u64)>,
    cut: bool,
}

/// The results of one server in one round. Percentiles are computed over all rounds.
#[derive(Default)]
struct Run {
    writes: usize,
    cut: usize,
    /// The times from sending a write to its event in seconds, one entry per event and watcher.
    from_send: Vec<f64>,
    from_response: Vec<f64>,
    /// CPU time of the server; `None` if the time of any round is unknown.
    cpu: Option<Duration>,
}

/// The results of both servers in a scenario, and of writes without watchers.
pub(crate) struct Sides {
    pub(crate) member: WatchMeasurement,
    pub(crate) tributary: WatchMeasurement,
    pub(crate) alone: WriteAlone,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct WriteAlone {
    /// The time from sending the write to its response.
    pub(crate) latency: Percentiles,
    /// The member's CPU time per write, in milliseconds.
    pub(crate) cpu_ms: Option<f64>,
}

fn count(writes_per_second: u32, time: Duration) -> usize {
    (f64::from(writes_per_second) * time.as_secs_f64()) as usize
}

impl WatchScenario {
    /// Measures the member, Tributary and unwatched writes in alternating rounds, each for `time` in total.
    ///
    /// # Errors
    /// If a watch or a write cannot be started.
    pub(crate) async fn measure(
        &self,
        member: &Side,
        tributary: &Side,
        time: Duration,
        pods: usize,
    ) -> anyhow::Result<Sides> {
        let (mut alone, mut of_member, mut of_tributary) = (Run::default(), Run::default(), Run::default());
        for _ in 0..ROUNDS {
            alone.join(self.write_alone(member, time / ROUNDS, pods).await?);
            // All writes go to the member, also when Tributary is measured.
            of_member.join(self.run(member, &member.target, time / ROUNDS, pods).await?);
            of_tributary.join(self.run(tributary, &member.target, time / ROUNDS, pods).await?);
        }
        let cpu_ms = alone.cpu.map(|cpu| cpu.as_secs_f64() * 1000.0 / alone.writes.max(1) as f64);
        Ok(Sides {
            member: of_member.measured(self.watchers, cpu_ms),
            tributary: of_tributary.measured(self.watchers, None),
            alone: WriteAlone { latency: Percentiles::of_seconds(alone.from_send), cpu_ms },
        })
    }

    /// Writes to the member at the scenario's pace while only Tributary watches. The measured times end at the
    /// responses.
    async fn write_alone(&self, member: &Side, time: Duration, pods: usize) -> anyhow::Result<Run> {
        let connection = member.target.connect().await?;
        let writes = count(self.writes_per_second, time);
        let clock = Clock::new(writes);
        let before = member.processes.cpu();
        write(&connection, &clock, self.writes_per_second, 0..writes, pods).await?;
        let seconds = |at: &AtomicU64| at.load(Ordering::SeqCst) as f64 / 1e9;
        let latencies =
            clock.sent.iter().zip(&clock.answered).map(|(sent, answered)| seconds(answered) - seconds(sent));
        Ok(Run {
            writes,
            from_send: latencies.collect(),
            cpu: member.processes.cpu_since(before).server,
            ..Run::default()
        })
    }

    /// Measures one server for `time`.
    async fn run(&self, side: &Side, writer: &Contestant, time: Duration, pods: usize) -> anyhow::Result<Run> {
        let warm_up = count(self.writes_per_second, WARM_UP);
        let total = warm_up + count(self.writes_per_second, time);
        let clock = Arc::new(Clock::new(total));
        let done = Arc::new(AtomicBool::new(false));
        let mut watchers = self.open(side, &clock, &done).await?;

        let writer = writer.connect().await?;
        write(&writer, &clock, self.writes_per_second, 0..warm_up, pods).await?;
        let before = side.processes.cpu();
        write(&writer, &clock, self.writes_per_second, warm_up..total, pods).await?;
        sleep(GRACE).await;
        let cpu = side.processes.cpu_since(before).server;
        done.store(true, Ordering::SeqCst);
        // A watcher notices the end of the scenario only at an event, which this last write causes.
        let last = Clock::new(1);
        write(&writer, &last, self.writes_per_second, 0..1, pods).await?;

        let mut run = Run { writes: total - warm_up, cpu, ..Run::default() };
        while let Some(watcher) = watchers.join_next().await {
            run.add(&clock, warm_up, &watcher.context("a watcher failed")?);
        }
        Ok(run)
    }

    /// Opens the watches and returns when all are open.
    async fn open(
        &self,
        side: &Side,
        clock: &Arc<Clock>,
        done: &Arc<AtomicBool>,
    ) -> anyhow::Result<JoinSet<WatcherRecord>> {
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            connections.push(side.target.connect().await?);
        }
        let list: Value =
            serde_json::from_slice(&connections[0].read("/api/v1/pods?limit=1").await?).context("read the list")?;
        let version = list["metadata"]["resourceVersion"].as_str().context("the list has no version")?.to_owned();
        let path =
            format!("/api/v1/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion={version}");
        let opened = Arc::new(Barrier::new(self.watchers + 1));
        let mut watchers = JoinSet::new();
        for number in 0..self.watchers {
            let connection = connections[number % connections.len()].clone();
            let (path, clock, done, opened) = (path.clone(), clock.clone(), done.clone(), opened.clone());
            watchers.spawn(async move {
                let response = connection.send(Method::GET, &path, "application/json", "", Bytes::new()).await;
                opened.wait().await;
                match response {
                    Ok(response) if response.status() == 200 => follow(response.into_body(), &clock, &done).await,
                    _ => WatcherRecord { events: Vec::new(), cut: true },
                }
            });
        }
        opened.wait().await;
        Ok(watchers)
    }
}

impl Run {
    /// Adds the events that a watcher received after the warm-up.
    fn add(&mut self, clock: &Clock, warm_up: usize, seen: &WatcherRecord) {
        self.cut += usize::from(seen.cut);
        for (number, at) in seen.events.iter().filter(|(number, _)| *number >= warm_up) {
            let after = |then: &AtomicU64| (*at as f64 - then.load(Ordering::SeqCst) as f64) / 1e9;
            self.from_send.push(after(&clock.sent[*number]));
            self.from_response.push(after(&clock.answered[*number]));
        }
    }

    fn join(&mut self, other: Self) {
        self.cpu = if self.writes == 0 { other.cpu } else { self.cpu.zip(other.cpu).map(|(one, other)| one + other) };
        self.writes += other.writes;
        self.cut += other.cut;
        self.from_send.extend(other.from_send);
        self.from_response.extend(other.from_response);
    }

    /// Computes the results. `write_cpu_ms` is the cost of a write for the measured server, in milliseconds.
    fn measured(self, watchers: usize, write_cpu_ms: Option<f64>) -> WatchMeasurement {
        let delivered = self.from_send.len();
        let of_writes = write_cpu_ms.unwrap_or_default() * self.writes as f64;
        let cpu = self.cpu.map(|cpu| cpu.as_secs_f64() * 1000.0);
        let each = |cpu_ms: f64| cpu_ms.max(0.0) / delivered.max(1) as f64;
        WatchMeasurement {
            writes: self.writes,
            delivered,
            lost: (self.writes * watchers).saturating_sub(delivered),
            cut: self.cut,
            from_send: Percentiles::of_seconds(self.from_send),
            from_response: Percentiles::of_seconds(self.from_response),
            cpu_ms: cpu.map(|cpu| each(cpu - of_writes)),
            cpu_with_writes_ms: cpu.map(each),
        }
    }
}

/// Writes at an even pace. If a write is late, the next writes follow without a pause, and no write is skipped.
async fn write(
    connection: &ContestantConnection,
    clock: &Clock,
    per_second: u32,
    numbers: std::ops::Range<usize>,
    pods: usize,
) -> anyhow::Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    for number in numbers {
        ticks.tick().await;
        let pod = number * 7919 % pods;
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}",
            load::namespace(pod / load::PODS_PER_NAMESPACE),
            load::pod_name(pod)
        );
        let body = format!(
            "{{\"metadata\":{{\"annotations\":{{\"tributary-bench\":\"{:0DIGITS$}\"}}}}}}",
            clock.first + number
        );
        clock.sent[number].store(clock.now(), Ordering::SeqCst);
        connection.write(Method::PATCH, &path, "application/merge-patch+json", Bytes::from(body)).await?;
        clock.answered[number].store(clock.now(), Ordering::SeqCst);
    }
    Ok(())
}

/// Reads a watch until the end of the scenario, and records when each number arrives.
async fn follow(mut body: hyper::body::Incoming, clock: &Clock, done: &AtomicBool) -> WatcherRecord {
    let mut events = Vec::new();
    let mut search = Search::default();
    while !done.load(Ordering::SeqCst) {
        match body.frame().await {
            Some(Ok(frame)) => {
                let now = clock.now();
                if let Some(data) = frame.data_ref() {
                    search.find(data, |number| {
                        let number = number.checked_sub(clock.first);
                        events.extend(number.filter(|number| *number < clock.sent.len()).map(|number| (number, now)));
                    });
                }
            }
            // The writer sends its last write after it sets `done`. A stream that ends before `done` is cut.
            Some(Err(_)) | None => return WatcherRecord { events, cut: !done.load(Ordering::SeqCst) },
        }
    }
    WatcherRecord { events, cut: false }
}

/// Finds the numbers in a stream of pieces, also if a number is split between pieces.
#[derive(Default)]
struct Search {
    rest: Vec<u8>,
}

impl Search {
    fn find(&mut self, piece: &[u8], mut found: impl FnMut(usize)) {
        const WHOLE: usize = MARKER.len() + DIGITS;
        if !self.rest.is_empty() {
            // A number that begins in the previous piece ends at most `WHOLE - 1` bytes into the new piece.
            let from_rest = self.rest.len();
            self.rest.extend_from_slice(&piece[..piece.len().min(WHOLE - 1)]);
            let joined = std::mem::take(&mut self.rest);
            find_numbers(&joined, |at, number| {
                if at < from_rest {
                    found(number);
                }
            });
            if piece.len() < WHOLE - 1 {
                self.rest = joined[joined.len() - joined.len().min(WHOLE - 1)..].to_vec();
                return;
            }
        }
        find_numbers(piece, |_, number| found(number));
        self.rest = piece[piece.len() - piece.len().min(WHOLE - 1)..].to_vec();
    }
}

fn find_numbers(text: &[u8], mut found: impl FnMut(usize, usize)) {
    for at in FINDER.find_iter(text) {
        let digits = text.get(at + MARKER.len()..at + MARKER.len() + DIGITS);
        if let Some(number) = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()) {
            found(at, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmark_annotation_split_between_chunks_is_found_once() {
        let text = br#"..."tributary-bench":"0000000001"...................................."tributary-bench":"0000000002""tributary-bench":"0000000003"."#;
        for size in 1..text.len() {
            let mut search = Search::default();
            let mut numbers = Vec::new();
            for piece in text.chunks(size) {
                search.find(piece, |number| numbers.push(number));
            }
            assert_eq!(numbers, [1, 2, 3], "pieces of {size}");
        }
    }
}
