//! How much is written of a request into the audit log.

use serde::{Deserialize, Serialize};

/// How much is written of a request. Each level has what those before it have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum AuditLevel {
    /// Nothing.
    #[default]
    None,
    /// Who asked for what and when, and what it came to; no bodies.
    Metadata,
    /// The body of the request, too.
    Request,
    /// The body of the answer, too.
    RequestResponse,
}

impl AuditLevel {
    /// All levels, the least first.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// The level as policies write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }

    /// The level of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}
