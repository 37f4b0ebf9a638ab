//! Tests of writes over HTTP.

use serde_json::{Value, json};
use tributary_simulator::{Simulator, SimulatorConfig, StartError, kubeconfig};

use crate::client::{Fixture, until, version};

const JSON: &str = "application/json";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

fn configmap(name: &str, value: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": value}})
}

fn object_path(pod: &Value) -> String {
    let text = |member: &str| pod["metadata"][member].as_str().unwrap().to_owned();
    format!("/api/v1/namespaces/{}/pods/{}", text("namespace"), text("name"))
}

#[tokio::test]
async fn objects_are_created_read_updated_and_deleted() {
    let fixture = Fixture::small().await;
    let created = fixture.write("POST", CONFIGMAPS, JSON, &configmap("c", "1")).await;
    assert_eq!(created.code, 201);
    let created = created.json();
    assert_eq!(created["metadata"]["namespace"], "default");
    assert!(created["metadata"]["uid"].is_string() && created["metadata"]["creationTimestamp"].is_string());
    assert_eq!(fixture.write("POST", CONFIGMAPS, JSON, &configmap("c", "1")).await.json()["reason"], "AlreadyExists");
    let elsewhere = fixture.write("POST", "/api/v1/namespaces/nowhere/configmaps", JSON, &configmap("c", "1")).await;
    assert_eq!(elsewhere.code, 404);
    let path = format!("{CONFIGMAPS}/c");
    let mut changed = created.clone();
    changed["data"]["a"] = "2".into();
    let updated = fixture.write("PUT", &path, JSON, &changed).await.json();
    assert_eq!(updated["metadata"]["uid"], created["metadata"]["uid"]);
    assert_ne!(version(&updated), version(&created));
    let stale = fixture.write("PUT", &path, JSON, &changed).await;
    assert_eq!((stale.code, stale.json()["reason"].clone()), (409, json!("Conflict")));
    let unchanged = fixture.write("PUT", &path, JSON, &updated).await.json();
    assert_eq!(version(&unchanged), version(&updated), "an unchanged object keeps its version");
    let refused =
        fixture.write("DELETE", &path, JSON, &json!({"preconditions": {"resourceVersion": version(&created)}})).await;
    assert_eq!(refused.code, 409);
    assert_eq!(
        fixture.write("DELETE", &format!("{path}?uid=other"), "", &json!({})).await.code,
        200,
        "a body wins over the query"
    );
    assert_eq!(fixture.get(&path).await.json()["reason"], "NotFound");
}

#[tokio::test]
async fn delete_without_body_reads_preconditions_from_the_query() {
    let fixture = Fixture::small().await;
    fixture.write("POST", CONFIGMAPS, JSON, &configmap("c", "1")).await;
    let path = format!("{CONFIGMAPS}/c?resourceVersion=1");
    assert_eq!(fixture.answer(fixture.request("DELETE", &path, JSON, "")).await.code, 409);
}

#[tokio::test]
async fn each_patch_type_applies_with_preconditions() {
    let fixture = Fixture::small().await;
    let pod = fixture.some_pod().await;
    let path = object_path(&pod);
    let merge = "application/merge-patch+json";
    let patched = fixture.write("PATCH", &path, merge, &json!({"metadata": {"labels": {"x": "1"}}})).await.json();
    assert_eq!(patched["metadata"]["labels"]["x"], "1");
    let stale = json!({"metadata": {"resourceVersion": version(&pod), "labels": {"x": "2"}}});
    assert_eq!(fixture.write("PATCH", &path, merge, &stale).await.code, 409);
    let strategic = json!({"spec": {"containers": [{"name": pod["spec"]["containers"][0]["name"], "image": "new"}]}});
    let patched = fixture.write("PATCH", &path, "application/strategic-merge-patch+json", &strategic).await.json();
    assert_eq!(patched["spec"]["containers"].as_array().unwrap().len(), 1);
    assert_eq!(patched["spec"]["containers"][0]["image"], "new");
    assert!(patched["spec"]["containers"][0]["resources"].is_object(), "the other fields stay");
    let test = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}]);
    assert_eq!(fixture.write("PATCH", &path, "application/json-patch+json", &test).await.code, 422);
    let apply = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "applied"}, "data": {"k": "v"}});
    let path = format!("{CONFIGMAPS}/applied?fieldManager=test");
    assert_eq!(fixture.write("PATCH", &path, "application/apply-patch+yaml", &apply).await.code, 201);
    assert_eq!(fixture.write("PATCH", &path, "application/apply-patch+yaml", &apply).await.code, 200);
    assert_eq!(
        fixture.write("PATCH", &format!("{path}&dryRun=All"), merge, &json!({"data": {"k": "w"}})).await.json()["data"]
            ["k"],
        "w"
    );
    assert_eq!(fixture.get(&path).await.json()["data"]["k"], "v", "a dry run leaves no trace");
    assert_eq!(fixture.write("PATCH", &path, "application/unknown", &apply).await.code, 415);
    assert_eq!(fixture.write("POST", CONFIGMAPS, "application/yaml", &apply).await.code, 415);
    let garbage = fixture.write("POST", CONFIGMAPS, "application/vnd.kubernetes.protobuf", &apply).await;
    assert_eq!(garbage.code, 400);
    // The body contains a ConfigMap with the name `made` and the data `k: v`.
    let body = "k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x10\x0a\x06\x0a\x04made\x12\x06\x0a\x01k\x12\x01v";
    let made = fixture.request("POST", CONFIGMAPS, "application/vnd.kubernetes.protobuf", body);
    assert_eq!(fixture.answer(made).await.code, 201);
    let stored = fixture.get(&format!("{CONFIGMAPS}/made")).await.json();
    assert_eq!((&stored["data"]["k"], &stored["kind"]), (&json!("v"), &json!("ConfigMap")));
}

