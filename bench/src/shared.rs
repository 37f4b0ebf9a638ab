//! The cost of shared mode. The same reads and watches go to an endpoint in personal mode and to an endpoint in shared
//! mode. Shared mode has a user with all rights and a user with a tenth of the namespaces. All endpoints are measured
//! in alternating rounds, with one member.
//!
//! The endpoint in shared mode writes an audit log at level Metadata, one line per request. Another endpoint without an
//! audit log shows the cost of the log.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tributary_e2e::{PeopleAuthority, TestCluster, Tributary, TributaryBuilder};

use crate::client::Contestant;
use crate::load;
use crate::reads::{ReadMeasurement, ReadScenario, Side};
use crate::usage::ServerProcesses;

pub(crate) const NAME: &str = "many-users";
/// The parts of the scenario, which `--only` can select.
const PARTS: [&str; 5] = [LIST_ALL, NAMESPACE, GET, GET_C16, WATCHES];
const LIST_ALL: &str = "list-all";
const NAMESPACE: &str = "namespace-100";
const GET: &str = "get";
const GET_C16: &str = "get-c16";
const WATCHES: &str = "watches";
/// The number of rounds. In each round, all endpoints are measured.
const ROUNDS: u32 = 10;
/// The user with partial rights may read every tenth namespace.
const PART: usize = 10;
/// The number of watchers per endpoint.
const WATCHERS: usize = 50;
/// The number of changes during a watch. The result for the user with partial rights needs many changes, because two
/// thirds of the measured cost are subtracted.
const CHANGES: usize = 6_000;
const PAUSE: Duration = Duration::from_millis(4);
/// The timeout for the last events.
const GRACE: Duration = Duration::from_secs(3);

const JSON: &str = "application/json";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// An audit policy that writes one line per request.
const AUDIT_POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// The results of a read scenario at all endpoints.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SharedRead {
    pub(crate) name: &'static str,
    /// The share of the objects that the user with partial rights sees.
    pub(crate) share: f64,
    /// The user of the endpoint in personal mode.
    pub(crate) personal: ReadMeasurement,
    /// The user with all rights.
    pub(crate) all: ReadMeasurement,
    /// The user with all rights, without an audit log.
    pub(crate) unaudited: ReadMeasurement,
    /// The user with a tenth of the namespaces.
    pub(crate) part: ReadMeasurement,
    /// The user with a tenth of the namespaces, without an audit log.
    pub(crate) part_unaudited: ReadMeasurement,
}

/// The cost of watches for a server, per event sent to a client.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct SharedWatch {
    /// Cost for the user of the endpoint in personal mode.
    pub(crate) personal: EventCost,
    /// Cost for the user with all rights.
    pub(crate) all: EventCost,
    /// Cost for the user with a tenth of the namespaces.
    pub(crate) part: EventCost,
    /// The cost of a change for a server without watchers, in microseconds. All endpoints are measured at the same
    /// time.
    pub(crate) change_us: f64,
}

/// The CPU time of a server per event, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct EventCost {
    pub(crate) us: f64,
    /// CPU time of sending an event, without the cost of processing changes. The server processes ten changes for each
    /// event of a user with a tenth of the namespaces.
    pub(crate) telling_us: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    pub(crate) cpu: Duration,
    pub(crate) events: u64,
}

