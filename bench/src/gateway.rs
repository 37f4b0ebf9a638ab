//! The cost of forwarding a request. The same requests go to the member itself, through haproxy, and through
//! Tributary's path for one cluster (`/clusters/NAME`), in turns in one run. Tributary is measured in three ways:
//! without policies; with policies and flow control; and in shared mode with policies, flow control, RBAC and an audit
//! log.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::json;
use tokio::time::sleep;
use tributary_e2e::{Access, PeopleAuthority, Process, TestCluster, Tools, Tributary, kubeconfig, ports};

use crate::client::Contestant;
use crate::load;
use crate::reads::{ReadMeasurement, ReadScenario, Side};
use crate::shared::{self, Watched};
use crate::usage::ServerProcesses;

pub(crate) const NAME: &str = "gateway";
/// The parts of the scenario, which `--only` can select.
const PARTS: [&str; 5] = [GET, GET_C16, LIST, WATCH, MEMORY];
const GET: &str = "get";
const GET_C16: &str = "get-c16";
const LIST: &str = "list";
const WATCH: &str = "watch";
const MEMORY: &str = "memory";
/// The number of rounds. In each round, all servers are measured.
const ROUNDS: u32 = 6;
/// The number of watchers per server.
const WATCHERS: usize = 50;
const CHANGES: usize = 2_000;
/// The number of busy connections during the memory measurement, and of idle connections after it.
const BUSY: usize = 64;
const IDLE: usize = 1000;
/// The time for memory to settle before it is read.
const REST: Duration = Duration::from_secs(3);
/// The timeout for the start of haproxy, which reads one small configuration file.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of policies before the matching policy. Each policy has one rule.
const POLICIES: usize = 20;
/// The limits per user, for concurrent requests and per second. The load never reaches these limits: the scenario
/// measures the cost of counting, and no delay.
const MAX_REQUESTS_INFLIGHT: u32 = 1_000;
const QPS: u32 = 1_000_000;
/// The user in shared mode, and the user's role.
const USER: &str = "gateway-user";
const ROLE: &str = "gateway-pods";

/// The results of one read scenario at all servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ForwardedRead {
    pub(crate) name: &'static str,
    pub(crate) member: ReadMeasurement,
    /// A plain reverse proxy with HTTP/2 and TLS, both to clients and to the member.
    pub(crate) haproxy: ReadMeasurement,
    pub(crate) tributary: ReadMeasurement,
    pub(crate) governed: ReadMeasurement,
    /// Tributary in shared mode, with policies, flow control and an audit log at level Metadata. The user has a
    /// certificate and RBAC rights.
    pub(crate) many: ReadMeasurement,
}

/// The CPU time per forwarded watch event, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ForwardedEvents {
    pub(crate) haproxy_us: f64,
    pub(crate) tributary_us: f64,
}

/// The memory of a Tributary that forwards requests, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct GatewayMemory {
    pub(crate) start: u64,
    pub(crate) busy: u64,
    /// Memory per additional connection that is idle after one request.
    pub(crate) idle_connection: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct GatewayFigures {
    pub(crate) reads: Vec<ForwardedRead>,
    pub(crate) events: Option<ForwardedEvents>,
    pub(crate) memory: Option<GatewayMemory>,
}

/// The measured servers. Dropping the value stops the servers.
struct GatewaySides {
    member: Side,
    haproxy: Side,
    tributary: Side,
    governed: Side,
    many: Side,
    _servers: [Tributary; 3],
    _proxy: Process,
    _folder: tempfile::TempDir,
}

