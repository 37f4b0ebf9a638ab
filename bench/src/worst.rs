//! The most expensive requests of one client. The client sends each request repeatedly on one connection, while the
//! gets of a second client are measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::client::ContestantConnection;
use crate::load;
use crate::reads::Side;
use crate::statistics::Percentiles;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const YAML_TABLE: &str = "application/yaml;as=Table;v=v1;g=meta.k8s.io";
/// The number of concurrent requests of the client.
const AT_ONCE: usize = 10;
/// Duration for which each request is repeated, and for which the second client is measured alone before.
const TIME: Duration = Duration::from_secs(5);
/// Pause between two gets of the second client, and between two memory samples.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug)]
pub(crate) struct ExpensiveRequest {
    pub(crate) name: &'static str,
    method: Method,
    path: String,
    accept: &'static str,
    content_type: &'static str,
    body: Bytes,
}

pub(crate) fn requests() -> Vec<ExpensiveRequest> {
    let get = |name, accept, path: &str| ExpensiveRequest {
        name,
        method: Method::GET,
        path: path.to_owned(),
        accept,
        content_type: "",
        body: Bytes::new(),
    };
    let write = |name, method, path: &str, body: String| {
        let content_type = if body.is_empty() { "" } else { JSON };
        ExpensiveRequest { method, content_type, body: body.into(), ..get(name, JSON, path) }
    };
    let yaml = |name, path: &str, body: String| ExpensiveRequest {
        content_type: YAML,
        ..write(name, Method::POST, path, body)
    };
    let pods = format!("/api/v1/namespaces/{}/pods", load::namespace(0));
    let owners = format!(r#"{{"metadata":{{"ownerReferences":[{}]}}}}"#, vec!["{}"; 2_000_000].join(","));
    vec![
        get("worst-live-list", JSON, "/api/v1/componentstatuses"),
        write("worst-name-nowhere", Method::DELETE, &format!("{pods}/nothing"), String::new()),
        write("worst-owners", Method::POST, &pods, owners),
        get("worst-yaml-table", YAML_TABLE, "/api/v1/pods?includeObject=Object"),
        get("worst-sparse-page", JSON, "/api/v1/pods?limit=1&labelSelector=slice%3Dnone"),
        get("worst-sparse-list", JSON, "/api/v1/pods?labelSelector=slice%3Dnone"),
        get("worst-selector", JSON, &format!("/api/v1/pods?limit=1&labelSelector={}zzz", "!a,".repeat(21_800))),
        get("worst-selector-page", JSON, &format!("/api/v1/pods?limit=1&labelSelector={}zzz", "!a,".repeat(127))),
        get("worst-selector-list", JSON, &format!("/api/v1/pods?labelSelector={}zzz", "!a,".repeat(127))),
        get("worst-sparse-watch", JSON, "/api/v1/pods?watch=1&timeoutSeconds=1&labelSelector=slice%3Dnone"),
        // The same list as JSON, for comparison with the cost of YAML.
        write("worst-json-review", Method::POST, REVIEWS, format!(r#"{{"x":[{}0]}}"#, "1,".repeat(30_000))),
        yaml("worst-yaml-review", REVIEWS, format!("x: [{}]\n", "a,".repeat(30_000))),
        yaml("worst-yaml-merges", REVIEWS, merges(2_000, 100)),
        yaml("worst-yaml-aliases", &pods, aliases(60_000, 99)),
    ]
}

/// YAML that merges one map of `keys` keys into `merged` other maps.
fn merges(keys: usize, merged: usize) -> String {
    let keys: Vec<_> = (0..keys).map(|key| format!("k{key}: v")).collect();
    let merges: String = (0..merged).map(|at| format!("c{at}: {{<<: *b}}\n")).collect();
    format!("b: &b {{{}}}\n{merges}", keys.join(","))
}

/// YAML that repeats one text of `bytes` bytes with `times` aliases.
fn aliases(bytes: usize, times: usize) -> String {
    let aliases: Vec<_> = (0..times).map(|at| format!("k{at}: *d")).collect();
    format!("d: &d {}\ndata: {{{}}}\n", "x".repeat(bytes), aliases.join(","))
}

/// The effect of an expensive request on another client and on the memory.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct WorstResult {
    pub(crate) name: String,
    pub(crate) answered: usize,
    /// The number of requests that the server refused or cut off.
    pub(crate) refused: usize,
    /// Latency of the second client's get before the requests.
    pub(crate) get_alone: Percentiles,
    /// Latency of the second client's get during the requests.
    pub(crate) get_during: Percentiles,
    /// The memory before the requests, in bytes.
    pub(crate) idle_bytes: u64,
    /// The peak memory during the requests, in bytes.
    pub(crate) peak_bytes: u64,
}

impl ExpensiveRequest {
    /// Sends the request repeatedly for [`TIME`].
    ///
    /// # Errors
    /// If a connection cannot be opened, or a get of the second client is refused.
    pub(crate) async fn run(&self, side: &Side) -> anyhow::Result<WorstResult> {
        let other = side.target.connect().await?;
        let (get_alone, idle_bytes) = gets(side, &other).await?;
        let (over, answered, refused) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let connection = Arc::new(Mutex::new(side.target.connect().await?));
        let mut senders = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (worst, target, connection) = (self.clone(), side.target.clone(), Arc::clone(&connection));
            let (over, answered, refused) = (Arc::clone(&over), Arc::clone(&answered), Arc::clone(&refused));
            senders.spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let current = connection.lock().await.clone();
                    let counted = match worst.once(&current).await {
                        Some(true) => &answered,
                        Some(false) => &refused,
                        None => {
                            // The server closes a connection after it has refused thousands of the connection's
                            // requests without reading them. The client opens a new connection.
                            sleep(PAUSE).await;
                            if let Ok(next) = target.connect().await {
                                *connection.lock().await = next;
                            }
                            &refused
                        }
                    };
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let during = gets(side, &other).await;
        over.store(true, Ordering::SeqCst);
        senders.shutdown().await;
        let (get_during, peak_bytes) = during?;
        Ok(WorstResult {
            name: self.name.to_owned(),
            answered: answered.load(Ordering::SeqCst),
            refused: refused.load(Ordering::SeqCst),
            get_alone,
            get_during,
            idle_bytes,
            peak_bytes,
        })
    }

    /// Sends the request once and reads the response to its end. Returns whether it was a success; `None` without a
    /// response.
    async fn once(&self, connection: &ContestantConnection) -> Option<bool> {
        let (method, body) = (self.method.clone(), self.body.clone());
        let sent = connection.send(method, &self.path, self.accept, self.content_type, body);
        let mut response = sent.await.ok()?;
        let status = response.status();
        while let Some(frame) = response.body_mut().frame().await {
            frame.ok()?;
        }
        Some(status.is_success())
    }
}

/// Measures gets of the second client for [`TIME`], and the peak memory of the server in that time.
async fn gets(side: &Side, other: &ContestantConnection) -> anyhow::Result<(Percentiles, u64)> {
    let get = format!("/api/v1/namespaces/{}/pods/{}", load::namespace(0), load::pod_name(7));
    let (mut times, mut peak) = (Vec::new(), 0);
    let start = Instant::now();
    while start.elapsed() < TIME {
        let asked = Instant::now();
        other.discard(&get, JSON).await.context("another client's get")?;
        times.push(asked.elapsed());
        peak = peak.max(side.processes.resident().unwrap_or_default());
        sleep(PAUSE).await;
    }
    Ok((Percentiles::from_times(&times), peak))
}
