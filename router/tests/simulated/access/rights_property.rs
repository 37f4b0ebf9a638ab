//! Responses from memory contain the union of the objects that the rights in each member allow. A simple transcription
//! of kube-apiserver's code computes the expected responses: lists of all namespaces, of one namespace, of one name,
//! and gets.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tributary_apimachinery::UserInfo;
use tributary_authentication::Authority;
use tributary_authorization::{Attributes, RbacKind, ResourceAttributes};
use tributary_router::SharedMode;
use tributary_simulator::SimulatedCluster;

use crate::access::rights::{RBAC, binding, listed, role};
use crate::generated::{self, Change};
use crate::harness::{Client, Fixture, allow, cluster, name};
use crate::reference::{Object, Reference};

/// The number of random sets of roles and bindings, and the number of users for each set.
const CASES: usize = 60;
const USERS: usize = 6;

const MEMBERS: [&str; 2] = ["a", "b"];
const AUTHENTICATED: &str = "system:authenticated";
const NAMESPACES: [&str; 3] = ["n", "m", "o"];

/// The visible objects by cluster, namespace and name.
type Shown = BTreeSet<(String, String, String)>;

/// Replaces all roles and bindings of a member, and waits until the router has read them.
async fn replace(fixture: &Fixture, member: &SimulatedCluster, objects: &[Object], case: usize) {
    for kind in RbacKind::ALL {
        let resource = format!("{}.{RBAC}", kind.resource());
        for object in member.list(&resource) {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            member.delete(&resource, namespace, &name(&object));
        }
    }
    for object in objects {
        let mut value = object.value.clone();
        value["kind"] = object.kind.as_str().into();
        value["apiVersion"] = format!("{RBAC}/v1").into();
        member.apply(value).unwrap();
    }
    let (everywhere, within) = (format!("everywhere-{case}"), format!("within-{case}"));
    let rule: [&[&str]; 4] = [&["list"], &[""], &["configmaps"], &[]];
    member.apply(role("", &everywhere, rule)).unwrap();
    member.apply(binding("", &everywhere, ("ClusterRole", &everywhere), &everywhere)).unwrap();
    member.apply(role("seen", &within, rule)).unwrap();
    member.apply(binding("seen", &within, ("Role", &within), &within)).unwrap();
    listed(fixture, member.name(), &everywhere, "all").await;
    listed(fixture, member.name(), &within, "seen").await;
}

fn allows(reference: &Reference, user: &UserInfo, verb: &str, resource: &str, (namespace, name): (&str, &str)) -> bool {
    let asked = ResourceAttributes { verb, version: "v1", resource, namespace, name, ..ResourceAttributes::default() };
    reference.allows(user, &Attributes::Resource(asked))
}

/// Returns the objects of a resource that the user may see in all members. If a member refuses a list of all
/// namespaces, the result contains the namespaces that the user may list. Returns `None` if all members refuse.
fn expected(
    references: &BTreeMap<&&str, &Reference>,
    user: &UserInfo,
    resource: &str,
    (namespace, name): (&str, &str),
) -> Option<Shown> {
    let mut shown = None;
    for (member, reference) in references {
        let is_allowed = |namespace: &str| allows(reference, user, "list", resource, (namespace, name));
        let is_namespaced = resource != "namespaces";
        let asked: Vec<_> = match (namespace, is_namespaced) {
            ("", true) if is_allowed("") => NAMESPACES.into(),
            ("", true) => NAMESPACES.into_iter().filter(|namespace| is_allowed(namespace)).collect(),
            (namespace, _) if is_allowed(namespace) => vec![namespace],
            _ => Vec::new(),
        };
        for namespace in asked {
            let shown = shown.get_or_insert_with(Shown::new);
            let names: &[&str] = if is_namespaced { &["x", "y"] } else { &NAMESPACES };
            for own in names.iter().filter(|own| name.is_empty() || **own == name) {
                shown.insert(((**member).to_owned(), namespace.to_owned(), (*own).to_owned()));
            }
        }
    }
    shown
}

