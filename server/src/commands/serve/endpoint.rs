//! The endpoint of `serve`. The endpoint opens its ports before it connects to clusters, and answers requests after the
//! wait for the clusters' first answers. The aggregated entry answers requests for its own documents at once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::FutureExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tributary_hosts::Hosts;
use tributary_hub::{GatewayHealthWriter, ReadReport};
use tributary_listener::tls::TlsSettings;
use tributary_listener::{Bounds, Drained, ListenerCapacity, ListenerOptions, ProxyProtocolPeers};
use tributary_proxy::ClientTuning;
use tributary_router::report::HubReport;
use tributary_router::{Limits, Policies, Router, RouterConfig};
use tributary_sources::clusters::Clusters;
use tributary_sources::data_directory::{DataDirectory, EPOCHS, last_heard};

use super::aggregated::{AggregatedEntry, SharedParts};
use super::clients::SharedClients;
use super::hub::{DeniedUsers, FollowedHub, HubConnection};
use super::hub_users::HubUsers;
use super::managed::ManagedEntry;
use super::prepare::{Logs, Prepared};
use super::running::RunningEndpoint;
use super::unserved::UnservedResources;
use crate::authentication::Authenticator;
use crate::authentication::denied_users::{DeniedUsersFile, DeniedUsersFileError};
use crate::cli::bytes::format_size;
use crate::cli::{LimitArguments, ServeArguments};
use crate::exit::Failure;
use crate::front::{Entry, EntryService, Front, OpenDoors};
use crate::metrics::HubView;
use crate::process::descriptors;
use crate::process::memory::Memory;
use crate::process::threads::{Threads, cores};
use crate::replicas;

/// An endpoint whose ports are open. In this state, only the aggregated entry answers requests.
pub(super) struct BoundEndpoint {
    /// The parts of the endpoint that a new configuration changes.
    pub(super) running: RunningEndpoint,
    socket: TcpListener,
    front: Arc<Front<Arc<Router>>>,
    capacity: Arc<ListenerCapacity>,
    aggregated: Option<AggregatedEntry>,
    managed: Option<ManagedEntry>,
    parts: Parts,
}

pub(super) struct AnsweringEndpoint {
    pub(super) running: RunningEndpoint,
    /// The task of the listener, which ends after the drain.
    serving: JoinHandle<Drained>,
    aggregated: Option<AggregatedEntry>,
    /// The task of the listener of Open Cluster Management's entry.
    managed: Option<JoinHandle<Drained>>,
    parts: Parts,
}

/// The parts of the endpoint that stay the same when the configuration is reloaded.
struct Parts {
    logs: Logs,
    /// Cancelling this token ends the streams of all clusters.
    shutdown: CancellationToken,
    _denied: Option<AbortOnDropHandle<()>>,
    /// The threads that serve clients. The answers of clusters are processed on the caller's runtime instead.
    clients: Threads,
}

impl BoundEndpoint {
    /// Opens the ports. Connects to no cluster. Cancelling `stop` drains the aggregated entry.
    ///
    /// # Errors
    /// [`Failure`] for a port or a file that cannot be opened, and if no authentication of clients is configured.
    pub(super) async fn open(prepared: Prepared, stop: &CancellationToken) -> Result<Self, Failure> {
        let Prepared { arguments, sources, merged_kubeconfig, identity, logs } = prepared;
        let router = Router::new(router_config(&identity.directory, &arguments));
        router.set_replicas(arguments.sharing.count());
        let tls = TlsSettings::new(Arc::clone(&identity.certificate), arguments.shared.tls_min_version.and_later());
        let (tls, hosts) = (Arc::new(tls.map_err(Failure::runtime)?), Arc::<Hosts>::default());
        let open = || SharedClients::open(&arguments.shared, &identity.certificate, &router, &tls, &hosts);
        let shared = arguments.shared.is_shared().then(open).transpose()?;
        let clients = Threads::start("clients", 1).map_err(Failure::runtime)?;
        let socket = {
            let _socket_is_theirs = clients.enter();
            tributary_listener::bind(arguments.listen.socket_address()).map_err(Failure::runtime)?
        };
        let address = socket.local_addr().map_err(Failure::runtime)?;
        let tuning =
            ClientTuning { connections_to_spread_over: connections_per_cluster(cores()), ..ClientTuning::default() };
        let shutdown = tuning.shutdown.clone();
        let hub_connection = HubConnection::open(&arguments.hub).await?;
        if let Some(hub) = &hub_connection {
            router.set_gateway_health_writer(Arc::new(GatewayHealthWriter(Arc::clone(&hub.client))));
            if let Some(servers) = hub.karmada(&arguments.hub) {
                router.set_karmada(servers);
            }
        }
        let denied_users = DeniedUsers::new(Arc::clone(&router));
        let denied = match &arguments.shared.denied_users_file {
            Some(path) => Some(follow_denied(&denied_users, path).await.map_err(Failure::usage)?),
            None => None,
        };
        let running = RunningEndpoint {
            clusters: Clusters::new(tuning),
            router,
            sources,
            identity,
            clients: shared,
            access_log: logs.observers.access_log.clone(),
            tls,
            hosts,
            foreign: Vec::new(),
            doors: Arc::new(OpenDoors::new(arguments.hub.systems())),
            arguments,
            merged_kubeconfig,
            address,
            unserved: UnservedResources::default(),
            refused: None,
            denied_users,
            hub_connection,
            hub: None,
        };
        let Logs { audit, observers } = logs.clone();
        let front = Front::new(Arc::new(Arc::clone(&running.router)), stop.clone());
        let front = Arc::new(front.audited(audit).observed(observers));
        let capacity = capacity(&running.arguments.limits, &front);
        let users = match &running.hub_connection {
            Some(hub) if running.arguments.hub.serves_hub_users() => {
                let audiences = running.arguments.shared.api_audiences.clone();
                Some(HubUsers::start(&hub.client, audiences, &running.router, stop)?)
            }
            _ => None,
        };
        let managed = match (running.arguments.hub.ocm_listen, &users) {
            (Some(listen), Some(users)) => Some(ManagedEntry::open(listen, users, &clients)?),
            _ => None,
        };
        let aggregated = match (running.arguments.hub.aggregated_listen, &running.hub_connection, &users) {
            (Some(listen), Some(hub), Some(users)) => {
                let RunningEndpoint { arguments, router, doors, .. } = &running;
                let shared = SharedParts {
                    arguments,
                    front: &front,
                    router,
                    doors,
                    capacity: &capacity,
                    clients: &clients,
                    stop,
                };
                Some(AggregatedEntry::open(listen, hub, users, &shared)?)
            }
            _ => None,
        };
        Ok(Self {
            running,
            socket,
            front,
            capacity,
            aggregated,
            managed,
            parts: Parts { logs, shutdown, _denied: denied, clients },
        })
    }

