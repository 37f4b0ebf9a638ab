//! The backends of the audit log: a log file and a webhook, each optional.

use std::sync::Arc;

use bytes::Bytes;

use super::emission::Emission;
use super::error::AuditError;
use super::log::LogSink;
use super::metrics::AuditMetrics;
use super::settings::AuditSettings;
use super::truncation::Truncation;
use super::webhook::WebhookSink;

pub(crate) struct Sinks {
    log: Option<LogSink>,
    webhook: Option<WebhookSink>,
    /// The size limits for the lines of the log file (index 0) and of the webhook (index 1). `None` disables
    /// truncation.
    truncations: [Option<Truncation>; 2],
    metrics: Arc<AuditMetrics>,
}

impl Sinks {
    /// Opens the configured backends.
    ///
    /// # Errors
    /// [`AuditError`].
    pub(crate) async fn open(settings: &AuditSettings, metrics: &Arc<AuditMetrics>) -> Result<Self, AuditError> {
        let AuditSettings { log, webhook, .. } = settings;
        // The log file contains single events, no EventLists, so the limit for a list equals the limit for an event.
        let of_log = log.as_ref().and_then(|log| log.event_bytes_max).map(|event| Truncation { event, list: event });
        let truncations = [of_log, webhook.as_ref().and_then(|webhook| webhook.truncation)];
        let log = log.as_ref().map(|log| LogSink::open(log, metrics)).transpose()?;
        let webhook = match webhook {
            Some(webhook) => Some(WebhookSink::open(webhook, metrics).await?),
            None => None,
        };
        Ok(Self { log, webhook, truncations, metrics: Arc::clone(metrics) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.log.is_none() && self.webhook.is_none()
    }

    /// Writes an audit event's line to each backend.
    pub(crate) fn write(&self, line: Bytes) -> Emission {
        let [of_log, of_webhook] = self.truncations;
        let logged = match &self.log {
            None => Emission::Done(true),
            Some(log) => self.cut(of_log, log.is_strict(), line.clone(), |line| log.write(&line)),
        };
        let sent = match &self.webhook {
            None => Emission::Done(true),
            Some(webhook) => self.cut(of_webhook, webhook.is_strict(), line, |line| webhook.write(line)),
        };
        match (logged, sent) {
            (Emission::Done(logged), Emission::Done(sent)) => Emission::Done(logged && sent),
            (logged, sent) => Emission::waiting(async { logged.await & sent.await }),
        }
    }

    /// Truncates a line to a backend's limit and writes the line. A line that is too long even after truncation is
    /// counted as lost. Its request is refused only in a strict mode.
    fn cut(
        &self,
        truncation: Option<Truncation>,
        is_strict: bool,
        line: Bytes,
        write: impl FnOnce(Bytes) -> Emission,
    ) -> Emission {
        let cut = match truncation {
            Some(own) => own.cut(line),
            None => Some(line),
        };
        match cut {
            Some(line) => write(line),
            None => {
                self.metrics.count_lost("truncate", 1);
                Emission::Done(!is_strict)
            }
        }
    }

    /// Flushes the queued audit events to the backends.
    pub(crate) async fn shut_down(&self) {
        if let Some(log) = &self.log {
            log.shut_down().await;
        }
        if let Some(webhook) = &self.webhook {
            webhook.shut_down().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::settings::{AuditLogSettings, AuditMode};
    use crate::line_log::Rotation;

    #[tokio::test]
    async fn oversized_audit_event_refuses_the_request_only_in_strict_mode() {
        let folder = tempfile::tempdir().unwrap();
        for (mode, bytes, goes_on) in [
            (AuditMode::Blocking, 10, true),
            (AuditMode::BlockingStrict, 10, false),
            (AuditMode::BlockingStrict, 100, true),
            (AuditMode::Batch, 10, true),
        ] {
            let log = AuditLogSettings {
                path: folder.path().join("audit.log"),
                rotation: Rotation::default(),
                mode,
                buffer_size: 1,
                event_bytes_max: Some(bytes),
            };
            let settings = AuditSettings { log: Some(log), ..AuditSettings::default() };
            let sinks = Sinks::open(&settings, &Arc::default()).await.unwrap();
            let line = Bytes::from_static(b"{\"requestURI\":\"/api/v1/pods\"}\n");
            assert_eq!(sinks.write(line).await, goes_on, "{mode:?} with {bytes} bytes");
            sinks.shut_down().await;
        }
    }
}