/// Measures the requested parts with a member that has `pods` pods. Returns `None` if no part is requested.
///
/// # Errors
///
/// If a server cannot be started, or a response is not a success.
pub(crate) async fn run(
    member: &TestCluster,
    admin: &Contestant,
    pods: usize,
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<Option<GatewayFigures>> {
    if !PARTS.into_iter().any(&wanted) {
        return Ok(None);
    }
    // Memory is measured first, before the server serves any other request.
    let memory = match wanted(MEMORY) {
        true => Some(memory(member).await?),
        false => None,
    };
    let sides = start(member, admin).await?;
    let reads = read(&sides, &wanted).await?;
    let events = match wanted(WATCH) {
        true => Some(watch(&sides, admin, pods).await?),
        false => None,
    };
    Ok(Some(GatewayFigures { reads, events, memory }))
}

async fn read(sides: &GatewaySides, wanted: &impl Fn(&str) -> bool) -> anyhow::Result<Vec<ForwardedRead>> {
    let get = format!("/api/v1/namespaces/{}/pods/{}", load::namespace(0), load::pod_name(7));
    let mut reads = Vec::new();
    for (name, path, workers, seconds) in
        [(GET, get.clone(), 1, 12), (GET_C16, get, 16, 12), (LIST, "/api/v1/pods?resourceVersion=0".to_owned(), 1, 18)]
    {
        if !wanted(name) {
            continue;
        }
        eprintln!("measuring {NAME} {name} …");
        let scenario = ReadScenario::plain(name, path, workers);
        let measured = scenario
            .run_in(
                &[&sides.member, &sides.haproxy, &sides.tributary, &sides.governed, &sides.many],
                Duration::from_secs(seconds),
                ROUNDS,
            )
            .await?;
        let [member, haproxy, tributary, governed, many] =
            <[_; 5]>::try_from(measured).map_err(|_| anyhow::anyhow!("five sides were measured"))?;
        reads.push(ForwardedRead { name, member, haproxy, tributary, governed, many });
    }
    Ok(reads)
}

async fn watch(sides: &GatewaySides, admin: &Contestant, pods: usize) -> anyhow::Result<ForwardedEvents> {
    eprintln!("measuring {NAME} {WATCH} …");
    let both = [(&sides.haproxy, WATCHERS), (&sides.tributary, WATCHERS)];
    let [haproxy, tributary] = shared::watched(&both, CHANGES, admin, pods).await?[..] else {
        bail!("two sides were measured")
    };
    let us = |side: Watched| side.cpu.as_secs_f64() * 1e6 / side.events.max(1) as f64;
    Ok(ForwardedEvents { haproxy_us: us(haproxy), tributary_us: us(tributary) })
}

/// Measures the memory of a separate server.
async fn memory(member: &TestCluster) -> anyhow::Result<GatewayMemory> {
    eprintln!("measuring {NAME} {MEMORY} …");
    let server = Tributary::builder(&member.kubeconfig(), ["member1"]).start().await.context("start tributary")?;
    let side = of_cluster("tributary", &server, server.kubeconfig()).await?;
    let resident = || side.processes.resident().context("the process's memory cannot be read");
    sleep(REST).await;
    let start = resident()?;
    let get = format!("/api/v1/namespaces/{}/pods/{}", load::namespace(0), load::pod_name(7));
    let scenario = ReadScenario::plain(MEMORY, get.clone(), BUSY);
    scenario.run_in(&[&side], REST, 1).await?;
    let busy = resident()?;
    sleep(REST).await;
    let before = resident()?;
    let mut waiting = Vec::new();
    for _ in 0..IDLE {
        let connection = side.target.connect().await?;
        connection.discard(&get, "application/json").await?;
        waiting.push(connection);
    }
    sleep(REST).await;
    let idle_connection = resident()?.saturating_sub(before) as f64 / IDLE as f64;
    drop(waiting);
    Ok(GatewayMemory { start, busy, idle_connection })
}

async fn start(member: &TestCluster, admin: &Contestant) -> anyhow::Result<GatewaySides> {
    let folder = tempfile::Builder::new().prefix("tributary-bench-gateway-").tempdir().context("make a folder")?;
    let (proxy, file) = start_haproxy(member, folder.path()).await?;
    let haproxy = Side {
        target: Contestant::from_kubeconfig("haproxy", &file, None).await?,
        processes: ServerProcesses { server: Some(proxy.pid()), storage: None },
    };
    let plain = Tributary::builder(&member.kubeconfig(), ["member1"]).start().await.context("start tributary")?;
    let configuration = folder.path().join("configuration");
    fs::create_dir(&configuration).context("make a folder for the configuration")?;
    fs::write(configuration.join("cluster.json"), policies(&member.kubeconfig()).to_string())
        .context("write the configuration")?;
    let governed = Tributary::configured(&configuration).start().await.context("start tributary with policies")?;
    let (many, user) = start_shared(folder.path(), &configuration, admin).await?;
    let many_side = of_cluster("tributary for many users", &many, &user).await?;
    // The server reads the user's RBAC rights shortly after its start. So the scenario waits until the user can list
    // the pods.
    shared::listed(&many_side.target, 0).await?;
    Ok(GatewaySides {
        member: Side {
            target: Contestant::from_kubeconfig("member", &member.kubeconfig(), None).await?,
            processes: ServerProcesses { server: member.apiserver_pid().await, storage: member.etcd_pid().await },
        },
        haproxy,
        tributary: of_cluster("tributary", &plain, plain.kubeconfig()).await?,
        governed: of_cluster("tributary with policies", &governed, governed.kubeconfig()).await?,
        many: many_side,
        _servers: [plain, governed, many],
        _proxy: proxy,
        _folder: folder,
    })
}

/// Starts a server in shared mode with an audit log. Also returns the kubeconfig of one user.
async fn start_shared(folder: &Path, configuration: &Path, admin: &Contestant) -> anyhow::Result<(Tributary, PathBuf)> {
    let people = PeopleAuthority::new("the people's authority")?;
    let (client_ca, user) = (folder.join("clients.crt"), folder.join("user.kubeconfig"));
    fs::write(&client_ca, people.pem()).context("write the authority")?;
    shared::grant_everywhere(admin, ROLE, USER).await?;
    let server = shared::audited(Tributary::configured(configuration).shared(&client_ca), folder)?;
    let server = server.start().await.context("start tributary for many users")?;
    server.kubeconfig_of(&user, &people.user(USER, &[])?, &["member1"])?;
    Ok((server, user))
}

/// Makes a measured server from Tributary's path for its one cluster.
async fn of_cluster(name: &'static str, server: &Tributary, kubeconfig: &Path) -> anyhow::Result<Side> {
    let target = Contestant::from_kubeconfig(name, kubeconfig, Some("member1")).await?;
    Ok(Side { target, processes: ServerProcesses { server: Some(server.pid()), storage: None } })
}

/// Starts a minimal reverse proxy in front of the member: HTTP/2 and TLS both to clients and to the member, with shared
/// connections to the member. Also returns a kubeconfig for it.
async fn start_haproxy(member: &TestCluster, folder: &Path) -> anyhow::Result<(Process, PathBuf)> {
    let program = Tools::locate().await.context("find the servers")?.haproxy().await.context("find haproxy")?;
    let (own, at) = (member.folder(), ports::free_port()?);
    let read = |name: &str| fs::read_to_string(own.join(name)).with_context(|| format!("read the member's {name}"));
    let certificate = folder.join("serving.pem");
    fs::write(&certificate, read("serving.crt")? + &read("serving.key")?).context("write the certificate")?;
    let (certificate, authority) = (certificate.display(), own.join("ca.crt"));
    let text = format!(
        "global\n  maxconn 4096\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  http-reuse always\n\
         frontend clients\n  bind 127.0.0.1:{at} ssl crt {certificate} alpn h2,http/1.1\n  default_backend member\n\
         backend member\n  server one 127.0.0.1:{} ssl verify required ca-file {} alpn h2,http/1.1\n",
        member.apiserver_port(),
        authority.display()
    );
    let file = folder.join("haproxy.cfg");
    fs::write(&file, text).context("write haproxy's configuration")?;
    let mut command = Command::new(program);
    command.arg("-f").arg(&file);
    let log = folder.join("haproxy.log");
    let process = Process::spawn_with("haproxy", command, &log, &log, Stdio::null())?;
    if let Err(error) = ports::wait_until_open(at, START_TIMEOUT).await {
        bail!("haproxy does not start: {error:#}\n{}", process.errors());
    }
    let access = Access { server: format!("https://127.0.0.1:{at}"), ..member.access() };
    let file = folder.join("haproxy.kubeconfig");
    kubeconfig::write(&file, &[&access])?;
    Ok((process, file))
}

/// The configuration of the member with policies. The last policy matches; each uses a flow-control schema with a limit
/// per user and a queue.
fn policies(kubeconfig: &Path) -> serde_json::Value {
    let narrow = |number: usize| {
        json!({"flowControlSchemaName": "teams", "rules": [{"verbs": ["get", "list", "watch"], "apiGroups": [""],
            "resources": ["pods"], "namespaces": [format!("team-{number}")], "users": [format!("user-{number}")]}]})
    };
    let rule = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]});
    let all = json!({"flowControlSchemaName": "people", "rules": [rule]});
    let policies: Vec<_> = (0..POLICIES).map(narrow).chain([all]).collect();
    let queueing = json!({"maxWait": "1s"});
    let schemas = json!([
        {"name": "teams", "tokenBucket": {"qps": QPS, "limitBy": ["User"], "queueing": queueing}},
        {"name": "people",
            "maxRequestsInflight": {"max": MAX_REQUESTS_INFLIGHT, "limitBy": ["User"], "queueing": queueing}},
    ]);
    let flow_control = json!({"flowControlSchemas": schemas});
    json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": "member1"},
        "spec": {"kubeconfig": {"path": kubeconfig}, "dispatchPolicies": policies, "flowControl": flow_control}})
}
