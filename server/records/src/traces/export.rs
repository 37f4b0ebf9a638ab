//! The background task that sends spans to the collector.

use std::time::Duration;

use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// The target size of a batch, in spans. All spans of one request stay in the same batch, so a batch may exceed this
/// size.
const BATCH_SPANS: usize = 512;

/// The longest time that a span waits until its batch is full.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// The time limit for sending one batch of spans.
const SEND_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default)]
pub(super) struct SpanCounters {
    /// The number of spans that the collector accepted.
    pub(super) sent: Counter,
    /// The number of spans that the collector or the full queue rejected.
    pub(super) lost: Counter,
}

/// Sends the spans of requests until `stop` is cancelled, and then sends the queued spans.
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
            Err(_) => Some("the collector did not answer in time".to_owned()),
        };
        match problem {
            None => {
                counters.sent.inc_by(spans);
                if std::mem::take(&mut is_failing) {
                    tracing::info!("the collector accepts spans again");
                }
            }
            Some(problem) => {
                counters.lost.inc_by(spans);
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(problem, "the collector does not accept spans");
                }
            }
        }
    }
}
