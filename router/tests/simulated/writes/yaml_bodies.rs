//! Tests of YAML bodies. Their cost is limited. They have the same effect as JSON bodies.

use serde_json::json;
use tributary_simulator::RequestKind;

use crate::harness::{CONFIG_MAPS, Fixture, cluster};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const EXCESSIVE: &str = "error converting YAML to JSON: document contains excessive aliasing";

/// Returns YAML in which a map of 2,000 keys is merged a hundred times: 18 KB of text with 200,000 values.
fn merges(head: &str) -> String {
    let keys: Vec<_> = (0..2_000).map(|key| format!("k{key}: v")).collect();
    let merges: String = (0..100).map(|at| format!("c{at}: {{<<: *b}}\n")).collect();
    format!("{head}b: &b {{{}}}\n{merges}", keys.join(","))
}

/// Returns YAML in which aliases repeat one text: 60 KB that expand to 6 MB.
fn repeated(head: &str) -> String {
    let data: Vec<_> = (0..99).map(|at| format!("k{at}: *d")).collect();
    format!("{head}binaryData: {{d: &d \"{}\"}}\ndata: {{{}}}\n", "x".repeat(60_000), data.join(","))
}

#[tokio::test]
async fn body_whose_yaml_aliases_expand_too_far_is_refused_on_every_path() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "1").await;
    for member in &fixture.members {
        member.control().reset_counters();
    }
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, annotations: {tributary.dev/cluster: a}}\n";
    let review = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\n\
        spec: {resourceAttributes: {verb: get, resource: pods}}\n";
    let options = "apiVersion: v1\nkind: DeleteOptions\n";
    let (x, own) = (format!("{CONFIG_MAPS}/x"), format!("/clusters/a{CONFIG_MAPS}"));
    let apply = format!("{x}?fieldManager=t");
    for (method, path, media_type, head) in [
        ("POST", CONFIG_MAPS, "application/yaml", object),
        ("PUT", &x, "application/yaml", object),
        ("PATCH", &apply, "application/apply-patch+yaml", object),
        ("DELETE", &x, "application/yaml", options),
        ("DELETE", CONFIG_MAPS, "application/yaml", options),
        ("POST", REVIEWS, "application/yaml", review),
        // At the path of a cluster, the router converts this body, because it has an annotation of the merged view. So
        // the limits apply.
        ("POST", &own, "application/yaml", object),
    ] {
        for body in [merges(head), repeated(head)] {
            let answer = fixture.client().send(method, path, &[("content-type", media_type)], &body).await;
            // Options of a collection's deletion, and reviews, have a lower size limit. So the response may also be a
            // 413.
            let message = if answer.code == 413 { EXCESSIVE.to_owned() } else { answer.refused(400) };
            assert!(message.starts_with(EXCESSIVE), "{method} {path}: {message}");
        }
    }
    for member in &fixture.members {
        assert_eq!(member.control().requests(RequestKind::Write), 0, "{}", member.name());
    }
}

#[tokio::test]
async fn yaml_body_has_the_meaning_of_its_json() {
    let fixture = Fixture::start(["a", "b"]).await;
    let yaml = [("content-type", "application/yaml")];
    let object = "data: &data {v: &one '1', w: *one}\nkind: ConfigMap\napiVersion: v1\nmetadata:\n  name: x\n  \
        namespace: default\n  annotations: {tributary.dev/cluster: b}\nbinaryData: {<<: *data}\n";
    let made = fixture.client().send("POST", CONFIG_MAPS, &yaml, object).await.ok();
    assert_eq!((cluster(&made).as_str(), &made["data"]), ("b", &json!({"v": "1", "w": "1"})));
    assert_eq!(made["binaryData"], made["data"]);
    let review = "kind: SelfSubjectAccessReview\napiVersion: authorization.k8s.io/v1\nspec:\n  resourceAttributes:\n    \
        verb: list\n    resource: pods\n";
    let answer = fixture.client().send("POST", REVIEWS, &yaml, review).await;
    assert_eq!((answer.code, &answer.ok()["status"]["allowed"]), (201, &json!(true)));
    let options = "kind: DeleteOptions\napiVersion: v1\ndryRun: [All]\n";
    fixture.client().send("DELETE", CONFIG_MAPS, &yaml, options).await.ok();
    assert!(fixture.member("b").get("configmaps", "default", "x").is_some(), "it is deleted");
}
