//! The member's own credentials: the `Authorization` header of the next request, and the client certificate of the next
//! connection. Renewed before they expire, and on demand after a 401; the request path only loads a pointer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use kube::client::ConfigExt;
use kube::config::ExecConfig;
use tokio::sync::Mutex;
use tokio::time::{Duration, Instant};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tributary_apimachinery::ClusterName;

use crate::body::BoxError;
use crate::error::ConnectError;
use crate::exec_plugin::{self, ClientCertificate, bearer};
use crate::tls::TlsSource;
use crate::tuning::Tuning;

/// How long a header from one of kube's auth layers is used before the layer is asked again. The layer keeps the token
/// and its expiry (with a margin of 10 s or more) itself.
const PROVIDER_INTERVAL: Duration = Duration::from_secs(5);
/// Credentials are renewed this long before they expire, or in the last fifth of their life if that is shorter.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);

/// kube's authentication layer, around a service that hands the finished header back.
type AuthLayer = BoxCloneSyncService<Request<kube::client::Body>, Response<Option<HeaderValue>>, BoxError>;

/// Where credentials come from.
enum Source {
    /// A client certificate in the configuration, a static token, a user and password, or nothing.
    Static,
    TokenFile(PathBuf),
    Exec(Box<ExecConfig>),
    /// `auth-provider` (OIDC, GCP).
    Provider(AuthLayer),
}

/// Credentials at a moment.
pub(crate) struct Current {
    /// The `Authorization` header.
    pub(crate) authorization: Option<HeaderValue>,
    /// A client certificate from a plugin; one from the configuration is [`TlsSource`]'s own.
    pub(crate) certificate: Option<ClientCertificate>,
    /// Changes when the client certificate may have changed: connections of another version take no new requests.
    pub(crate) version: u64,
    renew_at: Option<Instant>,
    /// By the wall clock, which goes on while a laptop sleeps.
    expires: Option<SystemTime>,
}

impl Current {
    /// Whether a member sees the same in both.
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

/// The last try to renew.
#[derive(Default)]
struct LastTry {
    at: Option<Instant>,
    error: Option<String>,
}

pub(crate) struct Credentials {
    cluster: ClusterName,
    source: Source,
    current: ArcSwapOption<Current>,
    renewing: Mutex<LastTry>,
    renewing_in_background: AtomicBool,
    has_certificate_files: bool,
    token_file_interval: Duration,
    exec_timeout: Duration,
    retry_interval: Duration,
}

impl Credentials {
    /// Reads what is static; runs no plugin.
    ///
    /// # Errors
    /// [`ConnectError::Credentials`].
    pub(crate) async fn new(
        cluster: &ClusterName,
        config: &kube::Config,
        tuning: &Tuning,
    ) -> Result<Arc<Self>, ConnectError> {
        let error = |message: String| ConnectError::Credentials { cluster: cluster.clone(), message };
        let (source, current) = source(config).await.map_err(error)?;
        Ok(Arc::new(Self {
            cluster: cluster.clone(),
            source,
            current: ArcSwapOption::new(current.map(Arc::new)),
            renewing: Mutex::default(),
            renewing_in_background: AtomicBool::new(false),
            has_certificate_files: TlsSource::has_files(config),
            token_file_interval: tuning.token_file_interval,
            exec_timeout: tuning.exec_timeout,
            retry_interval: tuning.credential_retry_interval,
        }))
    }

    /// The credentials for a request. Usually one atomic load; a plugin that has to run first is waited for, and one
    /// whose credentials are still valid runs beside.
    ///
    /// # Errors
    /// Why there are none, for people.
    pub(crate) async fn get(self: &Arc<Self>) -> Result<Arc<Current>, String> {
        if let Some(current) = self.current.load_full() {
            if current.is_fresh() {
                return Ok(current);
            }
            if current.is_valid() && matches!(self.source, Source::Exec(_)) {
                self.renew_in_background(&current);
                return Ok(current);
            }
        }
        self.renew(None).await
    }

