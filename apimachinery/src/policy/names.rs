//! The policy for equal names in several clusters.

use serde::{Deserialize, Serialize};

/// Whether several clusters may have an object with the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Names {
    /// Names may repeat: a write without an explicit cluster is refused while a cluster that may have the name cannot
    /// be asked.
    #[default]
    Repeated,
    /// Names do not repeat: a write goes to the cluster that has the name, without asking the others.
    Unique,
}
