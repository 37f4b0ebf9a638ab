//! `tributary serve`: wires sources, router and listener together, and keeps them in step until told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::ClusterName;
use tributary_merge::Epochs;
use tributary_proxy::Tuning;
use tributary_router::{Policies, Router, RouterConfig};

use crate::authentication::Authenticator;
use crate::cli::ServeArguments;
use crate::cluster_indices;
use crate::clusters::Clusters;
use crate::config_source::watch::FileWatch;
use crate::config_source::{ClusterSpec, Configuration, Sources};
use crate::core_dumps;
use crate::credentials::{BearerToken, Certificates, certificates};
use crate::data_directory::{DataDirectory, DataDirectoryError};
use crate::descriptors;
use crate::exit::Failure;
use crate::front::Front;
use crate::kubeconfig::write::{ClientKubeconfig, check_replaceable};
use crate::listener::tls::{ServingCertificate, server_config};
use crate::listener::{self, ListenAddress};
use crate::policies::{PolicyFlags, policies};
use crate::signals::Signals;
use crate::threads::Threads;

/// Where the lists of clusters that compact resourceVersions refer to are kept.
pub(super) const EPOCHS_FILE: &str = "epochs.json";

/// How long the start waits for the members' first answers. Longer would not help: what is out of reach now is served by
/// the partial rule, and compared when it comes.
const FIRST_ANSWERS: Duration = Duration::from_secs(5);
/// How often two names for one cluster are looked for, for members that were out of reach at the start.
const SAME_CLUSTER_INTERVAL: Duration = Duration::from_secs(5);
/// How often a configuration that was refused, or a cluster without a client, is tried anew: a file that it names may have
/// come back where nothing watches.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Why such a try is made, in the log.
const ANOTHER_TRY: &str = "another try";
/// How often the serving certificate's end is looked at; it is renewed 30 days before.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// What is said when the server serves.
pub struct Ready<'a> {
    /// The URL of the merged view.
    pub url: &'a str,
    /// The data directory.
    pub directory: &'a DataDirectory,
    /// The clusters, by name.
    pub clusters: &'a [ClusterName],
}

/// The data directory where the environment puts it.
///
/// # Errors
/// [`DataDirectoryError::Unknown`].
pub(super) fn default_data_directory() -> Result<PathBuf, DataDirectoryError> {
    DataDirectory::default_path(std::env::var_os("XDG_DATA_HOME").map(PathBuf::from), std::env::home_dir())
}

