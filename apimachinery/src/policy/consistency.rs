//! The consistency of reads without a resourceVersion.

use serde::{Deserialize, Serialize};

/// The consistency of reads without a resourceVersion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Consistency {
    /// The state in memory, including all writes through this endpoint.
    #[default]
    Cached,
    /// The state of the members when the request arrives. Each member is asked for its version, and memory answers once
    /// it has reached it; for a collection without recent changes this takes more than a second.
    Quorum,
}
