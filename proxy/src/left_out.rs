//! Why an endpoint is given no requests, or only those for which no other is left.

use std::fmt;
use std::sync::Arc;

/// Why an endpoint is left out: one word for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// It is no longer one of the member's, or the configuration drains it: what is under way there may end.
    Drain,
    /// It failed so often in a row that nothing is sent to it for a while.
    Breaker,
    /// It cannot be reached.
    Unreachable,
    /// As many requests are under way there as may be.
    Full,
    /// It says that it is not ready.
    Probe,
    /// It answers questions of our own with errors, late, or not to the end.
    Outlier,
}

impl LeftOutReason {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Drain, Self::Breaker, Self::Unreachable, Self::Full, Self::Probe, Self::Outlier];

    /// The word, as metrics and messages have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Breaker => "breaker",
            Self::Unreachable => "unreachable",
            Self::Full => "full",
            Self::Probe => "probe",
            Self::Outlier => "outlier",
        }
    }
}

/// That an endpoint is left out, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Why, for programs.
    pub reason: LeftOutReason,
    /// Why, for people, in one line without secrets; it does not name the endpoint.
    pub cause: Arc<str>,
}

impl LeftOut {
    /// For this reason.
    pub(crate) fn new(reason: LeftOutReason, cause: impl Into<Arc<str>>) -> Self {
        Self { reason, cause: cause.into() }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.cause, self.reason.as_str())
    }
}
