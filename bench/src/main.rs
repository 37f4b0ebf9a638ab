//! The load program. It sends the same requests to a bare kube-apiserver and to Tributary in front of it, in one run
//! and with one client, and compares the results.
//!
//! Without `--member` it starts a member (etcd and kube-apiserver), fills it, starts `tributary serve` from its own
//! target folder (or the binary in `TRIBUTARY_BIN`), measures, prints the results, and removes everything.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use tokio::time::{Instant, sleep};
use tributary_e2e::{TestCluster, Tools, Tributary};

use crate::client::Contestant;
use crate::reads::Side;
use crate::report::{Memory, ReadComparison, Results, Watch};
use crate::usage::ServerProcesses;
use crate::watches::Sides;

mod client;
mod figure;
mod figures;
mod fleet;
mod gateway;
mod limits;
mod load;
mod mirror;
mod reads;
mod report;
mod revoked;
mod shared;
mod statistics;
mod token_bucket;
mod uniform_rbac;
mod usage;
mod watches;
mod worst;

/// The allocator that the server also uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The idle time before Tributary's memory is read.
const IDLE: Duration = Duration::from_secs(5);

/// Compares Tributary with the kube-apiserver behind it.
#[derive(Debug, Parser)]
#[command(name = "tributary-bench")]
struct Arguments {
    /// Number of pods in the started member.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Seconds per read scenario and side.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Seconds of writes per watch scenario and side.
    #[arg(long, default_value_t = 15.0)]
    watch_seconds: f64,
    /// Run only scenarios whose name contains one of these texts (comma-separated).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// File for the results as JSON.
    #[arg(long, default_value = "bench/results/latest.json")]
    json: PathBuf,
    /// Exit with an error if a measured value exceeds its limit.
    #[arg(long)]
    strict: bool,
    /// Kubeconfig whose current context is a running member.
    #[arg(long, requires = "tributary")]
    member: Option<PathBuf>,
    /// Kubeconfig that a running Tributary wrote.
    #[arg(long, requires = "member")]
    tributary: Option<PathBuf>,
    /// Process id of the running kube-apiserver, to measure its CPU and memory.
    #[arg(long)]
    member_pid: Option<u32>,
    /// Process id of the running Tributary.
    #[arg(long)]
    tributary_pid: Option<u32>,
    /// Fill the running member with `--pods` pods first.
    #[arg(long, requires = "member")]
    fill: bool,
}

impl Arguments {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.contains(only.as_str()))
    }

    /// Returns whether `--only` selects a scenario that needs a real member.
    fn needs_member(&self) -> bool {
        let simulated = [fleet::NAME, mirror::NAME, token_bucket::NAME];
        let is_simulated = |only: &String| simulated.iter().any(|name| name.contains(only.as_str()));
        self.only.is_empty() || !self.only.iter().all(is_simulated)
    }
}

/// The member, Tributary, and the servers that this program started. Dropping the value stops the servers.
struct Stage {
    member: Side,
    tributary: Side,
    started: Option<StartedServers>,
}

struct StartedServers {
    // Declared before `member`: Tributary must end before its member. Otherwise Tributary's log ends with connection
    // errors.
    tributary: Option<Tributary>,
    member: TestCluster,
    /// Tributary's data, which survives a restart.
    folder: tempfile::TempDir,
}

