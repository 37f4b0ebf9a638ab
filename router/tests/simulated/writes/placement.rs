//! Tests of the cluster in which a new object is created.

use serde_json::{Value, json};
use tributary_router::{Policies, ResourcePolicy};

use crate::harness::{
    CONFIG_MAPS, Fixture, allow, cluster, composite, config, config_map, config_map_in, vector, version,
};

#[tokio::test]
async fn create_goes_to_the_cluster_of_its_annotation() {
    let fixture = Fixture::start(["a", "b"]).await;
    for name in ["a", "b"] {
        let made = fixture.write("POST", CONFIG_MAPS, &config_map_in(name, &format!("in-{name}"), "1")).await;
        assert_eq!((made.code, cluster(&made.ok()).as_str()), (201, name));
        let stored = fixture.member(name).get("configmaps", "default", &format!("in-{name}")).unwrap();
        assert_eq!(stored["metadata"].get("annotations"), None);
    }
    let message = fixture.write("POST", CONFIG_MAPS, &config_map_in("nobody", "x", "")).await.refused(400);
    assert!(message.contains("\"nobody\"") && message.contains("a, b"), "{message}");
    fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "in-a", "")).await.refused(409);
}

#[tokio::test]
async fn ambiguous_create_is_refused_with_the_possible_remedies() {
    let fixture = Fixture::start(["a", "b"]).await;
    let message = fixture.write("POST", CONFIG_MAPS, &config_map("x", "")).await.refused(400);
    for way in ["tributary.dev/cluster", "/clusters/<name>", "placement", "a … (or b)"] {
        assert!(message.contains(way), "{way}: {message}");
    }
    // A PUT of a missing object gets 404, not an error about the cluster. Controllers expect 404 if the object was
    // deleted in the meantime.
    fixture.write("PUT", &format!("{CONFIG_MAPS}/x"), &config_map("x", "")).await.refused(404);
    let one = Fixture::start(["only"]).await;
    assert_eq!(cluster(&one.write("POST", CONFIG_MAPS, &config_map("x", "")).await.ok()), "only");
}

#[tokio::test]
async fn configured_placement_applies_after_annotation_and_owner() {
    let mut policies = allow();
    policies.default = ResourcePolicy { placement: Some("b".parse().unwrap()), ..policies.default };
    let fixture = Fixture::with(["a", "b"].map(config), Policies { ..policies }).await;
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &config_map("x", "")).await.ok()), "b");
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "y", "")).await.ok()), "a");
    let owned = owned_by(&fixture.member("a").get("configmaps", "default", "y").unwrap(), "z");
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &owned).await.ok()), "a");
    let mut unowned = owned;
    unowned["metadata"]["name"] = "w".into();
    unowned["metadata"]["ownerReferences"][0]["uid"] = "11111111-2222-3333-4444-555555555555".into();
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &unowned).await.ok()), "b", "an owner that nobody has");
}

fn owned_by(owner: &Value, name: &str) -> Value {
    let mut object = config_map(name, "");
    let of = &owner["metadata"];
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": of["name"], "uid": of["uid"], "controller": true}]);
    object
}

#[tokio::test]
async fn owned_object_goes_to_the_cluster_of_its_owner() {
    let fixture = Fixture::start(["a", "b"]).await;
    // Both clusters have a ConfigMap `owner`, so only the uid identifies the owner.
    for member in ["a", "b"] {
        fixture.put(member, "owner", "");
    }
    for member in ["a", "b"] {
        let owner = fixture.member(member).get("configmaps", "default", "owner").unwrap();
        let made = fixture.write("POST", CONFIG_MAPS, &owned_by(&owner, &format!("of-{member}"))).await.ok();
        assert_eq!(cluster(&made), member);
    }
    // The owners are a cluster-scoped object of a resource that no client has read, and objects that were just created.
    let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}});
    fixture.member("b").apply(node).unwrap();
    let node = fixture.member("b").get("nodes", "", "n").unwrap();
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &owned_by(&node, "of-node")).await.ok()), "b");
    for round in 0..5 {
        let owner = fixture.write("POST", CONFIG_MAPS, &config_map_in("b", &format!("o{round}"), "")).await.ok();
        let made = fixture.write("POST", CONFIG_MAPS, &owned_by(&owner, &format!("p{round}"))).await.ok();
        assert_eq!(cluster(&made), "b");
    }
    // A new router cannot reach the owner's cluster, so it refuses the write.
    let owner = fixture.member("b").get("configmaps", "default", "owner").unwrap();
    fixture.member("b").control().stop_listening().await;
    let other = Fixture { members: Vec::new(), router: crate::harness::router(allow()) };
    let mut setups = Vec::new();
    for member in &fixture.members {
        setups.push(crate::harness::setup(member, member.name()).await);
    }
    other.router.set_clusters(setups);
    other.router.asked_once(crate::harness::SOON).await;
    other.write("POST", CONFIG_MAPS, &owned_by(&owner, "late")).await.refused(503);
}

