//! The metrics of the listener.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::refusal::ListenerRefusal;
use crate::settings::Bounds;

/// Why a request was refused by the listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    /// The word of a [`ListenerRefusal`].
    pub reason: &'static str,
}

/// The metrics of one listener.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
    /// Open connections, upgraded ones included.
    pub connections: Gauge,
    /// Connections that were closed because their clients took nothing of their answers.
    pub connections_stuck: Counter,
    /// Connections that were closed because nobody was known on them when others needed the room.
    pub strangers_sent_away: Counter,
    /// Answers that were cut because their clients took nothing of them.
    pub answers_stuck: Counter,
    /// Bytes of answers that clients have not taken.
    pub unread_bytes: Gauge,
    /// The most of these at once.
    pub unread_bytes_max: Gauge,
    /// TLS handshakes that failed (kube-apiserver's `apiserver_tls_handshake_errors_total`).
    pub tls_handshake_errors: Counter,
    /// Requests refused by the listener, by reason.
    pub refused: Family<RefusalLabels, Counter>,
    /// The most connections at once.
    pub connections_max: Gauge,
}

impl ListenerMetrics {
    /// Adds these metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        for reason in ListenerRefusal::ALL.map(ListenerRefusal::as_str) {
            drop(self.refused.get_or_create(&RefusalLabels { reason }));
        }
        registry.register(
            "tributary_connections",
            "Open client connections, upgraded ones included",
            self.connections.clone(),
        );
        registry.register(
            "tributary_connections_max",
            "Client connections that may be open at once",
            self.connections_max.clone(),
        );
        registry.register(
            "tributary_connections_stuck",
            "Connections closed because their clients read none of their answers",
            self.connections_stuck.clone(),
        );
        registry.register(
            "tributary_strangers_sent_away",
            "Connections that were closed because nobody was known on them when others needed the room",
            self.strangers_sent_away.clone(),
        );
        registry.register(
            "tributary_answers_stuck",
            "Answers cut because their clients read nothing of them",
            self.answers_stuck.clone(),
        );
        registry.register(
            "tributary_unread_bytes",
            "Bytes of answers that clients have not read",
            self.unread_bytes.clone(),
        );
        registry.register(
            "tributary_unread_bytes_max",
            "Bytes of answers that clients may leave unread at once",
            self.unread_bytes_max.clone(),
        );
        registry.register(
            "apiserver_tls_handshake_errors",
            "TLS handshakes that failed",
            self.tls_handshake_errors.clone(),
        );
        registry.register(
            "tributary_listener_refused",
            "Requests that the listener refused, whatever they asked for",
            self.refused.clone(),
        );
    }

    /// Sets the metrics that show the bounds.
    pub fn set_bounds(&self, bounds: &Bounds) {
        self.connections_max.set(i64::try_from(bounds.connections).unwrap_or(i64::MAX));
        self.unread_bytes_max.set(i64::try_from(bounds.unread_bytes).unwrap_or(i64::MAX));
    }

    /// Counts a refused request.
    pub fn count_refused(&self, refusal: ListenerRefusal) {
        self.refused.get_or_create(&RefusalLabels { reason: refusal.as_str() }).inc();
    }
}
