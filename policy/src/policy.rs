//! A policy in its original form.

use crate::outcome::{Action, Outcome};
use crate::rule::Rule;

/// A policy: an outcome for the requests that its rules match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The policy matches a request that any of these rules matches.
    pub rules: Vec<Rule>,
    /// Whether the policy is enforced or only audited.
    pub mode: Mode,
    /// The outcome for matching requests.
    pub outcome: Outcome,
}

impl Policy {
    /// Whether the policy denies the requests that it matches.
    pub(crate) fn denies(&self) -> bool {
        matches!(self.outcome.action, Action::Deny { .. })
    }
}

/// Whether a policy is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The policy decides on requests.
    #[default]
    Enforce,
    /// The policy decides nothing; the requests that it would have matched are only counted.
    Audit,
}
