//! Tests of patches of every type. The client uses versions and annotations of the merged view. The member receives its
//! own versions and no annotation of the merged view.

use serde_json::{Value, json};

use crate::harness::{ANNOTATION, CONFIG_MAPS, Fixture, cluster, composite, vector, version};

const POINTER: &str = "/metadata/annotations/tributary.dev~1cluster";

fn stored(fixture: &Fixture) -> Value {
    fixture.member("a").get("configmaps", "default", "x").unwrap()
}

#[tokio::test]
async fn merge_patch_translates_its_preconditions() {
    let fixture = Fixture::start(["a", "b"]).await;
    let path = format!("{CONFIG_MAPS}/x");
    for kind in ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"] {
        let stale = fixture.put("a", "x", "1").to_string();
        fixture.put_and_see("a", "x", "2").await;
        let read = fixture.get(&path).await.ok();
        let patch = |version: &str| {
            json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"w": kind},
                "metadata": {"name": "x", "namespace": "default", "resourceVersion": version, "annotations": {ANNOTATION: "a"}}})
        };
        for refused in [composite(&json!({"a": stale})), composite(&json!({"b": "7"})), stale] {
            fixture.patch(&path, kind, &patch(&refused)).await.refused(409);
        }
        let path = if kind == "apply-patch+yaml" { format!("{path}?fieldManager=t") } else { path.clone() };
        let written = fixture.patch(&path, kind, &patch(&version(&read))).await.ok();
        assert_eq!((&written["data"]["w"], cluster(&written).as_str()), (&json!(kind), "a"));
        assert_eq!(vector(&version(&written)).as_object().unwrap().len(), 1);
        assert_eq!(stored(&fixture)["metadata"].get("annotations"), None, "{kind}");
        let mut wrong = patch("");
        wrong["metadata"]["annotations"][ANNOTATION] = "b".into();
        match kind {
            // An apply contains the whole object. So it creates an object with the same name in the cluster that the
            // annotation names.
            "apply-patch+yaml" => assert_eq!(fixture.patch(&path, kind, &wrong).await.code, 201),
            _ => drop(fixture.patch(&path, kind, &wrong).await.refused(409)),
        }
    }
}

#[tokio::test]
async fn json_patch_test_operations_are_translated() {
    let fixture = Fixture::start(["a", "b"]).await;
    let path = format!("{CONFIG_MAPS}/x");
    let stale = fixture.put("a", "x", "1").to_string();
    fixture.put_and_see("a", "x", "2").await;
    let read = fixture.get(&path).await.ok();
    let set = json!({"op": "add", "path": "/data/w", "value": "3"});
    let test = |version: &str| json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
    let kind = "json-patch+json";
    fixture.patch(&path, kind, &json!([test(&composite(&json!({"a": stale}))), set])).await.refused(422);
    fixture.patch(&path, kind, &json!([test("12"), set])).await.refused(409);
    let patch = json!([test(&version(&read)), {"op": "test", "path": POINTER, "value": "a"}, set]);
    assert_eq!(fixture.patch(&path, kind, &patch).await.ok()["data"]["w"], "3");
    // The client sees a map of annotations, although it contains only Tributary's annotation. So the patch may add an
    // entry to the map.
    let patch = json!([{"op": "add", "path": "/metadata/annotations/mine", "value": "1"}]);
    let written = fixture.patch(&path, kind, &patch).await.ok();
    assert_eq!(written["metadata"]["annotations"], json!({"mine": "1", ANNOTATION: "a"}));
    assert_eq!(stored(&fixture)["metadata"]["annotations"], json!({"mine": "1"}));
    let patch = json!([{"op": "remove", "path": POINTER}, {"op": "replace", "path": "/data/w", "value": "4"}]);
    assert_eq!(fixture.patch(&path, kind, &patch).await.ok()["data"]["w"], "4");
}

#[tokio::test]
async fn patch_without_preconditions_goes_to_the_objects_cluster() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("b", "y", "1");
    let path = format!("{CONFIG_MAPS}/y");
    let written = fixture.patch(&path, "merge-patch+json", &json!({"data": {"v": "2"}})).await.ok();
    assert_eq!((cluster(&written).as_str(), written["data"]["v"].as_str()), ("b", Some("2")));
    let rehearsed =
        fixture.patch(&format!("{path}?dryRun=All"), "merge-patch+json", &json!({"data": {"v": "3"}})).await;
    assert_eq!(rehearsed.ok()["data"]["v"], "3");
    assert_eq!(fixture.get(&path).await.ok()["data"]["v"], "2");
    fixture.patch(&format!("{CONFIG_MAPS}/nothing"), "merge-patch+json", &json!({})).await.refused(404);
}
