//! A policy as it is written.

use crate::outcome::{Action, Outcome};
use crate::rule::Rule;

/// Which requests are given what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// It takes a request that one of them matches.
    pub rules: Vec<Rule>,
    /// Whether it acts.
    pub mode: Mode,
    /// What it gives the requests that it takes.
    pub outcome: Outcome,
}

impl Policy {
    /// Whether it refuses the requests that it takes.
    pub(crate) fn denies(&self) -> bool {
        matches!(self.outcome.action, Action::Deny { .. })
    }
}

/// Whether a policy acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It is told what it would take; for everything else it is not there.
    Audit,
}
