//! Tests of updates and deletions: the router translates preconditions of every form into the member's form.

use serde_json::{Value, json};
use tributary_simulator::{Rejection, RequestKind};

use crate::doors::table::{DoorForm, MERGED_VIEWS};
use crate::harness::{CONFIG_MAPS, Fixture, allow, cluster, composite, config_map, items, vector, version};
use crate::writes::grounds::with_one_never_seen;

struct Versions {
    fresh: Vec<String>,
    refused: Vec<String>,
}

/// Writes `x` twice to member `a`. Returns resourceVersions that a write of `x` may have as a precondition, and others
/// that the router must refuse.
async fn versions(fixture: &Fixture) -> Versions {
    let stale = fixture.put("a", "x", "1").to_string();
    fixture.put("b", "other", "1");
    let revision = fixture.put_and_see("a", "x", "2").await.to_string();
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let item = version(&fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok());
    assert_eq!(vector(&item), json!({"a": revision}));
    Versions {
        fresh: vec![item, version(&list)],
        refused: vec![
            composite(&json!({ "a": stale })),
            composite(&json!({ "b": revision })),
            revision,
            "1234".to_owned(),
            "garbage".to_owned(),
        ],
    }
}

#[tokio::test]
async fn update_with_an_outdated_version_is_refused() {
    for door in MERGED_VIEWS.iter().filter(|door| door.form != DoorForm::InKarmadasWords) {
        let fixture = door.start(["a", "b"]).await;
        let path = format!("{CONFIG_MAPS}/x");
        let body = |version: &str, value: &str| {
            let mut object = config_map("x", value);
            object["metadata"]["resourceVersion"] = version.into();
            object
        };
        let given = versions(&fixture).await;
        for refused in &given.refused {
            let message = fixture.write("PUT", &path, &body(refused, "3")).await.refused(409);
            assert!(message.contains("configmaps \"x\""), "{message}");
        }
        assert_eq!(fixture.get(&path).await.ok()["data"]["v"], "2");
        for at in 0..given.fresh.len() {
            let given = versions(&fixture).await;
            let written = fixture.write("PUT", &path, &body(&given.fresh[at], "3")).await.ok();
            assert_eq!((cluster(&written).as_str(), &written["data"]["v"]), ("a", &json!("3")));
            assert_eq!(vector(&version(&written)).as_object().unwrap().len(), 1, "the item form");
            let stored = fixture.member("a").get("configmaps", "default", "x").unwrap();
            assert_eq!(stored["metadata"].get("annotations"), None, "nothing of ours is stored: {stored}");
        }
        fixture.write("PUT", &path, &body("", "4")).await.ok();
        assert_eq!(fixture.member("a").get("configmaps", "default", "x").unwrap()["data"]["v"], "4");
    }
}

#[tokio::test]
async fn update_accepts_the_version_of_a_watch_event() {
    let fixture = Fixture::start(["a", "b"]).await;
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Dx")).await;
    fixture.put("a", "x", "1");
    let mut object = events.soon().await["object"].clone();
    // This write gives the member a higher revision. The precondition of the PUT must still succeed, because it applies
    // only to the object `x`.
    fixture.put("a", "other", "1");
    object["data"]["v"] = "2".into();
    assert_eq!(vector(&version(&object)).as_object().unwrap().len(), 2);
    fixture.write("PUT", &format!("{CONFIG_MAPS}/x"), &object).await.ok();
    assert_eq!(events.soon().await["object"]["data"]["v"], "2");
}

#[tokio::test]
async fn update_accepts_a_version_newer_than_memory() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "0").await;
    for round in 1..30 {
        // The version may be newer than memory, for example if the client got it from another process.
        let revision = fixture.put("a", "x", &round.to_string());
        let mut object = config_map("x", "mine");
        object["metadata"]["resourceVersion"] = composite(&json!({"a": revision.to_string()})).into();
        fixture.write("PUT", &format!("{CONFIG_MAPS}/x"), &object).await.ok();
    }
}

#[tokio::test]
async fn delete_accepts_preconditions_in_body_and_query() {
    for door in MERGED_VIEWS.iter().filter(|door| door.form != DoorForm::InKarmadasWords) {
        let fixture = door.start(["a", "b"]).await;
        let path = format!("{CONFIG_MAPS}/x");
        let options = |version: &str| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": version}});
        let given = versions(&fixture).await;
        for refused in &given.refused {
            fixture.write("DELETE", &path, &options(refused)).await.refused(409);
            fixture.client().send("DELETE", &format!("{path}?resourceVersion={refused}"), &[], "").await.refused(409);
        }
        for at in 0..given.fresh.len() {
            let given = versions(&fixture).await;
            fixture.write("DELETE", &path, &options(&given.fresh[at])).await.ok();
            fixture.get(&path).await.refused(404);
            let given = versions(&fixture).await;
            let query = format!("{path}?resourceVersion={}", given.fresh[at]);
            fixture.client().send("DELETE", &query, &[], "").await.ok();
            fixture.get(&path).await.refused(404);
        }
        let uid = json!({"preconditions": {"uid": "another"}});
        fixture.put_and_see("a", "x", "").await;
        fixture.write("DELETE", &path, &uid).await.refused(409);
        fixture.client().send("DELETE", &format!("{CONFIG_MAPS}/nothing"), &[], "").await.refused(404);
    }
}