impl Watched {
    /// The cost per event. `unwatched` is the CPU time of a server that processes the same changes without watchers.
    fn cost_per_event(self, unwatched: Self) -> EventCost {
        let each = |cpu: f64| cpu * 1e6 / self.events.max(1) as f64;
        let (own, alone) = (self.cpu.as_secs_f64(), unwatched.cpu.as_secs_f64());
        EventCost { us: each(own), telling_us: each(own - alone) }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SharedFigures {
    pub(crate) reads: Vec<SharedRead>,
    pub(crate) watch: Option<SharedWatch>,
}

/// The measured endpoints. Dropping the value ends them.
struct SharedSides {
    personal: Side,
    all: Side,
    unaudited: Side,
    part: Side,
    /// The user with a tenth of the namespaces, on the server without an audit log. The other server is not usable
    /// here: in the watch measurement, it serves only the watcher with all rights. A watch causes one audit line per
    /// hour, so the log does not affect the result.
    part_unaudited: Side,
    /// A server that gets no requests after it has cached the pods.
    unwatched: Side,
    _servers: [Tributary; 4],
    _folder: tempfile::TempDir,
}

/// Returns whether one of the texts in `only` selects a part. A text matches if it is contained in the scenario's name,
/// or in the name with the part (`many-users-get`).
pub(crate) fn wants(only: &[String], whole: &str, part: &str) -> bool {
    let name = format!("{whole}-{part}");
    only.is_empty() || only.iter().any(|only| whole.contains(only.as_str()) || name.starts_with(only.as_str()))
}

/// Measures the requested parts with a member that has this number of pods; `None` if no part is requested.
///
/// # Errors
/// If a server cannot be started, or a response is not a success.
pub(crate) async fn run(
    member: &TestCluster,
    admin: &Contestant,
    pods: usize,
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<Option<SharedFigures>> {
    if !PARTS.into_iter().any(&wanted) {
        return Ok(None);
    }
    let sides = start(member, admin, pods).await?;
    let reads = read(&sides, &wanted).await?;
    let watch = match wanted(WATCHES) {
        true => Some(watch(&sides, admin, pods).await?),
        false => None,
    };
    Ok(Some(SharedFigures { reads, watch }))
}

async fn read(sides: &SharedSides, wanted: &impl Fn(&str) -> bool) -> anyhow::Result<Vec<SharedRead>> {
    let namespace = load::namespace(0);
    let of_one = format!("/api/v1/namespaces/{namespace}/pods");
    let get = format!("{of_one}/{}?resourceVersion=0", load::pod_name(7));
    let mut reads = Vec::new();
    for (name, path, workers, share, seconds) in [
        (LIST_ALL, "/api/v1/pods?resourceVersion=0".to_owned(), 1, 1.0 / PART as f64, 20),
        (NAMESPACE, format!("{of_one}?resourceVersion=0"), 1, 1.0, 12),
        (GET, get.clone(), 1, 1.0, 12),
        (GET_C16, get, 16, 1.0, 12),
    ] {
        if !wanted(name) {
            continue;
        }
        eprintln!("measuring {NAME} {name} …");
        let scenario = ReadScenario::plain(name, path, workers);
        let measured = scenario
            .run_in(
                &[&sides.personal, &sides.all, &sides.unaudited, &sides.part, &sides.part_unaudited],
                Duration::from_secs(seconds),
                ROUNDS,
            )
            .await?;
        let [personal, all, unaudited, part, part_unaudited] =
            <[_; 5]>::try_from(measured).map_err(|_| anyhow::anyhow!("five sides were measured"))?;
        reads.push(SharedRead { name, share, personal, all, unaudited, part, part_unaudited });
    }
    Ok(reads)
}

/// Measures all endpoints at the same time, because the cost of a change varies by a third between minutes. For the
/// user with a tenth of the namespaces, the server processes ten changes per event.
async fn watch(sides: &SharedSides, admin: &Contestant, pods: usize) -> anyhow::Result<SharedWatch> {
    eprintln!("measuring {NAME} {WATCHES} …");
    let SharedSides { personal, all, part_unaudited, unwatched, .. } = sides;
    let watching = [(personal, WATCHERS), (all, WATCHERS), (part_unaudited, WATCHERS), (unwatched, 0)];
    let measured = watched(&watching, CHANGES, admin, pods).await?;
    let [personal, all, part, unwatched] = measured[..] else { bail!("four sides were measured") };
    let [personal, all, part] = [personal, all, part].map(|watched| watched.cost_per_event(unwatched));
    Ok(SharedWatch { personal, all, part, change_us: unwatched.cpu.as_secs_f64() * 1e6 / CHANGES as f64 })
}

async fn start(member: &TestCluster, admin: &Contestant, pods: usize) -> anyhow::Result<SharedSides> {
    let folder = tempfile::Builder::new().prefix("tributary-bench-shared-").tempdir().context("make a folder")?;
    let people = PeopleAuthority::new("the people's authority")?;
    let client_ca = folder.path().join("clients.crt");
    fs::write(&client_ca, people.pem()).context("write the authority")?;
    grant(admin, pods).await?;
    let kubeconfig = member.kubeconfig();
    let one = Tributary::builder(&kubeconfig, ["member1"]).start().await.context("start tributary for one person")?;
    let shared = || Tributary::builder(&kubeconfig, ["member1"]).shared(&client_ca);
    let quiet = shared().start().await.context("start tributary for many, without an audit log")?;
    let idle = shared().start().await.context("start tributary for nobody")?;
    let many = audited(shared(), folder.path())?.start().await.context("start tributary for many")?;
    let side = async |name, server: &Tributary, path: &Path| {
        let target = Contestant::from_kubeconfig(name, path, None).await?;
        anyhow::Ok(Side { target, processes: ServerProcesses { server: Some(server.pid()), storage: None } })
    };
    let of_user = |server: &Tributary, name: &str| {
        let path = folder.path().join(format!("{name}-{}", server.pid()));
        server.kubeconfig_of(&path, &people.user(name, &[])?, &[])?;
        anyhow::Ok(path)
    };
    let personal = side("one person", &one, one.kubeconfig()).await?;
    let all = side("all rights", &many, &of_user(&many, "all")?).await?;
    let unaudited = side("all rights, unaudited", &quiet, &of_user(&quiet, "all")?).await?;
    let part = side("a tenth", &many, &of_user(&many, "part")?).await?;
    let part_unaudited = side("a tenth, unaudited", &quiet, &of_user(&quiet, "part")?).await?;
    let unwatched = side("nobody", &idle, &of_user(&idle, "all")?).await?;
    let whole = listed(&personal.target, 0).await?;
    // The list grows while the server reads the user's RBAC rights, and is complete at this size.
    let a_tenth = whole / PART as u64 / 2;
    let shown = [listed(&all.target, whole).await?, listed(&part.target, a_tenth).await?];
    for (side, least) in [(&unaudited, whole), (&part_unaudited, a_tenth), (&unwatched, whole)] {
        listed(&side.target, least).await?;
    }
    eprintln!("bytes of a list: {whole} for one person, {} for all rights, {} for a tenth", shown[0], shown[1]);
    let servers = [one, many, quiet, idle];
    Ok(SharedSides { personal, all, unaudited, part, part_unaudited, unwatched, _servers: servers, _folder: folder })
}

/// Configures a server to write an audit log at level Metadata into this folder.
///
/// # Errors
/// If the policy cannot be written.
pub(crate) fn audited(server: TributaryBuilder, folder: &Path) -> anyhow::Result<TributaryBuilder> {
    // The log has a separate folder, because the server watches the configuration's folder for changes.
    let (policy, logs) = (folder.join("policy.yaml"), folder.join("logs"));
    fs::create_dir(&logs).context("make a folder for the log")?;
    fs::write(&policy, AUDIT_POLICY).context("write the audit policy")?;
    let policy = format!("--audit-policy-file={}", policy.display());
    Ok(server.argument(policy).argument(format!("--audit-log-path={}", logs.join("audit.log").display())))
}

/// Allows `all` to read pods everywhere, and `part` in every tenth namespace.
async fn grant(admin: &Contestant, pods: usize) -> anyhow::Result<()> {
    const ROLE: &str = "pods";
    grant_everywhere(admin, ROLE, "all").await?;
    for number in (0..pods.div_ceil(load::PODS_PER_NAMESPACE)).step_by(PART) {
        let path = format!("{RBAC}/namespaces/{}/rolebindings", load::namespace(number));
        make(admin, &path, &binding("RoleBinding", ROLE, "part")).await?;
    }
    Ok(())
}

/// Creates a role that allows reading pods, and binds it to a user in all namespaces.
///
/// # Errors
/// If the member refuses it, for example because the role exists.
pub(crate) async fn grant_everywhere(admin: &Contestant, role: &str, user: &str) -> anyhow::Result<()> {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]);
    let (api_version, metadata) = (format!("{RBAC_GROUP}/v1"), json!({"name": role}));
    let object = json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": metadata, "rules": rules});
    make(admin, &format!("{RBAC}/clusterroles"), &object).await?;
    make(admin, &format!("{RBAC}/clusterrolebindings"), &binding("ClusterRoleBinding", role, user)).await
}

/// A binding of a role to a user. The binding has the name of the user.
fn binding(kind: &str, role: &str, user: &str) -> Value {
    json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": kind, "metadata": {"name": user},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": user}],
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role}})
}

