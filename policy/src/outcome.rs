//! Outcome that a policy prescribes for matching requests.

use tributary_apimachinery::AuditLevel;

/// Outcome that a policy prescribes for matching requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the request is dispatched or denied.
    pub action: Action,
    /// Whether the request appears in the access log. With `None`, the cluster's setting decides.
    pub log_mode: Option<LogMode>,
    /// Audit level of the request. `None` if the audit policy decides.
    pub audit_level: Option<AuditLevel>,
}

/// Action of a policy on a matching request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is sent to a cluster.
    Dispatch {
        /// Endpoints of the cluster to which the request may be sent. Empty for all endpoints.
        endpoints: Vec<String>,
        /// Name of the flow-control schema that limits the request. `None` if no schema limits it.
        flow_control_schema: Option<String>,
    },
    /// The request is denied.
    Deny {
        /// Message for the client.
        message: String,
    },
}

impl Default for Action {
    fn default() -> Self {
        Self::Dispatch { endpoints: Vec::new(), flow_control_schema: None }
    }
}

/// Setting of the access log, of a cluster or of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Requests appear in the access log.
    Enabled,
    /// Requests do not appear in the access log.
    Disabled,
}

impl LogMode {
    /// Returns whether a request is logged, by the settings of its cluster and of the matching policy. At least one of
    /// them must enable the log, and none may disable the log.
    pub fn is_logged(cluster: Option<Self>, policy: Option<Self>) -> bool {
        let modes = [cluster, policy];
        modes.contains(&Some(Self::Enabled)) && !modes.contains(&Some(Self::Disabled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_25_disabled_log_mode_takes_precedence_over_an_enabled_log_mode() {
        let (on, off) = (Some(LogMode::Enabled), Some(LogMode::Disabled));
        for (cluster, policy, expected) in
            [(off, on, false), (on, off, false), (None, None, false), (on, None, true), (None, on, true)]
        {
            assert_eq!(LogMode::is_logged(cluster, policy), expected, "{cluster:?} {policy:?}");
        }
        assert!(LogMode::is_logged(on, on) && !LogMode::is_logged(off, None) && !LogMode::is_logged(None, off));
    }
}