#[tokio::test]
async fn graceful_deletion_returns_the_object_with_its_cluster() {
    let fixture = Fixture::start(["a", "b"]).await;
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    fixture.member("b").apply(pod).unwrap();
    let path = "/api/v1/namespaces/default/pods";
    fixture.get(path).await.ok();
    let deleted = fixture.client().send("DELETE", &format!("{path}/p"), &[], "").await.ok();
    assert_eq!((deleted["kind"].as_str(), cluster(&deleted).as_str()), (Some("Pod"), "b"));
    assert_eq!(fixture.get(path).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn collection_delete_applies_to_all_clusters() {
    let fixture = Fixture::start(["a", "b"]).await;
    for (member, name) in [("a", "x"), ("b", "y")] {
        let mut object = config_map(name, "");
        object["metadata"]["labels"] = json!({"app": "web"});
        fixture.member(member).apply(object).unwrap();
        fixture.put(member, "kept", "");
    }
    let path = format!("{CONFIG_MAPS}?labelSelector=app%3Dweb");
    fixture.client().send("DELETE", &path, &[], "").await.ok();
    for member in ["a", "b"] {
        let names: Vec<_> = fixture.member(member).list("configmaps").iter().map(crate::harness::name).collect();
        assert!(
            names.contains(&"kept".to_owned()) && !names.contains(&"x".to_owned()) && !names.contains(&"y".to_owned())
        );
    }
    fixture.member("b").control().stop_listening().await;
    let message = fixture.client().send("DELETE", &path, &[], "").await.json()["message"].to_string();
    assert!(message.contains("deleted in [a], but not in: b"), "{message}");
}

#[tokio::test]
async fn status_and_scale_writes_go_to_the_objects_cluster() {
    let fixture = Fixture::start(["a", "b"]).await;
    let deployment = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    fixture.member("b").apply(deployment).unwrap();
    let path = "/apis/apps/v1/namespaces/default/deployments/web/scale";
    let mut scale = fixture.get(path).await.ok();
    assert_eq!((scale["kind"].as_str(), cluster(&scale).as_str()), (Some("Scale"), "b"));
    assert_eq!(vector(&version(&scale)).as_object().unwrap().len(), 1);
    scale["spec"]["replicas"] = 0.into();
    let written = fixture.write("PUT", path, &scale).await.ok();
    assert_eq!(written["spec"]["replicas"], 0);
    let read = fixture.get("/apis/apps/v1/namespaces/default/deployments/web").await.ok();
    assert_eq!(read["spec"]["replicas"], 0, "own writes are seen through a subresource, too");
    scale["spec"]["replicas"] = 2.into();
    fixture.write("PUT", path, &scale).await.refused(409);
}

#[tokio::test]
async fn malformed_bodies_get_the_messages_of_kubernetes() {
    let fixture = Fixture::start(["a"]).await;
    fixture.put("a", "x", "");
    let send = |method: &'static str, path: &'static str, media_type: &'static str, body: &'static str| {
        let client = fixture.client();
        async move { client.send(method, path, &[("content-type", media_type)], body).await }
    };
    const X: &str = "/api/v1/namespaces/default/configmaps/x";
    send("PUT", X, "application/json", "{").await.refused(400);
    send("PUT", X, "application/cbor", "\u{1}").await.refused(415);
    send("PUT", X, "application/vnd.kubernetes.protobuf", "nonsense").await.refused(400);
    send("PATCH", X, "application/json-patch+json", "{}").await.refused(400);
    send("POST", X, "application/json", "{}").await.refused(405);
    let large = format!("{{\"data\":\"{}\"}}", "x".repeat(9 << 20));
    fixture.client().send("PUT", X, &[("content-type", "application/json")], &large).await.refused(413);
    for accept in ["text/html", "application/vnd.kubernetes.protobuf", "application/json;as=Nothing"] {
        let answer = fixture.client().send("GET", X, &[("accept", accept)], "").await;
        assert!(answer.refused(406).contains("application/json"), "{accept}");
    }
    for path in ["/api/v1/namespaces//configmaps/x", "/api/v1/namespaces/default/configmaps/%2e%2e", "/api/v1/../x"] {
        assert!(matches!(fixture.get(path).await.code, 400 | 404), "{path}");
    }
}

#[tokio::test]
async fn merged_view_refuses_impersonation_in_personal_mode() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "");
    fixture.get(CONFIG_MAPS).await.ok();
    let as_other = |path: String| {
        let client = fixture.client();
        async move { client.send("GET", &path, &[("impersonate-user", "jane")], "").await }
    };
    for path in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}?watch=1"), "/api/v1/configmaps".to_owned()] {
        let message = as_other(path).await.refused(403);
        assert!(message.contains("/clusters/<name>"), "{message}");
    }
    let control = fixture.member("a").control();
    control.reset_counters();
    let object: Value = as_other(format!("{CONFIG_MAPS}/x")).await.ok();
    assert_eq!(cluster(&object), "a");
    // The first request of a new connection reads the uid of the namespace `kube-system`, so it is left out.
    let asked: Vec<_> = control.request_log().into_iter().filter(|line| !line.ends_with("/kube-system")).collect();
    assert_eq!(asked, [format!("GET {CONFIG_MAPS}/x")], "asked of the member, not of memory");
    assert_eq!(items_of(&as_other(format!("/clusters/a{CONFIG_MAPS}")).await.ok()), ["x"]);
    as_other(format!("{CONFIG_MAPS}/nothing")).await.refused(404);
    // The member refuses the get with 403. The router must not answer 404, because the user may not know whether the
    // object exists.
    let kinds = vec![RequestKind::Get];
    fixture.member("b").control().reject(Some(Rejection { kinds, ..Rejection::all(403) }));
    let message = as_other(format!("{CONFIG_MAPS}/nothing")).await.refused(403);
    assert!(message.contains("refused on command"), "{message}");
    as_other(format!("{CONFIG_MAPS}/x")).await.ok();
}

