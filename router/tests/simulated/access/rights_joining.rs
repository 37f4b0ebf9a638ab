//! Tests of the shared mode while a cluster is being added: the rights in the cluster are unknown for a moment.

use std::time::Duration;

use tokio::time::Instant;
use tributary_router::Policies;
use tributary_simulator::{Control, Rejection, RequestKind};

use crate::access::rights::{ann, ann_under, binding, listed, role};
use crate::harness::{Fixture, allow, items, pass, until};

const SHOP: &str = "/api/v1/namespaces/shop/configmaps";
const PATH: &str = "/api/v1/namespaces/shop/configmaps/one-c";

/// Adds `c`, which delays all requests or all lists. `root` may read and delete the objects of `c`.
async fn joining(policies: Policies, hold: fn(&Control, bool)) -> Fixture {
    let fixture = ann_under(policies).await;
    let (c, root) = (fixture.member("c"), fixture.user("root", &[]));
    c.apply(role("", "deleter", [&["delete"], &[""], &["configmaps"], &[]])).unwrap();
    c.apply(binding("", "root-deletes", ("ClusterRole", "deleter"), "root")).unwrap();
    fixture.set_clusters(&["a", "b"]).await;
    until(async || root.get(PATH).await.code == 404).await;
    hold(c.control(), true);
    fixture.set_clusters(&["a", "b", "c"]).await;
    fixture
}

#[tokio::test]
async fn get_from_a_new_cluster_waits_for_its_rights() {
    for method in ["GET", "DELETE"] {
        let fixture = joining(allow(), Control::hold_requests).await;
        let root = fixture.user("root", &[]);
        let asked = tokio::spawn(async move { root.send(method, PATH, &[], "").await });
        pass(Duration::from_millis(200)).await;
        assert!(!asked.is_finished(), "{method}");
        fixture.member("c").control().hold_requests(false);
        let answer = asked.await.unwrap();
        assert_eq!(answer.code, 200, "{method}: {}", String::from_utf8_lossy(&answer.body));
    }
}

/// If the policy denies partial responses, a list waits for the new cluster, like a request for a single object. If the
/// policy allows partial responses, a list does not wait.
#[tokio::test]
async fn list_waits_for_rights_in_a_new_cluster_under_partial_deny() {
    let fixture = joining(Policies::default(), Control::hold_lists).await;
    // The router has now read the discovery of `c`.
    until(async || fixture.router.report().await.clusters[2].version.is_some()).await;
    pass(Duration::from_millis(200)).await;
    let root = fixture.user("root", &[]);
    let asked = tokio::spawn(async move { root.get(SHOP).await });
    pass(Duration::from_millis(200)).await;
    assert!(!asked.is_finished());
    fixture.member("c").control().hold_lists(false);
    let answer = asked.await.unwrap();
    assert_eq!(items(&answer.ok()).len(), 6);
    let fixture = joining(allow(), Control::hold_lists).await;
    let answer = fixture.user("root", &[]).get(SHOP).await;
    assert_eq!(items(&answer.ok()).len(), 4);
}

/// After the first request has waited the maximum time for a silent cluster, further requests do not wait.
#[tokio::test]
async fn get_from_a_silent_new_cluster_is_refused_after_waiting() {
    let fixture = joining(allow(), Control::hold_requests).await;
    let root = fixture.user("root", &[]);
    let words = "configmaps \"one-c\": your rights in some clusters are not known yet";
    let answer = root.get(PATH).await;
    assert_eq!(answer.refused(503), words);
    assert_eq!(answer.headers["retry-after"], "1", "the first read runs");
    let began = Instant::now();
    assert_eq!(root.get(PATH).await.refused(503), words);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    // A request that another cluster answers does not wait.
    root.get("/api/v1/namespaces/shop/configmaps/one-a").await.ok();
}

/// The router does not know whether the new cluster serves the collection. A user who may delete the collection in this
/// cluster gets a response with Retry-After.
#[tokio::test]
async fn collection_delete_in_an_undiscovered_cluster_may_be_retried() {
    let fixture = ann().await;
    let (c, root, ann) = (fixture.member("c"), fixture.user("root", &[]), fixture.user("ann", &[]));
    c.apply(role("", "clearer", [&["deletecollection"], &[""], &["configmaps"], &[]])).unwrap();
    c.apply(binding("", "root-clears", ("ClusterRole", "clearer"), "root")).unwrap();
    fixture.set_clusters(&["a", "b"]).await;
    until(async || root.get(PATH).await.code == 404).await;
    c.control().reject(Some(Rejection { kinds: vec![RequestKind::Discovery], ..Rejection::all(503) }));
    fixture.set_clusters(&["a", "b", "c"]).await;
    listed(&fixture, "c", "root", "all").await;
    until(async || root.get("/api/v1/namespaces/shop/configmaps/one-a").await.code == 200).await;
    let of_c = "/api/v1/namespaces/shop/configmaps?labelSelector=tributary.dev%2Fcluster%3Dc";
    let message = root.send("DELETE", of_c, &[], "").await.refused(503);
    assert!(message.starts_with("nothing is deleted while these clusters cannot be queried: c"), "{message}");
    // For a user without rights in the cluster, the refusal is final.
    ann.send("DELETE", of_c, &[], "").await.refused(403);
}
