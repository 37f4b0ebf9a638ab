//! What happens to a list or watch while a cluster has never answered.

use serde::{Deserialize, Serialize};

/// What happens to a list or watch while a cluster has never answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Partial {
    /// It waits, then fails: no answer lacks a cluster.
    #[default]
    Deny,
    /// It is answered without that cluster, with a warning that names it.
    Allow,
}
