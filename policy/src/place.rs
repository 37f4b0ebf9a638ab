//! Where a rule stands.

use std::fmt;

/// A rule, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The policy's place among the policies.
    pub policy: usize,
    /// The rule's place in it.
    pub rule: usize,
}

impl fmt::Display for Place {
    /// The path of the rule in the object that has the policies: `spec.dispatchPolicies[2].rules[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.rules[{}]", policy_path(self.policy), self.rule)
    }
}

/// The path of a policy in the object that has it.
pub(crate) fn policy_path(policy: usize) -> String {
    format!("spec.dispatchPolicies[{policy}]")
}
