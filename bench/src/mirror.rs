//! The cost of the RBAC objects of a thousand clusters, which a server in shared mode watches and compiles. The members
//! are simulated in this program. The server is a separate process, so the measured memory is the server's alone. A
//! second run without RBAC objects gives the cost of everything else.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tributary_e2e::{PeopleAuthority, Tributary};
use tributary_simulator::{SimulatedCluster, Simulator, SimulatorConfig, kubeconfig};

use crate::client::Contestant;
use crate::uniform_rbac;
use crate::usage::ServerProcesses;

pub(crate) const NAME: &str = "rights-1000";

const CLUSTERS: usize = 1000;
/// The timeout until the server has read the RBAC objects of all clusters.
const RBAC_READ_TIMEOUT: Duration = Duration::from_secs(300);
/// The interval between requests for the number of clusters whose RBAC objects the server has read.
const PROBE: Duration = Duration::from_millis(200);
/// The idle time before the server's memory is read.
const REST: Duration = Duration::from_secs(10);

const JSON: &str = "application/json";
const STATUS: &str = "/tributary/status";
const OBSERVER: &str = "observer";
const RBAC: &str = "rbac.authorization.k8s.io";

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct MirrorFigures {
    pub(crate) clusters: usize,
    /// The number of roles and bindings per cluster.
    pub(crate) objects: usize,
    /// The size of all roles and bindings in the members' JSON, in bytes.
    pub(crate) json_bytes: u64,
    /// The cost of a server for clusters with hardly any roles and bindings.
    pub(crate) without: ServerCost,
    /// The cost of a server for clusters with all roles and bindings.
    pub(crate) with: ServerCost,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct ServerCost {
    /// The seconds from the start until the server has read the RBAC objects of all clusters.
    pub(crate) known_seconds: f64,
    /// The CPU time until the server has read the RBAC objects of all clusters, in seconds.
    pub(crate) cpu_seconds: f64,
    /// The memory at rest, in bytes.
    pub(crate) resident_bytes: u64,
}

impl MirrorFigures {
    /// Returns the additional memory of the server with all roles and bindings, compared with the server without them,
    /// in bytes.
    pub(crate) fn mirror_bytes(&self) -> f64 {
        self.with.resident_bytes as f64 - self.without.resident_bytes as f64
    }
}

/// Starts a thousand members and measures the server.
///
/// # Errors
/// If a server does not start, or does not read all RBAC objects in time.
pub(crate) async fn run() -> anyhow::Result<MirrorFigures> {
    let folder = tempfile::Builder::new().prefix("tributary-bench-rights-").tempdir().context("make a folder")?;
    let members = members().await?;
    configure(folder.path(), &members)?;
    let people = PeopleAuthority::new("the people's authority")?;
    fs::write(folder.path().join("clients.crt"), people.pem()).context("write the authority")?;
    eprintln!("measuring {NAME} without roles and bindings …");
    let without = measure(folder.path(), &people).await?;
    let objects = uniform_rbac::objects();
    let mut json_bytes = 0;
    for member in &members {
        for (kind, object) in &objects {
            put(member, kind, object)?;
        }
    }
    for resource in ["roles", "rolebindings", "clusterroles", "clusterrolebindings"] {
        let listed = members[0].list(&format!("{resource}.{RBAC}"));
        json_bytes += listed.iter().map(|object| object.to_string().len() as u64).sum::<u64>();
    }
    eprintln!("measuring {NAME} …");
    let with = measure(folder.path(), &people).await?;
    let json_bytes = json_bytes * CLUSTERS as u64;
    Ok(MirrorFigures { clusters: CLUSTERS, objects: objects.len(), json_bytes, without, with })
}

/// Starts the members. Each member allows the benchmark's user to read Tributary's status.
async fn members() -> anyhow::Result<Vec<SimulatedCluster>> {
    let mut members = Vec::with_capacity(CLUSTERS);
    for number in 0..CLUSTERS {
        let name = format!("member{number:04}");
        let config =
            SimulatorConfig { name, pods: 1, namespaces: 1, nodes: 1, rbac: true, ..SimulatorConfig::default() };
        let member = Simulator::start(config).await.context("start a member")?;
        let rules = json!([{"nonResourceURLs": [STATUS], "verbs": ["get"]}]);
        put(&member, "ClusterRole", &json!({"metadata": {"name": OBSERVER}, "rules": rules}))?;
        let binding = json!({"metadata": {"name": OBSERVER}, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": OBSERVER},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": OBSERVER}]});
        put(&member, "ClusterRoleBinding", &binding)?;
        members.push(member);
    }
    Ok(members)
}

