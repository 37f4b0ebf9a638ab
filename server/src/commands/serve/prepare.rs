//! Prepares the start without connections: flags, first configuration, logs and identity.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tributary_records::access_log::AccessLog;
use tributary_records::audit::{AuditError, Auditor};
use tributary_records::traces::{Tracer, TracingConfiguration};
use tributary_sources::kubeconfig::users_file;
use tributary_sources::kubeconfig::write::{Owner, check_replaceable};
use tributary_sources::{ConfigurationSources, LoadedConfiguration};

use super::identity::ServingIdentity;
use crate::authentication::AuthenticationFilesError;
use crate::cli::{Replicas, ServeArguments};
use crate::exit::Failure;
use crate::front::Observers;

/// The parts of an endpoint that are ready before the port is opened.
pub(super) struct Prepared {
    pub(super) arguments: ServeArguments,
    pub(super) sources: ConfigurationSources,
    /// The user's own kubeconfig, if contexts are added to it.
    pub(super) merged_kubeconfig: Option<PathBuf>,
    pub(super) identity: ServingIdentity,
    pub(super) logs: Logs,
}

/// The audit log, access log and traces of clients' requests.
#[derive(Clone)]
pub(super) struct Logs {
    pub(super) audit: Option<Arc<Auditor>>,
    pub(super) observers: Observers,
}

impl Logs {
    /// Writes the queued records of all logs, and closes the logs.
    pub(super) async fn shut_down(self) {
        if let Some(audit) = self.audit {
            audit.shut_down().await;
        }
        if let Some(access_log) = self.observers.access_log {
            access_log.shut_down().await;
        }
        if let Some(tracer) = self.observers.tracer {
            tracer.shut_down().await;
        }
    }
}

/// Checks the flags, reads the configuration, and opens the logs and the data directory. Returns `None` if `leaving` is
/// cancelled.
///
/// # Errors
/// [`Failure`] of the first invalid part.
pub(super) async fn prepare(
    leaving: &CancellationToken,
    mut arguments: ServeArguments,
) -> Result<Option<(Prepared, LoadedConfiguration)>, Failure> {
    arguments.shared.has_hub = arguments.hub.objects.address().is_some();
    if is_settled_by_flags(&arguments) {
        check_access(&arguments).map_err(Failure::Usage)?;
    }
    let is_one = arguments.replicas == Some(Replicas::One);
    arguments.sharing.check(is_one).map_err(Failure::Usage)?;
    let merged_kubeconfig = merged_kubeconfig(&arguments)?;
    let sources = sources(&arguments, merged_kubeconfig.as_deref())?;
    let Some(configuration) = leaving.run_until_cancelled(sources.read()).await else { return Ok(None) };
    let configuration = configuration.map_err(Failure::usage)?;
    // The configuration can enable shared mode, so the flags are checked only after the configuration has been read.
    arguments.shared.hosts_vouch = configuration.cluster_with_authorities().is_some();
    check_access(&arguments).map_err(Failure::Usage)?;
    let audit = Auditor::open(&arguments.audit.settings()).await.map_err(|error| match error {
        AuditError::Log { .. } => Failure::runtime(error),
        _ => Failure::usage(error),
    })?;
    let logs = Logs { audit, observers: observers(&arguments)? };
    let Some(identity) = leaving.run_until_cancelled(ServingIdentity::open(&arguments)).await else { return Ok(None) };
    let identity = identity?;
    Ok(Some((Prepared { arguments, sources, merged_kubeconfig, identity, logs }, configuration)))
}

/// Opens the configured access log and tracer.
fn observers(arguments: &ServeArguments) -> Result<Observers, Failure> {
    let access_log = arguments.access_log.settings().map(AccessLog::open).transpose().map_err(Failure::runtime)?;
    let tracer = match &arguments.tracing_config_file {
        Some(path) => {
            let configuration = TracingConfiguration::read(path).map_err(Failure::usage)?;
            Some(Tracer::start(&configuration).map_err(Failure::usage)?)
        }
        None => None,
    };
    Ok(Observers { access_log, tracer })
}

