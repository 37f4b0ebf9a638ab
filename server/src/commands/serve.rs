//! `tributary serve`: wires sources, router and listener together, and keeps them in step until told to stop.

mod clients;
mod identity;
mod reload_cause;
mod running;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tributary_proxy::ClientTuning;
use tributary_router::{Policies, Router, RouterConfig};

use crate::access_log::AccessLog;
use crate::audit::{AuditError, Auditor};
use crate::authentication::{AuthenticationFilesError, Authenticator};
use crate::cli::{Replicas, ServeArguments};
use crate::clusters::Clusters;
use crate::config_source::ConfigurationSources;
use crate::config_source::watch::FileWatch;
use crate::core_dumps;
use crate::data_directory::{DataDirectory, EPOCHS, last_heard};
use crate::denied_users::{DeniedUsersFile, DeniedUsersFileError};
use crate::descriptors;
use crate::exit::Failure;
use crate::front::Front;
use crate::hosts::Hosts;
use crate::kubeconfig::users_file;
use crate::kubeconfig::write::check_replaceable;
use crate::listener::tls::TlsSettings;
use crate::listener::{self, Drained, ProxyProtocolPeers};
use crate::observed::Observers;
use crate::replicas::Exchange;
use crate::signals::Signals;
use crate::threads::{Threads, cores};
use crate::traces::{Tracer, TracingConfiguration};
use clients::SharedClients;
use identity::ServingIdentity;
pub use running::Ready;
use running::Running;

