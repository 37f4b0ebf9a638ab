//! The aggregated entry (`--aggregated-listen`): its listener, and its serving certificate.
//!
//! The entry answers from the opening of its port on, before any cluster has answered. Its discovery documents are
//! constants, so that the APIService of the hub is available without clusters.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use rustls::sign::CertifiedKey;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tributary_hub::{HubClient, HubTrust};
use tributary_listener::tls::{RequestedAuthorities, ServingCertificate, TlsSettings};
use tributary_listener::{
    ConnectionAge, ListenerCapacity, Drained, ListenAddress, ListenerOptions, ProxyProtocolPeers,
};
use tributary_router::Router;
use tributary_sources::watch::FileWatch;

use crate::authentication::token_review::review_followed_tokens;
use crate::authentication::{AuthenticationFilesError, Authenticator, HubAuthenticator, read_serving_certificate};
use crate::cli::{HubArguments, ServeArguments};
use crate::credentials::certificates;
use crate::exit::Failure;
use crate::front::{Entry, EntryService, Front};
use crate::process::threads::Threads;

/// The parts of the process that all entries share.
pub(super) struct SharedParts<'a> {
    pub(super) arguments: &'a ServeArguments,
    pub(super) front: &'a Arc<Front<Arc<Router>>>,
    pub(super) router: &'a Arc<Router>,
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
    pub(super) fn open(listen: ListenAddress, hub: &Arc<HubClient>, shared: &SharedParts<'_>) -> Result<Self, Failure> {
        let arguments = shared.arguments;
        let certificate = EntryCertificate::open(&arguments.hub, listen)?;
        let trust = Arc::<HubTrust>::default();
        let authenticator = HubAuthenticator::new(hub, Arc::clone(&trust), arguments.shared.api_audiences.clone());
        let authenticator = Arc::new(authenticator.map_err(Failure::runtime)?);
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
        let tokens = review_followed_tokens(Arc::clone(shared.router), Arc::clone(authenticator.tokens()));
        tokio::spawn(shared.stop.clone().run_until_cancelled_owned(tokens));
        let following = follow_trust(Arc::clone(hub), trust, Arc::clone(&authenticator), Arc::clone(&tls));
        tokio::spawn(shared.stop.clone().run_until_cancelled_owned(following));
        let entry = Arc::new(Entry::aggregated(Authenticator::Hub(authenticator)));
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

/// Follows the authorities of the hub. New TLS handshakes request certificates of the current authorities. Never
/// completes. Cancel: safe.
async fn follow_trust(
    hub: Arc<HubClient>,
    trust: Arc<HubTrust>,
    authenticator: Arc<HubAuthenticator>,
    tls: Arc<TlsSettings>,
) {
    let request_current = || {
        if let Err(error) = tls.request_client_certificates(authenticator.subjects()) {
            tracing::error!(%error, "new connections still request certificates of the hub's previous authorities");
        }
    };
    trust.follow(&hub, request_current).await;
}

fn log_address(address: SocketAddr) {
    tracing::info!(url = %format_args!("https://{address}"), "the aggregated API is served");
}

/// The serving certificate of the entry: from files that are read again after a change, or generated.
struct EntryCertificate {
    current: Arc<ServingCertificate>,
    _following: Option<AbortOnDropHandle<()>>,
}

impl EntryCertificate {
    fn open(hub: &HubArguments, listen: ListenAddress) -> Result<Self, Failure> {
        match CertificateFiles::from_arguments(hub) {
            Some(files) => {
                let mut watch = FileWatch::new();
                watch.set(files.paths());
                let current = ServingCertificate::new(files.read().map_err(Failure::usage)?);
                let following = tokio::spawn(files.follow(watch, Arc::clone(&current)));
                Ok(Self { current, _following: Some(AbortOnDropHandle::new(following)) })
            }
            None => {
                let names = certificate_names(&hub.aggregated_service, listen).map_err(Failure::Usage)?;
                let made = certificates::self_signed(&names, certificates::now()).map_err(Failure::runtime)?;
                Ok(Self { current: ServingCertificate::new(made), _following: None })
            }
        }
    }
}

/// Returns the names for a generated certificate: the DNS name of the Service, by which the kube-apiserver verifies the
/// certificate, and the names of the listener.
///
/// # Errors
/// The Service is not `NAMESPACE/NAME`.
fn certificate_names(service: &str, listen: ListenAddress) -> anyhow::Result<Vec<String>> {
    let (namespace, name) = service
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
        .with_context(|| format!("--aggregated-service {service:?} is not NAMESPACE/NAME; give both names"))?;
    let mut names = listen.certificate_names();
    names.insert(0, format!("{name}.{namespace}.svc"));
    Ok(names)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_certificate_names_the_service_of_the_hub() {
        let listen = "0.0.0.0:9443".parse().unwrap();
        let names = certificate_names("tributary-system/tributary", listen).unwrap();
        assert_eq!(names[0], "tributary.tributary-system.svc");
        assert!(names.contains(&"localhost".to_owned()) && names.contains(&"127.0.0.1".to_owned()), "{names:?}");
        for service in ["tributary", "/tributary", "a/", "a/b/c", ""] {
            let error = certificate_names(service, listen).unwrap_err().to_string();
            assert!(error.starts_with("--aggregated-service") && error.contains("NAMESPACE/NAME"), "{error}");
        }
    }
}
