//! Outcome of a request.

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Answered from the cache.
    Memory,
    /// Forwarded to one or more clusters.
    Forwarded,
    /// Answered by this process itself: discovery, OpenAPI, health, the version.
    Own,
    /// Refused by a dispatch policy.
    Denied,
    /// Refused because of a limit.
    Limited,
    /// Refused for a different reason, before any request to a cluster.
    Refused,
}

impl Decision {
    /// All outcomes, in the order of their declaration.
    pub const ALL: [Self; 6] = [Self::Memory, Self::Forwarded, Self::Own, Self::Denied, Self::Limited, Self::Refused];

    /// Returns the name of the outcome in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Forwarded => "forwarded",
            Self::Own => "self",
            Self::Denied => "denied",
            Self::Limited => "limited",
            Self::Refused => "refused",
        }
    }
}
