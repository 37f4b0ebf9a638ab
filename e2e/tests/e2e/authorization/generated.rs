//! Generates roles, bindings, users and requests from a small vocabulary, so that rules often match.

use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tributary_apimachinery::UserInfo;
use tributary_authorization::{Attributes, RbacKind, ResourceAttributes};

pub(crate) const NAMESPACES: [&str; 3] = ["one", "two", "three"];
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
const VERBS: &[&str] = &["get", "list", "watch", "create", "deletecollection", "*"];
const GROUPS: &[&str] = &["", "", "apps", "example.io", "*"];
const RESOURCES: &[&str] = &["pods", "pods/log", "*/log", "*", "deployments", "*/scale", "namespaces", "pods/*"];
const NAMES: &[&str] = &["x", "y", "", "*", "one"];
const PATHS: &[&str] = &["/healthz", "/healthz/*", "*", "/metrics*", "/a**", "/version"];
const ROLES: &[&str] = &["r", "s", "system:t", "U.u"];
const PEOPLE: &[&str] = &["ann", "bob", "system:serviceaccount:one:s", "system:serviceaccount:two:ann", "x:y", "Ann"];
/// The groups of subjects. `system:authenticated` is not included: its bindings to missing roles would add errors to
/// every user's rules review.
const TEAMS: &[&str] = &["g", "h", "ann", "system:nodes", "system:serviceaccounts:one"];

fn pick<'a>(random: &mut StdRng, from: &[&'a str]) -> &'a str {
    from.choose(random).unwrap_or_else(|| unreachable!("no list is empty"))
}

/// Picks one to three elements of `from`. If `may_be_empty` is true, the result may also be empty.
fn some<'a>(random: &mut StdRng, from: &[&'a str], may_be_empty: bool) -> Vec<&'a str> {
    let count = if may_be_empty && random.random_bool(0.6) { 0 } else { random.random_range(1..=3) };
    from.choose_multiple(random, count).copied().collect()
}

pub(crate) struct Object {
    pub(crate) kind: RbacKind,
    pub(crate) value: Value,
}

impl Object {
    pub(crate) fn generate(random: &mut StdRng) -> Self {
        let kind = *RbacKind::ALL.choose(random).unwrap_or(&RbacKind::Role);
        let namespace = if kind.is_namespaced() { pick(random, &NAMESPACES) } else { "" };
        let name = pick(random, ROLES);
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                let rules: Vec<_> = (0..random.random_range(0..6)).map(|_| rule(random, kind)).collect();
                Self::new(kind, namespace, name, json!({"rules": rules}))
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let namespaced = kind.is_namespaced() && random.random_bool(0.5);
                let role = if namespaced { RbacKind::Role } else { RbacKind::ClusterRole };
                let subjects: Vec<_> = (0..random.random_range(0..6)).map(|_| subject(random, namespace)).collect();
                let role = reference(role, pick(random, ROLES));
                Self::new(kind, namespace, name, json!({"roleRef": role, "subjects": subjects}))
            }
        }
    }

    fn new(kind: RbacKind, namespace: &str, name: &str, mut value: Value) -> Self {
        value["apiVersion"] = API_VERSION.into();
        value["kind"] = kind.as_str().into();
        value["metadata"] = json!({"name": name});
        if kind.is_namespaced() {
            value["metadata"]["namespace"] = namespace.into();
        }
        Self { kind, value }
    }

    pub(crate) fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn collection(&self) -> String {
        match self.namespace() {
            "" => format!("/apis/{API_VERSION}/{}", self.kind.resource()),
            namespace => format!("/apis/{API_VERSION}/namespaces/{namespace}/{}", self.kind.resource()),
        }
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name())
    }
}

fn reference(kind: RbacKind, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind.as_str(), "name": name})
}

fn rule(random: &mut StdRng, kind: RbacKind) -> Value {
    let verbs = some(random, VERBS, false);
    if kind == RbacKind::ClusterRole && random.random_bool(0.2) {
        return json!({"verbs": verbs, "nonResourceURLs": some(random, PATHS, false)});
    }
    json!({
        "verbs": verbs, "apiGroups": some(random, GROUPS, false), "resources": some(random, RESOURCES, false),
        "resourceNames": some(random, NAMES, true),
    })
}

