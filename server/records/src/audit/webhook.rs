//! The webhook backend: posts events as EventLists to the server of a kubeconfig.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tributary_apimachinery::explain;
use tributary_audit::event_list;
use tributary_limiters::{SpentTokens, TokenRate};

use super::emission::Emission;
use super::error::AuditError;
use super::metrics::AuditMetrics;
use super::settings::{AuditMode, AuditWebhookSettings};
use super::truncation::Truncation;

/// The timeout of a request to the webhook, as in kube-apiserver (apiserver `pkg/util/webhook`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of attempts to send an EventList. This number and `BACKOFF_FACTOR`, the factor between one pause
/// and the next, are kube-apiserver's (`DefaultRetryBackoffWithInitialDelay`).
const ATTEMPTS_MAX: u32 = 5;
const BACKOFF_FACTOR: f64 = 1.5;
/// The most concurrent requests to the webhook in batch mode. This limit is independent of the rate limit.
const IN_FLIGHT: usize = 15;
/// The time limit for sending the queued events at shutdown. The drain of the client connections ends before this
/// phase, and a kubelet kills the process 30 s after SIGTERM.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

struct Webhook {
    client: kube::Client,
    target: Uri,
    backoff: Duration,
    metrics: Arc<AuditMetrics>,
}

pub(crate) struct WebhookSink {
    webhook: Arc<Webhook>,
    mode: WebhookMode,
}

enum WebhookMode {
    /// Each answer waits until the webhook accepts its event. With `strict`, a request is refused if the webhook
    /// rejects its event.
    Blocking { strict: bool },
    /// A background task collects events into EventLists.
    Batch { sender: Mutex<Option<mpsc::Sender<Bytes>>>, task: Mutex<Option<JoinHandle<()>>> },
}

impl WebhookSink {
    /// Creates the client for the webhook, and starts the background task in batch mode.
    ///
    /// # Errors
    /// [`AuditError::Webhook`].
    pub(crate) async fn open(settings: &AuditWebhookSettings, metrics: &Arc<AuditMetrics>) -> Result<Self, AuditError> {
        let path = &settings.kubeconfig;
        let (client, target) =
            client(path).await.map_err(|problem| AuditError::Webhook { path: path.clone(), problem })?;
        let (backoff, metrics) = (settings.initial_backoff, Arc::clone(metrics));
        let webhook = Arc::new(Webhook { client, target, backoff, metrics });
        let mode = match settings.mode {
            AuditMode::Blocking => WebhookMode::Blocking { strict: false },
            AuditMode::BlockingStrict => WebhookMode::Blocking { strict: true },
            AuditMode::Batch => {
                let (sender, receiver) = mpsc::channel(settings.buffer_size);
                let throttle = settings.throttle.map(|own| {
                    let interval = Duration::try_from_secs_f64(1.0 / own.per_second);
                    let burst = NonZeroU32::new(own.burst);
                    TokenRate::with_interval(interval.unwrap_or(Duration::MAX), burst.unwrap_or(NonZeroU32::MIN))
                });
                let AuditWebhookSettings { batch_size: size, batch_wait: wait, truncation, .. } = *settings;
                let lists = BatchLimits { size, wait, truncation, throttle };
                let task = tokio::spawn(send_batches(Arc::clone(&webhook), receiver, lists));
                WebhookMode::Batch { sender: Mutex::new(Some(sender)), task: Mutex::new(Some(task)) }
            }
        };
        Ok(Self { webhook, mode })
    }