/// Returns the sources of the configuration, and checks that no file which the process will write is one of the
/// sources. Contexts may be added to `merged_kubeconfig`.
fn sources(arguments: &ServeArguments, merged_kubeconfig: Option<&Path>) -> Result<ConfigurationSources, Failure> {
    let sources = ConfigurationSources::new(arguments.configuration_flags()).map_err(Failure::usage)?;
    if let Some(path) = &arguments.write_kubeconfig {
        sources.check_not_read(path).map_err(Failure::usage)?;
        check_replaceable(path, Owner::ONE_USER).map(drop).map_err(Failure::usage)?;
    }
    if let Some(path) = merged_kubeconfig {
        users_file::check(path).map_err(Failure::usage)?;
    }
    Ok(sources)
}

/// Returns the path of the user's own kubeconfig, if contexts are added to it.
fn merged_kubeconfig(arguments: &ServeArguments) -> Result<Option<PathBuf>, Failure> {
    match &arguments.merge.merge_into_kubeconfig {
        None => Ok(None),
        Some(Some(path)) => Ok(Some(path.clone())),
        Some(None) => users_file::default_path().map(Some).map_err(Failure::usage),
    }
}

/// Returns whether the flags alone determine personal or shared mode. With `--config`, an UpstreamCluster may enable
/// shared mode.
fn is_settled_by_flags(arguments: &ServeArguments) -> bool {
    arguments.shared.is_shared() || arguments.config.is_none()
}

/// Checks that the flags for addresses and authentication are consistent.
fn check_access(arguments: &ServeArguments) -> anyhow::Result<()> {
    let shared = &arguments.shared;
    anyhow::ensure!(
        !arguments.hub.serves_hub_users() || shared.has_hub,
        "--aggregated-listen and --ocm-listen need a hub, which authenticates the users; give --hub-kubeconfig or \
         --hub-in-cluster, or remove the flag"
    );
    anyhow::ensure!(
        !arguments.publication.is_given() || shared.has_hub,
        "--publish-cluster-profiles, --publish-kubeconfig-secrets and --publish-argo-cd-secrets write objects of a hub; \
         give --hub-kubeconfig or --hub-in-cluster, or remove the flags"
    );
    if !shared.is_shared() {
        arguments.listen.without_client_authentication()?;
        for (flag, is_given) in [
            ("--denied-users-file", shared.denied_users_file.is_some()),
            ("--proxy-protocol-from", !shared.proxy_protocol_from.is_empty()),
            ("--tls-cert-file", shared.tls_cert_file.is_some()),
            ("--tls-sni-cert-key", !shared.tls_sni_cert_key.is_empty()),
            ("--api-audiences", !shared.api_audiences.is_empty()),
        ] {
            anyhow::ensure!(
                !is_given,
                "{flag} needs shared mode, and no authentication of clients is configured; give --client-ca-file, \
                 --requestheader-client-ca-file, --authentication-config, --token-review-cluster or an \
                 UpstreamCluster with spec.secureServing.clientCAFile, or remove the flag"
            );
        }
        return Ok(());
    }
    arguments.listen.with_client_authentication(shared.tls_cert_file.is_some())?;
    let has_both = shared.client_ca_file.is_some() && shared.requestheader_client_ca_file.is_some();
    if has_both && shared.requestheader_allowed_names.is_empty() {
        return Err(AuthenticationFilesError::AnyClientMayBeAProxy.into());
    }
    anyhow::ensure!(
        arguments.write_kubeconfig.is_none() && arguments.merge.merge_into_kubeconfig.is_none(),
        "--write-kubeconfig and --merge-into-kubeconfig write the token of personal mode, and shared mode has none: \
         each user has a kubeconfig with a credential of their own (docs/shared-mode.md)"
    );
    Ok(())
}
