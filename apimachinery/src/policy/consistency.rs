//! What reads without a resourceVersion contain.

use serde::{Deserialize, Serialize};

/// What reads without a resourceVersion contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Consistency {
    /// What memory has, and all that was written through this endpoint.
    #[default]
    Cached,
    /// All that the members have when the request comes. Each is asked for its version, and memory answers once it is
    /// that far; where a collection has not changed lately this takes more than a second.
    Quorum,
}