fn subject(random: &mut StdRng, namespace: &str) -> Value {
    match random.random_range(0..3) {
        0 => json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": pick(random, PEOPLE)}),
        1 => json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": pick(random, TEAMS)}),
        _ => {
            // Only a ClusterRoleBinding needs the namespace of its ServiceAccounts.
            let own = if namespace.is_empty() || random.random_bool(0.5) { pick(random, &NAMESPACES) } else { "" };
            let mut account = json!({"kind": "ServiceAccount", "name": pick(random, &["s", "ann"])});
            if !own.is_empty() {
                account["namespace"] = own.into();
            }
            account
        }
    }
}

pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

impl Person {
    pub(crate) fn generate(random: &mut StdRng) -> Self {
        let mut groups = some(random, TEAMS, false);
        if random.random_bool(0.02) {
            groups.push("system:masters");
        }
        let groups = groups.into_iter().map(str::to_owned).collect();
        Self { name: pick(random, PEOPLE).to_owned(), groups }
    }

    /// User to which no generated binding applies. The test reviews the rules of this user by impersonation.
    pub(crate) fn of_nobody_else() -> Self {
        Self { name: "carol".to_owned(), groups: vec!["carols".to_owned()] }
    }

    pub(crate) fn as_user(&self) -> UserInfo {
        UserInfo::with_groups(&self.name, &self.groups)
    }

    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

pub(crate) enum ReviewRequest {
    Resource([&'static str; 6]),
    Path(&'static str, &'static str),
}

impl ReviewRequest {
    pub(crate) fn generate(random: &mut StdRng) -> Self {
        if random.random_bool(0.15) {
            let path = pick(random, &["/healthz", "/healthz/etcd", "/metrics", "/metrics/x", "/a", "/", "/version"]);
            return Self::Path(pick(random, &["get", "post", "*"]), path);
        }
        Self::Resource([
            pick(random, VERBS),
            pick(random, &["", "", "", "apps", "batch"]),
            pick(random, &["pods", "pods", "pods", "deployments", "namespaces", "*", "pods/log"]),
            pick(random, &["", "", "", "log", "scale", "*"]),
            pick(random, &["one", "one", "two", "three", "", "nowhere"]),
            pick(random, &["x", "y", "z", "", "", "one"]),
        ])
    }

    pub(crate) fn attributes(&self) -> Attributes<'_> {
        match *self {
            Self::Path(verb, path) => Attributes::NonResource { verb, path: path.into() },
            Self::Resource([verb, group, resource, subresource, namespace, name]) => {
                let version = "";
                Attributes::Resource(ResourceAttributes {
                    verb,
                    group,
                    version,
                    resource,
                    subresource,
                    namespace,
                    name,
                })
            }
        }
    }

    pub(crate) fn review_spec(&self, person: &Person) -> Value {
        let mut spec = json!({"user": person.name, "groups": person.groups});
        match *self {
            Self::Path(verb, path) => spec["nonResourceAttributes"] = json!({"verb": verb, "path": path}),
            Self::Resource([verb, group, resource, subresource, namespace, name]) => {
                spec["resourceAttributes"] = json!({
                    "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                    "namespace": namespace, "name": name,
                });
            }
        }
        spec
    }
}

/// Roles and bindings that give one user rules in the first namespace, in all namespaces, and for non-resource paths.
pub(crate) fn of_one_user(person: &Person) -> [Object; 4] {
    let [namespace, ..] = NAMESPACES;
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": person.groups[0]}]);
    let binding = |role| json!({"roleRef": reference(role, "own"), "subjects": subjects});
    let resources = json!({"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods", "deployments"]});
    let named = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"]});
    let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs/*"]});
    [
        Object::new(RbacKind::Role, namespace, "own", json!({"rules": [resources]})),
        Object::new(RbacKind::ClusterRole, "", "own", json!({"rules": [named, paths]})),
        Object::new(RbacKind::RoleBinding, namespace, "own", binding(RbacKind::Role)),
        Object::new(RbacKind::ClusterRoleBinding, "", "own", binding(RbacKind::ClusterRole)),
    ]
}

/// A role and a binding with one additional rule for this user.
pub(crate) fn more_of_one_user(person: &Person) -> [Object; 2] {
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}]);
    let subjects = json!([{"kind": "User", "name": person.name}]);
    let role = reference(RbacKind::ClusterRole, "more");
    [
        Object::new(RbacKind::ClusterRole, "", "more", json!({"rules": rules})),
        Object::new(RbacKind::ClusterRoleBinding, "", "more", json!({"roleRef": role, "subjects": subjects})),
    ]
}