    /// Sends an audit event to the webhook, or queues the event in batch mode.
    pub(crate) fn write(&self, line: Bytes) -> Emission {
        match &self.mode {
            WebhookMode::Blocking { strict } => {
                let (webhook, strict) = (Arc::clone(&self.webhook), *strict);
                Emission::waiting(async move { webhook.deliver(vec![line]).await || !strict })
            }
            WebhookMode::Batch { sender, .. } => {
                if sender.lock().as_ref().is_none_or(|sender| sender.try_send(line).is_err()) {
                    self.webhook.metrics.count_lost("buffered", 1);
                }
                Emission::Done(true)
            }
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        matches!(self.mode, WebhookMode::Blocking { strict: true })
    }

    /// Sends the queued events, for at most [`SHUTDOWN_TIMEOUT`].
    pub(crate) async fn shut_down(&self) {
        let WebhookMode::Batch { sender, task } = &self.mode else { return };
        drop(sender.lock().take());
        let task = task.lock().take();
        if let Some(task) = task
            && timeout(SHUTDOWN_TIMEOUT, task).await.is_err()
        {
            tracing::warn!("audit events are lost: the webhook does not accept them");
        }
    }
}

struct BatchLimits {
    /// The most events in an EventList.
    size: usize,
    /// The longest time that an event waits until its EventList is full.
    wait: Duration,
    truncation: Option<Truncation>,
    /// The rate limit of EventLists, as in kube-apiserver (client-go `NewTokenBucketRateLimiter`).
    throttle: Option<TokenRate>,
}

/// Collects events into EventLists and sends them. Ends after the last sender is dropped.
async fn send_batches(webhook: Arc<Webhook>, mut events: mpsc::Receiver<Bytes>, lists: BatchLimits) {
    let BatchLimits { size, wait, truncation, throttle } = lists;
    let mut sent = SpentTokens::default();
    let places = Arc::new(Semaphore::new(IN_FLIGHT));
    while let Some(first) = events.recv().await {
        let mut lines = vec![first];
        let deadline = Instant::now() + wait;
        while lines.len() < size {
            match timeout_at(deadline, events.recv()).await {
                Ok(Some(line)) => lines.push(line),
                Ok(None) | Err(_) => break,
            }
        }
        let parts = match truncation {
            Some(own) => own.parts(lines),
            None => vec![lines],
        };
        for lines in parts {
            if let Some(rate) = throttle {
                sent.spend_one(rate).await;
            }
            // `acquire_owned` fails only for a closed semaphore, and this semaphore is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let webhook = Arc::clone(&webhook);
            tokio::spawn(async move {
                webhook.deliver(lines).await;
                drop(place);
            });
        }
    }
    // All permits are free again when the webhook has accepted, or `deliver` has given up, the last EventList.
    let _ = places.acquire_many(u32::try_from(IN_FLIGHT).unwrap_or(u32::MAX)).await;
}

impl Webhook {
    /// Posts an EventList until the webhook accepts it. After the last attempt, the events are counted as lost. Returns
    /// whether the webhook accepted the events.
    async fn deliver(&self, lines: Vec<Bytes>) -> bool {
        let body = Bytes::from(event_list(&lines));
        let mut pause = self.backoff;
        for attempt in 1..=ATTEMPTS_MAX {
            match self.post(body.clone()).await {
                Ok(()) => return true,
                Err(problem) if attempt == ATTEMPTS_MAX => {
                    tracing::error!(problem, events = lines.len(), "audit events are lost");
                }
                Err(problem) => {
                    tracing::debug!(
                        problem,
                        events = lines.len(),
                        "the webhook did not accept audit events; they are sent again"
                    );
                    sleep(pause).await;
                    pause = pause.mul_f64(BACKOFF_FACTOR);
                }
            }
        }
        self.metrics.count_lost("webhook", lines.len());
        false
    }

