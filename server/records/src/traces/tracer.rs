//! The tracer: samples requests, and queues their spans.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::configuration::TracingConfiguration;
use super::export::{SpanCounters, export};

/// The capacity of the queue, in requests. Each request has some kilobytes of spans.
const QUEUE_REQUESTS: usize = 2_048;

/// The time limit for sending the queued spans at shutdown.
const SHUT_DOWN_WITHIN: Duration = Duration::from_secs(5);

const SERVICE: &str = "tributary";

/// Samples requests and sends their spans. A process has at most one tracer.
pub struct Tracer {
    rate_per_million: u32,
    requests: Sender<Vec<SpanData>>,
    counters: SpanCounters,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Tracer {
    /// Starts a tracer. The collector may still be unreachable. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The endpoint of the collector is invalid.
    pub fn start(configuration: &TracingConfiguration) -> anyhow::Result<Arc<Self>> {
        let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic();
        let mut exporter = exporter.with_endpoint(configuration.endpoint.as_str()).build()?;
        let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        exporter.set_resource(&Resource::builder().with_service_name(SERVICE).with_attribute(version).build());
        let (requests, receiver) = channel(QUEUE_REQUESTS);
        let (counters, stop) = (SpanCounters::default(), CancellationToken::new());
        let task = tokio::spawn(export(receiver, exporter, counters.clone(), stop.clone()));
        let rate_per_million = configuration.sampling_rate_per_million;
        Ok(Arc::new(Self { rate_per_million, requests, counters, stop, task: Mutex::new(Some(task)) }))
    }

    /// Registers the span counters in a metrics registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("tributary_spans", "Spans that the collector accepted", self.counters.sent.clone());
        let help = "Spans that were lost: the collector did not accept them, or the queue was full";
        registry.register("tributary_spans_lost", help, self.counters.lost.clone());
    }

    /// Returns whether the sampling rate selects the next request.
    pub(super) fn samples(&self) -> bool {
        self.rate_per_million > 0 && rand::random_range(0..1_000_000) < self.rate_per_million
    }

    /// Queues the spans of a request without waiting. A full queue drops and counts the spans.
    pub(super) fn send(&self, spans: Vec<SpanData>) {
        let count = spans.len() as u64;
        if self.requests.try_send(spans).is_err() {
            self.counters.lost.inc_by(count);
        }
    }

    /// Sends the queued spans to the collector, for at most 5 s.
    pub async fn shut_down(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            // Spans that are unsent after the time limit are lost.
            let _ = timeout(SHUT_DOWN_WITHIN, task).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(sampling_rate_per_million: u32) -> Arc<Tracer> {
        let endpoint = "http://localhost:4317".to_owned();
        Tracer::start(&TracingConfiguration { endpoint, sampling_rate_per_million }).unwrap()
    }

    /// The tolerance of this test exceeds seven standard deviations of the number of sampled requests.
    #[tokio::test]
    async fn sampling_rate_determines_the_share_of_sampled_requests() {
        for (rate, expected) in [
            (0, 0..=0),
            (1, 0..=10),
            (10_000, 780..=1_220),
            (250_000, 24_000..=26_000),
            (999_999, 99_990..=100_000),
            (1_000_000, 100_000..=100_000),
        ] {
            let tracer = tracer(rate);
            let sampled = (0..100_000).filter(|_| tracer.samples()).count();
            assert!(expected.contains(&sampled), "{rate}: {sampled} of 100,000");
        }
    }
}
