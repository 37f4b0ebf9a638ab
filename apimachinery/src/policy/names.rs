//! Whether one name may stand for several objects.

use serde::{Deserialize, Serialize};

/// Whether clusters may have an object of the same name each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Names {
    /// They may: a write that does not say which cluster it means is refused while a cluster that may have the name
    /// cannot be asked.
    #[default]
    Repeated,
    /// They do not: the cluster that has the name is meant, whatever others may have.
    Unique,
}
