//! Position of a policy rule in its configuration object.

use std::fmt;

/// A list of policies in a configuration object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyList {
    /// The list `spec.dispatchPolicies`.
    #[default]
    Dispatch,
    /// The list `spec.globalDispatchPolicies`.
    Global,
}

impl PolicyList {
    /// Returns the path of the list in the configuration object.
    pub fn path(self) -> &'static str {
        match self {
            Self::Dispatch => "spec.dispatchPolicies",
            Self::Global => "spec.globalDispatchPolicies",
        }
    }

    pub(crate) fn policy_path(self, policy: usize) -> String {
        format!("{}[{policy}]", self.path())
    }
}

/// Position of a policy rule in its configuration object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RulePosition {
    /// The list that contains the policy.
    pub list: PolicyList,
    /// Index of the policy in the list.
    pub policy: usize,
    /// Index of the rule in the policy.
    pub rule: usize,
}

impl fmt::Display for RulePosition {
    /// Formats the path of the rule, for example `spec.dispatchPolicies[2].rules[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.rules[{}]", self.list.policy_path(self.policy), self.rule)
    }
}