/// Returns the names in a list, without the ConfigMap that Kubernetes creates.
fn items_of(list: &Value) -> Vec<String> {
    let all = items(list).into_iter().map(|item| item.trim_start_matches('/').to_owned());
    all.filter(|name| name != "kube-root-ca.crt").collect()
}

#[tokio::test]
async fn member_errors_are_returned_in_yaml_if_the_client_requests_yaml() {
    let fixture = Fixture::start(["a"]).await;
    let yaml = [("accept", "application/yaml"), ("content-type", "application/json")];
    let object = crate::harness::config_map("x", "1").to_string();
    let made = fixture.client().send("POST", CONFIG_MAPS, &yaml, &object).await;
    assert_eq!((made.code, &made.headers["content-type"]), (201, &"application/yaml".parse().unwrap()));
    let again = fixture.client().send("POST", CONFIG_MAPS, &yaml, &object).await;
    let text = String::from_utf8(again.body.to_vec()).unwrap();
    assert_eq!((again.code, &again.headers["content-type"]), (409, &"application/yaml".parse().unwrap()), "{text}");
    assert!(text.contains("kind: Status\n") && text.contains("reason: AlreadyExists\n"), "{text}");
    let in_json = fixture.client().send("POST", CONFIG_MAPS, &yaml[1..], &object).await;
    assert!(in_json.refused(409).contains("already exists"));
    // The response to a deletion is a Status, also in YAML.
    let path = format!("{CONFIG_MAPS}/x");
    let deleted = fixture.client().send("DELETE", &path, &yaml[..1], "").await;
    let text = String::from_utf8(deleted.body.to_vec()).unwrap();
    assert!(deleted.code == 200 && text.contains("kind: Status\n") && text.contains("status: Success\n"), "{text}");
}

/// If one cluster is unreachable, the router must not delete the collection in the other clusters.
#[tokio::test]
async fn collection_delete_is_refused_if_a_cluster_is_unreachable() {
    let fixture = Fixture::start(["a", "b"]).await;
    for member in ["a", "b"] {
        fixture.put_and_see(member, "x", "").await;
    }
    fixture.member("b").control().stop_listening().await;
    fixture.out_of_reach("b").await;
    let message = fixture.client().send("DELETE", CONFIG_MAPS, &[], "").await.refused(503);
    assert!(message.starts_with("nothing is deleted while these clusters cannot be queried: b (for "), "{message}");
    assert!(fixture.member("a").get("configmaps", "default", "x").is_some(), "it is deleted in part");
    // The error message suggests a selector that excludes the unreachable cluster.
    let others = format!("{CONFIG_MAPS}?labelSelector=tributary.dev/cluster!%3Db");
    fixture.client().send("DELETE", &others, &[], "").await.ok();
    assert!(fixture.member("a").get("configmaps", "default", "x").is_none());
}

/// The discovery of `b` is unknown, so `b` may serve the collection. The router must delete nothing.
#[tokio::test]
async fn collection_delete_is_refused_if_a_cluster_was_never_read() {
    let (fixture, _first) = with_one_never_seen(allow()).await;
    let answer = fixture.client().send("DELETE", CONFIG_MAPS, &[], "").await;
    let message = answer.refused(503);
    assert!(message.starts_with("nothing is deleted while these clusters cannot be queried: b (for "), "{message}");
    assert!(!answer.headers.contains_key("retry-after"), "{answer:?}");
    assert!(fixture.member("a").get("configmaps", "default", "x").is_some(), "it is deleted in part");
    let others = format!("{CONFIG_MAPS}?labelSelector=tributary.dev/cluster!%3Db");
    fixture.client().send("DELETE", &others, &[], "").await.ok();
    assert!(fixture.member("a").get("configmaps", "default", "x").is_none());
}