    /// Answers clients on separate threads until `stop` is cancelled. The cancellation of `stop` follows the
    /// cancellation of `leaving` after the shutdown delay.
    ///
    /// # Errors
    /// [`Failure`] if no authentication of clients is configured.
    pub(super) fn begin_answering(
        self,
        leaving: &CancellationToken,
        stop: &CancellationToken,
    ) -> Result<AnsweringEndpoint, Failure> {
        let Self { mut running, socket, front, capacity, aggregated, managed, parts } = self;
        let instance = &running.arguments.hub.objects.hub_secret_namespace;
        let publication = running.arguments.publication.settings(running.identity.authority_pem.as_deref(), instance);
        let writer = match (&mut running.hub_connection, &running.hub) {
            (Some(connection), Some(hub)) => connection.status_writer(hub, publication),
            _ => None,
        };
        let (writer, publications) = writer.unzip();
        let RunningEndpoint { router, arguments, identity, clients, .. } = &running;
        let delay = arguments.shutdown_delay_duration;
        tokio::spawn(stop_after(leaving.clone(), delay, Arc::clone(router), stop.clone()));
        if let Some(clients) = clients {
            let keys = clients.follow_member_keys(router, &identity.directory);
            tokio::spawn(stop.clone().run_until_cancelled_owned(keys));
            tokio::spawn(stop.clone().run_until_cancelled_owned(clients.review_followed_tokens(router)));
        }
        if let Some(writer) = writer {
            let router = Arc::clone(router);
            let read_report: ReadReport = Box::new(move || {
                let router = Arc::clone(&router);
                async move { router.report().await }.boxed()
            });
            tokio::spawn(writer.run(read_report, stop.clone()));
        }
        if let Some(host) = arguments.sharing.replica_dns_name.clone() {
            let followed = replicas::follow_number(host, arguments.sharing.count(), Arc::clone(router));
            tokio::spawn(stop.clone().run_until_cancelled_owned(followed));
        }
        if let Some(monitor) = running.hub.as_ref().map(FollowedHub::monitor) {
            let publications = publications.unwrap_or_default();
            let report = move || HubReport { publications: publications.report(), ..monitor.report() };
            front.follow_hub(HubView::new(report));
        }
        let entry = Arc::new(Entry::for_hosts(build_authenticator(&running)?, Arc::clone(&running.hosts)));
        let options = || ListenerOptions {
            tls: Arc::clone(&running.tls),
            capacity: Arc::clone(&capacity),
            proxies: ProxyProtocolPeers(arguments.shared.proxy_protocol_from.clone()),
            goaway_chance: arguments.goaway_chance,
            connection_age: None,
            stop: stop.clone(),
        };
        let service = Arc::new(EntryService::new(Arc::clone(&front), entry));
        let serving = parts.clients.spawn(tributary_listener::serve(socket, service, options()));
        let managed = match managed.zip(clients.as_ref()) {
            Some((managed, members)) => {
                let front = (front, Arc::clone(&running.doors));
                Some(managed.serve(members.shared_authenticator(), front, options(), &parts.clients)?)
            }
            None => None,
        };
        if let Some(aggregated) = &aggregated {
            aggregated.serve_clusters();
        }
        Ok(AnsweringEndpoint { running, serving, aggregated, managed, parts })
    }
}

