//! The state of a running endpoint, and the application of changed configuration sources.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tributary_apimachinery::{ClusterName, ForeignSystem, or_pending};
use tributary_authentication::IdentityPolicy;
use tributary_hosts::{HostTable, Hosts, is_valid_for};
use tributary_hub::{HubClient, HubRules, OwnEndpoint, leads_to};
use tributary_listener::tls::TlsSettings;
use tributary_records::access_log::AccessLog;
use tributary_router::{CredentialOfName, ForeignMember, ForeignMembers, Policies, Router};
use tributary_sources::clusters::Clusters;
use tributary_sources::clusters::indices::{self, IndexOwners};
use tributary_sources::contexts::format_exclusion;
use tributary_sources::data_directory::DataDirectory;
use tributary_sources::kubeconfig::users_file;
use tributary_sources::kubeconfig::write::{ALL, ClientContext, ClientKubeconfig, Owner};
use tributary_sources::policies::{KnownClusters, NamedResource, named_resources, omit_unnumbered, policies};
use tributary_sources::{ClusterSpec, ConfigurationSources, LoadedConfiguration};

use super::clients::SharedClients;
use super::hub::{DeniedUsers, FollowedHub, HubConnection};
use super::identity::ServingIdentity;
use super::reload_cause::ReloadCause;
use super::unserved::UnservedResources;
use crate::cli::ServeArguments;
use crate::exit::Failure;
use crate::front::OpenDoors;
use crate::output::print;

/// The time for which the start waits for the clusters' first answers. After this time, the `partial` rule decides
/// about requests to unreachable clusters.
const FIRST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which the start waits until the roles and bindings of clusters are compiled into users' rights. Without
/// this wait, a load balancer would send requests that would be refused. Compiling the roles of a thousand clusters
/// takes up to 30 s. The start does not wait for unreachable clusters, nor for clusters whose roles the account may not
/// read.
const FIRST_RIGHTS_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval of checks for two names of one cluster, and for resources that no cluster serves. The checks are
/// repeated, because a cluster may become reachable after the start.
const CLUSTER_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The interval of retries after an invalid configuration, or for a cluster without a client. The retries are needed
/// because the file watch may miss a file that was removed and exists again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// The interval of checks of the serving certificate, which is renewed 30 days before its end.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The facts about a server that are reported when the server is ready.
pub struct Ready<'a> {
    /// The URL of the merged view.
    pub url: &'a str,
    /// The directory of persistent state.
    pub directory: &'a DataDirectory,
    /// The names of all clusters.
    pub clusters: &'a [ClusterName],
}

/// The parts of a configuration whose consistency was checked, ready to be applied.
struct CheckedParts {
    hosts: HostTable,
    policies: Policies,
    named: Vec<NamedResource>,
}

pub(super) struct RunningEndpoint {
    pub(super) arguments: ServeArguments,
    pub(super) sources: ConfigurationSources,
    /// The user's own kubeconfig, if contexts are added to it.
    pub(super) merged_kubeconfig: Option<PathBuf>,
    pub(super) clusters: Clusters,
    pub(super) router: Arc<Router>,
    pub(super) identity: ServingIdentity,
    /// The authentication in shared mode; `None` in personal mode.
    pub(super) clients: Option<SharedClients>,
    pub(super) access_log: Option<Arc<AccessLog>>,
    /// The TLS configuration of the listener.
    pub(super) tls: Arc<TlsSettings>,
    /// The host table, which selects the API of each host.
    pub(super) hosts: Arc<Hosts>,
    /// The names of members in foreign systems, from the configuration in force.
    pub(super) foreign: Vec<ForeignMember>,
    /// The doors of foreign systems at the aggregated entry.
    pub(super) doors: Arc<OpenDoors>,
    /// The socket address of the listener.
    pub(super) address: SocketAddr,
    pub(super) unserved: UnservedResources,
    /// The reason why the most recently read configuration was refused, if it was refused.
    pub(super) refused: Option<String>,
    pub(super) denied_users: Arc<DeniedUsers>,
    /// The connection to the hub; `None` without hub mode.
    pub(super) hub_connection: Option<HubConnection>,
    /// The hub; `None` without hub mode, and until the start.
    pub(super) hub: Option<FollowedHub>,
}

