//! The aggregated entry (`--aggregated-listen`): its listener, and its serving certificate.
//!
//! The entry answers from the opening of its port on, before any cluster has answered. Its discovery documents are
//! constants, so that the APIService of the hub is available without clusters.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tributary_hub::{HubClient, HubTrust, ServingCertificateStore, SharedServingCertificate};
use tributary_listener::tls::{RequestedAuthorities, ServingCertificate, TlsSettings};
use tributary_listener::{
    ConnectionAge, Drained, ListenAddress, ListenerCapacity, ListenerOptions, ProxyProtocolPeers,
};
use tributary_router::Router;
use tributary_sources::watch::FileWatch;

use super::hub::HubConnection;
use super::hub_users::HubUsers;
use crate::authentication::{AuthenticationFilesError, Authenticator, HubAuthenticator, read_serving_certificate};
use crate::cli::{HubArguments, ServeArguments};
use crate::credentials::certificates;
use crate::exit::Failure;
use crate::front::{Entry, EntryService, Front, OpenDoors};
use crate::process::threads::Threads;

/// The parts of the process that all entries share.
pub(super) struct SharedParts<'a> {
    pub(super) arguments: &'a ServeArguments,
    pub(super) front: &'a Arc<Front<Arc<Router>>>,
    pub(super) router: &'a Arc<Router>,
    /// The doors of foreign systems at the aggregated entry.
    pub(super) doors: &'a Arc<OpenDoors>,
    pub(super) capacity: &'a Arc<ListenerCapacity>,
    /// The threads that serve clients.
    pub(super) clients: &'a Threads,
    /// Cancelling this token drains the entry.
    pub(super) stop: &'a CancellationToken,
}

/// The running aggregated entry.
pub(super) struct AggregatedEntry {
    entry: Arc<Entry>,
    /// The task of the listener, which ends after the drain.
    pub(super) serving: JoinHandle<Drained>,
    _certificate: EntryCertificate,
}

impl AggregatedEntry {
    /// Opens the port and answers requests for the entry's own documents. Requests for clusters get a 503 until
    /// [`serve_clusters`](Self::serve_clusters).
    ///
    /// # Errors
    /// [`Failure`] for a port or a certificate that cannot be used.
    pub(super) fn open(
        listen: ListenAddress,
        connection: &HubConnection,
        users: &HubUsers,
        shared: &SharedParts<'_>,
    ) -> Result<Self, Failure> {
        let hub = &connection.client;
        let arguments = shared.arguments;
        let certificate = EntryCertificate::open(&arguments.hub, listen, connection, shared.stop)?;
        let HubUsers { authenticator, trust } = users;
        let versions = arguments.shared.tls_min_version.and_later();
        let tls = TlsSettings::new(Arc::clone(&certificate.current), versions).map_err(Failure::runtime)?;
        // Until the authorities of the hub are known, the request for a certificate names no authority, and clients
        // send the certificate that they have.
        tls.request_client_certificates(RequestedAuthorities::default()).map_err(Failure::runtime)?;
        let socket = {
            let _socket_is_theirs = shared.clients.enter();
            tributary_listener::bind(listen.socket_address()).map_err(Failure::runtime)?
        };
        log_address(socket.local_addr().map_err(Failure::runtime)?);
        let tls = Arc::new(tls);
        let (router, own) = (Arc::clone(shared.router), Arc::clone(authenticator));
        let following = follow_trust(Arc::clone(hub), Arc::clone(trust), own, Arc::clone(&tls), router);
        tokio::spawn(shared.stop.clone().run_until_cancelled_owned(following));
        let entry =
            Arc::new(Entry::aggregated(Authenticator::Hub(Arc::clone(authenticator)), Arc::clone(shared.doors)));
        let options = ListenerOptions {
            tls,
            capacity: Arc::clone(shared.capacity),
            proxies: ProxyProtocolPeers(arguments.shared.proxy_protocol_from.clone()),
            goaway_chance: arguments.goaway_chance,
            connection_age: Some(ConnectionAge::AGGREGATED),
            stop: shared.stop.clone(),
        };
        let service = Arc::new(EntryService::new(Arc::clone(shared.front), Arc::clone(&entry)));
        let serving = shared.clients.spawn(tributary_listener::serve(socket, service, options));
        Ok(Self { entry, serving, _certificate: certificate })
    }

    /// Begins to answer requests for clusters, after the first configuration is applied.
    pub(super) fn serve_clusters(&self) {
        self.entry.serve_clusters();
    }
}

