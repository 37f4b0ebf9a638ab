//! Reads the shared serving certificate in every replica, and renews it in the leader.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Method;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::api_service::{API_SERVICE_PATH, AggregatedService, trust_patch};
use super::generated::{RENEW_BEFORE, SharedServingCertificate};
use super::secret::{SECRET_NAME, read_secret, secret_with};
use crate::leadership::{Leadership, NotLeader};
use crate::{HubClient, HubError};

/// The pause between two reads of the Secret.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// The pause after the first read without a certificate, and after the first failure. Each further pause is twice as
/// long, up to [`POLL_INTERVAL`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Keeps the serving certificate of the aggregated API in the Secret `tributary-aggregated-serving`.
pub struct ServingCertificateStore {
    client: Arc<HubClient>,
    leadership: Leadership,
    /// The path of the Secrets of the namespace.
    collection: String,
    service: AggregatedService,
    current: watch::Sender<Option<Arc<SharedServingCertificate>>>,
}

/// The reason why the Secret or the APIService is not up to date.
#[derive(Debug, thiserror::Error)]
enum StoreError {
    #[error("the Secret {SECRET_NAME} is not available: {0}")]
    Secret(HubError),
    #[error("the Secret {SECRET_NAME} has no usable certificate: {0}")]
    Unusable(String),
    #[error("the APIService is not available: {0}")]
    ApiService(HubError),
    #[error("{0}")]
    OtherService(String),
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
}

impl ServingCertificateStore {
    /// Creates a store for the Secret in `namespace`. Sends nothing until [`run`](Self::run).
    pub fn new(client: Arc<HubClient>, leadership: Leadership, namespace: &str, service: AggregatedService) -> Self {
        let collection = format!("/api/v1/namespaces/{namespace}/secrets");
        Self { client, leadership, collection, service, current: watch::Sender::new(None) }
    }

    /// Returns the current certificate and its changes; `None` until the Secret has a usable certificate. The
    /// certificate stays if the Secret is deleted or becomes unusable.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<SharedServingCertificate>>> {
        self.current.subscribe()
    }

    /// Reads the Secret once a minute until `stop` is cancelled. While this replica holds the Lease, makes the
    /// certificate, renews it 30 days before its end, and writes its authorities to the APIService. Never fails:
    /// problems are logged, and the next round tries again.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&self) {
        let (mut pause, mut problem) = (FIRST_PAUSE, None);
        loop {
            let was_leader = self.leadership.is_leader();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let failure = self.run_round(now).await.err().map(|error| error.to_string());
            let is_settled = failure.is_none() && self.current.borrow().is_some();
            report(failure, &mut problem);
            if is_settled {
                self.wait(POLL_INTERVAL, was_leader).await;
                pause = FIRST_PAUSE;
            } else {
                self.wait(pause, was_leader).await;
                pause = (pause * 2).min(POLL_INTERVAL);
            }
        }
    }

    /// Waits until the next round. The round begins early if this replica becomes the leader.
    async fn wait(&self, pause: Duration, was_leader: bool) {
        if was_leader {
            sleep(pause).await;
        } else {
            let _is_leader = timeout(pause, self.leadership.clone().begun()).await;
        }
    }

    /// Reads the Secret. As the leader, renews the certificate and corrects the APIService. `now` is the time since
    /// 1970.
    async fn run_round(&self, now: Duration) -> Result<(), StoreError> {
        let secret = self.find(&self.secret_path()).await.map_err(StoreError::Secret)?;
        let stored = secret.as_ref().map(|secret| self.read(secret, now)).transpose();
        if let Ok(Some(usable)) = &stored {
            self.publish(usable);
        }
        if !self.leadership.is_leader() {
            return stored.map(drop);
        }
        if let Err(error) = &stored {
            tracing::warn!(%error, "the serving certificate of the aggregated API is replaced");
        }
        match stored.ok().flatten() {
            Some(usable) if usable.check(&self.service.dns_names(), now + RENEW_BEFORE).is_ok() => {
                self.trust(&usable.authorities).await
            }
            ending => self.renew(secret.as_ref(), ending.as_ref(), now).await,
        }
    }

    /// Returns the certificate of the Secret if clients accept the certificate.
    fn read(&self, secret: &Value, now: Duration) -> Result<SharedServingCertificate, StoreError> {
        let certificate = read_secret(secret).map_err(StoreError::Unusable)?;
        certificate.check(&self.service.dns_names(), now).map_err(StoreError::Unusable)?;
        Ok(certificate)
    }

    /// Makes a certificate and stores it. `previous` is the certificate that replicas use until they read the new one.
    async fn renew(
        &self,
        secret: Option<&Value>,
        previous: Option<&SharedServingCertificate>,
        now: Duration,
    ) -> Result<(), StoreError> {
        let made = SharedServingCertificate::make(&self.service.dns_names(), previous, now)?;
        if previous.is_some() {
            // The hub trusts the new authority before a replica uses the new certificate.
            self.trust(&made.authorities).await?;
        }
        let body = secret_with(&made, secret);
        let path = self.secret_path();
        let (method, path, content_type) = match secret {
            Some(_) => (Method::PUT, path, "application/json"),
            // A server-side apply is sent, because a POST to the collection names no object, so RBAC could not limit
            // the right to this Secret.
            None => (Method::PATCH, format!("{path}?fieldManager=tributary"), "application/apply-patch+yaml"),
        };
        let request = self.client.send(method, &path, content_type, Some(&body));
        self.leadership.send(request).await?.map_err(StoreError::Secret)?;
        tracing::info!(secret = SECRET_NAME, "a new serving certificate of the aggregated API is stored");
        self.publish(&made);
        self.trust(&made.authorities).await
    }

    /// Makes the APIService trust exactly `authorities`. Does nothing without an APIService.
    async fn trust(&self, authorities: &str) -> Result<(), StoreError> {
        let api_service = self.find(API_SERVICE_PATH).await.map_err(StoreError::ApiService)?;
        let Some(api_service) = api_service else { return Ok(()) };
        let patch = trust_patch(&api_service, &self.service, authorities).map_err(StoreError::OtherService)?;
        let Some(patch) = patch else { return Ok(()) };
        let request = self.client.send(Method::PATCH, API_SERVICE_PATH, "application/merge-patch+json", Some(&patch));
        self.leadership.send(request).await?.map_err(StoreError::ApiService)?;
        tracing::info!("the APIService of the aggregated API trusts the serving certificate");
        Ok(())
    }

    fn publish(&self, certificate: &SharedServingCertificate) {
        self.current.send_if_modified(|current| {
            let is_new = current.as_deref() != Some(certificate);
            if is_new {
                *current = Some(Arc::new(certificate.clone()));
            }
            is_new
        });
    }

    fn secret_path(&self) -> String {
        format!("{}/{SECRET_NAME}", self.collection)
    }

    /// Returns an object of the hub; `None` if it does not exist.
    async fn find(&self, path: &str) -> Result<Option<Value>, HubError> {
        match self.client.get(path).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Logs the beginning and the end of a problem.
fn report(failure: Option<String>, problem: &mut Option<String>) {
    if failure == *problem {
        return;
    }
    match &failure {
        Some(problem) => tracing::warn!(problem, "the serving certificate of the aggregated API is not up to date"),
        None => tracing::info!("the serving certificate of the aggregated API is up to date again"),
    }
    *problem = failure;
}