    /// After a 401: gets other credentials than `seen`, unless that was tried a moment ago. True if there are some, so
    /// that trying again makes sense.
    pub(crate) async fn renew_after_unauthorized(self: &Arc<Self>, seen: &Arc<Current>) -> bool {
        if matches!(self.source, Source::Static) && !self.has_certificate_files {
            return false;
        }
        match self.renew(Some(seen)).await {
            Ok(renewed) => !Arc::ptr_eq(&renewed, seen),
            Err(_) => false,
        }
    }

    fn renew_in_background(self: &Arc<Self>, seen: &Arc<Current>) {
        if !self.renewing_in_background.swap(true, Ordering::AcqRel) {
            let (credentials, seen) = (self.clone(), seen.clone());
            tokio::spawn(async move {
                if let Err(error) = credentials.renew(Some(&seen)).await {
                    tracing::warn!(cluster = %credentials.cluster, %error, "credentials cannot be renewed; the old ones are still valid");
                }
                credentials.renewing_in_background.store(false, Ordering::Release);
            });
        }
    }

    /// Renews, one caller at a time. With `rejected` set, only as long as those credentials are still the current ones.
    async fn renew(self: &Arc<Self>, rejected: Option<&Arc<Current>>) -> Result<Arc<Current>, String> {
        // The work goes on when the request that started it is dropped: a plugin may be waiting for its user.
        let (credentials, rejected) = (self.clone(), rejected.cloned());
        let task = tokio::spawn(async move { credentials.renew_now(rejected.as_ref()).await });
        task.await.unwrap_or_else(|error| Err(format!("renewing was interrupted: {error}")))
    }

    async fn renew_now(&self, rejected: Option<&Arc<Current>>) -> Result<Arc<Current>, String> {
        let mut last = self.renewing.lock().await;
        let current = self.current.load_full();
        if let Some(current) = &current {
            let replaced = rejected.is_some_and(|rejected| !Arc::ptr_eq(rejected, current));
            if replaced || (rejected.is_none() && current.is_fresh()) {
                return Ok(current.clone());
            }
        }
        let recent = last.at.is_some_and(|at| at.elapsed() < self.retry_interval);
        // A plugin whose credentials have expired as it gives them (a wrong clock) must not run for each request either.
        if recent && (rejected.is_some() || last.error.is_some() || matches!(self.source, Source::Exec(_))) {
            return match (&last.error, current) {
                (None, Some(current)) => Ok(current),
                (error, _) => Err(error.clone().unwrap_or_else(|| "tried a moment ago".to_owned())),
            };
        }
        let fetched = self.fetch(current.as_ref()).await;
        last.at = Some(Instant::now());
        last.error = fetched.as_ref().err().cloned();
        let fetched = Arc::new(fetched?);
        self.current.store(Some(fetched.clone()));
        Ok(fetched)
    }

