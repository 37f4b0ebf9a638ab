//! Tests informers under faults. Every kind of client follows one or two members, which writers change at a steady
//! rate. Meanwhile members, Tributary and all connections fail on a schedule. A client must never see an object return
//! to an older state, appear again after its deletion, or appear twice. At the end each client must have the members'
//! objects.
//!
//! Each run prints its seed. `TRIBUTARY_ORACLE_SEED` and `TRIBUTARY_ORACLE_SECONDS` set the seed and the length.

use self::{
    calm::Calm,
    faults::{Schedule, Server, World},
    observer::{KubeRs, MemberObjects, Observer, RESOURCES, Seen},
    writer::{SEQUENCE, WriterNamespace, Writers},
};
use crate::context::{Case, TestContext, eventually};
use anyhow::{Context, bail, ensure};
use kube::runtime::watcher;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Mutex, time::Instant};
use tributary_e2e::{HttpClient, TestCluster, Tools, Tributary, guard, kubeconfig, namespace};
use tributary_simulator::Relay;

mod calm;
mod faults;
mod ledger;
pub(crate) mod observer;
pub(crate) mod writer;

/// Longest time until all clients have started, on a busy machine.
const SYNC: Duration = Duration::from_secs(60);

/// Longest time after the last fault until a client has the members' state. client-go and kube-rs wait up to 30 s
/// between attempts, and notice a silent connection after 30 s.
const SETTLE: Duration = Duration::from_secs(120);

/// Time without contact to a member after which Tributary's responses must have a Warning. Tributary sends the Warning
/// after 5 s (`ReflectorTuning::stale_after`).
const SILENT_FOR: Duration = Duration::from_secs(6);

/// Duration of writes while no fault is active. In this time, a client must receive every state of an object.
const CALM: Duration = Duration::from_secs(8);

/// Longest duration of a run on a busy machine, without the time in which faults are active.
const AROUND: Duration = Duration::from_secs(600);

/// The variants of an oracle run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Each object name exists in only one member.
    Unique,
    /// Each object name exists in both members.
    Duplicates,
    /// Objects have integer versions, and an additional client checks that it reads its own writes.
    Integer,
    /// Like `Integer`, but Tributary serves only one member.
    OneMember,
}

pub(crate) fn cases() -> Vec<Case> {
    let proof = |name, mode| {
        Case::new(name, move |context| run(context, Duration::from_secs(300), mode))
            .patience(Duration::from_secs(7_200))
    };
    vec![
        Case::new("oracle::clients_converge_after_faults", |context| {
            run(context, Duration::from_secs(35), Mode::Unique)
        })
        .patience(AROUND),
        Case::new(
            "oracle::controller_runtime_client_reads_each_write_it_has_made",
            controller_runtime_client_reads_each_write_it_has_made,
        ),
        Case::new(
            "oracle::patch_that_deletes_an_object_adds_no_expected_state_in_the_oracle",
            writer::patch_that_deletes_an_object_adds_no_expected_state_in_the_oracle,
        ),
        proof("oracle::proof_clients_converge_with_unique_names", Mode::Unique),
        proof("oracle::proof_clients_converge_with_repeated_names", Mode::Duplicates),
        proof("oracle::proof_clients_converge_with_integer_versions", Mode::Integer),
        proof("oracle::proof_clients_converge_over_one_member", Mode::OneMember),
    ]
}