impl RunningEndpoint {
    /// Applies the first configuration. Any error in files or kubeconfigs ends the start.
    pub(super) async fn start(&mut self, configuration: LoadedConfiguration) -> Result<(), Failure> {
        let client = self.hub_connection.as_ref().map(|connection| Arc::clone(&connection.client));
        let configuration = match client {
            Some(client) => self.start_hub(client, configuration).await?,
            None => configuration,
        };
        self.apply(configuration).await.map_err(Failure::Usage)?;
        self.router.asked_once(FIRST_ANSWERS_TIMEOUT).await;
        self.router.rights_found_once(FIRST_RIGHTS_TIMEOUT).await;
        self.unserved.check(self.router.served_resources().as_ref());
        match self.router.same_cluster_twice() {
            _ if self.hub.is_some() => {
                self.refuse_same_clusters();
                Ok(())
            }
            None => Ok(()),
            Some((first, second)) => Err(Failure::Usage(self.same_cluster(&first, &second))),
        }
    }

    /// Starts to follow the hub. Returns the configuration of all sources.
    async fn start_hub(
        &mut self,
        client: Arc<HubClient>,
        base: LoadedConfiguration,
    ) -> Result<LoadedConfiguration, Failure> {
        // An error in a file must end the start before the wait for the hub, which may be long.
        self.check_sources(&base).map_err(Failure::Usage)?;
        let trusted = [&self.arguments.shared.token_review_cluster, &self.arguments.create_in];
        let rules = HubRules {
            reserved_names: trusted.into_iter().flatten().map(ToString::to_string).collect(),
            own: OwnEndpoint {
                address: Some(self.address),
                merged_hosts: self.arguments.merged_hosts.clone(),
                local_hosts: self.arguments.listen.local_hosts(),
            },
            ..self.arguments.hub.objects.rules().map_err(Failure::Usage)?
        };
        let copy = self.arguments.hub.hub_remember.then(|| self.identity.directory.clone());
        let denied = Arc::clone(&self.denied_users);
        let mut hub = FollowedHub::start(client, rules, copy, denied, base).await?;
        let (configuration, _) = self.accept_hub(&mut hub).await;
        self.hub = Some(hub);
        Ok(configuration)
    }

    /// Adds the accepted objects of the hub to the configuration of all other sources. Returns whether objects of the
    /// hub have changed.
    async fn accept_hub(&self, hub: &mut FollowedHub) -> (LoadedConfiguration, bool) {
        let check = |configuration: &LoadedConfiguration| {
            self.check_sources(configuration).map_err(|error| format!("{error:#}"))
        };
        // A file of indexes that cannot be read is treated as empty here. `check` reports the damage if the
        // configuration uses indexes.
        let indexes = IndexOwners::read(&self.identity.directory).unwrap_or_default();
        hub.accept(indexes, &check).await
    }

    /// Checks a whole configuration in hub mode, so that no object of the hub causes an error when the configuration is
    /// applied.
    fn check_sources(&self, configuration: &LoadedConfiguration) -> anyhow::Result<()> {
        if self.check_whole(configuration)?.policies.any_integer() {
            indices::check(&self.identity.directory, &configuration.clusters)?;
        }
        Ok(())
    }

