//! What became of a request, in one word.

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// It was answered from memory.
    Memory,
    /// One cluster or several were asked.
    Forwarded,
    /// This process's own documents and checks answer it: discovery, OpenAPI, health, the version.
    Own,
    /// A dispatch policy refused it.
    Denied,
    /// A limit refused it.
    Limited,
    /// It was refused for another reason, before a cluster was asked.
    Refused,
}

impl Decision {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Memory, Self::Forwarded, Self::Own, Self::Denied, Self::Limited, Self::Refused];

    /// The word for it in metrics and logs.
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
