//! Tests of access reviews by clients about their own rights.

use std::sync::Arc;

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tributary_apimachinery::Status;
use tributary_router::Policies;
use tributary_simulator::{Authorizer, Rejection, RequestKind};

use crate::access::rights::{ann, binding, grant, role};
use crate::harness::{Fixture, allow, config, until};

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

/// An authorizer that denies each review. Tributary's own account may do everything.
struct SaysNo;

impl Authorizer for SaysNo {
    fn refusal(&self, _headers: &HeaderMap, _method: &Method, _target: &str) -> Option<Status> {
        None
    }

    fn allows(&self, _headers: &HeaderMap, _attributes: &Value) -> bool {
        false
    }

    fn rules(&self, _headers: &HeaderMap, _namespace: &str) -> Option<Value> {
        Some(json!({"resourceRules": [], "nonResourceRules": [], "incomplete": false}))
    }

    fn reviewed(&self, _spec: &Value) -> Option<bool> {
        Some(false)
    }
}

fn object_named(kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

/// Returns a review of a verb on ConfigMaps in a namespace. An empty `user` means a review of the caller.
fn access(kind: &str, verb: &str, namespace: &str, user: &str) -> Value {
    let mut spec = json!({"resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": namespace}});
    if !user.is_empty() {
        spec["user"] = user.into();
    }
    json!({"kind": kind, "apiVersion": "authorization.k8s.io/v1", "spec": spec})
}

#[tokio::test]
async fn access_review_goes_to_every_cluster() {
    let fixture = Fixture::start(["a", "b"]).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
    let answer = fixture.write("POST", path, &review).await;
    assert_eq!((answer.code, &answer.ok()["status"]["allowed"]), (201, &json!(true)));
    for member in &fixture.members {
        assert_eq!(member.control().requests(RequestKind::Write), 1, "{}", member.name());
    }
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let review = json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"namespace": "default"}});
    let answer = fixture.write("POST", rules, &review).await.ok();
    assert_eq!(answer["status"]["incomplete"], json!(false));
    assert_eq!(answer["status"]["resourceRules"][0]["verbs"], json!(["*"]));
    fixture.member("b").control().reject(Some(Rejection { kinds: vec![RequestKind::Write], ..Rejection::all(403) }));
    fixture.write("POST", rules, &review).await.refused(403);
}

/// If the router knows that a member is silent, it does not wait for this member. The response names the member, unless
/// the policy denies partial responses.
#[tokio::test]
async fn access_review_names_an_unreachable_cluster_without_waiting() {
    let group = "/apis/authorization.k8s.io/v1";
    let rules = json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"namespace": "default"}});
    let access = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
    let reviews = [("selfsubjectaccessreviews", access), ("selfsubjectrulesreviews", rules)];
    let allowing = Fixture::start(["a", "b"]).await;
    allowing.member("b").control().stop_listening().await;
    for (resource, review) in &reviews {
        let path = format!("{group}/{resource}");
        allowing.out_of_reach("b").await;
        let answer = allowing.write("POST", &path, review).await;
        let status = &answer.ok()["status"];
        let error = status["evaluationError"].as_str().unwrap_or_default();
        assert!(error.starts_with("clusters that cannot be queried: b ("), "{status}");
        assert!(answer.warnings()[0].contains("omits cluster b"), "{:?}", answer.warnings());
        match *resource {
            "selfsubjectaccessreviews" => assert_eq!(status["allowed"], json!(true)),
            _ => assert_eq!(status["incomplete"], json!(true)),
        }
    }
    let denying = Fixture::with(["a", "b"].map(config), Policies::default()).await;
    denying.member("b").control().stop_listening().await;
    denying.out_of_reach("b").await;
    for (resource, review) in &reviews {
        let message = denying.write("POST", &format!("{group}/{resource}"), review).await.refused(503);
        assert!(message.contains("b (cluster"), "{message}");
    }
}

/// Starts members `a` and `b`; `b` denies each review. The namespace `one` exists only in `a` and has the
/// ServiceAccount `app`. The namespace `two` exists in both members.
async fn with_namespaces(policies: Policies) -> Fixture {
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    let [a, b] = ["a", "b"].map(|name| fixture.member(name));
    for (member, object) in [
        (a, object_named("Namespace", "", "one")),
        (a, object_named("Namespace", "", "two")),
        (b, object_named("Namespace", "", "two")),
        (a, object_named("ServiceAccount", "one", "app")),
    ] {
        member.apply(object).unwrap();
    }
    b.control().authorize(Some(Arc::new(SaysNo)));
    until(async || fixture.get("/api/v1/namespaces/one").await.code == 200).await;
    until(async || fixture.get("/api/v1/namespaces/one/serviceaccounts/app").await.code == 200).await;
    fixture
}

