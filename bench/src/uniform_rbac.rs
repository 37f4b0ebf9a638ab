//! The roles and bindings of each cluster of a uniform fleet. Shared by the load program and the criterion benchmark.

use serde_json::{Value, json};

/// Roles of each cluster.
pub(crate) const ROLES: usize = 100;
/// Bindings of each cluster.
pub(crate) const BINDINGS: usize = 200;
/// Half as many groups as bindings name.
pub(crate) const GROUPS: usize = 50;

/// The objects of each cluster, by their kinds: half of the roles ClusterRoles of ten rules, a fifth of the bindings
/// ClusterRoleBindings.
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