impl StartedServers {
    async fn start_tributary(&mut self, listen: &str) -> anyhow::Result<Side> {
        let builder = Tributary::builder(&self.member.kubeconfig(), ["member1"]).folder(self.folder.path());
        let tributary = builder.listen(listen).start().await.context("start tributary")?;
        let target = Contestant::from_kubeconfig("tributary", tributary.kubeconfig(), None).await?;
        let side = Side { target, processes: ServerProcesses { server: Some(tributary.pid()), storage: None } };
        self.tributary = Some(tributary);
        Ok(side)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    tributary_e2e::install_crypto_provider();
    match run(Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            eprintln!("tributary-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all requested scenarios. Returns false if a measured value exceeds its limit and `--strict` is set.
async fn run(arguments: Arguments) -> anyhow::Result<bool> {
    if arguments.pods < load::PODS_PER_NAMESPACE {
        bail!("--pods {}: at least {} are needed, one namespace of them", arguments.pods, load::PODS_PER_NAMESPACE);
    }
    let mut results = Results::default();
    // The fleet is measured first, because other running servers would affect its result.
    if arguments.wants(fleet::NAME) {
        eprintln!("measuring {} …", fleet::NAME);
        results.fleet = Some(fleet::run().await?);
    }
    if arguments.wants(mirror::NAME) {
        results.mirror = Some(mirror::run().await?);
    }
    if arguments.wants(token_bucket::NAME) {
        results.token_bucket = Some(token_bucket::run().await?);
    }
    if arguments.needs_member() {
        measure_both_sides(&arguments, &mut results).await?;
    }
    results.figures = figures::judge(&results);
    println!("{}", results.markdown());
    results.save(&arguments.json)?;
    eprintln!("written to {}", arguments.json.display());
    Ok(!arguments.strict || results.figures.iter().all(|figure| figure.reached))
}

/// Measures a member and Tributary in front of it, one scenario at a time.
async fn measure_both_sides(arguments: &Arguments, results: &mut Results) -> anyhow::Result<()> {
    let mut stage = set_up(arguments).await?;
    let wanted = |name: &str| arguments.wants(name);
    results.pods = arguments.pods;
    let mut memory = first_round(&stage, results).await?;

    let seconds = Duration::from_secs_f64(arguments.seconds);
    for scenario in reads::scenarios().into_iter().filter(|scenario| wanted(scenario.name)) {
        eprintln!("measuring {} …", scenario.name);
        let [member, tributary] = <[_; 2]>::try_from(scenario.run(&[&stage.member, &stage.tributary], seconds).await?)
            .map_err(|_| anyhow::anyhow!("two sides were measured"))?;
        results.reads.push(ReadComparison { name: scenario.name.to_owned(), member, tributary });
    }
    measure_watches(&stage, arguments, &wanted, results).await?;
    memory.tributary_end = stage.tributary.processes.resident();
    measure_limits(&mut stage, &wanted, results).await?;
    if let Some(started) = stage.started.as_ref() {
        let (member, admin, pods) = (&started.member, &stage.member.target, arguments.pods);
        let of = |whole| move |part: &str| shared::wants(&arguments.only, whole, part);
        results.gateway = gateway::run(member, admin, pods, of(gateway::NAME)).await?;
        results.shared = shared::run(member, admin, pods, of(shared::NAME)).await?;
    }
    if let Some(started) = stage.started.as_ref().filter(|_| wanted(revoked::NAME)) {
        eprintln!("measuring {} …", revoked::NAME);
        results.revoked = Some(revoked::run(&started.member, &stage.member.target, arguments.pods).await?);
    }

    memory.member_end = stage.member.processes.resident();
    results.memory = Some(memory);
    Ok(())
}

/// Starts the missing servers, and fills the member.
async fn set_up(arguments: &Arguments) -> anyhow::Result<Stage> {
    if let (Some(member), Some(tributary)) = (&arguments.member, &arguments.tributary) {
        let side = |target, pid| Side { target, processes: ServerProcesses { server: pid, storage: None } };
        let stage = Stage {
            member: side(Contestant::from_kubeconfig("member", member, None).await?, arguments.member_pid),
            tributary: side(Contestant::from_kubeconfig("tributary", tributary, None).await?, arguments.tributary_pid),
            started: None,
        };
        if arguments.fill {
            load::fill(&stage.member.target, arguments.pods).await?;
        }
        return Ok(stage);
    }
    // A missing binary is reported at once, before the load, which takes minutes.
    tributary_e2e::tributary::binary()?;
    let tools = Tools::locate().await.context("build the servers")?;
    eprintln!("starting a member …");
    let member = TestCluster::builder("member1").start(&tools).await.context("start a member")?;
    let target = Contestant::from_kubeconfig("member", &member.kubeconfig(), None).await?;
    eprintln!("filling it with {} pods …", arguments.pods);
    let start = Instant::now();
    load::fill(&target, arguments.pods).await?;
    eprintln!("filled in {:.0} s", start.elapsed().as_secs_f64());
    let member_side = Side {
        target,
        processes: ServerProcesses { server: member.apiserver_pid().await, storage: member.etcd_pid().await },
    };
    let folder = tempfile::Builder::new().prefix("tributary-bench-").tempdir().context("make a folder")?;
    let mut started = StartedServers { tributary: None, member, folder };
    let tributary = started.start_tributary("127.0.0.1:0").await?;
    Ok(Stage { member: member_side, tributary, started: Some(started) })
}

/// Sends the first list, which fills Tributary's cache, and one round of reads. Then reads the memory at rest.
async fn first_round(stage: &Stage, results: &mut Results) -> anyhow::Result<Memory> {
    let tributary_start = stage.tributary.processes.resident();
    let of_member = stage.member.target.connect().await?.discard("/api/v1/pods", "application/json").await?;
    let connection = stage.tributary.target.connect().await?;
    let first = connection.discard("/api/v1/pods", "application/json").await?;
    results.first_list_ms = first.elapsed.as_secs_f64() * 1000.0;
    let namespace = load::namespace(0);
    for path in [
        "/api/v1/pods?resourceVersion=0".to_owned(),
        format!("/api/v1/namespaces/{namespace}/pods"),
        format!("/api/v1/namespaces/{namespace}/pods/{}", load::pod_name(1)),
    ] {
        connection.discard(&path, "application/json").await?;
    }
    sleep(IDLE).await;
    let tributary_idle = stage.tributary.processes.resident();
    Ok(Memory { json_bytes: of_member.bytes, tributary_start, tributary_idle, ..Memory::default() })
}

async fn measure_watches(
    stage: &Stage,
    arguments: &Arguments,
    wanted: &impl Fn(&str) -> bool,
    results: &mut Results,
) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(arguments.watch_seconds);
    for scenario in watches::SCENARIOS.into_iter().filter(|scenario| wanted(scenario.name)) {
        eprintln!("measuring {} …", scenario.name);
        let Sides { member, tributary, alone } =
            scenario.measure(&stage.member, &stage.tributary, time, arguments.pods).await?;
        results.watches.push(Watch { name: scenario.name.to_owned(), member, tributary, alone });
    }
    Ok(())
}

/// Measures storms of requests, and then idle watchers in a new Tributary process. In the first process, idle watchers
/// would reuse memory that a storm has freed, and would seem to need no memory.
async fn measure_limits(
    stage: &mut Stage,
    wanted: &impl Fn(&str) -> bool,
    results: &mut Results,
) -> anyhow::Result<()> {
    for storm in limits::STORMS.into_iter().filter(|storm| wanted(storm.name)) {
        eprintln!("measuring {} …", storm.name);
        results.storms.push(storm.run(&stage.tributary).await?);
    }
    for request in worst::requests().into_iter().filter(|request| wanted(request.name)) {
        eprintln!("measuring {} …", request.name);
        results.worst.push(request.run(&stage.tributary).await?);
    }
    if !wanted("idle-watchers") || stage.started.is_none() {
        return Ok(());
    }
    eprintln!("measuring idle-watchers …");
    restart(stage).await?;
    stage.tributary.target.connect().await?.discard("/api/v1/pods", "application/json").await?;
    let (idle, open) = limits::IDLE_WATCHERS.open(&stage.tributary).await?;
    results.idle = Some(idle);
    eprintln!("measuring their return after a restart …");
    let before = limits::lists_of_pods(&stage.member.target).await?;
    restart(stage).await?;
    let (resumed, relisted, seconds) = limits::IDLE_WATCHERS.resume(&stage.tributary.target, open).await?;
    let member_lists = limits::lists_of_pods(&stage.member.target).await? - before;
    let watchers = limits::IDLE_WATCHERS.watchers;
    results.resumed = Some(limits::Resumed { watchers, resumed, relisted, member_lists, seconds });
    Ok(())
}

/// Stops Tributary and starts it again at the same address with the same data.
async fn restart(stage: &mut Stage) -> anyhow::Result<()> {
    let Some(started) = &mut stage.started else { return Ok(()) };
    let Some(tributary) = started.tributary.take() else { return Ok(()) };
    let listen = tributary.url().trim_start_matches("https://").to_owned();
    tributary.stop().await.context("stop tributary")?;
    stage.tributary = started.start_tributary(&listen).await?;
    Ok(())
}
