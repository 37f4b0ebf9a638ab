//! Tests of writes: each door creates, changes and deletes objects of a member, with the refusals of Kubernetes.

use serde_json::json;

use super::at_door::config_map_for;
use super::table::{DoorForm, MEMBERS, MERGED_VIEWS};
use crate::harness::{ANNOTATION, CONFIG_MAPS, version};

#[tokio::test]
async fn every_door_writes_objects_of_a_member() {
    for row in MERGED_VIEWS.iter().chain(MEMBERS) {
        let fixture = row.start(["a", "b"]).await;
        let path = format!("{CONFIG_MAPS}/x");
        let value = || fixture.member("a").get("configmaps", "default", "x").map(|own| own["data"]["v"].clone());
        let object = config_map_for(row, "x");
        let created = fixture.write("POST", CONFIG_MAPS, &object).await;
        if row.form == DoorForm::InKarmadasWords {
            row.check_refusal(&created, 405);
            fixture.put_and_see("a", "x", "1").await;
        } else {
            assert_eq!(created.code, 201, "{row:?}: {created:?}");
            row.check_refusal(&fixture.write("POST", CONFIG_MAPS, &object).await, 409);
        }
        let read = fixture.get(&path).await.ok();
        let mut changed = read.clone();
        changed["data"]["v"] = "2".into();
        let dry = fixture.write("PUT", &format!("{path}?dryRun=All"), &changed).await.ok();
        assert_eq!((&dry["data"]["v"], value()), (&json!("2"), Some("1".into())), "{row:?}");
        let written = fixture.write("PUT", &path, &changed).await.ok();
        assert_ne!(version(&written), version(&read));
        fixture.write("PUT", &path, &changed).await.refused(409);
        let merge = [("content-type", "application/merge-patch+json")];
        fixture.client().send("PATCH", &path, &merge, r#"{"data":{"v":"3"}}"#).await.ok();
        let stored = fixture.member("a").get("configmaps", "default", "x").unwrap();
        assert_eq!((&stored["data"]["v"], &stored["metadata"]["annotations"]), (&json!("3"), &json!(null)), "{row:?}");
        let apply = [("content-type", "application/apply-patch+yaml")];
        let applied = config_map_for(row, "x").to_string().replace("\"1\"", "\"4\"");
        let query = "?fieldManager=test&force=true";
        fixture.client().send("PATCH", &format!("{path}{query}"), &apply, &applied).await.ok();
        assert_eq!(value(), Some("4".into()), "{row:?}");
        let stale = json!({"preconditions": {"resourceVersion": version(&read)}});
        fixture.write("DELETE", &path, &stale).await.refused(409);
        fixture.write("DELETE", &path, &json!(null)).await.ok();
        assert_eq!(value(), None, "{row:?}");
        for method in ["GET", "DELETE"] {
            row.check_refusal(&fixture.write(method, &path, &json!(null)).await, 404);
        }
        assert!(!fixture.member("b").list("configmaps").iter().any(|own| own["metadata"]["name"] == "x"), "{row:?}");
    }
}

/// The annotation of a create chooses the member in the merged view, and must agree with the path of a member.
#[tokio::test]
async fn every_door_checks_the_cluster_of_a_new_object() {
    for row in MERGED_VIEWS.iter().chain(MEMBERS).filter(|row| row.form != DoorForm::InKarmadasWords) {
        let fixture = row.start(["a", "b"]).await;
        let mut object = crate::harness::config_map("x", "1");
        object["metadata"]["annotations"] = json!({ ANNOTATION: "b" });
        let answer = fixture.write("POST", CONFIG_MAPS, &object).await;
        let is_merged = row.is_merged();
        assert_eq!(answer.code, if is_merged { 201 } else { 409 }, "{row:?}: {answer:?}");
        assert_eq!(fixture.member("b").get("configmaps", "default", "x").is_some(), is_merged, "{row:?}");
        assert!(fixture.member("a").get("configmaps", "default", "x").is_none(), "{row:?}");
    }
}
