//! The metrics of the listener.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::refusal::ListenerRefusal;
use crate::settings::Bounds;

/// The metric label with the reason of a refused request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    /// The reason, as returned by [`ListenerRefusal::as_str`].
    pub reason: &'static str,
}

/// The metrics of one listener.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
    /// The number of open connections, including upgraded ones.
    pub connections: Gauge,
    /// The number of connections that were closed because their clients read no answers.
    pub connections_stuck: Counter,
    /// The number of unauthenticated connections that were closed to free their slots for new connections.
    pub unauthenticated_evicted: Counter,
    /// The number of answers that were aborted because clients did not read them.
    pub answers_stuck: Counter,
    /// The bytes of answers that clients have not read.
    pub unread_bytes: Gauge,
    /// The limit of unread bytes.
    pub unread_bytes_max: Gauge,
    /// The number of failed TLS handshakes with clients (kube-apiserver's `apiserver_tls_handshake_errors_total`).
    pub tls_handshake_errors: Counter,
    /// The number of requests that the listener refused, by reason.
    pub refused: Family<RefusalLabels, Counter>,
    /// The limit of open connections.
    pub connections_max: Gauge,
}

impl ListenerMetrics {
    /// Registers the metrics in a metrics registry.
    pub fn register(&self, registry: &mut Registry) {
        for reason in ListenerRefusal::ALL.map(ListenerRefusal::as_str) {
            drop(self.refused.get_or_create(&RefusalLabels { reason }));
        }
        registry.register(
            "tributary_connections",
            "Open client connections, including upgraded ones",
            self.connections.clone(),
        );
        registry.register(
            "tributary_connections_max",
            "Limit of open client connections",
            self.connections_max.clone(),
        );
        registry.register(
            "tributary_connections_stuck",
            "Connections that were closed because their clients read no answers",
            self.connections_stuck.clone(),
        );
        registry.register(
            "tributary_strangers_sent_away",
            "Connections without an authenticated request that were closed to make room",
            self.unauthenticated_evicted.clone(),
        );
        registry.register(
            "tributary_answers_stuck",
            "Answers that were cut because their clients did not read them",
            self.answers_stuck.clone(),
        );
        registry.register(
            "tributary_unread_bytes",
            "Bytes of answers that clients have not read",
            self.unread_bytes.clone(),
        );
        registry.register(
            "tributary_unread_bytes_max",
            "Limit of the bytes of answers that clients have not read",
            self.unread_bytes_max.clone(),
        );
        registry.register(
            "apiserver_tls_handshake_errors",
            "Failed TLS handshakes with clients",
            self.tls_handshake_errors.clone(),
        );
        registry.register(
            "tributary_listener_refused",
            "Requests that the listener refused, by reason",
            self.refused.clone(),
        );
    }

    /// Sets the metrics that report the listener's configured limits.
    pub fn set_bounds(&self, bounds: &Bounds) {
        self.connections_max.set(i64::try_from(bounds.connections).unwrap_or(i64::MAX));
        self.unread_bytes_max.set(i64::try_from(bounds.unread_bytes).unwrap_or(i64::MAX));
    }

    /// Counts a refused request under its reason.
    pub fn count_refused(&self, refusal: ListenerRefusal) {
        self.refused.get_or_create(&RefusalLabels { reason: refusal.as_str() }).inc();
    }
}