    /// Makes hosts and policies of a configuration, and checks that its parts fit together.
    fn check_whole(&self, configuration: &LoadedConfiguration) -> anyhow::Result<CheckedParts> {
        let hosts = self.hosts_of(configuration)?;
        check_not_this_endpoint(self.address, &hosts, &configuration.clusters)?;
        let known: KnownClusters =
            configuration.clusters.iter().map(|spec| (spec.name.clone(), spec.labels.clone())).collect();
        let mut flags = self.arguments.policy_flags();
        if self.arguments.shared.has_hub {
            // The cluster of `--create-in` may be added to the hub later, so its absence is no error.
            flags.create_in = flags.create_in.filter(|name| known.contains_key(name));
        }
        let policies = policies(&flags, &configuration.objects.registries, &known)?;
        let named = named_resources(&flags, &configuration.objects.registries)?;
        Ok(CheckedParts { hosts, policies, named })
    }

    /// Applies a new configuration, or refuses it as a whole.
    async fn apply(&mut self, mut configuration: LoadedConfiguration) -> anyhow::Result<()> {
        let CheckedParts { hosts, mut policies, named } = self.check_whole(&configuration)?;
        if policies.any_integer() {
            indices::assign(&self.identity.directory, &mut configuration.clusters).await?;
            omit_unnumbered(&mut policies, &configuration.clusters);
        }
        self.review_tokens_of(&configuration.clusters)?;
        // Flow control is applied before the policies, which refer to its schemas. After an error, the later parts of
        // the configuration are not applied.
        self.router.set_flow_control(configuration.flow_control)?;
        self.sources.watch_files(configuration.files);
        let foreign = self.with_own_names(configuration.foreign, &configuration.clusters);
        self.close_changed_names(&foreign);
        self.clusters.update(configuration.clusters).await;
        // New dispatch policies are applied before new clusters, so that no request reaches a cluster without its
        // policies.
        self.router.set_dispatch(configuration.dispatch);
        if let Some(log) = &self.access_log {
            log.set_modes(configuration.logging);
        }
        self.router.set_policies(policies);
        self.unserved.set(named);
        self.router.set_member_sources(configuration.sources);
        self.router.set_clusters(self.clusters.setups());
        self.foreign = foreign;
        self.name_foreign_members();
        self.serve_hosts(hosts)
    }

    /// Adds the members' own names at the door of Open Cluster Management, which leads to the members of every source.
    /// The name of a ManagedCluster has priority.
    fn with_own_names(&self, mut foreign: Vec<ForeignMember>, clusters: &[Arc<ClusterSpec>]) -> Vec<ForeignMember> {
        const SYSTEM: ForeignSystem = ForeignSystem::OpenClusterManagement;
        if self.doors.has(SYSTEM) {
            let managed = foreign.iter().filter(|own| own.system == SYSTEM);
            let managed: HashSet<&str> = managed.map(|own| own.name.as_str()).collect();
            let others = clusters.iter().map(|spec| &spec.name).filter(|name| !managed.contains(name.as_str()));
            let others: Vec<_> = others.map(|name| ForeignMember::with_own_name(SYSTEM, name)).collect();
            foreign.extend(others);
        }
        foreign
    }

    /// Closes names in foreign systems whose member or identity is about to change. New credentials are applied before
    /// new names, so an open old name could use a credential of a different identity.
    fn close_changed_names(&mut self, new: &[ForeignMember]) {
        let new: HashMap<_, _> = new.iter().map(|member| ((member.system, member.name.as_str()), member)).collect();
        let stays = |own: &ForeignMember| {
            let next = new.get(&(own.system, own.name.as_str()));
            next.is_some_and(|next| next.cluster == own.cluster && next.identity == own.identity)
        };
        let before = self.foreign.len();
        self.foreign.retain(stays);
        if self.foreign.len() < before {
            self.name_foreign_members();
        }
    }