/// A cluster without the namespace or the ServiceAccount would deny the action, so the router does not ask this
/// cluster.
#[tokio::test]
async fn access_review_is_answered_by_the_clusters_with_the_namespace() {
    const APP: &str = "system:serviceaccount:one:app";
    const STRANGE: &str = "system:serviceaccount:one:nobody";
    let live = Policies { registered: Some(vec!["configmaps".parse().unwrap()]), ..allow() };
    for policies in [allow(), live] {
        let fixture = with_namespaces(policies).await;
        let client = fixture.client();
        for (namespace, user, expected) in [
            ("one", "", true),
            ("one", "dev", true),
            ("one", APP, true),
            ("one", STRANGE, true),
            ("two", "", false),
            ("two", "dev", false),
            // The ServiceAccount exists only in `a`, so `a` answers the review.
            ("two", APP, true),
            ("two", STRANGE, false),
            ("", "dev", false),
            ("", APP, true),
            ("nowhere", "dev", false),
            ("nowhere", APP, true),
        ] {
            for verb in ["get", "delete"] {
                let of_self = access("SelfSubjectAccessReview", verb, namespace, "").to_string();
                let mut headers = vec![("content-type", "application/json")];
                headers.extend((!user.is_empty()).then_some(("impersonate-user", user)));
                let path = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
                let status = client.send("POST", &path, &headers, &of_self).await.ok()["status"].clone();
                let told = format!("{verb} in {namespace:?} as {user:?}: {status}");
                assert_eq!(status["allowed"], expected, "{told}");
                assert_eq!(status["reason"] == "not allowed in b: simulated", !expected, "{told}");
                if user.is_empty() {
                    continue;
                }
                let of_user = access("SubjectAccessReview", verb, namespace, user);
                let answer = fixture.write("POST", &format!("{AUTHORIZATION}/subjectaccessreviews"), &of_user).await;
                assert_eq!(answer.ok()["status"]["allowed"], expected, "of another: {told}");
            }
        }
        for (namespace, expected) in [("one", 1), ("two", 0), ("nowhere", 0)] {
            let review = json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
                "spec": {"namespace": namespace}});
            let answer = fixture.write("POST", &format!("{AUTHORIZATION}/selfsubjectrulesreviews"), &review).await;
            let rules = answer.ok()["status"]["resourceRules"].clone();
            assert_eq!(rules.as_array().map(Vec::len), Some(expected), "{namespace}: {rules}");
        }
    }
}

/// If an unreachable cluster did not have the namespace before, the response does not need this cluster.
#[tokio::test]
async fn access_review_does_not_need_unreachable_clusters_without_the_namespace() {
    let fixture = with_namespaces(allow()).await;
    fixture.member("b").control().stop_listening().await;
    fixture.out_of_reach("b").await;
    let path = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
    for (namespace, is_missing) in [("one", false), ("two", true)] {
        let review = access("SelfSubjectAccessReview", "delete", namespace, "");
        let answer = fixture.write("POST", &path, &review).await;
        let status = answer.ok()["status"].clone();
        assert_eq!(status["evaluationError"].is_string(), is_missing, "{namespace}: {status}");
        assert_eq!(answer.warnings().len(), usize::from(is_missing), "{namespace}");
    }
}

/// Ann may read ConfigMaps in all of `a`, which lacks the namespace `team`, and may delete ConfigMaps in the namespace
/// `team` of `b`.
#[tokio::test]
async fn access_review_in_shared_mode_uses_clusters_with_the_namespace() {
    let fixture = ann().await;
    let [a, b] = ["a", "b"].map(|name| fixture.member(name));
    b.apply(object_named("Namespace", "", "team")).unwrap();
    b.apply(role("", "deleter", [&["delete"], &[""], &["configmaps"], &[]])).unwrap();
    b.apply(binding("team", "ann-deletes", ("ClusterRole", "deleter"), "ann")).unwrap();
    for member in [a, b] {
        member.apply(role("", "namespaces", [&["get"], &[""], &["namespaces"], &[]])).unwrap();
        member.apply(binding("", "ann-looks", ("ClusterRole", "namespaces"), "ann")).unwrap();
        grant(member, "", "bob");
    }
    a.control().authorize(Some(Arc::new(SaysNo)));
    let path = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
    let headers = [("content-type", "application/json")];
    let said = async |user: &str, verb: &str| {
        let review = access("SelfSubjectAccessReview", verb, "team", "").to_string();
        fixture.user(user, &[]).send("POST", &path, &headers, &review).await.ok()["status"].clone()
    };
    until(async || said("ann", "delete").await["allowed"] == true).await;
    // The response does not reveal which clusters have a namespace to a user who may not get namespaces.
    let of_bob = said("bob", "delete").await;
    assert_eq!((&of_bob["allowed"], &of_bob["reason"]), (&json!(false), &json!("not allowed in a: simulated")));
    assert_eq!(said("bob", "list").await["allowed"], true, "a read is one that any cluster allows");
}
