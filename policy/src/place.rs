//! The position of a rule in its configuration object.

use std::fmt;

/// A list of policies in a configuration object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyList {
    /// `spec.dispatchPolicies`
    #[default]
    Dispatch,
    /// `spec.globalDispatchPolicies`
    Global,
}

impl PolicyList {
    /// The path of the list in the configuration object.
    pub fn path(self) -> &'static str {
        match self {
            Self::Dispatch => "spec.dispatchPolicies",
            Self::Global => "spec.globalDispatchPolicies",
        }
    }

    /// The path of a policy of the list.
    pub(crate) fn policy_path(self, policy: usize) -> String {
        format!("{}[{policy}]", self.path())
    }
}

/// The position of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RulePlace {
    /// The list that contains the policy.
    pub list: PolicyList,
    /// The index of the policy in the list.
    pub policy: usize,
    /// The index of the rule in the policy.
    pub rule: usize,
}

impl fmt::Display for RulePlace {
    /// Formats the path of the rule in the configuration object: `spec.dispatchPolicies[2].rules[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.rules[{}]", self.list.policy_path(self.policy), self.rule)
    }
}