fn env_or<T: FromStr>(variable: &str, otherwise: T) -> T {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

async fn run(context: TestContext, length: Duration, mode: Mode) -> anyhow::Result<()> {
    let seed = env_or("TRIBUTARY_ORACLE_SEED", rand::random::<u32>().into());
    let length = Duration::from_secs(env_or("TRIBUTARY_ORACLE_SECONDS", length.as_secs()));
    let _permit = context.fixture.own_members.acquire().await?;
    let mut run = Run::start(&context, seed, mode).await?;
    let schedule = Schedule::of(seed, length, run.world.members.len());
    println!("oracle: seed {seed}, {} s, {mode:?}", length.as_secs());
    let outcome = run.play(&schedule).await;
    outcome.map_err(|error| {
        let kept = run.keep_log();
        error.context(format!("seed {seed}, Tributary's log in {kept}, faults:\n{schedule}"))
    })
}

impl Mode {
    fn arguments(self) -> Vec<String> {
        // With `--partial=Allow`, the first list may lack a cluster that Tributary has not reached yet. Informers
        // ignore the Warning about it, so the test uses `Deny`. The debug log records the state of each collection.
        let mut arguments = vec!["--partial=Deny".to_owned(), "--log-level=debug".to_owned()];
        if self.has_integers() {
            arguments.push("--item-resource-versions=Integer".to_owned());
        }
        arguments
    }

    fn has_integers(self) -> bool {
        matches!(self, Self::Integer | Self::OneMember)
    }

    fn members(self) -> &'static [&'static str] {
        if self == Self::OneMember { &["oracle1"] } else { &["oracle1", "oracle2"] }
    }
}

/// Whether client-go's detector compares the initial events of a watch with a list. It panics if they differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detector {
    On,
    Off,
}

/// Returns the environment of a client-go program. It selects whether the program gets its initial objects by a watch,
/// and whether the inconsistency detector is on.
fn client_go(watch_list: bool, detector: Detector) -> [(&'static str, &'static str); 2] {
    let text = |on| if on { "true" } else { "false" };
    [
        ("KUBE_FEATURE_WatchListClient", text(watch_list)),
        ("KUBE_WATCHLIST_INCONSISTENCY_DETECTOR", text(detector == Detector::On)),
    ]
}

/// Starts a client that writes to these clusters and reads back all its writes.
fn consistent_client(
    tools: &Tools,
    kubeconfig: &Path,
    namespace: &str,
    clusters: &str,
    watch_list: bool,
) -> anyhow::Result<Observer> {
    let (namespace, clusters) = (format!("--namespace={namespace}"), format!("--clusters={clusters}"));
    let arguments = [namespace.as_str(), &clusters];
    let name = if watch_list { "read-your-writes with WatchList" } else { "read-your-writes with list and watch" };
    Observer::program(name, &tools.consistent_client(), kubeconfig, &arguments, &client_go(watch_list, Detector::On))
}

/// controller-runtime with `EnableReadYourWritesConsistency` parses resourceVersions as integers. A client that writes
/// to one cluster must see each of its writes, whether Tributary serves one or two clusters. If a client writes to both
/// clusters, none of its calls may fail.
async fn controller_runtime_client_reads_each_write_it_has_made(context: TestContext) -> anyhow::Result<()> {
    let tools = context.fixture.tools().await?;
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let members = context.fixture.pair().await?.to_vec();
    let serve = async |contexts: &[&str]| {
        let arguments = ["--item-resource-versions=Integer", "--partial=Deny"];
        let tributary = Tributary::builder(&kubeconfig, contexts.iter().copied()).arguments(arguments).start().await?;
        anyhow::Ok(context.fixture.watch_log(tributary).await)
    };
    let (pair, alone) = tokio::try_join!(serve(&["member1", "member2"]), serve(&["member1"]))?;
    let mut clients = Vec::new();
    for (served, clusters, watch_list) in [
        (&pair, "member2", true),
        (&pair, "member1,member2", true),
        (&pair, "member2", false),
        (&alone, "member1", true),
        (&alone, "member1", false),
    ] {
        let namespace = context.namespace("own", &members).await?;
        let mut client = consistent_client(tools, served.kubeconfig(), &namespace, clusters, watch_list)?;
        client.synced(SYNC).await?;
        clients.push((format!("writes to {clusters}, {}", client.name()), client));
    }
    tokio::time::sleep(CALM).await;
    for (what, mut client) in clients {
        client.pause()?;
        let seen = client.look().await?;
        println!("oracle: {what}: {}", seen.summary);
        ensure!(seen.violations.is_empty(), "{what}: {:?}", seen.violations);
        ensure!(seen.calls.failed == 0 && seen.calls.writes > 20, "{what}: {}", seen.summary);
    }
    Ok(())
}