    async fn post(&self, body: Bytes) -> Result<(), String> {
        let request = Request::post(self.target.clone())
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json")
            .body(kube::client::Body::from(body.to_vec()))
            .map_err(|error| error.to_string())?;
        match timeout(REQUEST_TIMEOUT, self.client.send(request)).await {
            Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
            Ok(Ok(answer)) => Err(format!("the webhook answered {}", answer.status())),
            Ok(Err(error)) => Err(explain(&error)),
            Err(_) => Err(format!("the webhook did not answer within {} s", REQUEST_TIMEOUT.as_secs())),
        }
    }
}

/// Creates a client for the kubeconfig's current context. Also returns the path of the server's URL, to which events
/// are posted.
async fn client(path: &Path) -> Result<(kube::Client, Uri), String> {
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| match error {
        // The caller's message already contains the kubeconfig's path, so this text must not repeat it.
        KubeconfigError::ReadConfig(source, _) => format!("the file cannot be read: {source}"),
        error => explain(&error),
    })?;
    let options = KubeConfigOptions::default();
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| explain(&error))?;
    // The crate kube would join the server's path and the request's path with an additional slash.
    let server = std::mem::take(&mut config.cluster_url).into_parts();
    let target = server.path_and_query.as_ref().map_or("/", |target| target.as_str());
    let target = target.parse::<Uri>().map_err(|error| error.to_string())?;
    let (scheme, authority) = (server.scheme.ok_or("the URL of the server has no scheme")?, server.authority);
    let authority = authority.ok_or("the URL of the server has no host")?;
    config.cluster_url = Uri::builder()
        .scheme(scheme)
        .authority(authority)
        .path_and_query("/")
        .build()
        .map_err(|error| error.to_string())?;
    // The function `deliver` retries failed requests itself, with a limit.
    config.default_retry = false;
    Ok((kube::Client::try_from(config).map_err(|error| explain(&error))?, target))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use http_body_util::BodyExt;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use serde_json::Value;
    use tokio::net::TcpListener;

    use super::*;
    use crate::audit::metrics::PluginLabels;

    /// Starts a webhook that refuses the first `refusals` requests. The channel reports the path and the number of
    /// events of each later request.
    async fn webhook(refusals: usize) -> (String, mpsc::UnboundedReceiver<(String, usize)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (taken, received) = mpsc::unbounded_channel();
        let left = Arc::new(std::sync::atomic::AtomicUsize::new(refusals));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (taken, left) = (taken.clone(), Arc::clone(&left));
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let (taken, left) = (taken.clone(), Arc::clone(&left));
                    async move {
                        let path = request.uri().to_string();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let list: Value = serde_json::from_slice(&body).unwrap();
                        let relaxed = std::sync::atomic::Ordering::Relaxed;
                        let refused = left.fetch_update(relaxed, relaxed, |left| left.checked_sub(1)).is_ok();
                        if !refused {
                            taken.send((path, list["items"].as_array().unwrap().len())).unwrap();
                        }
                        let mut answer = http::Response::new(String::new());
                        *answer.status_mut() = http::StatusCode::from_u16(if refused { 500 } else { 200 }).unwrap();
                        Ok::<_, std::convert::Infallible>(answer)
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        (format!("http://{address}/audit?from=tributary"), received)
    }

    fn settings(kubeconfig: PathBuf, mode: AuditMode, batch_size: usize) -> AuditWebhookSettings {
        AuditWebhookSettings {
            kubeconfig,
            mode,
            buffer_size: 100,
            batch_size,
            batch_wait: Duration::from_millis(50),
            throttle: None,
            truncation: None,
            initial_backoff: Duration::from_millis(1),
        }
    }

    async fn sink(server: &str, mode: AuditMode, size: usize) -> (WebhookSink, Arc<AuditMetrics>) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("webhook.kubeconfig");
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{server: '{server}'}}}}]\nusers: [{{name: a, user: {{}}}}]\n"
        );
        std::fs::write(&path, kubeconfig).unwrap();
        let metrics = Arc::new(AuditMetrics::default());
        (WebhookSink::open(&settings(path, mode, size), &metrics).await.unwrap(), metrics)
    }

    #[tokio::test]
    async fn audit_webhook_error_contains_the_kubeconfig_path_once() {
        let path = tempfile::tempdir().unwrap().path().join("nope");
        let shown = path.display().to_string();
        let settings = settings(path, AuditMode::Batch, 1);
        let error = WebhookSink::open(&settings, &Arc::default()).await.err().unwrap().to_string();
        assert_eq!(error.matches(&shown).count(), 1, "{error}");
        assert!(error.contains("nope: the file cannot be read: "), "{error}");
    }

    fn lost(metrics: &AuditMetrics) -> u64 {
        metrics.errors.get_or_create(&PluginLabels { plugin: "webhook" }).get()
    }

    const LINE: Bytes = Bytes::from_static(b"{}\n");

    #[tokio::test]
    async fn full_or_old_audit_batch_is_sent_and_retried() {
        let (server, mut received) = webhook(2).await;
        let (sink, metrics) = sink(&server, AuditMode::Batch, 3).await;
        for _ in 0..4 {
            assert!(sink.write(LINE).await);
        }
        let mut sizes = Vec::new();
        for _ in 0..2 {
            let (path, size) = received.recv().await.unwrap();
            assert_eq!(path, "/audit?from=tributary", "as the kubeconfig has it");
            sizes.push(size);
        }
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 3]);
        assert!(sink.write(LINE).await);
        sink.shut_down().await;
        assert_eq!(received.recv().await.unwrap().1, 1, "what waits at the end is sent");
        assert_eq!(lost(&metrics), 0);
        assert!(sink.write(LINE).await);
        let buffered = metrics.errors.get_or_create(&PluginLabels { plugin: "buffered" }).get();
        assert_eq!(buffered, 1, "nothing is taken after the end");
    }

    #[tokio::test]
    async fn failed_webhook_delivery_refuses_requests_only_in_strict_mode() {
        for (mode, goes_on) in [(AuditMode::Blocking, true), (AuditMode::BlockingStrict, false)] {
            let (server, mut received) = webhook(ATTEMPTS_MAX as usize).await;
            let (sink, metrics) = sink(&server, mode, 1).await;
            assert_eq!(sink.write(LINE).await, goes_on, "{mode:?}");
            assert_eq!(lost(&metrics), 1);
            assert!(sink.write(LINE).await);
            assert_eq!(received.recv().await.unwrap().1, 1);
        }
    }
}
