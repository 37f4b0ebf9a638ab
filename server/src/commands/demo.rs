//! `tributary demo`: runs simulated clusters inside this process, and serves them as one endpoint.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tributary_apimachinery::ItemResourceVersions;
use tributary_listener::GoawayChance;
use tributary_simulator::{Churn, SimulatedCluster, Simulator, SimulatorConfig, kubeconfig};
use tributary_sources::data_directory::{DataDirectory, write_private};

use super::serve::{Ready, serve};
use crate::cli::access_log::AccessLogArguments;
use crate::cli::audit::AuditArguments;
use crate::cli::{
    DemoArguments, HubArguments, LimitArguments, MergeArguments, PublicationArguments, ReplicaArguments,
    ServeArguments, SharedArguments,
};
use crate::credentials::{BearerToken, Certificates};
use crate::exit::Failure;
use crate::output::print;
use crate::process::threads::Threads;

/// The number of pods on each simulated node. Kubernetes supports up to 110.
const PODS_PER_NODE: u32 = 50;
/// The number of pods in each simulated namespace.
const PODS_PER_NAMESPACE: u32 = 200;

/// Runs the demo until a signal, and removes its files.
///
/// # Errors
/// [`Failure`] of the start.
pub async fn demo(arguments: DemoArguments) -> Result<(), Failure> {
    let directory = TemporaryDirectory::make().map_err(Failure::Runtime)?;
    // The simulated clusters get half of the cores, because the server needs most of this machine. Real clusters would
    // run on other machines.
    let threads = Threads::start("simulated-clusters", 2).map_err(Failure::runtime)?;
    let members = start_members(&threads, &arguments).await.map_err(Failure::Runtime)?;
    let source = directory.0.join("members.kubeconfig");
    write_private(&source, kubeconfig(&members).as_bytes()).map_err(Failure::runtime)?;
    let written = directory.0.join("kubeconfig");
    let serve_arguments = ServeArguments {
        shared: SharedArguments::default(),
        hub: HubArguments::default(),
        publication: PublicationArguments::default(),
        kubeconfig: Some(source),
        contexts: None,
        config: None,
        merged_hosts: Vec::new(),
        listen: arguments.listen,
        write_kubeconfig: Some(written.clone()),
        merge: MergeArguments::default(),
        resources: Vec::new(),
        create_in: members.first().and_then(|member| member.name().parse().ok()),
        partial: None,
        item_resource_versions: ItemResourceVersions::default(),
        replicas: None,
        sharing: ReplicaArguments::default(),
        data_dir: Some(directory.0.join("data")),
        shutdown_delay_duration: Duration::ZERO,
        goaway_chance: GoawayChance::default(),
        limits: LimitArguments::default(),
        audit: AuditArguments::default(),
        access_log: AccessLogArguments::default(),
        tracing_config_file: None,
        is_demo: true,
    };
    let served = serve(serve_arguments, |ready| print(&example_commands(&arguments, ready, &written))).await;
    // After a second signal, the demo does not wait for the simulated clusters to end, but still removes its files.
    if served.is_ok() {
        for member in members {
            member.shutdown().await;
        }
    }
    served
}

/// Starts the simulated clusters on their threads.
async fn start_members(threads: &Threads, arguments: &DemoArguments) -> anyhow::Result<Vec<SimulatedCluster>> {
    let configs: Vec<_> = (1..=arguments.clusters).map(|number| member_config(arguments, number)).collect();
    let started = threads.spawn(async move {
        let mut members = Vec::with_capacity(configs.len());
        for config in configs {
            let name = config.name.clone();
            let member = Simulator::start(config).await;
            members.push(member.with_context(|| format!("the simulated cluster {name} did not start"))?);
        }
        anyhow::Ok(members)
    });
    started.await.context("a simulated cluster panicked when it was started")?
}

fn member_config(arguments: &DemoArguments, number: u16) -> SimulatorConfig {
    SimulatorConfig {
        name: format!("member{number}"),
        seed: number.into(),
        pods: arguments.pods as usize,
        namespaces: arguments.pods.div_ceil(PODS_PER_NAMESPACE).clamp(1, 500) as usize,
        nodes: arguments.pods.div_ceil(PODS_PER_NODE).max(1) as usize,
        churn: (arguments.churn > 0.0).then_some(Churn { changes_per_second: arguments.churn }),
        ..SimulatorConfig::default()
    }
}

/// Returns commands for the user to paste. The commands read the token from files, because other users can read command
/// lines.
fn example_commands(arguments: &DemoArguments, ready: &Ready<'_>, kubeconfig: &Path) -> String {
    let DemoArguments { clusters, pods, churn, .. } = arguments;
    let kubectl = format!("kubectl --kubeconfig {}", kubeconfig.display());
    let curl = format!(
        "curl --cacert {} -H @{}",
        Certificates::authority_file(ready.directory).display(),
        BearerToken::header_file(ready.directory).display()
    );
    let url = ready.url;
    let [first, last] =
        [ready.clusters.first(), ready.clusters.last()].map(|name| name.map_or("", |name| name.as_str()));
    format!(
        "
{clusters} simulated clusters with {pods} pods each, {churn} changes per second in each, as one:

  {kubectl} get pods -A
  {kubectl} get pods -A -w
  {kubectl} --context {last} get nodes
  {kubectl} create deployment web --image=nginx --replicas=3

New objects go to {first}, or to the cluster that their annotation tributary.dev/cluster names. Simulated pods have logs, but no containers for exec.
Simulated clusters have no `kubectl auth whoami`, no `kubectl top` and no `kubectl explain` of fields: real clusters have.

Without kubectl:

  {curl} '{url}/api/v1/pods?limit=2'
  {curl} -N '{url}/api/v1/pods?watch=true&resourceVersion=0'

Ctrl-C stops the demo and removes these files.
"
    )
}

/// A temporary directory (mode 0700), removed on drop.
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn make() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("tributary-demo-{:016x}", rand::random::<u64>()));
        DataDirectory::open(path.clone())?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "the demo's files were not removed");
        }
    }
}