struct Run {
    world: World,
    place: WriterNamespace,
    observers: Vec<Observer>,
    seed: u64,
    _folder: tempfile::TempDir,
}

impl Run {
    async fn start(context: &TestContext, seed: u64, mode: Mode) -> anyhow::Result<Self> {
        let tools = context.fixture.tools().await?;
        let started = mode.members().iter().map(|name| TestCluster::builder(name).start(tools));
        let members: Vec<_> = futures::future::try_join_all(started).await?.into_iter().map(Arc::new).collect();
        let folder = guard::temporary_folder("oracle")?;
        let mut wires = Vec::new();
        let mut entries = Vec::new();
        for (index, member) in members.iter().enumerate() {
            let wire = Relay::start(member.apiserver_port(), seed ^ index as u64).await?;
            let mut entry = member.access().entries();
            entry.cluster["server"] = json!(format!("https://127.0.0.1:{}", wire.port()));
            entries.push(entry);
            wires.push(wire);
        }
        let path = folder.path().join("members.kubeconfig");
        kubeconfig::write_entries(&path, &entries)?;
        let port = tributary_e2e::ports::free_port()?;
        let mut server = Server {
            kubeconfig: path,
            contexts: members.iter().map(|member| member.name().to_owned()).collect(),
            arguments: mode.arguments(),
            folder: folder.path().to_owned(),
            port,
            running: None,
        };
        server.start().await?;
        let front = Relay::start(port, seed ^ 0xf0).await?;
        let kubeconfig = through(&server, front.port())?;
        // The namespace is not registered in the context, because otherwise a failed run prints hundreds of objects.
        let place =
            WriterNamespace { namespace: namespace::unique_name("oracle"), has_duplicates: mode == Mode::Duplicates };
        namespace::create(&place.namespace, &members.iter().map(AsRef::as_ref).collect::<Vec<_>>()).await?;
        let world = World { members, wires, front, server: Mutex::new(server) };
        let mut run = Self { world, place, observers: Vec::new(), seed, _folder: folder };
        run.observe(context, &kubeconfig, mode).await?;
        Ok(run)
    }

    async fn observe(&mut self, context: &TestContext, kubeconfig: &Path, mode: Mode) -> anyhow::Result<()> {
        let tools = context.fixture.tools().await?;
        let namespace = self.place.namespace.clone();
        for (name, kind, watch_list) in [
            ("informer with WatchList", "informer", true),
            ("informer with list and watch", "informer", false),
            ("controller-runtime", "controller-runtime", true),
            ("RetryWatcher", "retrywatch", false),
        ] {
            // The detector compares objects by uid. A client that stores objects by name cannot pass this comparison if
            // both members have the same names.
            let environment =
                client_go(watch_list, if self.place.has_duplicates { Detector::Off } else { Detector::On });
            let arguments = ["oracle", "--kind", kind, "--namespace", &namespace];
            self.observers.push(Observer::program(name, &tools.clients(), kubeconfig, &arguments, &environment)?);
        }
        if let Some(python) = tools.python().await? {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/oracle.py");
            let arguments = [script, "--namespace", &namespace];
            self.observers.push(Observer::program("Python", &python, kubeconfig, &arguments, &[])?);
        } else {
            println!("oracle: there is no python3, so the Python client does not follow");
        }
        if mode.has_integers() {
            let clusters = mode.members().join(",");
            // The test runs only one of the two variants of this client, because both write to the same names.
            let watch_list = self.seed.is_multiple_of(2);
            self.observers.push(consistent_client(tools, kubeconfig, &namespace, &clusters, watch_list)?);
        }
        if mode != Mode::Duplicates {
            for (name, config) in [
                ("kube-rs", watcher::Config::default()),
                ("kube-rs, streaming", watcher::Config::default().streaming_lists()),
            ] {
                let client = KubeRs::start(name, kubeconfig, &namespace, &config).await?;
                self.observers.push(Observer::KubeRs(client));
            }
        }
        for observer in &mut self.observers {
            observer.synced(SYNC).await.with_context(|| format!("wait for {}", observer.name()))?;
        }
        Ok(())
    }

