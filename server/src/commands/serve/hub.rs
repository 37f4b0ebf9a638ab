//! The hub of a running endpoint: its objects, and the verdicts on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tributary_hub::{
    Acceptance, ConfigurationCheck, HubClient, HubMonitor, HubRules, HubSource, Leadership, LeaseCandidate,
    ObjectReference, OtherSources, PublicationMonitor, PublicationSettings, Publisher, StatusWriter, Verdict,
};
use tributary_router::{KarmadaServers, Router};
use tributary_sources::LoadedConfiguration;
use tributary_sources::clusters::indices::IndexOwners;
use tributary_sources::data_directory::DataDirectory;

use crate::cli::{DoorSystem, HubArguments, KarmadaServer};
use crate::exit::Failure;

/// The users that the file or the hub denies. A user is denied if either of them denies the user.
pub(super) struct DeniedUsers {
    router: Arc<Router>,
    sources: Mutex<DeniedBySource>,
}

#[derive(Default)]
struct DeniedBySource {
    file: BTreeSet<String>,
    hub: BTreeSet<String>,
}

impl DeniedUsers {
    pub(super) fn new(router: Arc<Router>) -> Arc<Self> {
        Arc::new(Self { router, sources: Mutex::default() })
    }

    pub(super) fn set_file(&self, users: BTreeSet<String>) {
        self.update(|sources| sources.file = users);
    }

    pub(super) fn set_hub(&self, users: BTreeSet<String>) {
        self.update(|sources| sources.hub = users);
    }

    fn update(&self, change: impl FnOnce(&mut DeniedBySource)) {
        let mut sources = self.sources.lock();
        let union =
            |sources: &DeniedBySource| -> BTreeSet<String> { sources.file.union(&sources.hub).cloned().collect() };
        let before = union(&sources);
        change(&mut sources);
        let after = union(&sources);
        // The lock is held until the router has the users, so that two concurrent changes cannot reach the router in
        // the wrong order.
        if before != after {
            self.router.deny(after);
        }
    }
}

/// The connection to the hub, made before the start.
pub(super) struct HubConnection {
    pub(super) client: Arc<HubClient>,
    /// This replica's candidate for the Lease of the hub's writers; `None` after the writer of status has taken it.
    candidate: Option<LeaseCandidate>,
    /// This replica's right to write to the hub.
    pub(super) leadership: Leadership,
}

impl HubConnection {
    /// Creates a client. Sends nothing. Returns `None` without hub mode.
    ///
    /// # Errors
    /// A usage failure for an invalid kubeconfig.
    pub(super) async fn open(arguments: &HubArguments) -> Result<Option<Self>, Failure> {
        let Some(address) = arguments.objects.address() else { return Ok(None) };
        let mut client = HubClient::connect(&address).await.map_err(Failure::Usage)?;
        for KarmadaServer { group, kubeconfig } in &arguments.karmada_server {
            client.add_server("--karmada-server", group, kubeconfig).await.map_err(Failure::Usage)?;
        }
        let client = Arc::new(client);
        if arguments.serves_hub_users() && !client.is_verified() {
            return Err(Failure::Usage(anyhow::anyhow!(
                "--aggregated-listen and --ocm-listen trust the hub to name its users, and the kubeconfig of the hub does not verify the \
                 hub's certificate; give https and certificate-authority, and remove insecure-skip-tls-verify"
            )));
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let identity = format!("{host}_{:016x}", rand::random::<u64>());
        let candidate = LeaseCandidate::new(arguments.objects.hub_secret_namespace.clone(), identity);
        let leadership = candidate.leadership();
        Ok(Some(Self { client, candidate: Some(candidate), leadership }))
    }

    /// Returns Karmada's own servers: the hub is Karmada's control plane. `None` if Karmada's door is closed.
    pub(super) fn karmada(&self, arguments: &HubArguments) -> Option<KarmadaServers> {
        let servers = || KarmadaServers::new(self.client.cluster_client().clone(), self.client.servers().clone());
        arguments.door.contains(&DoorSystem::Karmada).then(servers)
    }

    /// Returns the writer of status, which also publishes the members if there are `settings`; `None` at a second call.
    pub(super) fn status_writer(
        &mut self,
        hub: &FollowedHub,
        settings: Option<PublicationSettings>,
    ) -> Option<(StatusWriter, PublicationMonitor)> {
        let candidate = self.candidate.take()?;
        let publisher = settings.map(|settings| Publisher::new(Arc::clone(&self.client), settings));
        let monitor = publisher.as_ref().map(Publisher::monitor).unwrap_or_default();
        Some((hub.source.status_writer(candidate).with_publisher(publisher), monitor))
    }
}

/// The hub, and the last verdicts on its objects.
pub(super) struct FollowedHub {
    source: HubSource,
    denied: Arc<DeniedUsers>,
    /// The last valid configuration of all other sources.
    base: LoadedConfiguration,
    /// The refusals that were logged, by object and, for a ClusterSource, by item.
    logged: BTreeMap<(ObjectReference, Option<String>), String>,
    /// The settings without effect that were logged.
    logged_problems: BTreeSet<String>,
}

impl FollowedHub {
    /// Waits for the objects of the hub as [`HubSource::start`]. `base` is the configuration of all other sources.
    ///
    /// # Errors
    /// A runtime failure for an unreadable copy of the configuration.
    pub(super) async fn start(
        client: Arc<HubClient>,
        rules: HubRules,
        copy: Option<DataDirectory>,
        denied: Arc<DeniedUsers>,
        base: LoadedConfiguration,
    ) -> Result<Self, Failure> {
        let source = HubSource::start(client, rules, copy).await.map_err(Failure::runtime)?;
        Ok(Self { source, denied, base, logged: BTreeMap::new(), logged_problems: BTreeSet::new() })
    }