#[tokio::test]
async fn event_goes_to_the_cluster_of_its_object() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "1");
    fixture.put("b", "y", "1");
    let events = "/api/v1/namespaces/default/events";
    let event = |name: &str, about: &Value, version: Value, related: Value| {
        json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}, "reason": "Test",
            "involvedObject": {"kind": "ConfigMap", "apiVersion": "v1", "namespace": "default", "name": about["metadata"]["name"],
                "uid": about["metadata"]["uid"], "resourceVersion": version},
            "related": {"kind": "ConfigMap", "name": "z", "resourceVersion": related}})
    };
    let about = fixture.get(&format!("{CONFIG_MAPS}/y")).await.ok();
    let native = vector(&version(&about))["b"].clone();
    let list = version(&fixture.get(CONFIG_MAPS).await.ok());
    let cases = [
        (json!(version(&about)), native.clone()),
        (json!(list), native),
        (json!(composite(&json!({"a": "5"}))), json!("")),
        (json!("1234"), json!("")),
    ];
    for (number, (given, expected)) in cases.into_iter().enumerate() {
        let name = format!("e{number}");
        let made = fixture.write("POST", events, &event(&name, &about, given, json!("77"))).await.ok();
        assert_eq!(cluster(&made), "b");
        let stored = fixture.member("b").get("events", "default", &name).unwrap();
        assert_eq!(stored["involvedObject"]["resourceVersion"], expected);
        assert_eq!(stored["related"]["resourceVersion"], "");
    }
    // After the deletion of an object, a last Event about it still goes to the object's cluster.
    fixture.client().send("DELETE", &format!("{CONFIG_MAPS}/y"), &[], "").await.ok();
    fixture.get(&format!("{CONFIG_MAPS}/y")).await.refused(404);
    let last = event("last", &about, json!(""), json!(""));
    assert_eq!(cluster(&fixture.write("POST", events, &last).await.ok()), "b");
    fixture.put_and_see("b", "y", "2").await;
    // Without a uid, the name decides if only one cluster has an object with this name.
    let mut by_name = event("named", &about, json!(""), json!(""));
    by_name["involvedObject"]["uid"] = "".into();
    assert_eq!(cluster(&fixture.write("POST", events, &by_name).await.ok()), "b");
}

#[tokio::test]
async fn apply_creates_a_missing_object() {
    let fixture = Fixture::start(["a", "b"]).await;
    let apply = |body: Value| {
        let path = format!("{CONFIG_MAPS}/{}?fieldManager=t", body["metadata"]["name"].as_str().unwrap());
        let fixture = &fixture;
        async move { fixture.patch(&path, "apply-patch+yaml", &body).await }
    };
    let made = apply(config_map_in("b", "x", "1")).await;
    assert_eq!((made.code, cluster(&made.ok()).as_str()), (201, "b"));
    let again = apply(config_map("x", "2")).await;
    assert_eq!((again.code, cluster(&again.ok()).as_str(), &again.ok()["data"]["v"]), (200, "b", &json!("2")));
    apply(config_map("y", "1")).await.refused(400);
    // The annotation names a cluster without this object, and the apply creates the object there. The second apply
    // changes it.
    for (code, value) in [(201, "3"), (200, "4")] {
        let there = apply(config_map_in("a", "x", value)).await;
        assert_eq!((there.code, cluster(&there.ok()).as_str(), &there.ok()["data"]["v"]), (code, "a", &json!(value)));
    }
    assert_eq!(fixture.member("b").get("configmaps", "default", "x").unwrap()["data"]["v"], "2");
}

#[tokio::test]
async fn create_with_a_resource_version_is_refused() {
    let fixture = Fixture::start(["a", "b"]).await;
    let mut object = config_map_in("a", "x", "");
    for given in [version(&fixture.get(CONFIG_MAPS).await.ok()), "12".to_owned()] {
        object["metadata"]["resourceVersion"] = given.into();
        let message = fixture.write("POST", CONFIG_MAPS, &object).await.refused(500);
        assert_eq!(message, "resourceVersion should not be set on objects to be created");
    }
    object["metadata"]["resourceVersion"] = "".into();
    assert_eq!(fixture.write("POST", CONFIG_MAPS, &object).await.code, 201);
}
