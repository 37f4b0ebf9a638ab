//! What dispatch policies say: which requests go on.

use std::sync::Arc;

use tributary_apimachinery::{Status, StatusReason};
use tributary_policy::RulePlace;

/// A policy, or that there is none, keeps a request from going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRefusal {
    /// The object whose policies these are: `UpstreamCluster "eu"`.
    pub object: Arc<str>,
    /// What they say.
    pub cause: PolicyCause,
}

/// What the policies of an object say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyCause {
    /// A rule takes the request, and its policy denies it: 403.
    Denied {
        /// The rule.
        place: RulePlace,
        /// What the policy has its sender told.
        message: String,
    },
    /// There are policies, and none takes it: 500.
    Unmatched {
        /// What no rule matches: `create pods/exec`.
        asked: String,
    },
    /// Nothing at all is dispatched to the cluster: 429.
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
            // No advice to come again: kubectl would wait for as long as an emergency lasts, and say nothing.
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
