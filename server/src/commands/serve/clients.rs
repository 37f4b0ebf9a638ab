//! The authentication of clients in shared mode, whose files are watched for changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use tributary_apimachinery::ClusterName;
use tributary_authentication::TokenAuthenticator;
use tributary_hosts::{HostTable, Hosts};
use tributary_listener::tls::{ServingCertificate, TlsSettings};
use tributary_router::Router;
use tributary_sources::data_directory::DataDirectory;
use tributary_sources::watch::FileWatch;

use crate::authentication::issuer_documents::IssuerDocuments;
use crate::authentication::token_review::{ClusterReviewer, follow_member_keys, review_followed_tokens};
use crate::authentication::{AuthenticationFiles, AuthenticationFilesError, Authenticator, SharedAuthenticator};
use crate::cli::SharedArguments;
use crate::exit::Failure;

/// The authenticators of shared mode, the files that configure them, and the authorities that the TLS handshake
/// requests.
pub(super) struct SharedClients {
    arguments: SharedArguments,
    files: AuthenticationFiles,
    authenticator: SharedAuthenticator,
    tokens: Arc<TokenAuthenticator>,
    certificate: Arc<ServingCertificate>,
    tls: Arc<TlsSettings>,
    watch: FileWatch,
}

impl SharedClients {
    /// Reads the authentication files for the first time. The `router` sends TokenReviews.
    ///
    /// # Errors
    /// A usage failure with the flag and the file.
    pub(super) fn open(
        arguments: &SharedArguments,
        certificate: &Arc<ServingCertificate>,
        router: &Arc<Router>,
        tls: &Arc<TlsSettings>,
        hosts: &Arc<Hosts>,
    ) -> Result<Self, Failure> {
        let files = AuthenticationFiles::from_arguments(arguments);
        let reviewer = Arc::new(ClusterReviewer(Arc::clone(router)));
        let tokens = TokenAuthenticator::new(arguments.token_reviews(), Arc::new(IssuerDocuments), reviewer);
        let tokens = Arc::new(tokens);
        tokens.set_issuers(&files.issuers().map_err(Failure::usage)?);
        let authenticator = files.authenticator(arguments).map_err(Failure::usage)?;
        files.warn_of_authorities(&authenticator);
        let (tokens_too, hosts) = (Some(Arc::clone(&tokens)), Arc::clone(hosts));
        let authenticator = SharedAuthenticator { tokens: tokens_too, hosts, ..authenticator };
        tls.replace_named_certificates(files.named_certificates().map_err(Failure::usage)?);
        tls.request_client_certificates(authenticator.subjects()).map_err(Failure::runtime)?;
        let mut watch = FileWatch::new();
        watch.set(files.paths());
        let (arguments, certificate) = (arguments.clone(), Arc::clone(certificate));
        Ok(Self { arguments, files, authenticator, tokens, certificate, tls: Arc::clone(tls), watch })
    }

    /// Fetches the keys that verify the clusters' ServiceAccount tokens, repeatedly. Never completes. Cancel: safe.
    pub(super) fn follow_member_keys(
        &self,
        router: &Arc<Router>,
        directory: &DataDirectory,
    ) -> impl Future<Output = ()> + Send + 'static {
        follow_member_keys(Arc::clone(router), Arc::clone(&self.tokens), directory.clone())
    }

    /// Repeats the TokenReviews for tokens of open streams. Never completes. Cancel: safe.
    pub(super) fn review_followed_tokens(&self, router: &Arc<Router>) -> impl Future<Output = ()> + Send + 'static {
        review_followed_tokens(Arc::clone(router), Arc::clone(&self.tokens))
    }

    /// Sets the clusters that authenticate bearer tokens of requests to their own paths by TokenReviews.
    ///
    /// # Errors
    /// The token-review cluster is not configured.
    pub(super) fn set_clusters(
        &self,
        all: &BTreeSet<ClusterName>,
        reviewing: BTreeSet<ClusterName>,
    ) -> anyhow::Result<()> {
        // In hub mode, the token-review cluster may be added to the hub later, so a missing cluster is no error.
        if let Some(reviewer) = self.arguments.token_review_cluster.as_ref().filter(|_| !self.arguments.has_hub) {
            anyhow::ensure!(
                all.contains(reviewer),
                "--token-review-cluster {reviewer}: there is no such cluster; name one of those that are served"
            );
        }
        self.tokens.set_reviewing_members(reviewing);
        Ok(())
    }

    /// Checks that no client certificate from the authorities of a cluster's host could be accepted as the certificate
    /// of a front proxy.
    ///
    /// # Errors
    /// [`AuthenticationFilesError::AnyClientOfAHostMayBeAProxy`].
    pub(super) fn check_hosts(&self, hosts: &HostTable) -> Result<(), AuthenticationFilesError> {
        check_proxy_names(&self.authenticator, hosts)
    }

    pub(super) fn authenticator(&self) -> Authenticator {
        Authenticator::Shared(self.shared_authenticator())
    }

    pub(super) fn shared_authenticator(&self) -> SharedAuthenticator {
        self.authenticator.clone()
    }

    /// Waits until one of the authentication files has changed. Cancel: safe.
    pub(super) async fn changed(&mut self) {
        self.watch.changed().await;
    }

    /// Reads the authentication files again. Requests on open connections use the new content, too. If a file is
    /// invalid, the error is logged, and the previous content stays in use.
    pub(super) fn reload(&mut self) {
        match self.reload_all() {
            Ok(()) => tracing::info!("the authorities for clients, and the serving certificates, were reloaded"),
            Err(error) => {
                let reason = tributary_apimachinery::explain(&error);
                tracing::error!(
                    reason,
                    "the new authorities or certificates are invalid; the previous ones stay in use"
                );
            }
        }
        // The watched files are set again, because symbolic links to them may have new targets.
        self.watch.set(self.files.paths());
    }

    fn reload_all(&self) -> Result<(), AuthenticationFilesError> {
        let (serving, named) = (self.files.serving_certificate()?, self.files.named_certificates()?);
        check_proxy_names(&self.files.authenticator(&self.arguments)?, &self.authenticator.hosts.table())?;
        self.files.reload(&self.arguments, &self.authenticator)?;
        self.files.warn_of_authorities(&self.authenticator);
        if let Some(serving) = serving {
            self.certificate.replace(serving);
        }
        self.tls.replace_named_certificates(named);
        if let Err(error) = self.tls.request_client_certificates(self.authenticator.subjects()) {
            tracing::error!(%error, "new connections still request certificates of the previous authorities");
        }
        Ok(())
    }
}

/// Checks that the allowed names of front proxies are configured, if clients of a cluster's own host may have
/// certificates.
fn check_proxy_names(authenticator: &SharedAuthenticator, hosts: &HostTable) -> Result<(), AuthenticationFilesError> {
    match hosts.clusters_with_authorities().next().filter(|_| authenticator.accepts_any_proxy_name()) {
        Some((cluster, _)) => Err(AuthenticationFilesError::AnyClientOfAHostMayBeAProxy(cluster.clone())),
        None => Ok(()),
    }
}
