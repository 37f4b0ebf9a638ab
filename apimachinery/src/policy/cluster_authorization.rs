//! The authorization of reads of a cluster's objects from memory.

use serde::{Deserialize, Serialize};

/// The authorization of users' reads of a cluster's objects from memory, in shared mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum ClusterAuthorization {
    /// Use the cluster's roles and bindings while RBAC is known to decide alone; ask the cluster otherwise.
    #[default]
    Auto,
    /// Always use the cluster's roles and bindings: for administrators who know that no other authorizer of the cluster
    /// denies a request.
    #[serde(rename = "RBAC")]
    Rbac,
    /// Ask the cluster: a SubjectAccessReview for each scope, valid for a minute.
    Review,
    /// Forward reads to the cluster: memory returns none of its objects to users.
    Live,
}
