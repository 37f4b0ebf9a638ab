//! Names of users and groups with a built-in meaning in each cluster (apiserver `pkg/authentication/user/user.go`), and
//! a name without a meaning in any cluster.

/// The prefix of names with a built-in meaning in each cluster, such as the names of its ServiceAccounts and
/// components.
pub const SYSTEM_PREFIX: &str = "system:";

/// The prefix of a node's user name: `system:node:NAME` (apiserver `pkg/endpoints/filters/impersonation/mode.go`).
pub const NODE_USER_PREFIX: &str = "system:node:";

/// The group of all nodes (`NodesGroup`).
pub const NODES_GROUP: &str = "system:nodes";

/// The user of requests without credentials (`Anonymous`).
pub const ANONYMOUS_USER: &str = "system:anonymous";

/// The group with all rights: an authorizer before RBAC allows each request of its users (`SystemPrivilegedGroup`).
pub const MASTERS_GROUP: &str = "system:masters";

/// The group of all authenticated users (`AllAuthenticated`). kube-apiserver adds the group to each authenticated user,
/// so each of them has the rights of the group.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// The group of users without credentials (`AllUnauthenticated`). No user of a kube-apiserver has both this group and
/// [`AUTHENTICATED_GROUP`].
pub const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";

/// A user name and uid that no user has, without rights in any cluster. A user who may impersonate this name may
/// impersonate any name.
pub const NOBODY: &str = "tributary.dev:nobody";
