//! Generators for roles, bindings, users and requests. The generators use few different strings, so that requests often
//! match rules.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use tributary_apimachinery::UserInfo;
use tributary_authorization::{Attributes, RbacKind, ResourceAttributes};

use crate::reference::Object;

const NAMESPACES: [&str; 3] = ["n", "m", "o"];
const VERBS: [&str; 5] = ["get", "list", "watch", "create", "*"];
const GROUPS: [&str; 3] = ["", "apps", "*"];
const RESOURCES: [&str; 9] =
    ["pods", "pods", "pods/log", "*/log", "*", "services", "pods/*", "namespaces", "services/status"];
const NAMES: [&str; 4] = ["x", "y", "", "*"];
const PATHS: [&str; 6] = ["/healthz", "/healthz/*", "*", "/healthz*", "/metrics**", "/met"];
const ROLES: [&str; 3] = ["r", "s", "t"];
const BINDINGS: [&str; 4] = ["b", "c", "d", "r"];
const PEOPLE: [&str; 3] = ["ann", "system:serviceaccount:n:s", "system:serviceaccount:m:ann"];
const TEAMS: [&str; 3] = ["g", "h", "ann"];

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Upsert(&'static str, Object),
    Remove(&'static str, Object),
    Replace(&'static str, Vec<Object>),
    ReplaceKind(&'static str, RbacKind, Vec<Object>),
    /// Applies several changes in one batch. `true` adds or replaces the object, and `false` removes the object.
    Apply(&'static str, Vec<(bool, Object)>),
    Leave(&'static str),
}

fn cluster(clusters: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    select(clusters)
}

pub(crate) fn change(clusters: &'static [&'static str]) -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => (cluster(clusters), object()).prop_map(|(cluster, object)| Change::Upsert(cluster, object)),
        4 => (cluster(clusters), object()).prop_map(|(cluster, object)| Change::Remove(cluster, object)),
        2 => (cluster(clusters), prop::collection::vec(object(), 0..20))
            .prop_map(|(cluster, objects)| Change::Replace(cluster, objects)),
        3 => (cluster(clusters), select(&RbacKind::ALL[..]), prop::collection::vec(object(), 0..20))
            .prop_map(|(cluster, kind, objects)| Change::ReplaceKind(cluster, kind, objects)),
        4 => (cluster(clusters), prop::collection::vec((prop::bool::weighted(0.7), object()), 0..20))
            .prop_map(|(cluster, objects)| Change::Apply(cluster, objects)),
        1 => cluster(clusters).prop_map(Change::Leave),
    ]
}

fn object() -> impl Strategy<Value = Object> {
    let role = (select(&RbacKind::ALL[..]), select(&NAMESPACES[..]), select(&ROLES[..]), rules());
    let binding = (select(&BINDINGS[..]), role_reference(), prop::collection::vec(subject(), 0..4));
    (role, binding).prop_map(|((kind, namespace, role, rules), (binding, reference, subjects))| {
        let is_role = matches!(kind, RbacKind::Role | RbacKind::ClusterRole);
        let mut value = if is_role {
            json!({"metadata": {"name": role}, "rules": rules})
        } else {
            json!({"metadata": {"name": binding}, "roleRef": reference, "subjects": subjects})
        };
        if kind.is_namespaced() {
            value["metadata"]["namespace"] = namespace.into();
        }
        Object { kind, value }
    })
}

fn role_reference() -> impl Strategy<Value = Value> {
    (select(&["Role", "ClusterRole", "ClusterRole", "Rule"][..]), select(&ROLES[..]))
        .prop_map(|(kind, name)| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}))
}

fn subject() -> impl Strategy<Value = Value> {
    let user = select(&PEOPLE[..]).prop_map(|name| json!({"kind": "User", "name": name}));
    let group = select(&TEAMS[..]).prop_map(|name| json!({"kind": "Group", "name": name}));
    let account = (select(&["s", "ann"][..]), prop::option::of(select(&NAMESPACES[..])))
        .prop_map(|(name, namespace)| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}));
    let nobody = Just(json!({"kind": "Robot", "name": "ann"}));
    prop_oneof![4 => user, 4 => group, 4 => account, 1 => nobody]
}

fn rules() -> impl Strategy<Value = Vec<Value>> {
    let words = |words: &'static [&'static str]| subsequence(words, 0..=words.len().min(2));
    let names = prop_oneof![3 => Just(Vec::new()), 1 => words(&NAMES)];
    let resources = (words(&VERBS), words(&GROUPS), words(&RESOURCES), names).prop_map(
        |(verbs, groups, resources, names)| {
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
        },
    );
    let paths = (words(&VERBS), words(&PATHS), words(&RESOURCES)).prop_map(
        // No API server stores a rule with both resources and paths. If a rule has both, it must be read as a rule for
        // paths.
        |(verbs, paths, resources)| json!({"verbs": verbs, "nonResourceURLs": paths, "resources": resources}),
    );
    prop::collection::vec(prop_oneof![5 => resources, 1 => paths], 0..4)
}

#[derive(Clone, Debug)]
pub(crate) struct Person {
    name: &'static str,
    groups: Vec<String>,
}

impl Person {
    pub(crate) fn as_user(&self) -> UserInfo {
        UserInfo::with_groups(self.name, &self.groups)
    }
}

pub(crate) fn user() -> impl Strategy<Value = Person> {
    let groups = subsequence(&TEAMS[..], 0..=TEAMS.len());
    let masters = prop::bool::weighted(0.03);
    (select(&PEOPLE[..]), groups, masters).prop_map(|(name, groups, masters)| {
        let masters = masters.then_some("system:masters");
        Person { name, groups: groups.into_iter().chain(masters).map(str::to_owned).collect() }
    })
}

pub(crate) fn requests() -> impl Strategy<Value = Vec<Attributes<'static>>> {
    let resource = (
        select(&VERBS[..]),
        select(&["", "", "apps", "batch"][..]),
        select(&["pods", "pods", "services", "namespaces", "*"][..]),
        select(&["", "", "log", "status", "*"][..]),
        select(&["n", "m", "o", ""][..]),
        select(&["x", "y", "z", "", "*"][..]),
    )
        .prop_map(|(verb, group, resource, subresource, namespace, name)| {
            let version = "v1";
            Attributes::Resource(ResourceAttributes { verb, group, version, resource, subresource, namespace, name })
        });
    let path = (select(&VERBS[..]), select(&["/healthz", "/healthz/etcd", "/metrics", "/metrics/x", "/"][..]))
        .prop_map(|(verb, path)| Attributes::NonResource { verb, path: path.into() });
    prop::collection::vec(prop_oneof![6 => resource, 1 => path], 60)
}
