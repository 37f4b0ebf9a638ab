//! Outcome of a request.

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The request is answered from the cache.
    Memory,
    /// The request is forwarded to one or more clusters.
    Forwarded,
    /// The request is answered by this process itself: discovery, OpenAPI, health, the version.
    Own,
    /// The request is refused by a dispatch policy.
    Denied,
    /// The request is refused because of a limit.
    Limited,
    /// The request is refused for a different reason, before Tributary sends a request to a cluster.
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
