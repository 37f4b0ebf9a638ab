//! Reasons why an endpoint gets no requests, or gets requests only if no better endpoint is left.

use std::fmt;
use std::sync::Arc;

/// Reason why an endpoint gets no requests, as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// The endpoint is drained or was removed. Its requests in flight may end.
    Drain,
    /// The circuit breaker is open.
    Breaker,
    /// The endpoint is unreachable.
    Unreachable,
    /// The limit of requests in flight is reached.
    Full,
    /// The last probe of the endpoint reported that it is not ready.
    Probe,
    /// The endpoint fails Tributary's own requests: with errors, late responses or incomplete responses.
    Outlier,
}

impl LeftOutReason {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Self; 6] = [Self::Drain, Self::Breaker, Self::Unreachable, Self::Full, Self::Probe, Self::Outlier];

    /// Returns the value of the metric label. Messages contain the same value.
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

/// The reason why an endpoint gets no requests, with the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Reason as a metric label.
    pub reason: LeftOutReason,
    /// Cause for people, in one line, without secrets and without the name of the endpoint.
    pub cause: Arc<str>,
}

impl LeftOut {
    pub(crate) fn new(reason: LeftOutReason, cause: impl Into<Arc<str>>) -> Self {
        Self { reason, cause: cause.into() }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.cause, self.reason.as_str())
    }
}