/// Adds an object to a member, with the fields that a kube-apiserver adds.
fn put(member: &SimulatedCluster, kind: &str, object: &Value) -> anyhow::Result<()> {
    let mut object = object.clone();
    object["kind"] = kind.into();
    object["apiVersion"] = format!("{RBAC}/v1").into();
    object["metadata"]["managedFields"] = json!([{"manager": "kubectl-create", "operation": "Update",
        "apiVersion": format!("{RBAC}/v1"), "time": "2026-11-25T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:rules": {}}}]);
    member.apply(object).map(drop).with_context(|| format!("put a {kind} into {}", member.name()))
}

/// Writes a server configuration with all members. The server authorizes users by each member's RBAC objects.
fn configure(folder: &Path, members: &[SimulatedCluster]) -> anyhow::Result<()> {
    let configuration = folder.join("configuration");
    fs::create_dir(&configuration).context("make a folder for the configuration")?;
    fs::write(configuration.join("members.kubeconfig"), kubeconfig(members)).context("write the kubeconfig")?;
    let clusters = members.iter().map(|member| {
        let name = member.name();
        json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": name},
            "spec": {"kubeconfig": {"path": "members.kubeconfig", "context": name}, "authorization": "RBAC"}})
    });
    // A JSON document is a YAML document, too.
    let documents: Vec<_> = clusters.map(|cluster| cluster.to_string()).collect();
    fs::write(configuration.join("clusters.yaml"), documents.join("\n---\n")).context("write the configuration")
}

/// Measures a server until it has read all RBAC objects, and at rest.
async fn measure(folder: &Path, people: &PeopleAuthority) -> anyhow::Result<ServerCost> {
    let begun = Instant::now();
    let server = Tributary::configured(&folder.join("configuration")).shared(&folder.join("clients.crt"));
    let server = server.start().await.context("start tributary")?;
    let path = folder.join("observer.kubeconfig");
    server.kubeconfig_of(&path, &people.user(OBSERVER, &[])?, &[])?;
    let target = Contestant::from_kubeconfig("tributary", &path, None).await?;
    let processes = ServerProcesses { server: Some(server.pid()), storage: None };
    while count_known_clusters(&target).await? < CLUSTERS {
        if begun.elapsed() > RBAC_READ_TIMEOUT {
            bail!("not all rights were known within {} s:\n{}", RBAC_READ_TIMEOUT.as_secs(), server.log_tail(20));
        }
        sleep(PROBE).await;
    }
    let known_seconds = begun.elapsed().as_secs_f64();
    let cpu = processes.cpu().server.context("the server's CPU cannot be read")?;
    sleep(REST).await;
    let resident_bytes = processes.resident().context("the server's memory cannot be read")?;
    server.stop().await.context("stop tributary")?;
    Ok(ServerCost { known_seconds, cpu_seconds: cpu.as_secs_f64(), resident_bytes })
}

/// The number of clusters whose RBAC objects the server has read. The status is unreadable until the server has read
/// the RBAC objects of the first cluster.
async fn count_known_clusters(target: &Contestant) -> anyhow::Result<usize> {
    let answer = target.connect().await?.send(Method::GET, STATUS, JSON, "", Bytes::new()).await?;
    let is_told = answer.status() == 200;
    let body = answer.into_body().collect().await.context("read the report")?.to_bytes();
    if !is_told {
        return Ok(0);
    }
    let report: Value = serde_json::from_slice(&body).context("read the report")?;
    let clusters = report["clusters"].as_array().context("a report without clusters")?;
    Ok(clusters.iter().filter(|cluster| cluster["rights"] == "Current").count())
}
