//! The policy for lists and watches while a cluster has not been listed yet.

use serde::{Deserialize, Serialize};

/// The policy for lists and watches while a cluster has never answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Partial {
    /// The request waits until the cluster has been listed, and fails after the maximum wait. No response lacks a
    /// cluster.
    #[default]
    Deny,
    /// The response lacks the cluster, and a `Warning` header names the cluster.
    Allow,
}
