//! Outcome of a policy for matching requests.

use tributary_apimachinery::AuditLevel;

/// Outcome of a policy for a matching request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the request is dispatched or denied.
    pub action: Action,
    /// Whether the request appears in the access log; `None` uses the cluster's setting.
    pub log_mode: Option<LogMode>,
    /// Audit level, if different from the audit policy's level.
    pub audit_level: Option<AuditLevel>,
}

/// Action for a request: dispatch or deny.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is sent to a cluster.
    Dispatch {
        /// Endpoints of the cluster to which the request may be sent; empty for all endpoints.
        endpoints: Vec<String>,
        /// Name of the flow-control schema that limits the request; `None` for no limit.
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

/// Setting of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Requests appear in the access log.
    Enabled,
    /// Requests do not appear in the access log.
    Disabled,
}

impl LogMode {
    /// Returns whether a request is logged, from the settings of its cluster and of the matching policy. At least one
    /// setting must enable the log, and none may disable the log.
    pub fn is_logged(cluster: Option<Self>, policy: Option<Self>) -> bool {
        let said = [cluster, policy];
        said.contains(&Some(Self::Enabled)) && !said.contains(&Some(Self::Disabled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 25 of the gateways' contract.
    #[test]
    fn case_25_a_disabled_log_setting_takes_precedence() {
        let (on, off) = (Some(LogMode::Enabled), Some(LogMode::Disabled));
        for (cluster, policy, expected) in
            [(off, on, false), (on, off, false), (None, None, false), (on, None, true), (None, on, true)]
        {
            assert_eq!(LogMode::is_logged(cluster, policy), expected, "{cluster:?} {policy:?}");
        }
        assert!(LogMode::is_logged(on, on) && !LogMode::is_logged(off, None) && !LogMode::is_logged(None, off));
    }
}
