//! Tests of the shared mode with integer resourceVersions of objects (`itemResourceVersions: Integer`). Unlike a
//! composite version, an integer does not contain the scope of its reader's rights. It names a cluster by an index,
//! which any user can guess.

use serde_json::json;
use tributary_apimachinery::ItemResourceVersions;
use tributary_router::{Policies, ResourcePolicy, SharedMode};

use crate::access::rights::{RBAC, binding, config_map_of, grant, listed, role};
use crate::harness::{Fixture, allow, brief, until, version};

const ALL: &str = "/api/v1/configmaps";

fn integers() -> Policies {
    let Policies { default, .. } = allow();
    let default = ResourcePolicy { item_resource_versions: ItemResourceVersions::Integer, ..default };
    Policies { default, ..Policies::default() }
}

/// An informer has an object of `b`. It loses its connection and its right in `b`, and then resumes from the integer of
/// the last event, which is of `a`. No event would remove the object of `b`, so the router must make the informer list
/// again.
#[tokio::test]
async fn integer_version_expires_after_a_right_lost_in_another_cluster() {
    let fixture = Fixture::shared(["a", "b"], integers(), SharedMode::default()).await;
    for member in &fixture.members {
        grant(member, "", "ann");
        listed(&fixture, member.name(), "ann", "all").await;
    }
    fixture.member("b").apply(config_map_of("shop", "hidden")).unwrap();
    let ann = fixture.user("ann", &[]);
    until(async || ann.get(&format!("{ALL}?limit=500")).await.ok().to_string().contains("hidden")).await;
    let list = ann.get(ALL).await.ok();
    let mut events = ann.watch(&format!("{ALL}?watch=1&resourceVersion={}", version(&list))).await;
    fixture.member("a").apply(config_map_of("shop", "last")).unwrap();
    let last = events.soon().await;
    assert_eq!(brief(&last), "ADDED a/last");
    drop(events);
    fixture.member("b").delete(&format!("clusterrolebindings.{RBAC}"), "", "ann-reads").unwrap();
    listed(&fixture, "b", "ann", "none").await;
    let mut resumed = ann.watch(&format!("{ALL}?watch=1&resourceVersion={}", version(&last["object"]))).await;
    fixture.member("a").apply(config_map_of("shop", "next")).unwrap();
    let event = resumed.soon().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()), "{event}");
}

/// When a user gains a right, no event delivers the existing objects. So the client must list again.
#[tokio::test]
async fn integer_version_expires_after_a_right_gained_in_another_cluster() {
    let fixture = Fixture::shared(["a", "b"], integers(), SharedMode::default()).await;
    grant(fixture.member("a"), "", "ann");
    listed(&fixture, "a", "ann", "all").await;
    fixture.member("b").apply(config_map_of("shop", "old")).unwrap();
    let ann = fixture.user("ann", &[]);
    let list = ann.get(ALL).await.ok();
    let mut events = ann.watch(&format!("{ALL}?watch=1&resourceVersion={}", version(&list))).await;
    fixture.member("a").apply(config_map_of("shop", "last")).unwrap();
    let last = events.soon().await;
    assert_eq!(brief(&last), "ADDED a/last");
    drop(events);
    grant(fixture.member("b"), "", "ann");
    listed(&fixture, "b", "ann", "all").await;
    let mut resumed = ann.watch(&format!("{ALL}?watch=1&resourceVersion={}", version(&last["object"]))).await;
    fixture.member("a").apply(config_map_of("shop", "next")).unwrap();
    let mut told = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(std::time::Duration::from_secs(5), resumed.next()).await {
        told.push(if event["type"] == "ERROR" { "ERROR".to_owned() } else { brief(&event) });
    }
    let is_told_of_b = told.iter().any(|event| event == "ERROR" || event == "ADDED b/old");
    assert!(is_told_of_b, "of b, which may be listed by now, nothing is told: {told:?}");
}

/// Bob may list and delete in `a`, and must not learn that `hidden-customer` (index 1) exists. For Bob, an integer of
/// this cluster gets the same response as an integer with an unused index.
#[tokio::test]
async fn integer_version_of_a_hidden_cluster_looks_like_an_unused_index() {
    let fixture = Fixture::shared(["a", "hidden-customer"], integers(), SharedMode::default()).await;
    let (a, bob) = (fixture.member("a"), fixture.user("bob", &[]));
    let verbs: &[&str] = &["get", "list", "watch", "deletecollection", "update", "delete"];
    a.apply(role("", "deleter", [verbs, &[""], &["configmaps"], &[]])).unwrap();
    a.apply(binding("shop", "bob-deletes", ("ClusterRole", "deleter"), "bob")).unwrap();
    listed(&fixture, "a", "bob", "shop").await;
    a.apply(config_map_of("shop", "x")).unwrap();
    let (shop, x) = ("/api/v1/namespaces/shop/configmaps", "/api/v1/namespaces/shop/configmaps/x");
    until(async || bob.get(x).await.code == 200).await;
    let headers = [("content-type", "application/json")];
    let mut said = Vec::new();
    for number in ["10001", "10002"] {
        let options =
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": number}});
        let mut object = config_map_of("shop", "x");
        object["metadata"]["resourceVersion"] = number.into();
        let (options, object) = (options.to_string(), object.to_string());
        let mut texts = Vec::new();
        for (method, path, body) in [
            ("DELETE", shop.to_owned(), &options),
            ("DELETE", x.to_owned(), &options),
            ("PUT", x.to_owned(), &object),
            ("GET", format!("{x}?resourceVersion={number}"), &String::new()),
            ("GET", format!("{shop}?resourceVersion={number}"), &String::new()),
            ("GET", format!("{shop}?watch=1&resourceVersion={number}"), &String::new()),
        ] {
            let answer = bob.send(method, &path, &headers, body).await;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!text.contains("hidden"), "{method} {path}: {text}");
            texts.push((answer.code, text.replace(number, "N").replace("index 2", "index 1")));
        }
        said.push(texts);
    }
    assert_eq!(said[0], said[1], "a hidden cluster is as none");
}
