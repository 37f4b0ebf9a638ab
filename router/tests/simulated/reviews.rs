//! Questions about the caller's own rights.

use serde_json::json;
use tributary_simulator::{Rejection, RequestKind};

use crate::harness::Fixture;

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
