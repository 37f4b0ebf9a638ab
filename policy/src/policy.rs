//! A policy as written in the configuration.

use crate::outcome::{Action, Outcome};
use crate::rule::Rule;

/// A policy: rules that select requests, and the outcome for selected requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Rules of the policy. The policy matches a request if at least one rule matches.
    pub rules: Vec<Rule>,
    /// Whether the policy is enforced or only audited.
    pub mode: Mode,
    /// Outcome for matching requests.
    pub outcome: Outcome,
}

impl Policy {
    pub(crate) fn denies(&self) -> bool {
        matches!(self.outcome.action, Action::Deny { .. })
    }
}

/// Mode of a policy: enforced or only audited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The policy decides about requests.
    #[default]
    Enforce,
    /// The policy decides about no request. Metrics count the requests about which the policy would decide.
    Audit,
}
