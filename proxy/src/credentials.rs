//! Tributary's own credentials at a member: the `Authorization` header of the next request, and the client certificate
//! of the next connection.
//!
//! The credentials are renewed before they expire, and after a 401. To get valid credentials, a request usually only
//! loads a pointer.

pub(crate) mod certificate;
pub(crate) mod credential_check;
mod credential_method;
pub(crate) mod exec_plugin;
pub(crate) mod identity;
pub(crate) mod pass_through;
pub(crate) mod plugins;
mod remedy;
pub(crate) mod user;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request, Response};
use kube::client::ConfigExt;
use secrecy::ExposeSecret;
use tokio::sync::Mutex;
use tokio::time::{Duration, Instant};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::BoxError;

use crate::command_policy::CommandPolicy;
use crate::credentials::certificate::Certificate;
use crate::credentials::credential_method::CredentialMethod;
use crate::credentials::exec_plugin::bearer;
use crate::credentials::plugins::{Plugin, PluginCredentials, PluginTimes, Plugins, Rejections};
use crate::error::ConnectError;

/// Time for which an `Authorization` header from an authentication layer of the crate `kube` is used, before the layer
/// is called again. The layer itself renews the token, 10 s or more before the expiry.
const PROVIDER_INTERVAL: Duration = Duration::from_secs(5);

/// Authentication layer of the crate `kube`, around a service that returns the `Authorization` header.
type AuthLayer = BoxCloneSyncService<Request<kube::client::Body>, Response<Option<HeaderValue>>, BoxError>;

enum CredentialSource {
    /// Static credentials: a client certificate, a static token, a user name with password, or none.
    Static,
    TokenFile(PathBuf),
    Exec(Arc<Plugin>),
    /// `auth-provider` of a kubeconfig (OIDC, GCP).
    Provider(AuthLayer),
}

pub(crate) struct CurrentCredentials {
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) certificate: Certificate,
    /// Version of the client certificate. It changes when the certificate may have changed. Connections with an older
    /// version get no new requests.
    pub(crate) version: u64,
    renew_at: Option<Instant>,
    /// Expiry by the wall clock, because a monotonic clock may stop while a machine sleeps.
    expires: Option<SystemTime>,
    /// Number of the plugin run that returned these credentials.
    run: Option<u64>,
    /// Whether the credentials belong to the configured user. False for the token of an impersonator or of a client.
    pub(crate) is_of_configured_user: bool,
}

impl CurrentCredentials {
    /// Sets the `Authorization` header of these credentials. Removes the header if they have none.
    pub(crate) fn authorize(&self, headers: &mut HeaderMap) {
        match &self.authorization {
            Some(value) => headers.insert(AUTHORIZATION, value.clone()),
            None => headers.remove(AUTHORIZATION),
        };
    }

