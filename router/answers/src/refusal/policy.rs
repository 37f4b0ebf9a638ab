//! Refusals by dispatch policies.

use std::sync::Arc;

use tributary_apimachinery::{Status, StatusReason};
use tributary_policy::RulePosition;

/// The dispatch policies of a configuration object deny a request, or none of them matches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRefusal {
    /// Configuration object that contains the policies, for example `UpstreamCluster "eu"`.
    pub object: Arc<str>,
    /// Reason of the refusal.
    pub cause: PolicyCause,
}

/// Reason for which the policies of a configuration object refuse a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyCause {
    /// A rule matches the request, and the policy of this rule denies requests: 403.
    Denied {
        /// Position of the rule in its policy.
        place: RulePosition,
        /// Message of the policy.
        message: String,
    },
    /// No policy of the configuration object matches the request: 500.
    Unmatched {
        /// The unmatched request, for example `create pods/exec`.
        request: String,
    },
    /// The cluster has `dispatch: DenyAll`: 429.
    Frozen,
}

impl PolicyRefusal {
    pub(super) fn status(&self) -> Status {
        let object = &self.object;
        match &self.cause {
            PolicyCause::Denied { place, message } => {
                Status::denied(format!("{message} ({object}: {place} denies this request)"))
            }
            PolicyCause::Unmatched { request } => Status::new(
                500,
                StatusReason::InternalError,
                format!(
                    "no rule of the dispatch policies of {object} matches this request ({request}), so it was not \
                     forwarded; an administrator can add a policy with such a rule to spec.dispatchPolicies"
                ),
            ),
            // The refusal has no Retry-After: with Retry-After, kubectl would wait silently until the end of the
            // emergency.
            PolicyCause::Frozen => Status::new(
                429,
                StatusReason::TooManyRequests,
                format!(
                    "{object} has dispatch: DenyAll: no request is sent to this cluster until an administrator \
                     removes this setting"
                ),
            ),
        }
    }
}