/// Serves until a signal ends it. `on_ready` is called once, after the `ready:` line has been printed.
///
/// # Errors
/// [`Failure`] of the start; what comes later is logged and served around.
pub async fn serve(arguments: ServeArguments, on_ready: impl FnOnce(&Ready<'_>)) -> Result<(), Failure> {
    core_dumps::forbid();
    descriptors::raise_limit();
    let (leaving, at_once, reload) = (CancellationToken::new(), CancellationToken::new(), Arc::new(Notify::new()));
    let reload_on_signal = Arc::clone(&reload);
    let signals = Signals::take().map_err(Failure::runtime)?;
    tokio::spawn(signals.follow(leaving.clone(), at_once.clone(), move || reload_on_signal.notify_one()));
    match at_once.run_until_cancelled(serve_until(&leaving, &reload, arguments, on_ready)).await {
        Some(served) => served,
        None => Err(Failure::runtime(anyhow::anyhow!("a second signal ended it before it had drained"))),
    }
}

/// Serves until `leaving` is cancelled, for the shutdown delay beyond that, and until everything has drained. During the
/// start `leaving` ends it at once.
async fn serve_until(
    leaving: &CancellationToken,
    reload: &Notify,
    mut arguments: ServeArguments,
    on_ready: impl FnOnce(&Ready<'_>),
) -> Result<(), Failure> {
    if is_settled_by_flags(&arguments) {
        check_access(&arguments).map_err(Failure::Usage)?;
    }
    let is_one = arguments.replicas == Some(Replicas::One);
    arguments.sharing.check(is_one).map_err(Failure::Usage)?;
    let (sources, merged_kubeconfig) = (sources(&arguments)?, merged_kubeconfig(&arguments)?);
    let Some(configuration) = leaving.run_until_cancelled(sources.read()).await else { return Ok(()) };
    let configuration = configuration.map_err(Failure::usage)?;
    // From here on it is settled whether many users are served.
    arguments.shared.hosts_vouch = configuration.vouching_cluster().is_some();
    check_access(&arguments).map_err(Failure::Usage)?;
    let audit = Auditor::open(&arguments.audit).await.map_err(|error| match error {
        AuditError::Log { .. } => Failure::runtime(error),
        _ => Failure::usage(error),
    })?;
    let observers = observers(&arguments)?;
    let Some(identity) = leaving.run_until_cancelled(ServingIdentity::open(&arguments)).await else { return Ok(()) };
    let identity = identity?;
    let is_shared = arguments.shared.is_shared();
    let router = Router::new(router_config(&identity.directory, &arguments));
    let tls = TlsSettings::new(Arc::clone(&identity.certificate), arguments.shared.tls_min_version.and_later());
    let (tls, hosts) = (Arc::new(tls.map_err(Failure::runtime)?), Arc::<Hosts>::default());
    let open = || SharedClients::open(&arguments.shared, &identity.certificate, &router, (&tls, &hosts));
    let shared = is_shared.then(open).transpose()?;
    // What members say is taken in on the threads of this task, and what clients ask is answered on these.
    let clients = Threads::start("clients", 1).map_err(Failure::runtime)?;
    let socket = {
        let _socket_is_theirs = clients.enter();
        listener::bind(arguments.listen.socket_address()).map_err(Failure::runtime)?
    };
    let address = socket.local_addr().map_err(Failure::runtime)?;

    let tuning = ClientTuning { connections_to_spread_over: spread_over(cores()), ..ClientTuning::default() };
    let shutdown = tuning.shutdown.clone();
    let _denied = match &arguments.shared.denied_users_file {
        Some(path) => Some(follow_denied(&router, path).await.map_err(Failure::usage)?),
        None => None,
    };
    let mut running = Running {
        clusters: Clusters::new(tuning),
        router: Arc::clone(&router),
        watch: FileWatch::new(),
        sources,
        identity,
        clients: shared,
        access_log: observers.access_log.clone(),
        tls,
        hosts,
        arguments,
        merged_kubeconfig,
        address,
        refused: None,
    };
    // What cannot be listened on ends the start before anybody is told that it serves.
    let exchange = Exchange::open(&running.arguments.sharing, &router)?;
    let Some(started) = leaving.run_until_cancelled(running.start(configuration)).await else { return Ok(()) };
    started?;
    let stop = &CancellationToken::new();
    tokio::spawn(stop_after(
        leaving.clone(),
        running.arguments.shutdown_delay_duration,
        Arc::clone(&router),
        stop.clone(),
    ));
    if let Some(clients) = &running.clients {
        tokio::spawn(
            stop.clone().run_until_cancelled_owned(clients.follow_member_keys(&router, &running.identity.directory)),
        );
        tokio::spawn(stop.clone().run_until_cancelled_owned(clients.review_followed_tokens(&router)));
    }

    if let Some(exchange) = exchange {
        tokio::spawn(exchange.run(stop.clone()));
    }
    let logs = (audit.clone(), observers.clone());
    let serving = answer_clients(&running, (Arc::clone(&router), logs), &clients, socket, stop)?;
    running.write_kubeconfigs().await.map_err(Failure::runtime)?;
    running.announce(on_ready);

    stop.run_until_cancelled(running.keep_up(reload)).await;
    let drained = serving.await.context("the listener ended").map_err(Failure::runtime)?;
    // What is still open is cut now, so that the logs have the last lines of it.
    clients.end().await;
    router.last_heard_is_kept().await;
    shutdown.cancel();
    if let Some(audit) = audit {
        audit.shut_down().await;
    }
    if let Some(access_log) = observers.access_log {
        access_log.shut_down().await;
    }
    if let Some(tracer) = observers.tracer {
        tracer.shut_down().await;
    }
    tracing::info!(cut = drained.cut, "stopped");
    Ok(())
}

/// The access log and the traces that the flags ask for.
fn observers(arguments: &ServeArguments) -> Result<Observers, Failure> {
    let access_log = AccessLog::open(&arguments.access_log).map_err(Failure::runtime)?;
    let tracer = match &arguments.tracing_config_file {
        Some(path) => {
            let configuration = TracingConfiguration::read(path).map_err(Failure::usage)?;
            Some(Tracer::start(&configuration).map_err(Failure::usage)?)
        }
        None => None,
    };
    Ok(Observers { access_log, tracer })
}

/// Once `leaving` is cancelled, has `/readyz` fail, and cancels `stop` after the delay: whoever goes by `/readyz`, or by
/// a list of endpoints that the process has left, sends clients here until they have noticed.
async fn stop_after(leaving: CancellationToken, delay: Duration, router: Arc<Router>, stop: CancellationToken) {
    leaving.cancelled().await;
    router.leave();
    tokio::time::sleep(delay).await;
    stop.cancel();
}

/// Where the configuration is read from, none of which is the kubeconfig that is to be written.
fn sources(arguments: &ServeArguments) -> Result<ConfigurationSources, Failure> {
    let sources = ConfigurationSources::new(arguments.clusters()).map_err(Failure::usage)?;
    if let Some(path) = &arguments.write_kubeconfig {
        sources.check_not_read(path).map_err(Failure::usage)?;
        check_replaceable(path).map(drop).map_err(Failure::usage)?;
    }
    if let Some(path) = merged_kubeconfig(arguments)? {
        users_file::check(&path).map_err(Failure::usage)?;
    }
    Ok(sources)
}

/// The user's own kubeconfig, if contexts are to be put into it.
fn merged_kubeconfig(arguments: &ServeArguments) -> Result<Option<PathBuf>, Failure> {
    match &arguments.merge.merge_into_kubeconfig {
        None => Ok(None),
        Some(Some(path)) => Ok(Some(path.clone())),
        Some(None) => users_file::default_path().map(Some).map_err(Failure::usage),
    }
}

/// Denies the users whom a file names, as long as what is given is held.
async fn follow_denied(router: &Arc<Router>, path: &Path) -> Result<AbortOnDropHandle<()>, DeniedUsersFileError> {
    let mut file = DeniedUsersFile::open(path).await?;
    let router = Arc::clone(router);
    router.deny(file.denied().clone());
    // Beside what is read of the configuration, which may wait for a credential plugin.
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            file.changed().await;
            router.deny(file.denied().clone());
        }
    })))
}

