//! Tests of the resource `clusters` in shared mode: a user sees the clusters that grant the user a right.

use serde_json::{Value, json};

use crate::access::rights::{ann, binding, grant, listed, role};
use crate::harness::{Client, name, until, version};
use crate::membership::cluster_objects::calm;

const CLUSTERS: &str = "/apis/aggregation.tributary.dev/v1alpha1/clusters";

async fn names(client: &Client) -> Vec<String> {
    client.get(CLUSTERS).await.ok()["items"].as_array().unwrap().iter().map(name).collect()
}

fn brief(event: &Value) -> String {
    format!("{} {}", event["type"].as_str().unwrap(), name(&event["object"]))
}

#[tokio::test]
async fn user_sees_the_clusters_that_grant_a_right_in_some_namespace() {
    let fixture = ann().await;
    let [ann, root, bob] = ["ann", "root", "bob"].map(|name| fixture.user(name, &[]));
    assert_eq!(names(&root).await, ["a", "b", "c"]);
    assert_eq!(names(&ann).await, ["a", "b"]);
    assert_eq!(names(&bob).await, [""; 0]);
    ann.get(&format!("{CLUSTERS}/b")).await.ok();
    // The answers for a hidden cluster and for a missing cluster are equal.
    let [hidden, missing] = ["c", "z"].map(|cluster| format!("{CLUSTERS}/{cluster}"));
    let (hidden, missing) = (ann.get(&hidden).await, ann.get(&missing).await);
    assert_eq!(hidden.refused(404).replace("\"c\"", "\"z\""), missing.refused(404));
    // A right of all users (`system:authenticated`) makes a cluster visible only if it is the right to get the object
    // of this cluster.
    let everybody = ["system:authenticated".to_owned()];
    let bob = fixture.user("bob", &everybody);
    let member = fixture.member("c");
    let verbs: &[&str] = &["get"];
    member.apply(role("", "fleet", [verbs, &["aggregation.tributary.dev"], &["clusters"], &[]])).unwrap();
    let mut of_all = binding("", "fleet", ("ClusterRole", "fleet"), "");
    of_all["subjects"] = json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": everybody[0]}]);
    member.apply(of_all).unwrap();
    until(async || names(&bob).await == ["c"]).await;
}

#[tokio::test]
async fn access_review_allows_reads_of_clusters_and_no_writes() {
    let fixture = ann().await;
    let ann = fixture.user("ann", &[]);
    for (verb, resource, allowed) in
        [("get", "clusters", true), ("list", "clusters", true), ("delete", "clusters", false), ("get", "views", false)]
    {
        let review = json!({
            "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
            "spec": {"resourceAttributes": {"group": "aggregation.tributary.dev", "verb": verb, "resource": resource}},
        });
        let json = [("content-type", "application/json")];
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = ann.send("POST", path, &json, &review.to_string()).await.ok();
        assert_eq!(answer["status"]["allowed"], allowed, "{verb} {resource}: {answer}");
    }
}

#[tokio::test]
async fn watch_of_clusters_follows_the_rights_of_its_user() {
    let fixture = ann().await;
    let ann = fixture.user("ann", &[]);
    let from = version(&ann.get(CLUSTERS).await.ok());
    let mut events = ann.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={from}")).await;
    let mut of_root = fixture.user("root", &[]).watch(&format!("{CLUSTERS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(of_root.soon().await["object"]["code"], 410, "the version is that of another reader");
    calm(&mut events).await;
    grant(fixture.member("c"), "", "ann");
    let gained = events.soon().await;
    assert_eq!(brief(&gained), "ADDED c");
    fixture.member("a").delete("clusterrolebindings.rbac.authorization.k8s.io", "", "ann-reads").unwrap();
    listed(&fixture, "a", "ann", "none").await;
    let lost = events.soon().await;
    assert_eq!(brief(&lost), "DELETED a");
    // At the older version, Ann could see a different set of clusters. A watch from this version cannot resume, and
    // gets 410.
    let mut resumed = ann.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={}", version(&gained["object"]))).await;
    assert_eq!(resumed.soon().await["object"]["code"], 410);
    let newest = version(&lost["object"]);
    calm(&mut ann.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={newest}")).await).await;
    assert_eq!(names(&ann).await, ["b", "c"]);
}
