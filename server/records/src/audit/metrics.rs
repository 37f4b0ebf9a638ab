//! The metrics of kube-apiserver's audit log (apiserver `pkg/audit/metrics.go`), under the same names.

use std::sync::OnceLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tributary_audit::Level;

use crate::line_log::Losses;

/// The metric label with the component that lost events.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PluginLabels {
    /// The component that lost the events: `log`, `webhook`, `buffered` for a full queue, or `truncate` for an event
    /// that was too long.
    pub(crate) plugin: &'static str,
}

/// The label of the audit level that the policy chose.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LevelLabels {
    level: &'static str,
}

#[derive(Debug, Default)]
pub(crate) struct AuditMetrics {
    /// The number of generated audit events.
    pub(crate) events: Counter,
    /// The number of lost audit events for each component.
    pub(crate) errors: Family<PluginLabels, Counter>,
    levels: Family<LevelLabels, Counter>,
    /// The counters of the metric for audit levels, indexed by the number of the level. With this array, a request
    /// needs no lookup by label.
    of_levels: [OnceLock<Counter>; Level::ALL.len()],
    /// The number of requests that were refused because their first audit event could not be written.
    pub(crate) requests_rejected: Counter,
}

impl AuditMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        // The counters exist with the value 0 before any loss, so that alerts detect the first increase.
        for plugin in ["log", "webhook", "buffered", "truncate"] {
            drop(self.errors.get_or_create(&PluginLabels { plugin }));
        }
        for level in Level::ALL {
            drop(self.levels.get_or_create(&LevelLabels { level: level.as_str() }));
        }
        let help = "Audit events generated and sent to the audit backends";
        registry.register("apiserver_audit_event", help, self.events.clone());
        let help = "Audit events that failed to be audited properly, by plugin";
        registry.register("apiserver_audit_error", help, self.errors.clone());
        let help = "Requests by audit level";
        registry.register("apiserver_audit_level", help, self.levels.clone());
        let help = "Requests that were rejected because their first audit event could not be written";
        registry.register("apiserver_audit_requests_rejected", help, self.requests_rejected.clone());
    }

    /// Returns the counters that a line log increments for lost lines.
    pub(crate) fn log_losses(&self) -> Losses {
        let counter = |plugin| self.errors.get_or_create_owned(&PluginLabels { plugin });
        Losses { unwritten: counter("log"), unqueued: counter("buffered"), ..Losses::new("audit log") }
    }

    pub(crate) fn count_level(&self, level: Level) {
        let find = || self.levels.get_or_create(&LevelLabels { level: level.as_str() }).clone();
        self.of_levels[level as usize].get_or_init(find).inc();
    }

    pub(crate) fn count_lost(&self, plugin: &'static str, events: usize) {
        self.errors.get_or_create(&PluginLabels { plugin }).inc_by(events as u64);
    }
}