    /// Applies the names of members in foreign systems. The second name of a cluster leads to the first member. Without
    /// impersonation, its requests use the credential of the second object: otherwise its author would choose how the
    /// credential of the first object is used.
    fn name_foreign_members(&self) {
        let members = self.foreign.iter().filter_map(|member| {
            let Some(first) = self.clusters.duplicate_of(&member.cluster) else { return Some(member.clone()) };
            let credential = match member.identity {
                IdentityPolicy::Impersonate => None,
                IdentityPolicy::Stored | IdentityPolicy::Rules(_) => {
                    let (client, generation) = self.clusters.refused_client(&member.cluster)?;
                    Some(CredentialOfName { client, generation })
                }
            };
            Some(ForeignMember { cluster: first.clone(), credential, ..member.clone() })
        });
        let members = Arc::new(members.collect::<ForeignMembers>());
        self.router.set_foreign_members(Arc::clone(&members));
        self.doors.set_members(&members);
    }

    /// Returns the hosts of a configuration, if they are consistent with each other and with the authentication.
    fn hosts_of(&self, configuration: &LoadedConfiguration) -> anyhow::Result<HostTable> {
        let named = configuration.clusters.iter().map(|spec| (&spec.name, &spec.hosts));
        let (merged, local) = (&self.arguments.merged_hosts, self.arguments.listen.local_hosts());
        let hosts = HostTable::new(merged, local, named, &self.hosts.table())?;
        match (&self.clients, configuration.cluster_with_authorities()) {
            (Some(clients), _) => clients.check_hosts(&hosts)?,
            (None, Some(spec)) => anyhow::bail!(
                "{}: spec.secureServing has certificate authorities for clients, and the server was started in \
                 personal mode; restart it in shared mode, or remove them",
                spec.origin
            ),
            (None, None) => {}
        }
        let is_running = !self.clusters.names().is_empty();
        if is_running && self.hosts.table().has_merged_view() && !hosts.has_merged_view() {
            anyhow::bail!(
                "with the first spec.serverNames of an UpstreamCluster, the merged view would lose its host names, \
                 which are in use; restart the server with --merged-host HOST, or without it if the merged view is \
                 not needed"
            );
        }
        Ok(hosts)
    }

    fn serve_hosts(&self, hosts: HostTable) -> anyhow::Result<()> {
        let before = self.hosts.table();
        if !hosts.has_any_host() && !before.has_any_host() {
            return Ok(());
        }
        if !hosts.has_merged_view() {
            tracing::warn!("only clusters have host names; the merged view has none without --merged-host");
        }
        for (host, certificate) in hosts.certificates(|host| self.tls.certificate_of(host)) {
            if !is_valid_for(&certificate, host) {
                tracing::warn!(%host, "clients refuse the certificate of the host, because the certificate is for other names");
            }
        }
        self.tls.serve_hosts(&hosts)?;
        self.hosts.replace(hosts);
        // A cluster's own authorities may have changed, so the router checks the users of long-running requests again.
        self.router.authentication_changed();
        Ok(())
    }

    /// Applies the set of clusters that review bearer tokens, as configured.
    fn review_tokens_of(&self, clusters: &[Arc<ClusterSpec>]) -> anyhow::Result<()> {
        let Some(clients) = &self.clients else { return Ok(()) };
        let all = clusters.iter().map(|spec| spec.name.clone()).collect();
        let reviewing = clusters.iter().filter(|spec| spec.token_review).map(|spec| spec.name.clone());
        clients.set_clusters(&all, reviewing.collect())
    }

    fn same_cluster(&self, first: &ClusterName, second: &ClusterName) -> anyhow::Error {
        let origins = [self.clusters.origin(first), self.clusters.origin(second)];
        let context = origins.iter().rev().find_map(|origin| origin.strip_prefix("context "));
        let remedy = match context {
            Some(context) => {
                let given = self.arguments.contexts.as_deref();
                format!("exclude one of them, as by {}", format_exclusion(context.trim_matches('"'), given))
            }
            None => "remove one of them".to_owned(),
        };
        let [first_origin, second_origin] = origins;
        anyhow::anyhow!(
            "{first_origin} (cluster {first}) and {second_origin} (cluster {second}) lead to the same cluster: their \
             kube-system namespaces have the same uid; {remedy}"
        )
    }

