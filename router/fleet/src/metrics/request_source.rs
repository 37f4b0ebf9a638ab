//! Source of a response.

/// Source of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestSource {
    /// No source: the request was refused before.
    Refused,
    /// Cached objects.
    Memory,
    /// One or more members.
    Member,
    /// This process: discovery, health, versions.
    Own,
}

impl RequestSource {
    /// Name of the source in metrics; empty for a refused request.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "",
            Self::Memory => "memory",
            Self::Member => "member",
            Self::Own => "self",
        }
    }
}