    async fn play(&mut self, schedule: &Schedule) -> anyhow::Result<()> {
        let writers = Writers::start(writer::writers(&self.world.members, &self.place, self.seed, writer::PACE));
        let begun = Instant::now();
        schedule.play(&self.world).await?;
        let written = writers.written();
        println!("oracle: {written} writes took effect in {:.1} s of faults", begun.elapsed().as_secs_f64());
        let writers = writers.stop().await?;
        self.observers.iter_mut().try_for_each(Observer::pause)?;
        let healed = Instant::now();
        let before = self.settle().await.context("after the faults")?;
        println!("oracle: all clients hold the members' state {:.1} s later", healed.elapsed().as_secs_f64());
        self.recovered(healed).await.context("after the faults")?;
        println!("oracle: Tributary follows the members again {:.1} s later", healed.elapsed().as_secs_f64());

        let calm = Calm::begin(&self.world, &self.place.namespace).await.context("before the calm")?;
        let writers = Writers::start(writers);
        tokio::time::sleep(CALM).await;
        println!("oracle: {} writes in {CALM:?} without faults", writers.written());
        writers.stop().await?;
        let after = self.settle().await.context("after the calm")?;
        let mut problems = Vec::new();
        for ((observer, before), after) in self.observers.iter().zip(before).zip(after) {
            println!("oracle: {}: {}", observer.name(), after.summary);
            let missed = after.gaps - before.gaps;
            if missed > 0 {
                let last = after.skipped.iter().filter(|gap| !before.skipped.contains(gap));
                let last: Vec<_> = last.map(String::as_str).collect();
                problems.push(format!(
                    "{} missed {missed} states without a fault: {}",
                    observer.name(),
                    last.join("; ")
                ));
            }
        }
        if !problems.is_empty() {
            problems.extend(calm.explain(&self.world).await);
            bail!("{}", problems.join("\n  "));
        }
        self.same_content().await
    }

    /// Waits until every client has the members' objects. The wait ends at once if a client reports a violation.
    async fn settle(&mut self) -> anyhow::Result<Vec<Seen>> {
        let deadline = Instant::now() + SETTLE;
        let mut settled = Vec::new();
        let mut problems = Vec::new();
        for at in 0..self.observers.len() {
            loop {
                // The test reads the members again for each comparison, because a write to a frozen member may take
                // effect late.
                let member_objects = self.member_objects().await?;
                let observer = &mut self.observers[at];
                let seen = match observer.look().await {
                    Ok(seen) => seen,
                    Err(error) => {
                        problems.push(format!("{}: {error:#}\n{}", observer.name(), observer.log_tail()));
                        break;
                    }
                };
                match seen.is(&member_objects) {
                    Err(_) if seen.violations.is_empty() && Instant::now() < deadline => {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        continue;
                    }
                    Err(error) => {
                        let (name, log) = (observer.name(), observer.log_tail());
                        problems.push(format!("{name}: {error:#} ({})\n{log}", seen.summary));
                    }
                    Ok(()) => {}
                }
                problems.extend(seen.violations.iter().map(|text| format!("{}: {text}", observer.name())));
                settled.push(seen);
                break;
            }
        }
        if !problems.is_empty() {
            bail!("{} problems:\n  {}", problems.len(), problems.join("\n  "));
        }
        Ok(settled)
    }

    /// Waits until Tributary follows the members again. It is not sufficient that the clients have the members'
    /// objects: before Tributary has listed a collection again, it may still skip states.
    async fn recovered(&self, healed: Instant) -> anyhow::Result<()> {
        tokio::time::sleep_until(healed + SILENT_FOR).await;
        eventually(SETTLE, || self.lists_without_warning()).await
    }