impl AnsweringEndpoint {
    /// Waits for the drain, closes the remaining streams, and flushes the logs.
    ///
    /// # Errors
    /// [`Failure`] if a listener ended by itself.
    pub(super) async fn shut_down(self) -> Result<(), Failure> {
        let Parts { logs, shutdown, clients, _denied } = self.parts;
        let mut cut = self.serving.await.context("the listener ended").map_err(Failure::runtime)?.cut;
        if let Some(aggregated) = self.aggregated {
            let drained = aggregated.serving.await.context("the listener of the aggregated API ended");
            cut += drained.map_err(Failure::runtime)?.cut;
        }
        if let Some(managed) = self.managed {
            let drained = managed.await.context("the listener of Open Cluster Management's door ended");
            cut += drained.map_err(Failure::runtime)?.cut;
        }
        // The clients' streams end before the logs close, so that the logs contain the streams' last lines.
        clients.end().await;
        self.running.router.last_heard_is_kept().await;
        shutdown.cancel();
        logs.shut_down().await;
        tracing::info!(cut, "stopped");
        Ok(())
    }
}

/// Creates the capacity that the listeners of all entries share.
fn capacity(limits: &LimitArguments, front: &Front<Arc<Router>>) -> Arc<ListenerCapacity> {
    let connections = descriptors::limit_connections(limits.max_connections);
    let bounds = Bounds { connections, unread_bytes: limits.max_unread_bytes };
    ListenerCapacity::new(bounds, Arc::clone(&front.own_metrics().listener))
}

/// Waits until `leaving` is cancelled, makes `/readyz` fail, and cancels `stop` after the delay. During the delay, load
/// balancers detect the failing `/readyz`.
async fn stop_after(leaving: CancellationToken, delay: Duration, router: Arc<Router>, stop: CancellationToken) {
    leaving.cancelled().await;
    router.leave();
    tokio::time::sleep(delay).await;
    stop.cancel();
}

/// Starts a task that applies changes of the file of denied users. Dropping the returned handle ends the task.
async fn follow_denied(denied: &Arc<DeniedUsers>, path: &Path) -> Result<AbortOnDropHandle<()>, DeniedUsersFileError> {
    let mut file = DeniedUsersFile::open(path).await?;
    let denied = Arc::clone(denied);
    denied.set_file(file.denied().clone());
    // The file is read in a separate task, because reading the configuration may wait for a credential plugin.
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            file.changed().await;
            denied.set_file(file.denied().clone());
        }
    })))
}

/// Returns the authenticator for personal mode or shared mode.
fn build_authenticator(running: &RunningEndpoint) -> Result<Authenticator, Failure> {
    if let Some(clients) = &running.clients {
        return Ok(clients.authenticator());
    }
    let token =
        running.identity.token.as_ref().context("no credential for clients exists").map_err(Failure::runtime)?;
    Ok(Authenticator::Personal(token.digest()))
}

fn router_config(directory: &DataDirectory, arguments: &ServeArguments) -> RouterConfig {
    let (keep, keep_heard) = (directory.clone(), directory.clone());
    RouterConfig {
        policies: Policies::default(),
        limits: limits(arguments),
        alone: arguments.is_only_replica(),
        epochs: EPOCHS.read(directory),
        keep_epochs: Some(Box::new(move |epochs| EPOCHS.write(&keep, epochs))),
        last_heard: last_heard::read(directory),
        keep_last_heard: Some(Box::new(move |heard| last_heard::write_discovery(&keep_heard, heard))),
        shared: arguments.shared.is_shared().then(|| arguments.shared.mode()),
    }
}

/// Returns the limits of memory, and logs the limits that were derived from the available memory. The demo logs these
/// limits only if the memory is too small.
fn limits(arguments: &ServeArguments) -> Limits {
    let Memory { bytes: memory, bound } = Memory::detect();
    let limits = arguments.limits.router(memory);
    let (total, each, unread) =
        (limits.total_collection_bytes, limits.collection_bytes, limits.member_unread_bytes as u64);
    if !arguments.is_demo {
        tracing::info!(
            memory_bytes = memory,
            memory_by = %bound,
            max_total_collection_bytes = total,
            max_collection_bytes = each,
            max_member_unread_bytes = unread,
            "memory limits: objects {}, unread answers {}",
            format_size(total),
            format_size(unread)
        );
    }
    if LimitArguments::exceed(&limits, memory) {
        tracing::warn!(
            max_total_collection_bytes = total,
            max_member_unread_bytes = unread,
            memory_bytes = memory,
            "the limits exceed the memory of the process, which the system may kill; give the process more memory, or \
             lower --max-total-collection-bytes or --max-member-unread-bytes"
        );
    }
    limits
}

/// Returns the number of connections to a cluster, among which clients' requests are distributed: half of the cores, at
/// most four. In measurements, one kube-apiserver cannot saturate four connections, and on two cores a second
/// connection has no effect.
fn connections_per_cluster(cores: usize) -> usize {
    (cores / 2).clamp(1, 4)
}
