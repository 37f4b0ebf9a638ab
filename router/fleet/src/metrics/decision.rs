//! Outcome of a request.

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Answered from memory.
    Memory,
    /// Forwarded to one or several clusters.
    Forwarded,
    /// This process's own documents and checks answer it: discovery, OpenAPI, health, the version.
    Own,
    /// A dispatch policy refused it.
    Denied,
    /// A limit refused it.
    Limited,
    /// Refused for a different reason, before a cluster was asked.
    Refused,
}

impl Decision {
    /// All outcomes, in the order of their declaration.
    pub const ALL: [Self; 6] = [Self::Memory, Self::Forwarded, Self::Own, Self::Denied, Self::Limited, Self::Refused];

    /// Name of the outcome in metrics and logs.
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
