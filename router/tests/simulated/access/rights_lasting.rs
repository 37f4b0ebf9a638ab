//! Tests of the shared mode: a stream from a member ends when its user loses the right. A stream of an aggregated API
//! server below an object, such as a console, ends like `exec` and `logs -f`, although it is neither a watch nor one of
//! Kubernetes' own subresources.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tributary_apimachinery::body::Body;
use tributary_authorization::GRANTED_WORDS_MAX;
use tributary_simulator::{RequestKind, SimulatedCluster};

use crate::access::rights::{RBAC, ann, binding, role};
use crate::access::rights_detected::{Chain, Mode};
use crate::harness::{Client, Fixture, items, pass, until};
use crate::membership::members::Rbac;

/// Subresources with endless responses: one of Kubernetes, and one that only aggregated API servers have
/// (`subresources.kubevirt.io` has `console`, `vnc` and `usbredir`).
const SUBRESOURCES: [&str; 2] = ["log", "console"];

/// Returns whether a response ends or breaks within six seconds.
async fn ends(mut body: Body) -> bool {
    ends_within(&mut body, Duration::from_secs(6)).await
}

async fn ends_within(body: &mut Body, time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        match timeout(time, body.frame()).await {
            Ok(Some(Ok(_))) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
    false
}

/// Opens a stream of Ann at a subresource of an object of `a`. A separate binding allows the stream.
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

/// Sends a request, and returns the response's body after the first chunk has arrived.
async fn begun(client: &Client, path: &str) -> Body {
    let mut answer = client.call("GET", path, &[], "").await;
    assert_eq!(answer.status(), 200);
    assert!(answer.body_mut().frame().await.is_some_and(|frame| frame.is_ok()), "it has begun");
    answer.into_body()
}

#[tokio::test]
async fn stream_of_a_newly_denied_user_ends() {
    for subresource in SUBRESOURCES {
        let (fixture, body) = opened(subresource).await;
        fixture.router.deny(["ann".to_owned()].into());
        assert!(ends(body).await, "{subresource}: ann is denied, and is still sent what she opened");
    }
}

#[tokio::test]
async fn stream_of_a_member_ends_when_its_user_loses_the_right() {
    for subresource in SUBRESOURCES {
        let (fixture, body) = opened(subresource).await;
        fixture.member("a").delete(&format!("rolebindings.{RBAC}"), "shop", "ann-streams").unwrap();
        assert!(ends(body).await, "{subresource}: ann has lost the right, and is still sent what she opened");
    }
}

/// Grants a user more rights in a namespace than the router's limit.
fn exceed(member: &SimulatedCluster, user: &str) {
    const WORDS: usize = 4_000;
    let names: Vec<_> = (0..WORDS).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    member.apply(role("own", "much", [&["get"], &[""], &["configmaps"], &names])).unwrap();
    for number in 0..=GRANTED_WORDS_MAX / WORDS {
        member.apply(binding("own", &format!("much-{number}"), ("Role", "much"), user)).unwrap();
    }
}

/// Waits until Ann's rights in `a` are unknown, so that a list omits the cluster.
async fn unknown(fixture: &Fixture) {
    let ann = fixture.user("ann", &[]);
    until(async || items(&ann.get("/api/v1/configmaps").await.ok()) == ["b/one-b", "b/two-b"]).await;
}

/// Ann administers a namespace of `a`, and gives herself more rights than the router's limit. A different binding
/// allows her stream, which stays open as long as that binding exists.
#[tokio::test]
async fn stream_of_a_user_with_too_many_grants_ends_after_revocation() {
    for subresource in SUBRESOURCES {
        let (fixture, mut body) = opened(subresource).await;
        let a = fixture.member("a");
        exceed(a, "ann");
        let rbac = Rbac::judge(a);
        unknown(&fixture).await;
        assert!(!ends_within(&mut body, Duration::from_secs(3)).await, "{subresource}: a says that it grants it");
        a.delete(&format!("rolebindings.{RBAC}"), "shop", "ann-streams").unwrap();
        rbac.learn(a);
        assert!(ends(body).await, "{subresource}: ann has lost the right, and is still sent what she opened");
    }
}

/// The member forbids reviews, so the router cannot check whether Ann still has the right.
#[tokio::test]
async fn stream_ends_minutes_after_its_right_becomes_unknown() {
    let (fixture, mut body) = opened("log").await;
    let a = fixture.member("a");
    Chain::of(a, Mode::WithoutReviews);
    exceed(a, "ann");
    unknown(&fixture).await;
    assert!(!ends_within(&mut body, Duration::from_secs(3)).await, "it may answer the next question");
    pass(Duration::from_secs(6 * 60)).await;
    assert!(ends(body).await, "it is not known for minutes that ann has the right, and she is still sent it");
}

/// A path that is no resource may also answer with a stream: `/logs/kube-apiserver.log`, or a path of an aggregated API
/// server.
#[tokio::test]
async fn stream_at_a_non_resource_path_ends_after_revocation() {
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
