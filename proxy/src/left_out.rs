//! Reasons for which an endpoint gets no requests, or only those without a better endpoint.

use std::fmt;
use std::sync::Arc;

/// Why an endpoint is left out: one word for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// The endpoint has left the list, or is drained: open requests may end.
    Drain,
    /// The circuit breaker is open.
    Breaker,
    /// The endpoint cannot be reached.
    Unreachable,
    /// The limit of requests in flight is reached.
    Full,
    /// The endpoint says that it is not ready.
    Probe,
    /// The endpoint answers Tributary's own questions with errors, late, or not to the end.
    Outlier,
}

impl LeftOutReason {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Self; 6] = [Self::Drain, Self::Breaker, Self::Unreachable, Self::Full, Self::Probe, Self::Outlier];

    /// Word in metrics and messages.
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
    /// Reason as an enum, for programs.
    pub reason: LeftOutReason,
    /// Why, for people, in one line without secrets; it does not name the endpoint.
    pub cause: Arc<str>,
}

impl LeftOut {
    /// Makes the value for a reason.
    pub(crate) fn new(reason: LeftOutReason, cause: impl Into<Arc<str>>) -> Self {
        Self { reason, cause: cause.into() }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.cause, self.reason.as_str())
    }
}