/// Begins to answer clients on their threads, until `stop` is cancelled and everything has drained.
fn answer_clients(
    running: &Running,
    (router, (audit, observers)): (Arc<Router>, (Option<Arc<Auditor>>, Observers)),
    clients: &Threads,
    socket: TcpListener,
    stop: &CancellationToken,
) -> Result<JoinHandle<Drained>, Failure> {
    let front = Front::new(Arc::new(router), known_clients(running)?, stop.clone());
    let front = front.audited(audit).observed(observers).at(Arc::clone(&running.hosts));
    let front = Arc::new(front.sending_away(running.arguments.goaway_chance));
    let tls = Arc::clone(&running.tls);
    let limits = &running.arguments.limits;
    let connections = descriptors::for_clients(limits.max_connections);
    let bounds = listener::Bounds { connections, unread_bytes: limits.max_unread_bytes };
    let proxies = ProxyProtocolPeers(running.arguments.shared.proxy_protocol_from.clone());
    Ok(clients.spawn(listener::serve(socket, tls, front, bounds, proxies)))
}

/// Who the clients are.
fn known_clients(running: &Running) -> Result<Authenticator, Failure> {
    if let Some(clients) = &running.clients {
        return Ok(clients.authenticator());
    }
    let token =
        running.identity.token.as_ref().context("there is no credential for a client").map_err(Failure::runtime)?;
    Ok(Authenticator::Personal(token.digest()))
}

/// Whether the flags alone say that many users are served, or one: with `--config`, hosts of clusters may have authorities
/// of their own.
fn is_settled_by_flags(arguments: &ServeArguments) -> bool {
    arguments.shared.is_shared() || arguments.config.is_none()
}

/// Whether who may connect, and from where, fits together.
fn check_access(arguments: &ServeArguments) -> anyhow::Result<()> {
    let shared = &arguments.shared;
    if !shared.is_shared() {
        arguments.listen.for_one_person()?;
        for (flag, is_given) in [
            ("--denied-users-file", shared.denied_users_file.is_some()),
            ("--proxy-protocol-from", !shared.proxy_protocol_from.is_empty()),
            ("--tls-cert-file", shared.tls_cert_file.is_some()),
            ("--tls-sni-cert-key", !shared.tls_sni_cert_key.is_empty()),
            ("--api-audiences", !shared.api_audiences.is_empty()),
        ] {
            anyhow::ensure!(
                !is_given,
                "{flag} is for an endpoint that many users share, and nobody vouches for clients; give --client-ca-file, \
                 --requestheader-client-ca-file, --authentication-config, --token-review-cluster or an UpstreamCluster \
                 with spec.secureServing.clientCAFile, or leave it out"
            );
        }
        return Ok(());
    }
    arguments.listen.for_many(shared.tls_cert_file.is_some())?;
    let has_both = shared.client_ca_file.is_some() && shared.requestheader_client_ca_file.is_some();
    if has_both && shared.requestheader_allowed_names.is_empty() {
        return Err(AuthenticationFilesError::AnyClientMayBeAProxy.into());
    }
    anyhow::ensure!(
        arguments.write_kubeconfig.is_none() && arguments.merge.merge_into_kubeconfig.is_none(),
        "--write-kubeconfig and --merge-into-kubeconfig write the credential of the endpoint's one user, and a shared \
         endpoint has none: each user has a kubeconfig with a credential of their own (docs/shared-mode.md)"
    );
    Ok(())
}

fn router_config(directory: &DataDirectory, arguments: &ServeArguments) -> RouterConfig {
    let (keep, keep_heard) = (directory.clone(), directory.clone());
    RouterConfig {
        policies: Policies::default(),
        limits: arguments.limits.router(),
        alone: arguments.is_alone(),
        replicas: arguments.sharing.replicas(),
        epochs: EPOCHS.read(directory),
        keep_epochs: Some(Box::new(move |epochs| EPOCHS.write(&keep, epochs))),
        last_heard: last_heard::read(directory),
        keep_last_heard: Some(Box::new(move |heard| last_heard::keep(&keep_heard, heard))),
        shared: arguments.shared.is_shared().then(|| arguments.shared.mode()),
    }
}

/// Over how many connections to a member the requests of many clients spread: half of the cores encrypt and frame for
/// members, the others for clients. Four at most, which is more than one kube-apiserver answers; one on two cores, where
/// a second gained nothing.
fn spread_over(cores: usize) -> usize {
    (cores / 2).clamp(1, 4)
}