async fn shown(client: &Client, path: &str) -> Option<Shown> {
    let answer = client.get(path).await;
    if answer.code == 403 {
        return None;
    }
    let list = answer.ok();
    let key = |item: &Value| {
        let namespace = item["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        (cluster(item), namespace, name(item))
    };
    // The simulated members also have namespaces of their own (`kube-system`, for example), which the comparison
    // ignores.
    let own =
        |(_, namespace, name): &(String, String, String)| !namespace.is_empty() || NAMESPACES.contains(&name.as_str());
    Some(list["items"].as_array().unwrap().iter().map(key).filter(own).collect())
}

#[tokio::test]
async fn lists_contain_the_union_of_permitted_objects() {
    let fixture = Fixture::shared(MEMBERS, allow(), SharedMode::default()).await;
    for member in &fixture.members {
        for namespace in NAMESPACES {
            member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}})).unwrap();
            for name in ["x", "y"] {
                let metadata = json!({"namespace": namespace, "name": name});
                let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": []}});
                member.apply(pod).unwrap();
                member.apply(json!({"kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": {}})).unwrap();
            }
        }
    }
    let mut runner = TestRunner::deterministic();
    let changes = prop::collection::vec(generated::change(&MEMBERS), 1..60);
    let users = prop::collection::vec(generated::user(), USERS);
    let (mut refused, mut partial, mut whole) = (0, 0, 0);
    for case in 0..CASES {
        let changes = changes.new_tree(&mut runner).unwrap().current();
        let users = users.new_tree(&mut runner).unwrap().current();
        let mut references: BTreeMap<&str, Reference> = MEMBERS.map(|member| (member, Reference::default())).into();
        for change in changes {
            match change {
                Change::Upsert(member, object) => references.get_mut(member).unwrap().put(object),
                Change::Remove(member, object) => references.get_mut(member).unwrap().remove(&object),
                Change::Replace(member, objects) => drop(references.insert(member, Reference::from_objects(&objects))),
                Change::ReplaceKind(member, kind, objects) => {
                    references.get_mut(member).unwrap().replace_kind(kind, &objects);
                }
                Change::Apply(member, objects) => references.get_mut(member).unwrap().apply(&objects),
                Change::Leave(_) => {}
            }
        }
        for (member, reference) in &references {
            let objects: Vec<_> = reference.objects().cloned().collect();
            replace(&fixture, fixture.member(member), &objects, case).await;
        }
        for user in &users {
            // A member adds `system:authenticated` itself, and the router never sends `system:masters` to a member.
            let given = user.as_user();
            let told = given.groups.iter().filter(|group| *group != "system:masters").cloned();
            let groups: Vec<_> = told.chain([AUTHENTICATED.to_owned()]).collect();
            let user = &UserInfo::with_groups(&given.username, &groups);
            // A ServiceAccount of one member is a user only in this member.
            let account = user.username.starts_with("system:").then_some(MEMBERS[0]);
            let authority = account.map_or("test".into(), |own| Authority::Member(own.parse().unwrap()));
            let told = |member: &str| account.is_none_or(|own| own == member);
            let references: BTreeMap<_, _> = references.iter().filter(|(member, _)| told(member)).collect();
            let client = fixture.user_of(&user.username, &given.groups, authority);
            for resource in ["pods", "services", "namespaces"] {
                let places = if resource == "namespaces" { &[""][..] } else { &["", "n", "m", "o"] };
                for (place, selected) in places.iter().flat_map(|place| ["", "x", "n"].map(|name| (*place, name))) {
                    let within = if place.is_empty() { String::new() } else { format!("namespaces/{place}/") };
                    let query = if selected.is_empty() {
                        String::new()
                    } else {
                        format!("?fieldSelector=metadata.name%3D{selected}")
                    };
                    let path = format!("/api/v1/{within}{resource}{query}");
                    let expected = expected(&references, user, resource, (place, selected));
                    match &expected {
                        None => refused += 1,
                        Some(shown)
                            if selected.is_empty() && place.is_empty() && shown.len() < 6 * references.len() =>
                        {
                            partial += 1
                        }
                        Some(_) => whole += 1,
                    }
                    assert_eq!(shown(&client, &path).await, expected, "case {case}: {user:?} {path}\n{references:#?}");
                }
            }
            for (namespace, name) in NAMESPACES.iter().flat_map(|namespace| ["x", "z"].map(|name| (*namespace, name))) {
                let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
                let allowing = references.values().filter(|own| allows(own, user, "get", "pods", (namespace, name)));
                let expected = match (allowing.count(), name) {
                    (0, _) => 403,
                    (_, "z") => 404,
                    (1, _) => 200,
                    _ => 409,
                };
                assert_eq!(client.get(&path).await.code, expected, "case {case}: {user:?} {path}\n{references:#?}");
            }
        }
    }
    assert!(refused > 100 && partial > 15 && whole > 100, "{refused} {partial} {whole}: the cases show nothing");
}
