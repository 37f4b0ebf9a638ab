//! Read scenarios. The servers are measured in alternating rounds.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::client::{Contestant, ContestantConnection, ResponseSummary};
use crate::load;
use crate::statistics::Percentiles;
use crate::usage::ServerProcesses;

/// The number of rounds. With several rounds, a slow minute of the machine affects all servers equally.
const ROUNDS: u32 = 3;
/// The minimum number of requests per server. A slow server gets this number of requests even after its time is over.
const REQUESTS_MIN: usize = 6;

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

#[derive(Clone, Debug)]
pub(crate) struct ReadScenario {
    pub(crate) name: &'static str,
    path: String,
    accept: &'static str,
    /// The number of workers, each with its own connection.
    workers: usize,
    /// If true, a request follows `continue` to the last page, and the measured time includes all pages.
    paged: bool,
}

/// A server in the comparison.
pub(crate) struct Side {
    pub(crate) target: Contestant,
    pub(crate) processes: ServerProcesses,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ReadMeasurement {
    pub(crate) requests: usize,
    /// The size of the last response in bytes.
    pub(crate) bytes: u64,
    /// The latency from sending the request to the last byte of the body.
    pub(crate) latency: Percentiles,
    /// The latency from sending the request to the first byte of the body.
    pub(crate) first_byte: Percentiles,
    /// The number of requests per second.
    pub(crate) per_second: f64,
    /// The server's CPU time per request in milliseconds. `None` if the server's process id is unknown.
    pub(crate) cpu_ms: Option<f64>,
    /// The storage's CPU time per request in milliseconds.
    pub(crate) storage_cpu_ms: Option<f64>,
}

pub(crate) fn scenarios() -> Vec<ReadScenario> {
    let namespace = load::namespace(0);
    let pods = "/api/v1/pods".to_owned();
    let in_namespace = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = format!("{in_namespace}/{}", load::pod_name(7));
    let scenario = |name, path: String, accept, workers| ReadScenario { name, path, accept, workers, paged: false };
    vec![
        scenario("list-all", format!("{pods}?resourceVersion=0"), JSON, 1),
        scenario("list-all-unset", pods.clone(), JSON, 1),
        ReadScenario { paged: true, ..scenario("list-pages-500", format!("{pods}?limit=500"), JSON, 1) },
        ReadScenario { paged: true, ..scenario("list-pages-200", format!("{pods}?limit=200"), JSON, 1) },
        scenario("namespace-100", format!("{in_namespace}?resourceVersion=0"), JSON, 1),
        scenario("namespace-100-unset", in_namespace.clone(), JSON, 1),
        scenario("get", format!("{pod}?resourceVersion=0"), JSON, 1),
        scenario("get-unset", pod.clone(), JSON, 1),
        scenario("selector-1-percent", format!("{pods}?resourceVersion=0&labelSelector=slice%3Ds07"), JSON, 1),
        scenario("table-all", format!("{pods}?resourceVersion=0"), TABLE, 1),
        scenario("table-namespace-100", format!("{in_namespace}?resourceVersion=0"), TABLE, 1),
        scenario("metadata-all", format!("{pods}?resourceVersion=0"), METADATA, 1),
        scenario("forwarded-get", format!("{pod}/status"), JSON, 1),
        scenario("get-c16", format!("{pod}?resourceVersion=0"), JSON, 16),
        scenario("namespace-100-c16", format!("{in_namespace}?resourceVersion=0"), JSON, 16),
        scenario("forwarded-get-c16", format!("{pod}/status"), JSON, 16),
    ]
}

impl ReadScenario {
    pub(crate) fn plain(name: &'static str, path: String, workers: usize) -> Self {
        Self { name, path, accept: JSON, workers, paged: false }
    }

    /// Measures the servers in alternating rounds, each server for `time` in total.
    ///
    /// # Errors
    /// If a response is not 200.
    pub(crate) async fn run(&self, sides: &[&Side], time: Duration) -> anyhow::Result<Vec<ReadMeasurement>> {
        self.run_in(sides, time, ROUNDS).await
    }