#[tokio::test]
async fn status_update_changes_only_the_status() {
    let fixture = Fixture::small().await;
    let mut pod = fixture.some_pod().await;
    let path = object_path(&pod);
    pod["status"]["phase"] = "Failed".into();
    pod["metadata"]["labels"]["x"] = "1".into();
    let written = fixture.write("PUT", &format!("{path}/status"), JSON, &pod).await.json();
    assert_eq!((&written["status"]["phase"], &written["metadata"]["labels"]["x"]), (&json!("Failed"), &Value::Null));
    pod["metadata"]["resourceVersion"] = version(&written).into();
    pod["status"]["phase"] = "Running".into();
    let written = fixture.write("PUT", &path, JSON, &pod).await.json();
    assert_eq!((&written["status"]["phase"], &written["metadata"]["labels"]["x"]), (&json!("Failed"), &json!("1")));
}

#[tokio::test]
async fn scaling_a_deployment_changes_the_number_of_pods() {
    let fixture = Fixture::small().await;
    let deployment = fixture.member.list("deployments.apps")[0].clone();
    let (namespace, name) =
        (deployment["metadata"]["namespace"].as_str().unwrap(), deployment["metadata"]["name"].as_str().unwrap());
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale");
    let scale = fixture.get(&path).await.json();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(5)));
    let pods = || {
        let selector = scale["status"]["selector"].as_str().unwrap().replace('=', "%3D").replace('/', "%2F");
        format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")
    };
    for replicas in [8, 2] {
        let patch = json!({"spec": {"replicas": replicas}});
        let written = fixture.write("PATCH", &path, "application/merge-patch+json", &patch).await;
        assert_eq!(written.json()["spec"]["replicas"], replicas);
        until("the pods are there", || async {
            let list = fixture.get(&pods()).await.json();
            let list = list["items"].as_array().unwrap();
            list.len() == replicas
                && list.iter().all(|pod| pod["status"]["phase"] != "Pending" || !pod["status"]["conditions"].is_null())
        })
        .await;
    }
    let plain = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
    assert_eq!(fixture.get(&plain).await.json()["status"]["readyReplicas"], 2);
    assert_eq!(fixture.answer(fixture.request("DELETE", &plain, JSON, "")).await.json()["status"], "Success");
    until("owned pods go with their deployment", || async { fixture.get(&pods()).await.names().is_empty() }).await;
}

#[tokio::test]
async fn collection_delete_removes_only_selected_objects() {
    let fixture = Fixture::small().await;
    let namespace = fixture.member.list("pods")[0]["metadata"]["namespace"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let selected = fixture.get(&format!("{path}?labelSelector=tier%3Dservice")).await.names();
    let before = fixture.get(&path).await.names().len();
    let deleted =
        fixture.answer(fixture.request("DELETE", &format!("{path}?labelSelector=tier%3Dservice"), JSON, "")).await;
    assert_eq!(deleted.names(), selected);
    assert_eq!(fixture.get(&path).await.names().len(), before - selected.len());
}

#[tokio::test]
async fn logs_are_served_and_followed() {
    let fixture = Fixture::small().await;
    let path = object_path(&fixture.some_pod().await);
    let log = fixture.get(&format!("{path}/log?tailLines=3")).await;
    assert_eq!(log.headers["content-type"], "text/plain");
    assert_eq!(String::from_utf8(log.body.to_vec()).unwrap().lines().count(), 3);
    let mut follow = fixture.watch(&format!("{path}/log?follow=true&tailLines=1")).await;
    for _ in 0..2 {
        assert!(follow.line().await.unwrap().contains("level=info"));
    }
    assert_eq!(fixture.get("/api/v1/namespaces/default/pods/none/log").await.code, 404);
}

#[tokio::test]
async fn kubeconfig_has_a_context_for_each_member() {
    let start = |name: &str| Simulator::start(SimulatorConfig { name: name.to_owned(), ..SimulatorConfig::default() });
    let (one, two) = (start("one").await.unwrap(), start("two").await.unwrap());
    let text = kubeconfig([&one, &two]);
    assert!(text.contains("current-context: one\n"));
    for member in [&one, &two] {
        assert!(
            text.contains(&member.url())
                && text.contains(member.token())
                && text.contains(&format!("- name: {}\n", member.name()))
        );
    }
    assert!(matches!(start("Not a label").await, Err(StartError::Name(_))));
}