    /// Returns whether `other` has the same `Authorization` header and the same certificate version.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.authorization == other.authorization && self.version == other.version
    }

    fn is_fresh(&self) -> bool {
        self.renew_at.is_none_or(|at| Instant::now() < at) && self.is_valid()
    }

    fn is_valid(&self) -> bool {
        self.expires.is_none_or(|at| SystemTime::now() < at)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RenewalReason {
    /// The credentials are missing or expire soon.
    Due,
    Rejected,
}

#[derive(Default)]
struct LastRenewal {
    at: Option<Instant>,
    error: Option<String>,
    rejections: Rejections,
}

/// Counters that all users of one client share, including replaced users, so that two users never have credentials of
/// the same version.
#[derive(Default)]
struct Counters {
    versions: AtomicU64,
    renewals: AtomicU64,
}

impl Counters {
    fn next_version(&self) -> u64 {
        self.versions.fetch_add(1, Ordering::Relaxed)
    }
}

/// Credentials of one configured user of a member, with their renewal.
pub(crate) struct UserCredentials {
    source: CredentialSource,
    /// Text for messages that tells an operator how to fix rejected credentials.
    remedy: &'static str,
    /// The client certificate of the configuration, and its version.
    configured: (Certificate, u64),
    /// The client certificate of connections that were opened for the replaced user and remain in use.
    previous_connection_certificate: Option<(Certificate, u64)>,
    counters: Arc<Counters>,
    current: ArcSwapOption<CurrentCredentials>,
    renewing: Mutex<LastRenewal>,
    renewing_in_background: AtomicBool,
    token_file_interval: Duration,
    retry_interval: Duration,
}

pub(crate) struct CredentialTuning {
    pub(crate) token_file_interval: Duration,
    pub(crate) exec_timeout: Duration,
    pub(crate) retry_interval: Duration,
    pub(crate) plugins: Plugins,
    pub(crate) command_policy: Option<Arc<CommandPolicy>>,
}

impl UserCredentials {
    /// Reads static credentials without running a plugin. `before` are the credentials of the replaced user.
    /// Connections stay open if the new user has the same certificate.
    ///
    /// # Errors
    /// [`ConnectError::Credentials`].
    pub(crate) async fn new(
        cluster: &ClusterName,
        config: &kube::Config,
        tuning: &CredentialTuning,
        before: Option<&Self>,
    ) -> Result<Arc<Self>, ConnectError> {
        let error = |message: String| ConnectError::Credentials { cluster: cluster.clone(), message };
        let (source, authorization) = source(config, tuning).await.map_err(error)?;
        let counters = before.map_or_else(Arc::default, |before| before.counters.clone());
        let previous_connection_certificate = before.map(Self::connection_certificate);
        let certificate = Certificate::configured(&config.auth_info);
        let version = match &previous_connection_certificate {
            Some((connection_certificate, version))
                if *connection_certificate == certificate && !certificate.is_in_files() =>
            {
                *version
            }
            _ => counters.next_version(),
        };
        let current = authorization.map(|authorization| {
            let certificate = certificate.clone();
            Arc::new(CurrentCredentials {
                authorization,
                certificate,
                version,
                renew_at: None,
                expires: None,
                run: None,
                is_of_configured_user: true,
            })
        });
        Ok(Arc::new(Self {
            source,
            remedy: remedy::remedy(&config.auth_info),
            configured: (certificate, version),
            previous_connection_certificate,
            counters,
            current: ArcSwapOption::new(current),
            renewing: Mutex::default(),
            renewing_in_background: AtomicBool::new(false),
            token_file_interval: tuning.token_file_interval,
            retry_interval: tuning.retry_interval,
        }))
    }

    /// Returns a copy of the credentials with this `Authorization` header, and with this remedy for its rejection.
    pub(crate) fn with_authorization(&self, authorization: HeaderValue, remedy: &'static str) -> Arc<Self> {
        let (certificate, version) = self.connection_certificate();
        let connection_certificate = certificate.clone();
        let current = CurrentCredentials {
            authorization: Some(authorization),
            certificate,
            version,
            renew_at: None,
            expires: None,
            run: None,
            is_of_configured_user: false,
        };
        Arc::new(Self {
            source: CredentialSource::Static,
            remedy,
            configured: (connection_certificate, version),
            previous_connection_certificate: None,
            counters: Arc::clone(&self.counters),
            current: ArcSwapOption::from_pointee(current),
            renewing: Mutex::default(),
            renewing_in_background: AtomicBool::new(false),
            token_file_interval: self.token_file_interval,
            retry_interval: self.retry_interval,
        })
    }

    /// Returns the certificate of current connections, with its version.
    fn connection_certificate(&self) -> (Certificate, u64) {
        match &*self.current.load() {
            Some(current) => (current.certificate.clone(), current.version),
            None => self.previous_connection_certificate.clone().unwrap_or_else(|| self.configured.clone()),
        }
    }

    pub(crate) fn configured_certificate(&self) -> &Certificate {
        &self.configured.0
    }

    pub(crate) fn renewals(&self) -> u64 {
        self.counters.renewals.load(Ordering::Relaxed)
    }

    pub(crate) fn count_renewal(&self) {
        self.counters.renewals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remedy(&self) -> &'static str {
        self.remedy
    }

    /// Returns a message about the last run of the plugin, if the run failed. The current credentials may still be
    /// valid. `None` for a user without a plugin.
    pub(crate) fn problem(&self) -> Option<String> {
        match &self.source {
            CredentialSource::Exec(plugin) => plugin.problem(),
            _ => None,
        }
    }

    /// Returns credentials for a request. Cost: usually one atomic load. Waits for a plugin only if no credentials are
    /// valid. Otherwise the plugin runs in the background.
    ///
    /// # Errors
    /// A message with the reason why no credentials are available.
    pub(crate) async fn get(self: &Arc<Self>) -> Result<Arc<CurrentCredentials>, String> {
        if let Some(current) = self.current.load_full() {
            if current.is_fresh() {
                return Ok(current);
            }
            if current.is_valid() && matches!(self.source, CredentialSource::Exec(_)) {
                self.renew_in_background(&current);
                return Ok(current);
            }
        }
        self.renew(RenewalReason::Due, None).await
    }

    /// Renews the credentials after the member answered 401 to the credentials `seen`, unless the last renewal was
    /// tried a moment ago. Returns whether other credentials than `seen` are available.
    pub(crate) async fn renew_after_unauthorized(self: &Arc<Self>, seen: &Arc<CurrentCredentials>) -> bool {
        if matches!(self.source, CredentialSource::Static) && !self.configured.0.is_in_files() {
            return false;
        }
        match self.renew(RenewalReason::Rejected, Some(seen)).await {
            Ok(renewed) => !Arc::ptr_eq(&renewed, seen),
            Err(_) => false,
        }
    }

    fn renew_in_background(self: &Arc<Self>, seen: &Arc<CurrentCredentials>) {
        if !self.renewing_in_background.swap(true, Ordering::AcqRel) {
            let (credentials, seen) = (self.clone(), seen.clone());
            tokio::spawn(async move {
                // The result is ignored: the plugin logs its failure, and the old credentials are still valid.
                let _ = credentials.renew(RenewalReason::Due, Some(&seen)).await;
                credentials.renewing_in_background.store(false, Ordering::Release);
            });
        }
    }

    /// Renews the credentials. Concurrent callers wait for one renewal. If `seen` is given, renews only while the
    /// current credentials are `seen`.
    async fn renew(
        self: &Arc<Self>,
        why: RenewalReason,
        seen: Option<&Arc<CurrentCredentials>>,
    ) -> Result<Arc<CurrentCredentials>, String> {
        // The renewal runs in a task, because a plugin may still wait for a person's login after the request was
        // dropped.
        let (credentials, seen) = (self.clone(), seen.cloned());
        let task = tokio::spawn(async move { credentials.renew_now(why, seen.as_ref()).await });
        task.await.unwrap_or_else(|error| Err(format!("the renewal was interrupted: {error}")))
    }

    async fn renew_now(
        &self,
        why: RenewalReason,
        seen: Option<&Arc<CurrentCredentials>>,
    ) -> Result<Arc<CurrentCredentials>, String> {
        let mut last = self.renewing.lock().await;
        let current = self.current.load_full();
        if let Some(current) = &current {
            let replaced = seen.is_some_and(|seen| !Arc::ptr_eq(seen, current));
            if replaced || (why == RenewalReason::Due && current.is_fresh()) {
                return Ok(current.clone());
            }
        }
        if let Some(current) = current.as_ref().filter(|_| why == RenewalReason::Rejected && last.rejections.pauses()) {
            return Ok(current.clone());
        }
        let recent = last.at.is_some_and(|at| at.elapsed() < self.retry_interval);
        // A plugin has its own schedule (`plugins.rs`), so this pause between renewals does not apply to plugins.
        if recent
            && !matches!(self.source, CredentialSource::Exec(_))
            && (why == RenewalReason::Rejected || last.error.is_some())
        {
            return match (&last.error, current) {
                (None, Some(current)) => Ok(current),
                (error, _) => Err(error.clone().unwrap_or_else(|| "the renewal was tried a moment ago".to_owned())),
            };
        }
        let fetched = self.fetch(current.as_ref()).await;
        last.at = Some(Instant::now());
        last.error = fetched.as_ref().err().cloned();
        let fetched = fetched?;
        if why == RenewalReason::Rejected
            && fetched.run.is_some()
            && current.as_ref().map(|old| old.run) != Some(fetched.run)
        {
            last.rejections.add_rejection(self.retry_interval);
        }
        if current.is_some_and(|old| !old.is_same(&fetched)) {
            self.count_renewal();
        }
        self.current.store(Some(fetched.clone()));
        Ok(fetched)
    }

    async fn fetch(&self, old: Option<&Arc<CurrentCredentials>>) -> Result<Arc<CurrentCredentials>, String> {
        let (certificate, first_version) = &self.configured;
        let version = old.map_or(*first_version, |old| old.version);
        let own = |authorization, version, interval: Option<Duration>| {
            Arc::new(CurrentCredentials {
                authorization,
                certificate: certificate.clone(),
                version,
                renew_at: interval.map(|interval| Instant::now() + interval),
                expires: None,
                run: None,
                is_of_configured_user: true,
            })
        };
        let before = || old.and_then(|old| old.authorization.clone());
        match &self.source {
            // Static credentials can change only in certificate files. The new version makes the next connection read
            // these files again.
            CredentialSource::Static => Ok(own(before(), self.counters.next_version(), None)),
            CredentialSource::TokenFile(path) => {
                let header = match (read_token(path).await, before()) {
                    (Ok(header), _) => header,
                    // If the token file is gone, its last token stays in use: some operators remove token files after
                    // the start, to limit exposure (kubernetes#68164).
                    (Err(_), Some(header)) => header,
                    (Err(error), None) => return Err(error),
                };
                Ok(own(Some(header), version, Some(self.token_file_interval)))
            }
            CredentialSource::Exec(plugin) => {
                let output = plugin.credentials(old.and_then(|old| old.run)).await?;
                Ok(match old {
                    Some(old) if old.run == Some(output.run) => old.clone(),
                    _ => Arc::new(self.apply_plugin_output(&output)),
                })
            }
            CredentialSource::Provider(layer) => match fetch_authorization(layer).await {
                Ok(header) => Ok(own(header, version, Some(PROVIDER_INTERVAL))),
                Err(error) => Err(format!("the auth-provider returned no token: {error}")),
            },
        }
    }

    /// Converts a plugin's output to credentials. The certificate version stays the same if the certificate is
    /// unchanged.
    fn apply_plugin_output(&self, output: &PluginCredentials) -> CurrentCredentials {
        let certificate = output.certificate.clone().map_or_else(|| self.configured.0.clone(), Certificate::Plugin);
        let (connection_certificate, version) = self.connection_certificate();
        let same = connection_certificate == certificate && !certificate.is_in_files();
        CurrentCredentials {
            authorization: output.authorization.clone(),
            certificate,
            version: if same { version } else { self.counters.next_version() },
            renew_at: output.renew_at,
            expires: output.expires,
            run: Some(output.run),
            is_of_configured_user: true,
        }
    }
}

/// Returns the source of the credentials, and the `Authorization` header if the header is constant. `Some(None)` means
/// that requests have no such header.
async fn source(
    config: &kube::Config,
    tuning: &CredentialTuning,
) -> Result<(CredentialSource, Option<Option<HeaderValue>>), String> {
    Ok(match CredentialMethod::from_user(&config.auth_info) {
        CredentialMethod::Provider => (CredentialSource::Provider(provider_layer(config).await?), None),
        CredentialMethod::Password => {
            let header = fetch_authorization(&layer(config)?)
                .await
                .map_err(|_| "the password has characters that cannot be sent in a header")?;
            (CredentialSource::Static, Some(header))
        }
        CredentialMethod::Token(token) => {
            // Checked here, because the layer of the crate `kube` panics if the token is not a valid header value.
            let header =
                bearer(token.expose_secret()).ok_or("the token has characters that cannot be sent in a header")?;
            (CredentialSource::Static, Some(Some(header)))
        }
        CredentialMethod::TokenFile(path) => {
            let path = PathBuf::from(path);
            read_token(&path).await?;
            (CredentialSource::TokenFile(path), None)
        }
        CredentialMethod::Exec(exec) => {
            exec_plugin::check(exec)?;
            let times = PluginTimes { run: tuning.exec_timeout, pause: tuning.retry_interval };
            (CredentialSource::Exec(tuning.plugins.plugin(exec, tuning.command_policy.as_ref(), times)), None)
        }
        CredentialMethod::Certificate | CredentialMethod::CertificateFile | CredentialMethod::Nothing => {
            (CredentialSource::Static, Some(None))
        }
    })
}

/// Returns the authentication layer of the crate `kube` for a user with an auth-provider. The layer may run a command
/// (GCP), so it is created outside of the runtime's worker threads.
async fn provider_layer(config: &kube::Config) -> Result<AuthLayer, String> {
    let config = config.clone();
    tokio::task::spawn_blocking(move || layer(&config))
        .await
        .map_err(|error| format!("the credentials were not read: {error}"))?
}

/// Returns the authentication layer of the crate `kube` for this user. Does no I/O for a user with a password.
fn layer(config: &kube::Config) -> Result<AuthLayer, String> {
    let layer = config
        .auth_layer()
        .map_err(|error| format!("the credentials cannot be used: {error}"))?
        .ok_or("the auth-provider is not supported")?;
    let hand_back = service_fn(|request: Request<kube::client::Body>| async move {
        Ok::<_, BoxError>(Response::new(request.headers().get(AUTHORIZATION).cloned()))
    });
    Ok(BoxCloneSyncService::new(layer.layer(hand_back)))
}

async fn fetch_authorization(layer: &AuthLayer) -> Result<Option<HeaderValue>, BoxError> {
    let request = Request::new(kube::client::Body::empty());
    layer.clone().oneshot(request).await.map(Response::into_body)
}

/// Reads a token file. Ignores white space around the token.
async fn read_token(path: &Path) -> Result<HeaderValue, String> {
    let text = tokio::fs::read_to_string(path)
        .await
        .map_err(|error| format!("token file {} cannot be read: {error}", path.display()))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(format!("token file {} is empty", path.display()));
    }
    bearer(token)
        .ok_or_else(|| format!("token file {} contains characters that cannot be sent in a header", path.display()))
}