/// Serves until a signal ends it. `on_ready` is called once, after the `ready:` line has been printed.
///
/// # Errors
/// [`Failure`] of the start; what comes later is logged and served around.
pub async fn serve(arguments: ServeArguments, on_ready: impl FnOnce(&Ready<'_>)) -> Result<(), Failure> {
    core_dumps::forbid();
    descriptors::raise_limit();
    let (stop, at_once, reload) = (CancellationToken::new(), CancellationToken::new(), Arc::new(Notify::new()));
    let reload_on_signal = Arc::clone(&reload);
    let signals = Signals::take().map_err(Failure::runtime)?;
    tokio::spawn(signals.follow(stop.clone(), at_once.clone(), move || reload_on_signal.notify_one()));
    match at_once.run_until_cancelled(serve_until(&stop, &reload, arguments, on_ready)).await {
        Some(served) => served,
        None => Err(Failure::runtime(anyhow::anyhow!("a second signal ended it before it had drained"))),
    }
}

/// Serves until `stop` is cancelled and everything has drained. During the start `stop` ends it at once.
async fn serve_until(
    stop: &CancellationToken,
    reload: &Notify,
    arguments: ServeArguments,
    on_ready: impl FnOnce(&Ready<'_>),
) -> Result<(), Failure> {
    let sources = Sources::new(&arguments).map_err(Failure::usage)?;
    if let Some(path) = &arguments.write_kubeconfig {
        sources.check_not_read(path).map_err(Failure::usage)?;
        check_replaceable(path).map(drop).map_err(Failure::usage)?;
    }
    let Some(configuration) = stop.run_until_cancelled(sources.read()).await else { return Ok(()) };
    let configuration = configuration.map_err(Failure::usage)?;
    let Some(identity) = stop.run_until_cancelled(Identity::open(&arguments)).await else { return Ok(()) };
    let identity = identity?;
    // What members say is taken in on the threads of this task, and what clients ask is answered on these.
    let clients = Threads::start("clients", 1).map_err(Failure::runtime)?;
    let socket = {
        let _socket_is_theirs = clients.enter();
        listener::bind(arguments.listen.socket_address()).map_err(Failure::runtime)?
    };
    let address = socket.local_addr().map_err(Failure::runtime)?;

    let tuning = Tuning::default();
    let shutdown = tuning.shutdown.clone();
    let router = Router::new(router_config(&identity.directory, &arguments));
    let mut running = Running {
        clusters: Clusters::new(tuning),
        router: Arc::clone(&router),
        watch: FileWatch::new(),
        sources,
        identity,
        arguments,
        address,
        refused: None,
    };
    let Some(started) = stop.run_until_cancelled(running.start(configuration)).await else { return Ok(()) };
    started?;

    let authenticator = Authenticator::new(running.identity.token.digest());
    let front = Arc::new(Front::new(Arc::new(router), authenticator, stop.clone()));
    let tls = server_config(Arc::clone(&running.identity.certificate)).map_err(Failure::runtime)?;
    let limits = &running.arguments.limits;
    let connections = descriptors::for_clients(limits.max_connections);
    let bounds = listener::Bounds { connections, unread_bytes: limits.max_unread_bytes };
    let serving = clients.spawn(listener::serve(socket, tls, front, bounds));
    running.write_kubeconfig().map_err(Failure::runtime)?;
    running.announce(on_ready);

    stop.run_until_cancelled(running.keep_up(reload)).await;
    let drained = serving.await.context("the listener ended").map_err(Failure::runtime)?;
    shutdown.cancel();
    tracing::info!(cut = drained.cut, "stopped");
    Ok(())
}

/// What this endpoint proves itself by, and what its clients do.
struct Identity {
    directory: DataDirectory,
    token: BearerToken,
    listen: ListenAddress,
    authority_pem: String,
    certificate: Arc<ServingCertificate>,
}

impl Identity {
    async fn open(arguments: &ServeArguments) -> Result<Self, Failure> {
        let path = match &arguments.data_dir {
            Some(path) => path.clone(),
            None => default_data_directory().map_err(Failure::usage)?,
        };
        let directory = DataDirectory::open(path).map_err(Failure::runtime)?;
        // Two processes that begin at once must not make two authorities.
        let _lock = directory.lock().await.map_err(Failure::runtime)?;
        let token = BearerToken::open(&directory).map_err(Failure::runtime)?;
        let names = arguments.listen.certificate_names();
        let made = Certificates::open(&directory, &names, certificates::now()).map_err(Failure::runtime)?;
        Ok(Self {
            authority_pem: made.authority_pem().to_owned(),
            certificate: ServingCertificate::new(made.certified_key().map_err(Failure::runtime)?),
            listen: arguments.listen,
            directory,
            token,
        })
    }

    /// Replaces the serving certificate when its end is near.
    async fn renew(&mut self) -> Result<(), certificates::CertificateError> {
        let _lock = self.directory.lock().await?;
        let made = Certificates::open(&self.directory, &self.listen.certificate_names(), certificates::now())?;
        self.certificate.replace(made.certified_key()?);
        self.authority_pem = made.authority_pem().to_owned();
        Ok(())
    }
}

/// Everything that changes while the server runs.
struct Running {
    arguments: ServeArguments,
    sources: Sources,
    clusters: Clusters,
    router: Arc<Router>,
    watch: FileWatch,
    identity: Identity,
    /// Where this endpoint listens.
    address: SocketAddr,
    /// Why the configuration that was read last is not the one that is served.
    refused: Option<String>,
}

impl Running {
    /// The first configuration: here everything that is wrong ends the start.
    async fn start(&mut self, configuration: Configuration) -> Result<(), Failure> {
        self.apply(configuration).await.map_err(Failure::Usage)?;
        self.router.asked_once(FIRST_ANSWERS).await;
        match self.router.same_cluster_twice() {
            None => Ok(()),
            Some((first, second)) => Err(Failure::Usage(self.same_cluster(&first, &second))),
        }
    }

    /// Takes over a configuration that has been read, or refuses it whole.
    async fn apply(&mut self, mut configuration: Configuration) -> anyhow::Result<()> {
        different_from(self.address, &configuration.clusters)?;
        let known = configuration.clusters.iter().map(|spec| (spec.name.clone(), spec.labels.clone())).collect();
        let policies = policies(&PolicyFlags::from(&self.arguments), &configuration.registries, &known)?;
        if policies.any_integer() {
            cluster_indices::assign(&self.identity.directory, &mut configuration.clusters).await?;
        }
        self.watch.set(configuration.files);
        self.clusters.update(configuration.clusters).await;
        self.router.set_policies(policies);
        self.router.set_clusters(self.clusters.setups());
        Ok(())
    }

    fn same_cluster(&self, first: &ClusterName, second: &ClusterName) -> anyhow::Error {
        let (first_origin, second_origin) = (self.clusters.origin(first), self.clusters.origin(second));
        anyhow::anyhow!(
            "{first_origin} (cluster {first}) and {second_origin} (cluster {second}) lead to the same cluster: their \
             kube-system namespaces have the same uid; leave one of them out"
        )
    }

    /// Follows changes until cancelled.
    async fn keep_up(&mut self, reload: &Notify) {
        let mut same_cluster = tokio::time::interval(SAME_CLUSTER_INTERVAL);
        same_cluster.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut certificate = tokio::time::interval(CERTIFICATE_INTERVAL);
        // The first tick is at once, and the start has just done it.
        certificate.reset();
        let mut retry = tokio::time::interval(RETRY_INTERVAL);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.watch.changed() => self.reload("the files have changed").await,
                () = reload.notified() => self.reload("SIGHUP").await,
                _ = same_cluster.tick() => self.refuse_same_clusters(),
                _ = certificate.tick() => self.renew_certificate().await,
                _ = retry.tick() => if self.refused.is_some() || self.clusters.any_failed() {
                    self.reload(ANOTHER_TRY).await;
                },
            }
        }
    }

    /// Reads everything anew. A configuration that cannot be used is logged, and the old one stays.
    async fn reload(&mut self, why: &str) {
        let (before, fingerprints) = (self.clusters.names(), self.clusters.fingerprints());
        let applied = match self.sources.read().await {
            Ok(configuration) => self.apply(configuration).await,
            Err(error) => Err(error),
        };
        match applied {
            Err(error) => self.refuse(why, format!("{error:#}")),
            Ok(()) => {
                let was_refused = self.refused.take().is_some();
                // A try that was nobody's wish and changed nothing is no news.
                if why != ANOTHER_TRY || was_refused || fingerprints != self.clusters.fingerprints() {
                    self.report_change(why, &before);
                }
            }
        }
    }

    /// Logs why a configuration is refused, once for each reason.
    fn refuse(&mut self, why: &str, reason: String) {
        if self.refused.as_ref() != Some(&reason) {
            tracing::error!(why, reason, "the new configuration is refused; the old one stays");
        }
        self.refused = Some(reason);
    }

    fn report_change(&self, why: &str, before: &[ClusterName]) {
        let after = self.clusters.names();
        let (added, removed) = (difference(&after, before), difference(before, &after));
        tracing::info!(why, added, removed, clusters = after.len(), "configuration reloaded");
        if before != after
            && let Err(error) = self.write_kubeconfig()
        {
            tracing::error!(error = format!("{error:#}"), "the kubeconfig for clients was not written");
        }
    }

    /// A member that was out of reach at the start may turn out to be one that is served already.
    fn refuse_same_clusters(&mut self) {
        while let Some((first, second)) = self.router.same_cluster_twice() {
            let reason = self.same_cluster(&first, &second).to_string();
            tracing::error!(cluster = %second, reason, "the cluster is refused");
            self.clusters.refuse(&second, &first, reason);
            self.router.set_clusters(self.clusters.setups());
        }
    }

    async fn renew_certificate(&mut self) {
        let before = self.identity.authority_pem.clone();
        if let Err(error) = self.identity.renew().await {
            tracing::error!(error = tributary_apimachinery::explain(&error), "the serving certificate was not renewed");
        } else if before != self.identity.authority_pem
            && let Err(error) = self.write_kubeconfig()
        {
            tracing::error!(error = format!("{error:#}"), "the kubeconfig for clients was not written");
        }
    }

    fn write_kubeconfig(&self) -> anyhow::Result<()> {
        let Some(path) = &self.arguments.write_kubeconfig else { return Ok(()) };
        let clusters = self.clusters.names();
        let kubeconfig = ClientKubeconfig {
            url: &self.url(),
            authority_pem: &self.identity.authority_pem,
            token: &self.identity.token,
            clusters: &clusters,
        };
        Ok(kubeconfig.write(path)?)
    }

    /// The one line on standard output.
    fn announce(&self, on_ready: impl FnOnce(&Ready<'_>)) {
        let (url, clusters) = (self.url(), self.clusters.names());
        print(&ready_line(&url, self.arguments.write_kubeconfig.as_deref(), &clusters));
        if self.arguments.write_kubeconfig.is_none() {
            tracing::info!("no kubeconfig is written for clients; --write-kubeconfig FILE does");
        }
        on_ready(&Ready { url: &url, directory: &self.identity.directory, clusters: &clusters });
    }

    /// The URL of the merged view.
    fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// Refuses a cluster that is this endpoint: each of its requests would come back for ever.
fn different_from(address: SocketAddr, clusters: &[ClusterSpec]) -> anyhow::Result<()> {
    let leads_here = |server: &http::Uri| {
        let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
        let same_host = host == "localhost" || host.parse() == Ok(address.ip());
        same_host && server.port_u16() == Some(address.port())
    };
    let leads_here = |spec: &&ClusterSpec| {
        spec.config.as_ref().is_ok_and(|config| leads_here(&config.cluster_url))
            || spec.further_endpoints.iter().any(|further| leads_here(&further.url))
    };
    match clusters.iter().find(leads_here) {
        None => Ok(()),
        Some(spec) => anyhow::bail!(
            "{} leads to {address}, which is this endpoint itself; leave it out: --contexts names the ones to serve",
            spec.origin
        ),
    }
}

fn ready_line(url: &str, kubeconfig: Option<&Path>, clusters: &[ClusterName]) -> String {
    let names: Vec<&str> = clusters.iter().map(ClusterName::as_str).collect();
    let kubeconfig = kubeconfig.map(|path| format!(" kubeconfig={}", path.display())).unwrap_or_default();
    format!("ready: {url}{kubeconfig} clusters={}\n", names.join(","))
}

/// Prints text; a reader that went away is no reason to fail.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// What stands in `one` and not in `other`.
fn difference(one: &[ClusterName], other: &[ClusterName]) -> String {
    let names: Vec<&str> = one.iter().filter(|name| !other.contains(name)).map(ClusterName::as_str).collect();
    names.join(",")
}

fn router_config(directory: &DataDirectory, arguments: &ServeArguments) -> RouterConfig {
    let keep = directory.clone();
    RouterConfig {
        policies: Policies::default(),
        limits: arguments.limits.router(),
        alone: arguments.is_alone(),
        epochs: read_epochs(directory),
        keep_epochs: Some(Box::new(move |epochs| {
            let bytes = serde_json::to_vec(epochs).unwrap_or_default();
            if let Err(error) = keep.write(EPOCHS_FILE, &bytes) {
                let error = tributary_apimachinery::explain(&error);
                tracing::warn!(
                    error,
                    "the list of clusters was not kept; compact resourceVersions will be answered 410 after a restart"
                );
            }
        })),
    }
}

/// What an earlier run kept. Without it old compact versions are 410, which clients survive: no reason not to start.
fn read_epochs(directory: &DataDirectory) -> Epochs {
    let read = directory.read(EPOCHS_FILE).map_err(anyhow::Error::from);
    let parsed = read.and_then(|bytes| match bytes {
        Some(bytes) => Ok(serde_json::from_slice(&bytes)?),
        None => Ok(Epochs::default()),
    });
    parsed.unwrap_or_else(|error| {
        tracing::warn!(
            file = EPOCHS_FILE,
            error = format!("{error:#}"),
            "the kept lists of clusters cannot be read; older compact resourceVersions are answered 410"
        );
        Epochs::default()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_cluster_that_is_this_endpoint_is_refused() {
        let address = "127.0.0.1:7443".parse().unwrap();
        for (server, expected) in [
            ("https://127.0.0.1:7443", false),
            ("https://127.0.0.1:7443/clusters/a", false),
            ("https://localhost:7443", false),
            ("https://127.0.0.1:6443", true),
            ("https://127.0.0.2:7443", true),
            ("https://example.com:7443", true),
        ] {
            let spec = ClusterSpec {
                name: ClusterName::new("a").unwrap(),
                origin: "context \"a\"".to_owned(),
                config: Ok(kube::Config::new(server.parse().unwrap())),
                further_endpoints: Vec::new(),
                fingerprint: String::new(),
                user_fingerprint: String::new(),
                warnings: Vec::new(),
                index: None,
                labels: BTreeMap::new(),
            };
            assert_eq!(different_from(address, std::slice::from_ref(&spec)).is_ok(), expected, "{server}");
            let further_endpoints = vec![server.parse::<http::Uri>().unwrap().into()];
            let config = Ok(kube::Config::new(http::Uri::from_static("https://other.example")));
            let behind = ClusterSpec { config, further_endpoints, ..spec };
            assert_eq!(different_from(address, &[behind]).is_ok(), expected, "{server} behind another");
        }
    }

    #[test]
    fn the_ready_line_is_one_line() {
        let clusters = ["a", "b"].map(|name| ClusterName::new(name).unwrap());
        let line = ready_line("https://127.0.0.1:1", Some(Path::new("all.kubeconfig")), &clusters);
        assert_eq!(line, "ready: https://127.0.0.1:1 kubeconfig=all.kubeconfig clusters=a,b\n");
        assert_eq!(ready_line("https://[::1]:1", None, &[]), "ready: https://[::1]:1 clusters=\n");
        assert_eq!(difference(&clusters, &clusters[..1]), "b");
    }
}
