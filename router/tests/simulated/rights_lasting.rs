//! The shared mode: what lasts of members' answers ends with what opened it, whoever gives it. What an aggregated
//! server answers below an object (a console, a stream of frames) lasts as `exec` and `logs -f` do, and is no watch and
//! none of the subresources that Kubernetes itself has.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tributary_apimachinery::body::Body;
use tributary_simulator::RequestKind;

use crate::harness::{Client, Fixture, until};
use crate::rights::{RBAC, ann, binding, role};

/// Subresources whose answers go on: one of Kubernetes' own, and one that only an aggregated server knows
/// (`subresources.kubevirt.io` has `console`, `vnc` and `usbredir`).
const SUBRESOURCES: [&str; 2] = ["log", "console"];

/// Whether an answer ends, or breaks off, within some seconds.
async fn ends(mut body: Body) -> bool {
    let until = Instant::now() + Duration::from_secs(6);
    while Instant::now() < until {
        match timeout(Duration::from_secs(6), body.frame()).await {
            Ok(Some(Ok(_))) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
    false
}

/// Ann opens what goes on below an object of `a`, to which she has a right of its own.
async fn opened(subresource: &str) -> (Fixture, Body) {
    let fixture = ann().await;
    let a = fixture.member("a");
    let resources = &["configmaps/log", "configmaps/console"];
    a.apply(role("", "streams", [&["get"], &[""], resources, &[]])).unwrap();
    a.apply(binding("shop", "ann-streams", ("ClusterRole", "streams"), "ann")).unwrap();
    let allowed = format!(
        r#"{{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{{
        "resourceAttributes":{{"verb":"get","resource":"configmaps","subresource":"{subresource}","namespace":"shop"}}}}}}"#
    );
    let client = fixture.user("ann", &[]);
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let json = [("content-type", "application/json")];
    until(async || client.send("POST", review, &json, &allowed).await.json()["status"]["allowed"] == true).await;
    a.control().answer_endlessly(Some(RequestKind::Get));
    let body = begun(&client, &format!("/clusters/a/api/v1/namespaces/shop/configmaps/one-a/{subresource}")).await;
    (fixture, body)
}

/// The body of an answer that has begun.
async fn begun(client: &Client, path: &str) -> Body {
    let mut answer = client.call("GET", path, &[], "").await;
    assert_eq!(answer.status(), 200);
    assert!(answer.body_mut().frame().await.is_some_and(|frame| frame.is_ok()), "it has begun");
    answer.into_body()
}

#[tokio::test]
async fn who_is_denied_loses_what_goes_on() {
    for subresource in SUBRESOURCES {
        let (fixture, body) = opened(subresource).await;
        fixture.router.deny(["ann".to_owned()].into());
        assert!(ends(body).await, "{subresource}: ann is denied, and is still sent what she opened");
    }
}

#[tokio::test]
async fn what_goes_on_ends_with_the_right_to_it() {
    for subresource in SUBRESOURCES {
        let (fixture, body) = opened(subresource).await;
        fixture.member("a").delete(&format!("rolebindings.{RBAC}"), "shop", "ann-streams").unwrap();
        assert!(ends(body).await, "{subresource}: ann has lost the right, and is still sent what she opened");
    }
}

/// A path that is no resource may be answered with a stream as well: `/logs/kube-apiserver.log`, or whatever an
/// aggregated server has there.
#[tokio::test]
async fn what_goes_on_at_a_path_that_is_no_resource_ends_with_the_right_to_it() {
    let fixture = ann().await;
    let a = fixture.member("a");
    let mut observer = role("", "observer", [&["get"], &[], &[], &[]]);
    observer["rules"] = json!([{"verbs": ["get"], "nonResourceURLs": ["/logs/*"]}]);
    a.apply(observer).unwrap();
    let bindings = format!("clusterrolebindings.{RBAC}");
    a.apply(binding("", "ann-observes", ("ClusterRole", "observer"), "ann")).unwrap();
    let client = fixture.user("ann", &[]);
    let review = r#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{
        "nonResourceAttributes":{"verb":"get","path":"/logs/x"}}}"#;
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let json = [("content-type", "application/json")];
    until(async || client.send("POST", reviews, &json, review).await.json()["status"]["allowed"] == true).await;
    a.control().answer_endlessly(Some(RequestKind::Other));
    let body = begun(&client, "/clusters/a/logs/x").await;
    a.delete(&bindings, "", "ann-observes").unwrap();
    assert!(ends(body).await, "ann has lost the right, and is still sent what she opened");
}
