//! A property test of requests by a user with partial rights. No member receives a request under another name, and
//! hidden members receive no request. Each response equals the response of a fleet without the hidden member.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tributary_apimachinery::UserInfo;
use tributary_authentication::Authority;
use tributary_authorization::RbacKind;
use tributary_router::SharedMode;
use tributary_simulator::SimulatedCluster;

use crate::access::rights::{RBAC, binding, listed, role};
use crate::generated::{self, Change};
use crate::harness::{Answer, Client, Fixture, allow, name, until};
use crate::membership::members::Rbac;
use crate::reference::{Object, Reference};

/// The number of sets of roles and bindings, and the number of users for each set.
const CASES: usize = 8;
const USERS: usize = 3;

/// The members in which users may have rights. All other members are hidden.
const KNOWN: [&str; 2] = ["a", "b"];
const NAMESPACES: [&str; 2] = ["n", "m"];

/// Returns the requests. Writes are dry runs, so the members do not change.
fn requests() -> Vec<(&'static str, String, String)> {
    let mut requests = Vec::new();
    for namespace in NAMESPACES {
        let within = format!("/api/v1/namespaces/{namespace}/pods");
        // The four names exist in this order: in all members, in `a` and the hidden member, only in the hidden member,
        // and in no member.
        for name in ["x", "y", "hidden", "z"] {
            let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace},
                "spec": {"containers": []}});
            let path = format!("{within}/{name}");
            requests.push(("GET", path.clone(), String::new()));
            requests.push(("GET", format!("{path}/log"), String::new()));
            requests.push(("GET", format!("{path}/status"), String::new()));
            requests.push(("DELETE", format!("{path}?dryRun=All"), String::new()));
            requests.push(("PATCH", format!("{path}?dryRun=All"), r#"{"metadata":{"labels":{"l":"v"}}}"#.to_owned()));
            requests.push(("PUT", format!("{path}?dryRun=All"), pod.to_string()));
        }
        let mut new = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "new", "namespace": namespace},
            "spec": {"containers": []}});
        requests.push(("POST", format!("{within}?dryRun=All"), new.to_string()));
        new["metadata"]["annotations"] = json!({"tributary.dev/cluster": "hidden"});
        requests.push(("POST", format!("{within}?dryRun=All"), new.to_string()));
    }
    requests
}

async fn send(client: &Client, (method, path, body): &(&'static str, String, String)) -> Answer {
    let kind = if *method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    client.send(method, path, &[("content-type", kind)], body).await
}

/// Returns the parts of a response that the test compares. An object is represented by its cluster only, because uids
/// and versions differ between the two fixtures.
fn told(answer: &Answer) -> (u16, String, Vec<String>) {
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let text = match serde_json::from_str::<Value>(&text) {
        Ok(object) if object["kind"] != "Status" => crate::harness::cluster(&object),
        // The response to the dry run of a deletion contains the object's uid, which differs between the two fixtures.
        Ok(mut status) => {
            status["details"]["uid"].take();
            status.to_string()
        }
        Err(_) => String::new(),
    };
    (answer.code, text, answer.warnings())
}

fn apply_pod(member: &SimulatedCluster, namespace: &str, name: &str) {
    let metadata = json!({"namespace": namespace, "name": name});
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": []}});
    member.apply(pod).unwrap();
}

/// Generates a right for pods of a member, in one namespace or in all: the member, and the role with its binding.
fn grant() -> impl Strategy<Value = (usize, [Object; 2])> {
    let verbs = subsequence(&["get", "list", "create", "update", "patch", "delete"][..], 1..=6);
    let namespace = prop_oneof![3 => select(&NAMESPACES[..]), 1 => Just("")];
    let person = select(&["ann", "ann", "ann", "system:serviceaccount:n:s"][..]);
    let log = prop::bool::ANY;
    (0..KNOWN.len(), namespace, person, verbs, log).prop_map(|(member, namespace, person, verbs, log)| {
        let resources: &[&str] = if log { &["pods", "pods/log"] } else { &["pods"] };
        let name = format!("{}-{}-{log}", person.replace(':', "-"), verbs.join("-"));
        let is_whole = namespace.is_empty();
        let reference = if is_whole { "ClusterRole" } else { "Role" };
        let role = role(namespace, &name, [&verbs, &[""], resources, &[]]);
        let binding = binding(namespace, &name, (reference, &name), person);
        let kinds = match is_whole {
            true => [RbacKind::ClusterRole, RbacKind::ClusterRoleBinding],
            false => [RbacKind::Role, RbacKind::RoleBinding],
        };
        let [first, second] = kinds;
        (member, [Object { kind: first, value: role }, Object { kind: second, value: binding }])
    })
}

async fn fixture<const N: usize>(names: [&str; N]) -> (Fixture, Vec<Arc<Rbac>>) {
    let fixture = Fixture::shared(names, allow(), SharedMode::default()).await;
    for member in &fixture.members {
        for namespace in NAMESPACES {
            member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}})).unwrap();
            apply_pod(member, namespace, "x");
            if member.name() != "b" {
                apply_pod(member, namespace, "y");
            }
            if member.name() == "hidden" {
                apply_pod(member, namespace, "hidden");
            }
        }
    }
    let rbac = fixture.members.iter().map(Rbac::judge).collect();
    (fixture, rbac)
}

