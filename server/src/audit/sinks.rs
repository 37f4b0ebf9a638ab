//! Where events go: the log, the webhook, both or neither.

use std::sync::Arc;

use bytes::Bytes;

use super::emission::Emission;
use super::error::AuditError;
use super::log::LogSink;
use super::metrics::AuditMetrics;
use super::webhook::WebhookSink;
use crate::cli::audit::AuditArguments;

/// The backends.
pub(crate) struct Sinks {
    log: Option<LogSink>,
    webhook: Option<WebhookSink>,
}

impl Sinks {
    /// Those that the flags ask for.
    ///
    /// # Errors
    /// [`AuditError`].
    pub(crate) async fn open(arguments: &AuditArguments, metrics: &Arc<AuditMetrics>) -> Result<Self, AuditError> {
        let log = LogSink::open(&arguments.log, metrics)?;
        let webhook = WebhookSink::open(&arguments.webhook, metrics).await?;
        Ok(Self { log, webhook })
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.log.is_none() && self.webhook.is_none()
    }

    /// Gives a line to each.
    pub(crate) fn write(&self, line: Bytes) -> Emission {
        let logged = self.log.as_ref().map_or(Emission::Done(true), |log| log.write(&line));
        let sent = self.webhook.as_ref().map_or(Emission::Done(true), |webhook| webhook.write(line));
        match (logged, sent) {
            (Emission::Done(logged), Emission::Done(sent)) => Emission::Done(logged && sent),
            (logged, sent) => Emission::waiting(async { logged.await & sent.await }),
        }
    }

    /// Writes and sends what waits.
    pub(crate) async fn shut_down(&self) {
        if let Some(log) = &self.log {
            log.shut_down().await;
        }
        if let Some(webhook) = &self.webhook {
            webhook.shut_down().await;
        }
    }
}
