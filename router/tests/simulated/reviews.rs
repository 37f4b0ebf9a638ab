//! Questions about the caller's own rights.

use serde_json::json;
use tributary_router::Policies;
use tributary_simulator::{Rejection, RequestKind};

use crate::harness::{Fixture, config};

#[tokio::test]
async fn a_right_is_asked_of_every_cluster() {
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

/// A silent member is not waited for once that is known, and the answer names it, unless incomplete ones are refused.
#[tokio::test]
async fn a_cluster_that_is_out_of_reach_is_named_and_not_waited_for() {
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
        assert!(error.starts_with("clusters that cannot be asked: b ("), "{status}");
        assert!(answer.warnings()[0].contains("without cluster b"), "{:?}", answer.warnings());
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
