//! The consistency of reads without a resourceVersion.

use serde::{Deserialize, Serialize};

/// The consistency of reads without a resourceVersion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Consistency {
    /// The state in memory. It includes all writes that clients have made through this endpoint.
    #[default]
    Cached,
    /// The state of the members when the request arrives. Tributary requests the latest version of each member and
    /// waits until the collection in memory has reached it. For a collection without recent changes, the wait takes
    /// more than a second.
    Quorum,
}