    async fn fetch(&self, old: Option<&Arc<Current>>) -> Result<Current, String> {
        let version = old.map_or(0, |old| old.version);
        let renewed = |authorization, interval: Duration| Current {
            authorization,
            certificate: None,
            version,
            renew_at: Some(Instant::now() + interval),
            expires: None,
        };
        match &self.source {
            // Only certificate files can have changed: the next connection reads them again.
            Source::Static => Ok(Current {
                authorization: old.and_then(|old| old.authorization.clone()),
                certificate: None,
                version: version + 1,
                renew_at: None,
                expires: None,
            }),
            Source::TokenFile(path) => match read_token(path).await {
                Ok(header) => Ok(renewed(Some(header), self.token_file_interval)),
                // Token files are sometimes removed after the start, to limit exposure (kubernetes#68164).
                Err(error) => match old.and_then(|old| old.authorization.clone()) {
                    Some(header) => Ok(renewed(Some(header), self.token_file_interval)),
                    None => Err(error),
                },
            },
            Source::Exec(config) => {
                let credential = exec_plugin::run(config, self.exec_timeout).await?;
                let same = old.is_some_and(|old| old.certificate == credential.certificate);
                let renew_at = credential.expires.map(|at| Instant::now() + time_to_renewal(at, SystemTime::now()));
                Ok(Current {
                    authorization: credential.authorization,
                    certificate: credential.certificate,
                    version: if same { version } else { version + 1 },
                    renew_at,
                    expires: credential.expires,
                })
            }
            Source::Provider(layer) => match ask(layer).await {
                Ok(header) => Ok(renewed(header, PROVIDER_INTERVAL)),
                Err(error) => Err(format!("the auth-provider gave no token: {error}")),
            },
        }
    }
}

/// The time until credentials should be renewed.
fn time_to_renewal(expires: SystemTime, now: SystemTime) -> Duration {
    let left = expires.duration_since(now).unwrap_or_default();
    left.saturating_sub(EXPIRY_MARGIN.min(left / 5))
}

/// Picks the source by kube's order of precedence: auth-provider, user and password, token, token file, plugin.
async fn source(config: &kube::Config) -> Result<(Source, Option<Current>), String> {
    let auth = &config.auth_info;
    let fixed = |authorization| Current { authorization, certificate: None, version: 0, renew_at: None, expires: None };
    if auth.auth_provider.is_some() {
        return Ok((Source::Provider(provider_layer(config).await?), None));
    }
    if auth.token.is_some() || (auth.username.is_some() && auth.password.is_some()) {
        let header = ask(&layer(config)?).await.map_err(|_| "its token or password cannot be sent in a header")?;
        return Ok((Source::Static, Some(fixed(header))));
    }
    if let Some(path) = &auth.token_file {
        let path = PathBuf::from(path);
        read_token(&path).await?;
        return Ok((Source::TokenFile(path), None));
    }
    if let Some(exec) = &auth.exec {
        exec_plugin::check(exec)?;
        return Ok((Source::Exec(Box::new(exec.clone())), None));
    }
    Ok((Source::Static, Some(fixed(None))))
}

/// kube's authentication for a user with an auth-provider. Making it may run a command (GCP), so it is made off the runtime's
/// workers.
async fn provider_layer(config: &kube::Config) -> Result<AuthLayer, String> {
    let config = config.clone();
    tokio::task::spawn_blocking(move || layer(&config))
        .await
        .map_err(|error| format!("its credentials were not read: {error}"))?
}

/// kube's authentication for this user. Does no I/O for a token or a password.
fn layer(config: &kube::Config) -> Result<AuthLayer, String> {
    let layer = config
        .auth_layer()
        .map_err(|error| format!("its credentials cannot be used: {error}"))?
        .ok_or("its auth-provider is not known")?;
    let hand_back = service_fn(|request: Request<kube::client::Body>| async move {
        Ok::<_, BoxError>(Response::new(request.headers().get(AUTHORIZATION).cloned()))
    });
    Ok(BoxCloneSyncService::new(layer.layer(hand_back)))
}

async fn ask(layer: &AuthLayer) -> Result<Option<HeaderValue>, BoxError> {
    let request = Request::new(kube::client::Body::empty());
    layer.clone().oneshot(request).await.map(Response::into_body)
}

/// Reads a token file; white space around the token does not count.
async fn read_token(path: &Path) -> Result<HeaderValue, String> {
    let text = tokio::fs::read_to_string(path)
        .await
        .map_err(|error| format!("token file {} cannot be read: {error}", path.display()))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(format!("token file {} is empty", path.display()));
    }
    bearer(token).ok_or_else(|| format!("token file {} holds what cannot be sent in a header", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_renewed_before_they_expire() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (left, renewal) in [(3600, 3540), (300, 240), (100, 80), (5, 4), (0, 0)] {
            assert_eq!(time_to_renewal(now + Duration::from_secs(left), now).as_secs(), renewal, "{left}");
        }
        assert_eq!(time_to_renewal(now - Duration::from_secs(9), now), Duration::ZERO);
    }
}
