//! Tests of ResourceRegistries that cache only some clusters or namespaces. Responses mention the clusters that are
//! left out. Requests for a name still find objects in them.

use serde_json::{Value, json};
use tributary_router::{Policies, ResourcePolicy};
use tributary_simulator::RequestKind;

use crate::harness::{
    CONFIG_MAPS, Fixture, allow, brief, cluster, composite, config, config_map, config_map_in, items, until, vector,
    version,
};

const OWN: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

fn of_clusters(names: &[&str]) -> Policies {
    let clusters = Some(names.iter().map(|name| name.parse().unwrap()).collect());
    Policies { default: ResourcePolicy { clusters, ..allow().default }, ..Policies::default() }
}

fn of_namespaces(names: &[&str]) -> Policies {
    let namespaces = Some(names.iter().map(|name| (*name).to_owned()).collect());
    Policies { default: ResourcePolicy { namespaces, ..allow().default }, ..Policies::default() }
}

fn in_namespace(namespace: &str, name: &str) -> Value {
    let mut object = config_map(name, "");
    object["metadata"]["namespace"] = namespace.into();
    object
}

#[tokio::test]
async fn registry_limits_lists_and_watches_to_its_clusters() {
    let fixture = Fixture::with(["a", "b", "c"].map(config), of_clusters(&["a", "c"])).await;
    for member in ["a", "b", "c"] {
        fixture.put(member, &format!("x-{member}"), "");
    }
    let answer = fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await;
    let list = answer.ok();
    assert_eq!(items(&list), ["a/x-a", "c/x-c"]);
    assert!(vector(&version(&list)).get("b").is_none());
    let warnings = answer.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("a ResourceRegistry omits") && warnings[0].contains(": b"),
        "{warnings:?}"
    );
    assert_eq!(fixture.member("b").control().requests_of(RequestKind::List, "configmaps"), 0, "it is not even asked");
    let path = format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={}", version(&list));
    let response = fixture.client().call("GET", &path, &[], "").await;
    assert_eq!(response.headers().get_all("warning").iter().count(), 1);
    let mut events = crate::harness::Events::of(response);
    fixture.put("b", "y-b", "");
    fixture.put("c", "y-c", "");
    assert_eq!(events.brief().await, "ADDED c/y-c");
    // Cluster `b` is not in the view, so a version with `b` from another configuration is refused.
    fixture
        .get(&format!("{CONFIG_MAPS}?resourceVersion={}", composite(&json!({"a": "1", "b": "1"}))))
        .await
        .refused(410);
    // When the ResourceRegistry changes, open watches receive the objects of added clusters, and deletions of the
    // objects of removed clusters.
    fixture.router.set_policies(of_clusters(&["a", "b"]));
    let mut told: Vec<_> = Vec::new();
    for _ in 0..4 {
        told.push(events.brief().await);
    }
    told.sort();
    assert_eq!(told, ["ADDED b/x-b", "ADDED b/y-b", "DELETED c/x-c", "DELETED c/y-c"]);
}

#[tokio::test]
async fn objects_outside_the_registrys_clusters_are_found_by_name() {
    let fixture = Fixture::with(["a", "b", "c"].map(config), of_clusters(&["a"])).await;
    fixture.put("b", "x", "1");
    let x = format!("{CONFIG_MAPS}/x");
    let read = fixture.get(&x).await.ok();
    assert_eq!(cluster(&read), "b");
    let mut object = read.clone();
    object["data"]["v"] = "2".into();
    assert_eq!(fixture.write("PUT", &x, &object).await.ok()["data"]["v"], "2");
    fixture.write("PUT", &x, &object).await.refused(409);
    let patched = fixture.patch(&x, "merge-patch+json", &json!({"data": {"v": "3"}})).await.ok();
    assert_eq!((cluster(&patched).as_str(), &patched["data"]["v"]), ("b", &json!("3")));
    // If a cluster in the view has an object with this name, objects in clusters outside the view are ignored.
    fixture.put_and_see("a", "x", "of a").await;
    assert_eq!(cluster(&fixture.get(&x).await.ok()), "a");
    fixture.client().send("DELETE", &x, &[], "").await.ok();
    assert!(fixture.member("b").get("configmaps", "default", "x").is_some());
    assert_eq!(cluster(&fixture.get(&x).await.ok()), "b");
    fixture.put("c", "x", "of c");
    let message = fixture.get(&x).await.refused(409);
    assert!(message.contains("b, c"), "{message}");
    fixture.get(&format!("{CONFIG_MAPS}/nothing")).await.refused(404);
    // An annotation can name a cluster outside the view, and a get then finds the created object.
    fixture.write("POST", CONFIG_MAPS, &config_map_in("c", "new", "")).await.ok();
    assert_eq!(cluster(&fixture.get(&format!("{CONFIG_MAPS}/new")).await.ok()), "c");
    // A cluster outside the view may have an object with this name. If it does not answer, the router cannot answer
    // 404.
    fixture.member("c").control().stop_listening().await;
    let message = fixture.get(&format!("{CONFIG_MAPS}/nothing")).await.refused(503);
    assert!(message.contains(": c"), "{message}");
}