    /// Applies changes of the configuration sources until cancelled.
    pub(super) async fn follow_changes(&mut self, reload: &Notify) {
        let mut check = tokio::time::interval(CLUSTER_CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut certificate = tokio::time::interval(CERTIFICATE_INTERVAL);
        // Without this reset, the interval's first tick would complete at once, although the start has just checked the
        // certificate.
        certificate.reset();
        let mut retry = tokio::time::interval(RETRY_INTERVAL);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.sources.changed() => self.reload(ReloadCause::FilesChanged).await,
                () = or_pending(self.hub.as_ref().map(FollowedHub::changed)) => self.reload(ReloadCause::HubChanged).await,
                // The authentication files of shared mode have changed.
                () = or_pending(self.clients.as_mut().map(SharedClients::changed)) => self.reload_clients(),
                () = reload.notified() => {
                    self.reload_clients();
                    self.reload(ReloadCause::Hangup).await;
                }
                _ = check.tick() => {
                    self.refuse_same_clusters();
                    self.unserved.check(self.router.served_resources().as_ref());
                }
                _ = certificate.tick() => self.renew_certificate().await,
                _ = retry.tick() => if self.refused.is_some() || self.clusters.any_failed() {
                    self.reload(ReloadCause::Retry).await;
                },
            }
        }
    }

    /// Reads the configuration again. If the configuration is invalid, the error is logged, and the previous
    /// configuration stays.
    async fn reload(&mut self, why: ReloadCause) {
        let (before, revisions) = (self.clusters.client_contexts(), self.clusters.revisions());
        let was_refused = self.refused.is_some();
        match self.read_and_apply(why).await {
            Err(error) => self.refuse(why, format!("{error:#}")),
            Ok(()) => self.refused = None,
        }
        let is_other = revisions != self.clusters.revisions() || before != self.clusters.client_contexts();
        if is_other || (self.refused.is_none() && (why.is_always_logged() || was_refused)) {
            self.report_change(why, &before).await;
        }
    }

    /// Reads all sources and applies them. While a file has an error, the previous files stay in use, and changes of
    /// the hub are applied.
    async fn read_and_apply(&mut self, why: ReloadCause) -> anyhow::Result<()> {
        let read = self.sources.read().await;
        let Some(mut hub) = self.hub.take() else { return self.apply(read?).await };
        let checked = read.and_then(|base| self.check_sources(&base).map(|()| base));
        let refused = checked.map(|base| hub.set_base(base));
        let (configuration, is_changed) = self.accept_hub(&mut hub).await;
        self.hub = Some(hub);
        // A write of a status changes an object of the hub, but not the configuration, so nothing is applied.
        if is_changed || why != ReloadCause::HubChanged || self.refused.is_some() {
            self.apply(configuration).await?;
        }
        refused
    }

    fn reload_clients(&mut self) {
        if let Some(clients) = &mut self.clients {
            clients.reload();
            self.router.authentication_changed();
        }
    }

    /// Logs why a configuration is refused. Repeated refusals for the same reason are logged once.
    fn refuse(&mut self, why: ReloadCause, reason: String) {
        if self.refused.as_ref() != Some(&reason) {
            tracing::error!(
                why = why.as_str(),
                reason,
                "the new configuration is refused; the previous one stays in use"
            );
        }
        self.refused = Some(reason);
    }

    async fn report_change(&self, why: ReloadCause, before: &[ClientContext]) {
        let after = self.clusters.client_contexts();
        let names = |contexts: &[ClientContext]| -> Vec<ClusterName> {
            contexts.iter().map(|context| context.cluster.clone()).collect()
        };
        let (earlier, now) = (names(before), names(&after));
        let (added, removed) = (difference(&now, &earlier), difference(&earlier, &now));
        tracing::info!(why = why.as_str(), added, removed, clusters = after.len(), "configuration reloaded");
        if before != after {
            self.rewrite_kubeconfigs().await;
        }
    }

    /// Refuses clusters that turn out to be a second name of another cluster. Such a cluster may have been unreachable
    /// at the start, so the check is repeated later.
    fn refuse_same_clusters(&mut self) {
        while let Some((first, second)) = self.router.same_cluster_twice() {
            let (first, second) = self.by_priority(first, second);
            let reason = self.same_cluster(&first, &second).to_string();
            tracing::error!(cluster = %second, reason, "the cluster is refused");
            self.clusters.refuse(&second, &first, reason);
            self.router.set_clusters(self.clusters.setups());
            self.name_foreign_members();
        }
    }

    /// Orders two names of one cluster by priority: a cluster of a file or kubeconfig before a member of the hub, and a
    /// member that was accepted earlier before a later one.
    fn by_priority(&self, first: ClusterName, second: ClusterName) -> (ClusterName, ClusterName) {
        let order = |name: &ClusterName| self.hub.as_ref().and_then(|hub| hub.order_of(name.as_str()));
        if order(&first) > order(&second) { (second, first) } else { (first, second) }
    }

    async fn renew_certificate(&mut self) {
        let before = self.identity.authority_pem.clone();
        if let Err(error) = self.identity.renew().await {
            tracing::error!(error = tributary_apimachinery::explain(&error), "the serving certificate was not renewed");
        } else if before != self.identity.authority_pem {
            self.rewrite_kubeconfigs().await;
        }
    }

    async fn rewrite_kubeconfigs(&self) {
        if let Err(error) = self.write_kubeconfigs().await {
            tracing::error!(%error, "the kubeconfig for clients was not written");
        }
    }

    /// Writes the kubeconfig for clients, and adds its contexts to the user's own kubeconfig.
    ///
    /// # Errors
    /// A usage failure for a file that the user must change or rename, and a runtime failure of the machine.
    pub(super) async fn write_kubeconfigs(&self) -> Result<(), Failure> {
        let clusters = self.clusters.client_contexts();
        // In shared mode, users have their own credentials, and the flags for kubeconfigs are refused.
        let (Some(token), Some(authority_pem)) = (&self.identity.token, &self.identity.authority_pem) else {
            return Ok(());
        };
        let (authority_pem, credential) = (Some(&**authority_pem), json!({ "token": token.expose() }));
        let owner = Owner::ONE_USER;
        let kubeconfig = ClientKubeconfig { url: &self.url(), authority_pem, owner, credential, clusters: &clusters };
        if let Some(path) = &self.arguments.write_kubeconfig {
            kubeconfig.write(path)?;
        }
        if let Some(path) = self.merged_kubeconfig.clone() {
            let entries = kubeconfig.entries(&self.arguments.merge.kubeconfig_prefix);
            users_file::add_entries(path.clone(), &users_file::merged_files(&path), entries).await?;
        }
        Ok(())
    }

    /// Prints the `ready:` line, the only line on standard output.
    pub(super) fn announce(&self, on_ready: impl FnOnce(&Ready<'_>)) {
        let (url, clusters) = (self.url(), self.clusters.names());
        print(&ready_line(&url, self.arguments.write_kubeconfig.as_deref(), &clusters));
        if let Some(path) = &self.merged_kubeconfig {
            let context = format!("{}{ALL}", self.arguments.merge.kubeconfig_prefix);
            tracing::info!(path = %path.display(), "contexts were put into the kubeconfig");
            let file = self.arguments.merge.merge_into_kubeconfig.as_ref().and_then(|file| file.as_deref());
            print(&example_command(&context, file));
        } else if self.arguments.write_kubeconfig.is_none() && self.clients.is_none() {
            tracing::info!("no kubeconfig is written for clients; --write-kubeconfig FILE does");
        }
        on_ready(&Ready { url: &url, directory: &self.identity.directory, clusters: &clusters });
    }

    /// Returns the URL of the merged view.
    fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// Refuses a cluster whose address is this endpoint, because requests to this cluster would loop through the endpoint
/// forever.
fn check_not_this_endpoint(
    address: SocketAddr,
    hosts: &HostTable,
    clusters: &[Arc<ClusterSpec>],
) -> anyhow::Result<()> {
    let leads_here = |url: &http::Uri| leads_to(address, url, |host| hosts.has(host));
    let leads_here = |spec: &&Arc<ClusterSpec>| {
        spec.config.as_ref().is_ok_and(|config| leads_here(&config.cluster_url))
            || spec.further_endpoints.iter().any(|further| leads_here(&further.url))
    };
    match clusters.iter().find(leads_here) {
        None => Ok(()),
        Some(spec) => {
            anyhow::bail!("{} leads to {address}, which is this server itself; exclude it with --contexts", spec.origin)
        }
    }
}

fn ready_line(url: &str, kubeconfig: Option<&Path>, clusters: &[ClusterName]) -> String {
    let names: Vec<&str> = clusters.iter().map(ClusterName::as_str).collect();
    let kubeconfig = kubeconfig.map(|path| format!(" kubeconfig={}", path.display())).unwrap_or_default();
    format!("ready: {url}{kubeconfig} clusters={}\n", names.join(","))
}

/// Returns a `kubectl` command with which the user can try the added contexts. `file` is the path in the flag for the
/// kubeconfig.
fn example_command(context: &str, file: Option<&Path>) -> String {
    let file = file.map(|file| format!(" --kubeconfig {}", file.display())).unwrap_or_default();
    format!("Try it: kubectl{file} --context {context} get pods -A\n")
}

/// Returns the cluster names in `one` that `other` does not contain.
fn difference(one: &[ClusterName], other: &[ClusterName]) -> String {
    let names: Vec<&str> = one.iter().filter(|name| !other.contains(name)).map(ClusterName::as_str).collect();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_refuses_to_serve_itself_as_a_cluster() {
        let address = "127.0.0.1:7443".parse().unwrap();
        let merged = ["all.example.com".parse().unwrap()];
        let hosts = HostTable::new(&merged, Vec::new(), [], &HostTable::default()).unwrap();
        for (server, expected) in [
            ("https://127.0.0.1:7443", false),
            ("https://127.0.0.1:7443/clusters/a", false),
            ("https://localhost:7443", false),
            ("https://127.0.0.1:6443", true),
            ("https://127.0.0.2:7443", true),
            ("https://example.com:7443", true),
            ("https://all.example.com:7443", false),
            ("https://ALL.example.com:7443", false),
            ("https://all.example.com:6443", true),
        ] {
            let config = Ok(kube::Config::new(server.parse().unwrap()));
            let spec = ClusterSpec::new(ClusterName::new("a").unwrap(), "context \"a\"".to_owned(), config);
            assert_eq!(
                check_not_this_endpoint(address, &hosts, &[Arc::new(spec.clone())]).is_ok(),
                expected,
                "{server}"
            );
            let further_endpoints = vec![server.parse::<http::Uri>().unwrap().into()];
            let config = Ok(kube::Config::new(http::Uri::from_static("https://other.example")));
            let behind = ClusterSpec { config, further_endpoints, ..spec };
            assert_eq!(
                check_not_this_endpoint(address, &hosts, &[Arc::new(behind)]).is_ok(),
                expected,
                "{server} behind another"
            );
        }
    }

    #[test]
    fn ready_message_is_a_single_line() {
        let clusters = ["a", "b"].map(|name| ClusterName::new(name).unwrap());
        let line = ready_line("https://127.0.0.1:1", Some(Path::new("all.kubeconfig")), &clusters);
        assert_eq!(line, "ready: https://127.0.0.1:1 kubeconfig=all.kubeconfig clusters=a,b\n");
        assert_eq!(ready_line("https://[::1]:1", None, &[]), "ready: https://[::1]:1 clusters=\n");
        assert_eq!(difference(&clusters, &clusters[..1]), "b");
    }
}
