//! The level of detail of a request in the audit log.

use serde::{Deserialize, Serialize};

/// The level of detail of a request in the audit log. Each level includes the previous levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum AuditLevel {
    /// The audit log omits the request.
    #[default]
    None,
    /// The user, the request, the time and the result, without bodies.
    Metadata,
    /// The level `Metadata` and the request body.
    Request,
    /// The level `Request` and the response body.
    RequestResponse,
}

impl AuditLevel {
    /// The levels in ascending order of detail.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// Returns the level's name in audit policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }

    /// Returns the level with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}
