//! The authorization of users' reads from memory.

use serde::{Deserialize, Serialize};

/// The authorization of users' reads of a cluster's objects from memory, in shared mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum ClusterAuthorization {
    /// Reads the cluster's roles and bindings if RBAC is certainly the cluster's only authorizer. Otherwise the policy
    /// is that of [`Review`](Self::Review).
    #[default]
    Auto,
    /// Always uses the cluster's roles and bindings. For administrators who are certain that no other authorizer of the
    /// cluster denies a request.
    #[serde(rename = "RBAC")]
    Rbac,
    /// Sends a SubjectAccessReview to the cluster for each scope; the result is valid for a minute.
    Review,
    /// Forwards reads to the cluster. Users receive none of the cluster's objects from memory.
    Live,
}
