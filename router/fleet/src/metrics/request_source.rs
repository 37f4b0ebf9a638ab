//! Source of an answer.

/// Source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestSource {
    /// No source: the request was refused before.
    Refused,
    /// Objects in memory.
    Memory,
    /// One member or several.
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
