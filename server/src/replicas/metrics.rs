//! What of the other replicas is shown.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// How many of the other replicas answer. Cheap to clone; clones are the same metric.
#[derive(Clone, Debug, Default)]
pub struct ReplicaMetrics {
    /// Those that answered when they were asked last.
    pub(super) reached: Gauge,
}

impl ReplicaMetrics {
    /// Exposes it.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Other replicas that answered when they were asked last for what they do not use of limits";
        registry.register("tributary_flow_control_peers_reached", help, self.reached.clone());
    }
}
