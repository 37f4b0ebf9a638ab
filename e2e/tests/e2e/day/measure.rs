//! Measures Tributary at the end of each minute, after the load stops: memory, files, connections, and counters of
//! requests and permits in use.

use anyhow::{Context as _, bail, ensure};
use std::{collections::BTreeMap, fmt, fs, time::Duration};
use tokio::time::{Instant, sleep};
use tributary_e2e::HttpClient;

/// Longest time until the counters no longer include finished requests. Tributary drains a cancelled response for a
/// second, and notices the end of an exec session only at its next byte.
const OVER_WITHIN: Duration = Duration::from_secs(40);

/// Largest relative growth of memory from the first third to the last third of the minutes, without the warm-up.
const GROWTH: f64 = 0.10;

/// Growth of memory in bytes that the test tolerates, because the allocator's memory varies.
const SLACK: f64 = (12 << 20) as f64;

/// Largest number of open files above the number after the warm-up. Unused connections to clusters stay open for 90 s.
const FILES_MORE: usize = 100;

/// Largest number of client connections, and of long-running requests, above the number after the warm-up. The same
/// clients run all day. A client that has just reconnected may have two connections for a short time.
const CLIENTS_MORE: u64 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    memory: u64,
    files: usize,
    connections: u64,
    /// Number of long-running requests (watches, logs and exec sessions).
    long_running: u64,
}

impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, files, connections, long_running } = self;
        let memory = *memory as f64 / f64::from(1 << 20);
        write!(formatter, "{memory:.1} MiB, {files} files, {connections} connections, {long_running} watches")
    }
}

struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    async fn read(http: &HttpClient) -> anyhow::Result<Self> {
        let text = http.get("/metrics").send().await?.expect(200)?.text();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(Self(values.collect()))
    }

    fn sum(&self, name: &str) -> f64 {
        let is_of = |full: &str| full.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
        self.0.iter().filter(|(full, _)| is_of(full)).map(|(_, value)| value).sum()
    }

    /// Lists the counters of permits and requests in use that are too high after the load has stopped. The request that
    /// reads the metrics is in use itself.
    fn held(&self) -> Vec<String> {
        let limit = |name: &str| format!("tributary_limit_used{{limit=\"{name}\"}}");
        let one = |name: String, most: f64| (self.sum(&name) > most).then(|| format!("{name} {}", self.sum(&name)));
        let held = [
            one("tributary_flow_control_requests_in_flight".to_owned(), 0.0),
            one("tributary_flow_control_requests_waiting".to_owned(), 0.0),
            one("tributary_answers_active".to_owned(), 0.0),
            one("tributary_answers_waiting".to_owned(), 0.0),
            one("tributary_request_panics_total".to_owned(), 0.0),
            one(limit("requests_in_flight"), 1.0),
            one(limit("held_bytes"), 0.0),
            one(limit("short_to_member"), 0.0),
        ];
        held.into_iter().flatten().collect()
    }
}

/// Waits until no permit is in use, and takes a sample.
///
/// # Errors
/// If permits are still in use after `OVER_WITHIN`, or Tributary has panicked or ended.
pub(super) async fn look(pid: u32, http: &HttpClient, log: &str) -> anyhow::Result<Sample> {
    if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
        bail!("Tributary has panicked: {line}");
    }
    let deadline = Instant::now() + OVER_WITHIN;
    let metrics = loop {
        let metrics = Metrics::read(http).await?;
        let held = metrics.held();
        if held.is_empty() {
            break metrics;
        }
        ensure!(Instant::now() < deadline, "nobody asks for anything, and there is still {}", held.join(", "));
        sleep(Duration::from_millis(500)).await;
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("Tributary is gone")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = resident.trim().trim_end_matches("kB").trim().parse().context("read VmRSS")?;
    Ok(Sample {
        memory: kilobytes << 10,
        files: fs::read_dir(format!("/proc/{pid}/fd")).context("look at its files")?.count(),
        connections: metrics.sum("tributary_connections") as u64,
        long_running: metrics.sum("tributary_limit_used{limit=\"long_running_requests\"}") as u64,
    })
}

/// Checks that no measured value has grown since the warm-up. Memory is only checked if there are three samples or
/// more.
///
/// # Errors
/// If a value has grown. The message contains the growth.
pub(super) fn is_flat(samples: &[Sample]) -> anyhow::Result<String> {
    let Some((first, rest)) = samples.split_first() else { return Ok("nothing was measured".to_owned()) };
    for sample in rest {
        let is_more = sample.files > first.files + FILES_MORE
            || sample.connections > first.connections + CLIENTS_MORE
            || sample.long_running > first.long_running + CLIENTS_MORE;
        ensure!(!is_more, "{sample}: once it had warmed up there were {first}");
    }
    let third = samples.len() / 3;
    if third == 0 {
        return Ok(format!("memory is not judged by {} samples", samples.len()));
    }
    let mean = |part: &[Sample]| part.iter().map(|sample| sample.memory as f64).sum::<f64>() / part.len() as f64;
    let (before, after) = (mean(&samples[..third]), mean(&samples[samples.len() - third..]));
    let text = format!(
        "memory {:.1} MiB in the first third, {:.1} MiB in the last",
        before / f64::from(1 << 20),
        after / f64::from(1 << 20)
    );
    ensure!(third < 2 || after <= before * (1.0 + GROWTH) + SLACK, "{text}");
    Ok(text)
}
