//! By what it is decided which objects of a cluster users are shown from memory.

use serde::{Deserialize, Serialize};

/// By what it is decided which objects of a cluster users are shown from memory, where many users are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum ClusterAuthorization {
    /// By its roles and bindings, as long as it is seen that it decides by these alone; else by asking it.
    #[default]
    Auto,
    /// By its roles and bindings, whatever it says: for whoever knows that no other authorizer of it denies anything.
    #[serde(rename = "RBAC")]
    Rbac,
    /// By asking it: a SubjectAccessReview for each scope, believed for a minute.
    Review,
    /// By itself: users are shown nothing of it from memory.
    Live,
}
