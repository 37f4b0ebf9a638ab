//! Names of users and groups that mean something in each cluster by themselves (apiserver
//! `pkg/authentication/user/user.go`), and one that means nothing in any.

/// What begins the names that mean something in each cluster by themselves: those of its ServiceAccounts and of its own
/// components.
pub const SYSTEM_PREFIX: &str = "system:";

/// What begins the name of a node's user: `system:node:NAME` (apiserver
/// `pkg/endpoints/filters/impersonation/mode.go`).
pub const NODE_USER_PREFIX: &str = "system:node:";

/// The group of all nodes (`NodesGroup`).
pub const NODES_GROUP: &str = "system:nodes";

/// The user that whoever has no credentials is (`Anonymous`).
pub const ANONYMOUS_USER: &str = "system:anonymous";

/// The group of all who may do everything: an authorizer before RBAC lets them (`SystemPrivilegedGroup`).
pub const MASTERS_GROUP: &str = "system:masters";

/// The group of everybody whom a verifier knows (`AllAuthenticated`). kube-apiserver adds it by itself, and it gives
/// nothing that another user lacks.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// The group of whoever has no credentials (`AllUnauthenticated`). Beside it kube-apiserver adds no
/// [`AUTHENTICATED_GROUP`].
pub const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";

/// A name and a uid that nobody has, and that no cluster gives anything to. Whoever may act by it may act by any.
pub const NOBODY: &str = "tributary.dev:nobody";
