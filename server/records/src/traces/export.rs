//! The task that sends spans.

use std::time::Duration;

use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// The most spans in one batch, unless the last request brings more.
const BATCH_SPANS: usize = 512;

/// The longest time that a span waits for a full batch.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// The timeout of sending a batch.
const SEND_WITHIN: Duration = Duration::from_secs(10);

/// The counters of spans.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanCounters {
    /// Spans that the collector accepted.
    pub(super) sent: Counter,
    /// Spans that the collector did not accept, or for which the queue had no room.
    pub(super) lost: Counter,
}

/// Sends the spans of requests until `stop`, and then the queued ones.
pub(super) async fn export(
    mut requests: Receiver<Vec<SpanData>>,
    exporter: opentelemetry_otlp::SpanExporter,
    counters: SpanCounters,
    stop: CancellationToken,
) {
    let mut is_failing = false;
    loop {
        let first = tokio::select! {
            first = requests.recv() => first,
            () = stop.cancelled(), if !requests.is_closed() => {
                requests.close();
                continue;
            }
        };
        let Some(mut batch) = first else { return };
        let until = Instant::now() + BATCH_WAIT;
        while batch.len() < BATCH_SPANS {
            tokio::select! {
                more = requests.recv() => match more {
                    Some(more) => batch.extend(more),
                    None => break,
                },
                () = sleep_until(until) => break,
                () = stop.cancelled(), if !requests.is_closed() => requests.close(),
            }
        }
        let spans = batch.len() as u64;
        let problem = match timeout(SEND_WITHIN, exporter.export(batch)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it took too long".to_owned()),
        };
        match problem {
            None => {
                counters.sent.inc_by(spans);
                if std::mem::take(&mut is_failing) {
                    tracing::info!("the collector takes spans again");
                }
            }
            Some(problem) => {
                counters.lost.inc_by(spans);
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(problem, "the collector does not take spans");
                }
            }
        }
    }
}
