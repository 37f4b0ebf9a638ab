//! The outcome of a policy for the requests that it matches.

use tributary_apimachinery::AuditLevel;

/// The outcome of a policy for a request that it matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the request is dispatched or denied.
    pub action: Action,
    /// Whether the request is written into the access log; `None` leaves it to the cluster.
    pub log_mode: Option<LogMode>,
    /// The audit level, if it differs from the audit policy's.
    pub audit_level: Option<AuditLevel>,
}

/// The action for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is sent to a cluster.
    Dispatch {
        /// The endpoints of the cluster to which the request may be sent; empty for all.
        endpoints: Vec<String>,
        /// The flow-control schema that limits the request; `None` for no limit.
        flow_control_schema: Option<String>,
    },
    /// The request is denied.
    Deny {
        /// The message for the client.
        message: String,
    },
}

impl Default for Action {
    fn default() -> Self {
        Self::Dispatch { endpoints: Vec::new(), flow_control_schema: None }
    }
}

/// Whether requests are written into the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Requests appear in the access log.
    Enabled,
    /// Requests do not appear in the access log.
    Disabled,
}

impl LogMode {
    /// Whether a request is logged, given the settings of its cluster and of the policy that matches it: at least one
    /// setting must enable the log, and none may disable it.
    pub fn is_logged(cluster: Option<Self>, policy: Option<Self>) -> bool {
        let said = [cluster, policy];
        said.contains(&Some(Self::Enabled)) && !said.contains(&Some(Self::Disabled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 25 of the contract.
    #[test]
    fn case_25_log_modes_of_cluster_and_policy() {
        let (on, off) = (Some(LogMode::Enabled), Some(LogMode::Disabled));
        for (cluster, policy, expected) in
            [(off, on, false), (on, off, false), (None, None, false), (on, None, true), (None, on, true)]
        {
            assert_eq!(LogMode::is_logged(cluster, policy), expected, "{cluster:?} {policy:?}");
        }
        assert!(LogMode::is_logged(on, on) && !LogMode::is_logged(off, None) && !LogMode::is_logged(None, off));
    }
}