    async fn lists_without_warning(&self) -> anyhow::Result<()> {
        let server = self.world.server.lock().await;
        let http = server.running.as_ref().context("Tributary does not run")?.http().await?;
        for resource in RESOURCES {
            let path = format!("/api/v1/namespaces/{}/{resource}", self.place.namespace);
            let answer = http.get(&path).send().await?.expect(200)?;
            ensure!(!answer.headers.contains_key("warning"), "{resource}: {}", answer.header("warning"));
        }
        Ok(())
    }

    async fn member_objects(&self) -> anyhow::Result<MemberObjects> {
        member_objects(&self.world.members, &self.place.namespace).await
    }

    async fn list(&self, http: &HttpClient, resource: &str) -> anyhow::Result<Vec<Value>> {
        list(http, &self.place.namespace, resource).await
    }

    /// Checks that Tributary's list has the same objects, byte for byte, as the members' lists.
    async fn same_content(&self) -> anyhow::Result<()> {
        let server = self.world.server.lock().await;
        let http = server.running.as_ref().context("Tributary does not run")?.http().await?;
        for resource in RESOURCES {
            let mut expected = BTreeMap::new();
            for member in &self.world.members {
                for item in self.list(member.http(), resource).await? {
                    expected.insert(item["metadata"]["uid"].to_string(), (member.name().to_owned(), item));
                }
            }
            for mut item in self.list(&http, resource).await? {
                let (cluster, object) = expected
                    .remove(&item["metadata"]["uid"].to_string())
                    .with_context(|| format!("{item} is nowhere"))?;
                let annotations = item["metadata"]["annotations"].as_object_mut().context("no annotations")?;
                let named = annotations.remove("tributary.dev/cluster");
                ensure!(named == Some(json!(cluster)), "{named:?} instead of {cluster}");
                item["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
                ensure!(item == object, "{item} instead of {object}");
            }
            ensure!(expected.is_empty(), "missing in the merged list: {:?}", expected.keys());
        }
        Ok(())
    }

    /// Copies Tributary's log to a folder that is not deleted at the end of the run, and returns the new path.
    fn keep_log(&self) -> String {
        let path = std::env::temp_dir().join(format!("tributary-oracle-{}.log", self.seed));
        match self.world.server.try_lock().map(|server| std::fs::write(&path, server.log())) {
            Ok(Ok(())) => path.display().to_string(),
            _ => "nowhere".to_owned(),
        }
    }
}

/// Reads the writers' objects in a namespace directly from the members.
pub(crate) async fn member_objects(members: &[Arc<TestCluster>], namespace: &str) -> anyhow::Result<MemberObjects> {
    let mut member_objects = MemberObjects::new();
    for resource in RESOURCES {
        let all: &mut BTreeMap<String, Vec<(String, u64)>> = member_objects.entry(resource).or_default();
        for member in members {
            for item in list(member.http(), namespace, resource).await? {
                let metadata = &item["metadata"];
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let sequence = text(&metadata["annotations"][SEQUENCE]).parse().context("read a sequence")?;
                let key = format!("{namespace}/{}", text(&metadata["name"]));
                all.entry(key).or_default().push((text(&metadata["uid"]), sequence));
            }
        }
    }
    Ok(member_objects)
}

async fn list(http: &HttpClient, namespace: &str, resource: &str) -> anyhow::Result<Vec<Value>> {
    let path = format!("/api/v1/namespaces/{namespace}/{resource}");
    let list = http.get(&path).send().await?.expect(200)?.json()?;
    list["items"].as_array().cloned().context("no items")
}

/// Copies the server's kubeconfig, and replaces the server's port by the port of the relay. Returns the path of the
/// copy.
fn through(server: &Server, relay: u16) -> anyhow::Result<PathBuf> {
    let tributary = server.running.as_ref().context("Tributary does not run")?;
    let text = std::fs::read_to_string(tributary.kubeconfig()).context("read the kubeconfig")?;
    let (from, to) = (format!("127.0.0.1:{}", server.port), format!("127.0.0.1:{relay}"));
    ensure!(text.contains(&from), "the kubeconfig does not name {from}");
    let path = server.folder.join("relayed.kubeconfig");
    std::fs::write(&path, text.replace(&from, &to)).context("write the kubeconfig")?;
    Ok(path)
}
