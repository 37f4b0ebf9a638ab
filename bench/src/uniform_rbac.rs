//! The roles and bindings of each cluster in a uniform fleet, shared by the load program and the criterion benchmark.

use serde_json::{Value, json};

/// The number of roles per cluster.
pub(crate) const ROLES: usize = 100;
/// The number of bindings per cluster.
pub(crate) const BINDINGS: usize = 200;
/// The number of groups of a user: half of the groups that bindings name.
pub(crate) const GROUPS: usize = 50;

/// The RBAC objects of each cluster with their kinds. Half of the roles are ClusterRoles with ten rules, and a fifth of
/// the bindings are ClusterRoleBindings.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let rule = |number: usize| {
        json!({"apiGroups": ["", format!("group{number}.example.io")], "verbs": ["get", "list", "watch"],
            "resources": ["pods", "services", format!("things{number}"), format!("things{number}/status")]})
    };
    let roles = (0..ROLES).map(|number| {
        let rules: Vec<_> = (0..10).map(|at| rule(number + at)).collect();
        let (kind, namespace) = match number % 2 {
            0 => ("ClusterRole", None),
            _ => ("Role", Some(format!("namespace{number}"))),
        };
        (kind, json!({"metadata": {"name": format!("role{number}"), "namespace": namespace}, "rules": rules}))
    });
    let bindings = (0..BINDINGS).map(|number| {
        let (kind, namespace, role) = match number % 5 {
            0 => ("ClusterRoleBinding", None, "ClusterRole"),
            1 => ("RoleBinding", Some(number % ROLES), "Role"),
            _ => ("RoleBinding", Some(number % ROLES), "ClusterRole"),
        };
        let subjects = json!([
            {"kind": "Group", "name": format!("group{}", number % (2 * GROUPS))},
            {"kind": "ServiceAccount", "name": format!("account{number}"), "namespace": "accounts"},
        ]);
        let reference = json!({"kind": role, "name": format!("role{}", number % ROLES)});
        let namespace = namespace.map(|number| format!("namespace{number}"));
        let metadata = json!({"name": format!("binding{number}"), "namespace": namespace});
        (kind, json!({"metadata": metadata, "roleRef": reference, "subjects": subjects}))
    });
    roles.chain(bindings).collect()
}
