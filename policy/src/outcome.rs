//! What a policy gives a request that it takes.

use tributary_apimachinery::AuditLevel;

/// What a policy gives a request that it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether and how the request goes on.
    pub action: Action,
    /// Whether it is in the access log, as far as this policy says.
    pub log_mode: Option<LogMode>,
    /// How much is written of it into the audit log, where that is to differ from what the audit policy says.
    pub audit_level: Option<AuditLevel>,
}

/// Whether and how a request goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is dispatched.
    Dispatch {
        /// The endpoints of the cluster that it may be sent to; empty for all.
        endpoints: Vec<String>,
        /// The flow-control schema that it passes; none for no limit.
        flow_control_schema: Option<String>,
    },
    /// It is refused.
    Deny {
        /// What its sender is told.
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
    /// They are.
    Enabled,
    /// They are not.
    Disabled,
}

impl LogMode {
    /// Whether a request is written, by what its cluster and the policy that takes it say: not where either forbids it,
    /// and not where neither asks for it.
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