async fn make(admin: &Contestant, path: &str, object: &Value) -> anyhow::Result<()> {
    let connection = admin.connect().await?;
    connection.write(Method::POST, path, JSON, Bytes::from(object.to_string())).await.map(drop)
}

/// Waits until a list has at least this number of bytes. Returns its size.
///
/// # Errors
/// If it does not reach the size within a minute.
pub(crate) async fn listed(target: &Contestant, least: u64) -> anyhow::Result<u64> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let bytes = match target.connect().await?.discard("/api/v1/pods", JSON).await {
            Ok(answer) => answer.bytes,
            Err(error) if Instant::now() >= until => return Err(error),
            Err(_) => 0,
        };
        if bytes > 0 && bytes >= least {
            return Ok(bytes);
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Measures the CPU time of each server while its watchers receive the same changes. Each server is given with its
/// number of watchers.
///
/// # Errors
/// If a watch or a change is refused.
pub(crate) async fn watched(
    sides: &[(&Side, usize)],
    changes: usize,
    admin: &Contestant,
    pods: usize,
) -> anyhow::Result<Vec<Watched>> {
    let mut watchers = JoinSet::new();
    let mut counts = Vec::new();
    for (side, watchers_each) in sides {
        let lines = Arc::new(AtomicU64::new(0));
        for _ in 0..*watchers_each {
            let (connection, lines) = (side.target.connect().await?, Arc::clone(&lines));
            let path =
                "/api/v1/pods?watch=1&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
            let mut answer = connection.send(Method::GET, path, JSON, "", Bytes::new()).await?;
            if answer.status() != 200 {
                bail!("a watch was answered {}", answer.status());
            }
            watchers.spawn(async move {
                while let Some(Ok(frame)) = answer.body_mut().frame().await {
                    let bytes = frame.data_ref().map(Bytes::as_ref).unwrap_or_default();
                    lines.fetch_add(memchr::memchr_iter(b'\n', bytes).count() as u64, Ordering::Relaxed);
                }
                drop(connection);
            });
        }
        counts.push(lines);
    }
    sleep(GRACE).await;
    let before: Vec<_> = sides.iter().map(|(side, _)| side.processes.cpu()).collect();
    counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    let connection = admin.connect().await?;
    for change in 0..changes {
        // The changes visit the namespaces one after the other, so the user with a tenth of the namespaces sees a tenth
        // of the changes.
        let number = change * 7 % pods;
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}",
            load::namespace(number / load::PODS_PER_NAMESPACE),
            load::pod_name(number)
        );
        let value = format!("{}-{change}", watchers.len());
        let body = json!({"metadata": {"labels": {"change": value}}}).to_string();
        connection.write(Method::PATCH, &path, "application/merge-patch+json", Bytes::from(body)).await?;
        sleep(PAUSE).await;
    }
    sleep(GRACE).await;
    let costs = sides.iter().zip(before).zip(&counts).map(|(((side, _), before), count)| {
        let cpu = side.processes.cpu_since(before).server.unwrap_or_default();
        Watched { cpu, events: count.load(Ordering::Relaxed) }
    });
    let costs = costs.collect();
    watchers.shutdown().await;
    Ok(costs)
}
