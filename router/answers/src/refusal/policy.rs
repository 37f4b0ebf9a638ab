//! Refusals by dispatch policies.

use std::sync::Arc;

use tributary_apimachinery::{Status, StatusReason};
use tributary_policy::RulePlace;

/// A policy, or that there is none, keeps a request from going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRefusal {
    /// Object that has the policies: `UpstreamCluster "eu"`.
    pub object: Arc<str>,
    /// Reason of the refusal.
    pub cause: PolicyCause,
}

/// Reason for which the policies of an object refuse a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyCause {
    /// A rule takes the request, and its policy denies it: 403.
    Denied {
        /// Position of the rule.
        place: RulePlace,
        /// Message of the policy.
        message: String,
    },
    /// No policy of the object matches the request: 500.
    Unmatched {
        /// The request that no rule matches: `create pods/exec`.
        asked: String,
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
            PolicyCause::Unmatched { asked } => Status::new(
                500,
                StatusReason::InternalError,
                format!(
                    "no rule of the dispatch policies of {object} matches this request ({asked}), so it was sent nowhere; \
                     its administrator adds a policy with such a rule to spec.dispatchPolicies"
                ),
            ),
            // Without Retry-After: kubectl would wait silently for the whole emergency.
            PolicyCause::Frozen => Status::new(
                429,
                StatusReason::TooManyRequests,
                format!(
                    "{object} has dispatch: DenyAll: nothing is sent to this cluster until its administrator removes that"
                ),
            ),
        }
    }
}
