//! Source of a response.

/// Source of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestSource {
    /// No source: the request was refused before Tributary chose a source.
    Refused,
    /// The response is from the cache.
    Memory,
    /// The response is from one or more members.
    Member,
    /// The response is made by this process: discovery, health, versions.
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
