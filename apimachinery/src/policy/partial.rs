//! The policy for lists and watches while a cluster is unknown.

use serde::{Deserialize, Serialize};

/// The policy for lists and watches while a cluster has never answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Partial {
    /// The request waits, then fails: no answer lacks a cluster.
    #[default]
    Deny,
    /// The answer lacks that cluster, and a warning names it.
    Allow,
}