/// Follows the authorities of the hub. New TLS handshakes request certificates of the current authorities, and streams
/// of clients with certificates of withdrawn authorities end. Never completes. Cancel: safe.
async fn follow_trust(
    hub: Arc<HubClient>,
    trust: Arc<HubTrust>,
    authenticator: Arc<HubAuthenticator>,
    tls: Arc<TlsSettings>,
    router: Arc<Router>,
) {
    let request_current = || {
        router.authentication_changed();
        if let Err(error) = tls.request_client_certificates(authenticator.subjects()) {
            tracing::error!(%error, "new connections still request certificates of the hub's previous authorities");
        }
    };
    trust.follow(&hub, request_current).await;
}

fn log_address(address: SocketAddr) {
    tracing::info!(url = %format_args!("https://{address}"), "the aggregated API is served");
}

/// The serving certificate of the entry: from files that are read again after a change, or from a Secret of the hub.
struct EntryCertificate {
    current: Arc<ServingCertificate>,
    _following: AbortOnDropHandle<()>,
}

impl EntryCertificate {
    fn open(
        arguments: &HubArguments,
        listen: ListenAddress,
        connection: &HubConnection,
        stop: &CancellationToken,
    ) -> Result<Self, Failure> {
        if let Some(files) = CertificateFiles::from_arguments(arguments) {
            let mut watch = FileWatch::new();
            watch.set(files.paths());
            let current = ServingCertificate::new(files.read().map_err(Failure::usage)?);
            let following = tokio::spawn(files.follow(watch, Arc::clone(&current)));
            return Ok(Self { current, _following: AbortOnDropHandle::new(following) });
        }
        // A self-signed certificate, which no client trusts, until the Secret is read.
        let made = certificates::self_signed(&listen.certificate_names(), certificates::now());
        let current = ServingCertificate::new(made.map_err(Failure::runtime)?);
        let HubConnection { client, leadership, .. } = connection;
        let (namespace, service) = (&arguments.objects.hub_secret_namespace, arguments.aggregated_service.clone());
        let store = ServingCertificateStore::new(Arc::clone(client), leadership.clone(), namespace, service);
        let following = tokio::spawn(follow_store(store.subscribe(), Arc::clone(&current)));
        tokio::spawn(store.run(stop.clone()));
        Ok(Self { current, _following: AbortOnDropHandle::new(following) })
    }
}

/// Serves each new certificate of the Secret. Completes when the sender of the certificates is dropped. Cancel: safe.
async fn follow_store(
    mut stored: watch::Receiver<Option<Arc<SharedServingCertificate>>>,
    current: Arc<ServingCertificate>,
) {
    while stored.changed().await.is_ok() {
        let Some(certificate) = stored.borrow_and_update().clone() else { continue };
        match certificate.certified_key() {
            Ok(key) => current.replace(key),
            Err(error) => {
                let reason = tributary_apimachinery::explain(&error);
                tracing::error!(reason, "the serving certificate in the hub's Secret cannot be used");
            }
        }
    }
}

/// The files of `--aggregated-tls-cert-file` and `--aggregated-tls-private-key-file`.
struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl CertificateFiles {
    fn from_arguments(hub: &HubArguments) -> Option<Self> {
        let (certificate, key) = (hub.aggregated_tls_cert_file.clone()?, hub.aggregated_tls_private_key_file.clone()?);
        Some(Self { certificate, key })
    }

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.certificate.clone(), self.key.clone()]
    }

    fn read(&self) -> Result<CertifiedKey, AuthenticationFilesError> {
        const FLAGS: [&str; 2] = ["--aggregated-tls-cert-file", "--aggregated-tls-private-key-file"];
        read_serving_certificate(FLAGS, &self.certificate, &self.key)
    }

    /// Replaces the serving certificate after each change of the files. If a file is invalid, the error is logged, and
    /// the previous certificate stays in use. Never completes. Cancel: safe.
    async fn follow(self, mut watch: FileWatch, current: Arc<ServingCertificate>) {
        loop {
            watch.changed().await;
            match self.read() {
                Ok(certificate) => {
                    current.replace(certificate);
                    tracing::info!("the serving certificate of the aggregated API was reloaded");
                }
                Err(error) => {
                    let reason = tributary_apimachinery::explain(&error);
                    tracing::error!(
                        reason,
                        "the new serving certificate of the aggregated API is invalid; the previous one stays in use"
                    );
                }
            }
            // The watched files are set again, because symbolic links to them may have new targets.
            watch.set(self.paths());
        }
    }
}
