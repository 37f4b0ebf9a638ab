//! The server's own metrics. `/metrics` exposes them together with the handler's metrics.

mod hub;
mod list;

use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use tributary_hosts::HostRefusal;
use tributary_listener::ListenerMetrics;
use tributary_router::Report;
use tributary_router::report::LimitReport;

use crate::process::metrics::{ProcessMetrics, resident};

pub use hub::HubView;
pub use list::{METRICS, MetricDescription, MetricKind, Section, Unit};

/// The media type of the metrics exposition. Prometheus requests this media type, and every scraper accepts it.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metric label with the result of an authentication.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AuthenticationLabels {
    /// The result of the authentication: `success` or `failure`, as in kube-apiserver.
    pub result: &'static str,
}

/// The label of the reason why a request was refused by its host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HostLabels {
    /// The reason of the refusal: `unknown`, `misdirected` or `contradicting`.
    pub reason: &'static str,
}

/// The metrics of the listener, of authentication and of requests.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    /// The metrics of the listener.
    pub listener: Arc<ListenerMetrics>,
    /// The number of authentications, by result (kube-apiserver's `authentication_attempts`).
    pub authentication_attempts: Family<AuthenticationLabels, Counter>,
    /// The counters of `authentication_attempts` for success and failure, so that a request needs no lookup by label.
    authentications: OnceLock<[Counter; 2]>,
    /// The number of requests that were refused by their host, by reason.
    pub hosts_refused: Family<HostLabels, Counter>,
    /// The number of requests whose handler panicked.
    pub panics: Counter,
    /// The hub. Empty without hub mode, and until the start has read the hub.
    pub hub: OnceLock<HubView>,
}

impl ServerMetrics {
    /// Registers these metrics and the process's metrics in a metrics registry.
    pub fn register(&self, registry: &mut Registry) {
        for result in ["success", "failure"] {
            drop(self.authentication_attempts.get_or_create(&AuthenticationLabels { result }));
        }
        for reason in ["unknown", "misdirected", "contradicting"] {
            drop(self.hosts_refused.get_or_create(&HostLabels { reason }));
        }
        self.listener.register(registry);
        registry.register("authentication_attempts", "Authentications by result", self.authentication_attempts.clone());
        registry.register(
            "tributary_hosts_refused",
            "Requests that were refused because of their host",
            self.hosts_refused.clone(),
        );
        registry.register("tributary_request_panics", "Requests that failed because of a panic", self.panics.clone());
        registry.register_collector(Box::new(ProcessMetrics));
    }

    /// Adds the memory of the process, the hub and the listener's limits to a report.
    pub fn add_to(&self, report: &mut Report) {
        let count = |gauge: &Gauge| u64::try_from(gauge.get()).unwrap_or_default();
        let own = &self.listener;
        report.resident_bytes = resident();
        report.hub = self.hub.get().map(HubView::report);
        report.limits.extend([
            LimitReport::new("connections", count(&own.connections), count(&own.connections_max), None),
            LimitReport::new("unread_bytes", count(&own.unread_bytes), count(&own.unread_bytes_max), None),
        ]);
    }

    /// Counts an authentication by its result.
    pub fn count_authentication(&self, success: bool) {
        let series = |result| self.authentication_attempts.get_or_create_owned(&AuthenticationLabels { result });
        let [succeeded, failed] = self.authentications.get_or_init(|| ["success", "failure"].map(series));
        let series = if success { succeeded } else { failed };
        series.inc();
    }

    /// Counts a request that was refused by its host.
    pub fn count_refused_host(&self, refusal: HostRefusal) {
        let reason = match refusal {
            HostRefusal::Unknown => "unknown",
            HostRefusal::Misdirected => "misdirected",
            HostRefusal::Contradicting => "contradicting",
        };
        self.hosts_refused.get_or_create(&HostLabels { reason }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_exposed() {
        let metrics = ServerMetrics::default();
        metrics.count_authentication(true);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        [true, false, false].into_iter().for_each(|success| metrics.count_authentication(success));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "tributary_connections 0",
            "tributary_unread_bytes 0",
            "tributary_answers_stuck_total 0",
            "apiserver_tls_handshake_errors_total 0",
            "authentication_attempts_total{result=\"success\"} 2",
            "authentication_attempts_total{result=\"failure\"} 2",
            "tributary_request_panics_total 0",
            "process_open_fds ",
            "process_resident_memory_bytes ",
            "process_cpu_seconds_total ",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
