//! Who answers a request.

/// Who answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestSource {
    /// Nobody: it was refused before that was decided.
    Refused,
    /// The objects that are held here.
    Memory,
    /// One member or several.
    Member,
    /// This process: discovery, health, versions.
    Own,
}

impl RequestSource {
    /// The word for it in metrics; empty for nobody.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "",
            Self::Memory => "memory",
            Self::Member => "member",
            Self::Own => "self",
        }
    }
}
