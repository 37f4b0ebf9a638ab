//! The policy for objects with the same name in several clusters.

use serde::{Deserialize, Serialize};

/// The uniqueness of object names across clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Names {
    /// Several clusters may have an object with the same name. A write without an explicit cluster is refused while a
    /// cluster that may have the name is unreachable.
    #[default]
    Repeated,
    /// Object names are unique across clusters. A write goes to the cluster that has the name, even if other clusters
    /// are unreachable.
    Unique,
}