/// Replaces all roles and bindings of a member, and waits until the router has read them.
async fn replace(fixture: &Fixture, member: &SimulatedCluster, rbac: &Rbac, reference: &Reference, case: usize) {
    for kind in RbacKind::ALL {
        let resource = format!("{}.{RBAC}", kind.resource());
        for object in member.list(&resource) {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            member.delete(&resource, namespace, &name(&object));
        }
    }
    for object in reference.objects() {
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
    rbac.learn(member);
    listed(fixture, member.name(), &everywhere, "all").await;
    listed(fixture, member.name(), &within, "seen").await;
}

#[tokio::test]
async fn responses_equal_those_of_a_fleet_without_the_hidden_member() {
    let (with, with_rbac) = fixture(["a", "b", "hidden"]).await;
    let (without, without_rbac) = fixture(KNOWN).await;
    let mut runner = TestRunner::deterministic();
    let changes = prop::collection::vec(generated::change(&KNOWN), 1..60);
    let grants = prop::collection::vec(grant(), 0..8);
    let users = prop::collection::vec(generated::user(), USERS);
    // The loop waits until both routers have read the pods.
    for (fixture, pods) in [(&with, 12), (&without, 6)] {
        for member in &fixture.members {
            member.apply(role("", "first", [&["list"], &[""], &["pods"], &[]])).unwrap();
            member.apply(binding("", "first", ("ClusterRole", "first"), "first")).unwrap();
        }
        let first = fixture.user("first", &[]);
        until(async || {
            let answer = first.get("/api/v1/pods").await;
            answer.code == 200 && answer.ok()["items"].as_array().is_some_and(|items| items.len() == pods)
        })
        .await;
    }
    let (mut done, mut missing, mut several, mut refused) = (0, 0, 0, 0);
    for case in 0..CASES {
        let changes = changes.new_tree(&mut runner).unwrap().current();
        let users = users.new_tree(&mut runner).unwrap().current();
        let mut references = KNOWN.map(|_| Reference::default());
        let place = |member: &str| KNOWN.iter().position(|own| *own == member).unwrap();
        for change in changes {
            match change {
                Change::Upsert(member, object) => references[place(member)].put(object),
                Change::Remove(member, object) => references[place(member)].remove(&object),
                Change::Replace(member, objects) => references[place(member)] = Reference::from_objects(&objects),
                Change::ReplaceKind(member, kind, objects) => references[place(member)].replace_kind(kind, &objects),
                Change::Apply(member, objects) => references[place(member)].apply(&objects),
                Change::Leave(_) => {}
            }
        }
        for (member, objects) in grants.new_tree(&mut runner).unwrap().current() {
            objects.into_iter().for_each(|object| references[member].put(object));
        }
        for (fixture, rbac) in [(&with, &with_rbac), (&without, &without_rbac)] {
            for (member, rbac) in fixture.members.iter().zip(rbac) {
                let nothing = Reference::default();
                let reference = KNOWN.iter().position(|own| *own == member.name());
                replace(fixture, member, rbac, reference.map_or(&nothing, |own| &references[own]), case).await;
                drop(rbac.came());
            }
        }
        for user in &users {
            let UserInfo { username: name, groups, .. } = &user.as_user();
            let account = name.starts_with("system:").then(|| KNOWN[0].parse().unwrap());
            let authority = account.map_or("test".into(), Authority::Member);
            let clients = [&with, &without].map(|fixture| fixture.user_of(name, groups, authority.clone()));
            for request in requests() {
                let answers = [send(&clients[0], &request).await, send(&clients[1], &request).await];
                let [own, expected] = answers.each_ref().map(told);
                assert_eq!(own, expected, "case {case}: {user:?} {request:?}\n{references:#?}");
                match own.0 {
                    200..300 => done += 1,
                    404 => missing += 1,
                    409 => several += 1,
                    _ => refused += 1,
                }
                for (rbac, hidden) in with_rbac.iter().zip([false, false, true]) {
                    let came = rbac.came();
                    assert!(!hidden || came.is_empty(), "case {case}: {user:?} {request:?}: {came:?}");
                    assert!(came.iter().all(|own| own.user.as_deref() == Some(name)), "{came:?}");
                }
            }
        }
        for rbac in &with_rbac {
            assert_eq!(rbac.came_as_ourselves(), Vec::<String>::new());
        }
    }
    assert!(done > 20 && missing > 40 && several > 10 && refused > 100, "{done} {missing} {several} {refused}");
}