    /// Replaces the configuration of all other sources.
    pub(super) fn set_base(&mut self, base: LoadedConfiguration) {
        self.base = base;
    }

    /// Waits until the objects of the hub must be accepted again. Cancel: safe.
    pub(super) async fn changed(&self) {
        self.source.changed().await;
    }

    /// Returns a view of the hub's state for the report and the metrics.
    pub(super) fn monitor(&self) -> HubMonitor {
        self.source.monitor()
    }

    /// Returns the priority of a member in conflicts as [`InForce::order_of`](tributary_hub::InForce::order_of); `None`
    /// for a cluster of another source.
    pub(super) fn order_of(&self, name: &str) -> Option<(bool, u64)> {
        self.source.in_force().order_of(name)
    }

    /// Adds the objects of the hub to the configuration of all other sources. Returns whether objects in force have
    /// changed.
    pub(super) async fn accept(
        &mut self,
        indexes: IndexOwners,
        check: ConfigurationCheck<'_>,
    ) -> (LoadedConfiguration, bool) {
        let others = OtherSources { configuration: &self.base, indexes };
        let accepted = self.source.accept(&others, check).await;
        let Acceptance { configuration, denied, verdicts, problems, is_changed, .. } = accepted;
        self.denied.set_hub(denied);
        self.log_refusals(&verdicts);
        self.log_problems(problems);
        (configuration, is_changed)
    }

    /// Logs each problem once, until it has gone.
    fn log_problems(&mut self, problems: Vec<String>) {
        let problems = BTreeSet::from_iter(problems);
        for problem in problems.difference(&self.logged_problems) {
            tracing::warn!(problem, "a setting of a foreign object has no effect");
        }
        self.logged_problems = problems;
    }

    /// Logs each refusal once for each generation of an object.
    fn log_refusals(&mut self, verdicts: &[Verdict]) {
        let mut refusals = BTreeMap::new();
        for verdict in verdicts {
            refusals.extend(verdict.problem().map(|problem| ((verdict.object.clone(), None), problem)));
            let items = verdict.source.iter().flat_map(|source| source.refused());
            refusals.extend(items.map(|item| {
                let problem = format!("{}: {}", item.accepted.reason, item.accepted.message);
                ((verdict.object.clone(), Some(item.name.clone())), problem)
            }));
        }
        for (key, problem) in &refusals {
            if self.logged.get(key) != Some(problem) {
                let (object, item) = key;
                let (kind, name) = (object.kind.as_str(), &object.name);
                tracing::warn!(
                    kind,
                    name,
                    item,
                    generation = object.generation,
                    problem,
                    "an object of the hub has a problem"
                );
            }
        }
        self.logged = refusals;
    }
}