    /// JSON is valid YAML.
    pub(crate) async fn run_in(
        &self,
        sides: &[&Side],
        time: Duration,
        rounds: u32,
    ) -> anyhow::Result<Vec<ReadMeasurement>> {
        let mut tallies: Vec<Tally> = sides.iter().map(|_| Tally::default()).collect();
        let mut connections = Vec::new();
        for side in sides {
            let mut of_side = Vec::new();
            for _ in 0..self.workers {
                let connection = side.target.connect().await?;
                // The first response warms up the connection and the caches, and is not counted.
                self.once(&connection).await?;
                of_side.push(connection);
            }
            connections.push(of_side);
        }
        for _ in 0..rounds {
            for ((side, connections), tally) in sides.iter().zip(&connections).zip(&mut tallies) {
                self.round(side, connections, time / rounds, tally).await?;
            }
        }
        Ok(tallies.into_iter().map(Tally::measured).collect())
    }

    /// Measures one server for one round.
    async fn round(
        &self,
        side: &Side,
        connections: &[ContestantConnection],
        time: Duration,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let cpu = side.processes.cpu();
        let start = Instant::now();
        let least = REQUESTS_MIN.div_ceil(ROUNDS as usize * connections.len());
        let workers = connections.iter().map(|connection| async move {
            let mut answers = Vec::new();
            while answers.len() < least || start.elapsed() < time {
                answers.push(self.once(connection).await?);
            }
            anyhow::Ok(answers)
        });
        for answers in futures::future::try_join_all(workers).await? {
            tally.answers.extend(answers);
        }
        tally.elapsed += start.elapsed();
        let cpu = side.processes.cpu_since(cpu);
        tally.cpu = add(tally.cpu, cpu.server);
        tally.storage_cpu = add(tally.storage_cpu, cpu.storage);
        Ok(())
    }

    /// Sends one request. A paged scenario follows the continue tokens to the last page.
    async fn once(&self, connection: &ContestantConnection) -> anyhow::Result<ResponseSummary> {
        if !self.paged {
            return connection.discard(&self.path, self.accept).await;
        }
        let start = Instant::now();
        let (mut bytes, mut first_byte) = (0, None);
        let mut path = self.path.clone();
        loop {
            let page = connection.read(&path).await?;
            first_byte.get_or_insert_with(|| start.elapsed());
            bytes += page.len() as u64;
            let Some(token) = continue_token(&page) else { break };
            path = format!("{}&continue={token}", self.path);
        }
        let elapsed = start.elapsed();
        Ok(ResponseSummary { bytes, first_byte: first_byte.unwrap_or(elapsed), elapsed })
    }
}

/// The continue token of a page. The token is in the list's metadata before the items, and contains only base64url
/// characters.
fn continue_token(page: &[u8]) -> Option<&str> {
    const MEMBER: &[u8] = b"\"continue\":\"";
    let head = &page[..memchr::memmem::find(page, b"\"items\":").unwrap_or(page.len())];
    let start = memchr::memmem::find(head, MEMBER)? + MEMBER.len();
    let end = start + memchr::memchr(b'"', &head[start..])?;
    std::str::from_utf8(&head[start..end]).ok().filter(|token| !token.is_empty())
}

#[derive(Default)]
struct Tally {
    answers: Vec<ResponseSummary>,
    elapsed: Duration,
    cpu: Option<Duration>,
    storage_cpu: Option<Duration>,
}

fn add(sum: Option<Duration>, more: Option<Duration>) -> Option<Duration> {
    more.map(|more| sum.unwrap_or_default() + more)
}

impl Tally {
    fn measured(self) -> ReadMeasurement {
        let count = self.answers.len();
        let each = |cpu: Option<Duration>| cpu.map(|cpu| cpu.as_secs_f64() * 1000.0 / count as f64);
        let latencies: Vec<_> = self.answers.iter().map(|answer| answer.elapsed).collect();
        let first_bytes: Vec<_> = self.answers.iter().map(|answer| answer.first_byte).collect();
        ReadMeasurement {
            requests: count,
            bytes: self.answers.last().map_or(0, |answer| answer.bytes),
            latency: Percentiles::from_times(&latencies),
            first_byte: Percentiles::from_times(&first_bytes),
            per_second: count as f64 / self.elapsed.as_secs_f64(),
            cpu_ms: each(self.cpu),
            storage_cpu_ms: each(self.storage_cpu),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_token_is_read_from_the_list_metadata() {
        let page =
            br#"{"kind":"PodList","metadata":{"resourceVersion":"5","continue":"abc"},"items":[{"continue":"x"}]}"#;
        assert_eq!(continue_token(page), Some("abc"));
        assert_eq!(continue_token(br#"{"metadata":{"resourceVersion":"5"},"items":[{"continue":"x"}]}"#), None);
        assert_eq!(continue_token(br#"{"metadata":{"continue":""},"items":[]}"#), None);
    }
}