#[tokio::test]
async fn collection_delete_spares_clusters_outside_the_registry() {
    let fixture = Fixture::with(["a", "b"].map(config), of_clusters(&["a"])).await;
    fixture.put_and_see("a", "x", "").await;
    fixture.put("b", "y", "");
    let answer = fixture.client().send("DELETE", &format!("{CONFIG_MAPS}?{OWN}"), &[], "").await;
    answer.ok();
    assert!(answer.warnings()[0].contains(": b"), "{:?}", answer.warnings());
    assert!(fixture.member("a").get("configmaps", "default", "x").is_none());
    assert!(fixture.member("b").get("configmaps", "default", "y").is_some());
}

#[tokio::test]
async fn registry_with_namespaces_caches_only_these_namespaces() {
    let fixture = Fixture::with(["a", "b"].map(config), of_namespaces(&["default"])).await;
    fixture.put("a", "x", "");
    fixture.member("b").apply(in_namespace("other", "y")).unwrap();
    let list = fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok();
    assert_eq!(items(&list), ["a/x"]);
    let control = fixture.member("a").control();
    let log = control.request_log();
    assert!(
        log.iter().any(|request| request.starts_with(&format!("GET {CONFIG_MAPS}?")))
            && !log.iter().any(|request| request.starts_with("GET /api/v1/configmaps")),
        "{log:?}"
    );
    let path = format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={}", version(&list));
    let mut events = fixture.watch(&path).await;
    fixture.put("b", "z", "");
    assert_eq!(events.brief().await, "ADDED b/z");
    // The router does not cache the other namespaces, so it reads them from the clusters.
    let other = "/api/v1/namespaces/other/configmaps";
    assert_eq!(items(&fixture.get(&format!("{other}?{OWN}")).await.ok()), ["b/y"]);
    assert_eq!(cluster(&fixture.get(&format!("{other}/y")).await.ok()), "b");
    let patched = fixture.patch(&format!("{other}/y"), "merge-patch+json", &json!({"data": {"v": "1"}})).await.ok();
    assert_eq!(patched["data"]["v"], "1");
    let mut all = items(&fixture.get(&format!("/api/v1/configmaps?{OWN}")).await.ok());
    all.sort();
    assert_eq!(all, ["a/x", "b/y", "b/z"]);
    for path in [other, "/api/v1/configmaps"] {
        let message = fixture.get(&format!("{path}?watch=1")).await.refused(405);
        assert!(message.contains("spec.namespaces): default;"), "{message}");
    }
    // A ResourceRegistry with namespaces still caches all objects of a cluster-scoped resource.
    let nodes = fixture.get("/api/v1/nodes").await.ok();
    assert_eq!(nodes["items"].as_array().unwrap().len(), 2);
    fixture.watch(&format!("/api/v1/nodes?watch=1&resourceVersion={}", version(&nodes))).await.nothing().await;
}

#[tokio::test]
async fn read_in_a_cached_namespace_sees_the_write() {
    let fixture = Fixture::with(["a", "b"].map(config), of_namespaces(&["default"])).await;
    for round in 0..10 {
        let name = format!("x{round}");
        fixture.write("POST", CONFIG_MAPS, &config_map_in("b", &name, "")).await.ok();
        assert_eq!(cluster(&fixture.get(&format!("{CONFIG_MAPS}/{name}")).await.ok()), "b");
        let seen = items(&fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok());
        assert!(seen.contains(&format!("b/{name}")), "{seen:?}");
    }
    let list = fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok();
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={}", version(&list))).await;
    fixture.client().send("DELETE", &format!("{CONFIG_MAPS}?{OWN}"), &[], "").await.ok();
    assert!(brief(&events.soon().await).starts_with("DELETED b/"));
    until(|| async { fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok()["items"] == json!([]) }).await;
}
