//! Tests of the shared mode with responses from members: the members that are visible for a user's request, and the
//! information about hidden members.

use std::sync::Arc;

use serde_json::{Value, json};
use tributary_router::ClusterAuthorization::{Live, Rbac};
use tributary_router::ClusterSetup;
use tributary_router::report::{RightsCondition, RightsDecider};

use crate::access::rights::{ann, binding, config_map_of, grant, listed, role};
use crate::access::rights_detected::{Chain, Mode, decided, found_out};
use crate::harness::{Client, Fixture, cluster, items, setup, until};

const SHOP: &str = "/api/v1/namespaces/shop/configmaps";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

async fn write(client: &Client, method: &str, path: &str, body: &Value) -> crate::harness::Answer {
    client.send(method, path, &[("content-type", "application/json")], &body.to_string()).await
}

fn of_shop(fixture: &Fixture, member: &str) -> usize {
    let all = fixture.member(member).list("configmaps");
    all.iter().filter(|object| object["metadata"]["namespace"] == "shop").count()
}

/// Starts the members of [`ann`]. `c` has `authorization: Live`, so the router serves no object of `c` from memory.
async fn with_live() -> (Fixture, Arc<Chain>) {
    let fixture = ann().await;
    let chain = Chain::of(fixture.member("c"), Mode::Rbac);
    let mut setups = Vec::new();
    for (member, authorization) in fixture.members.iter().zip([Rbac, Rbac, Live]) {
        let own = setup(member, member.name()).await;
        setups.push(ClusterSetup { authorization, ..own });
    }
    fixture.router.set_clusters(setups);
    for (name, of_root) in [("a", "all"), ("b", "all"), ("c", "unknown")] {
        listed(&fixture, name, "root", of_root).await;
    }
    let live = async || fixture.router.report().await.clusters[2].rights == Some(RightsCondition::Live);
    until(live).await;
    (fixture, chain)
}

#[tokio::test]
async fn get_reaches_a_member_with_live_authorization() {
    let (fixture, chain) = with_live().await;
    let (root, ann, bob) = (fixture.user("root", &[]), fixture.user("ann", &[]), fixture.user("bob", &[]));
    let path = format!("{SHOP}/one-c");
    assert_eq!(cluster(&root.get(&path).await.ok()), "c");
    assert_eq!(cluster(&root.get(&format!("{SHOP}/one-a")).await.ok()), "a");
    let message = ann.get(&path).await.refused(404);
    assert_eq!(message, "configmaps \"one-c\" not found");
    bob.get(&path).await.refused(403);
    for user in [&ann, &bob] {
        assert!(![200, 409, 503].contains(&user.send("DELETE", &path, &[], "").await.code));
    }
    // A user with rights only in `c` sees the objects of `c`.
    let c = fixture.member("c");
    grant(c, "shop", "eve");
    chain.learn(c);
    let eve = fixture.user("eve", &[]);
    assert_eq!(cluster(&eve.get(&path).await.ok()), "c");
    eve.get(&format!("{SHOP}/one-a")).await.refused(404);
}

/// If the user may see a part of the collection but not delete it, the router deletes nothing.
#[tokio::test]
async fn collection_delete_without_full_rights_deletes_nothing() {
    let fixture = ann().await;
    let ann = fixture.user("ann", &[]);
    let a = fixture.member("a");
    a.apply(role("", "clearer", [&["deletecollection"], &[""], &["configmaps"], &[]])).unwrap();
    a.apply(binding("shop", "ann-clears", ("ClusterRole", "clearer"), "ann")).unwrap();
    let refused = async || ann.send("DELETE", SHOP, &[], "").await;
    until(async || refused().await.refused(403).contains(" of b, so nothing was changed")).await;
    assert_eq!((of_shop(&fixture, "a"), of_shop(&fixture, "b")), (2, 2));
    let message = refused().await.refused(403);
    assert!(message.contains("cannot deletecollection resource \"configmaps\""), "{message}");
    let of_a = format!("{SHOP}?labelSelector=tributary.dev%2Fcluster%3Da");
    ann.send("DELETE", &of_a, &[], "").await.ok();
    assert_eq!((of_shop(&fixture, "a"), of_shop(&fixture, "b")), (0, 2));
    // For Ann a hidden cluster does not exist. Its objects stay, and Ann gets the same response as for an unknown
    // cluster name.
    for nowhere in ["c", "nobodys"] {
        let path = format!("{SHOP}?labelSelector=tributary.dev%2Fcluster%3D{nowhere}");
        let message = ann.send("DELETE", &path, &[], "").await.refused(403);
        let words = "cannot deletecollection resource \"configmaps\" in API group \"\" in the namespace \"shop\"";
        assert!(message.ends_with(words), "{message}");
    }
}

/// A user may have the right to write an object without the right to read it. The cluster that grants this right
/// answers.
#[tokio::test]
async fn write_without_read_rights_goes_to_the_permitting_cluster() {
    let (fixture, chains) = found_out([Mode::Rbac, Mode::Rbac, Mode::Rbac]).await;
    let let_dan = |at: usize, rules: &[(&str, &[&str])]| {
        let member = &fixture.members[at];
        for (resource, verbs) in rules {
            let name = format!("dan-{}-{}", resource.replace('/', "-"), verbs.join("-"));
            member.apply(role("", &name, [verbs, &[""], &[resource], &[]])).unwrap();
            member.apply(binding("", &name, ("ClusterRole", &name), "dan")).unwrap();
        }
        chains[at].learn(member);
    };
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        decided(&fixture, name, RightsDecider::Rbac).await;
        let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop"}});
        fixture.members[at].apply(namespace).unwrap();
    }
    let dan = fixture.user("dan", &[]);
    let new = |name: &str| (format!("{SHOP}/{name}"), config_map_of("shop", name));
    let apply = async |name: &str| {
        let (path, object) = new(name);
        let headers = [("content-type", "application/apply-patch+yaml")];
        dan.send("PATCH", &format!("{path}?fieldManager=dan"), &headers, &object.to_string()).await
    };
    // Dan has rights in only one cluster, so the router forwards his request to this cluster.
    let_dan(0, &[("configmaps", &["create", "patch", "update"]), ("namespaces", &["get"])]);
    let (path, object) = new("none");
    until(async || write(&dan, "PUT", &path, &object).await.code == 404).await;
    assert!(fixture.member("a").control().request_log().iter().any(|line| line.starts_with("PUT")));
    // The response is the same if Dan may get a subresource of objects that he may not get.
    let_dan(0, &[("pods/status", &["get"])]);
    until(async || dan.get("/api/v1/namespaces/shop/pods/none/status").await.code == 404).await;
    // Dan now has rights in two clusters, and may read objects in the second. The router knows that the second cluster
    // has no object with this name, so the apply may create the object in the first.
    let_dan(1, &[("configmaps", &["get", "patch"])]);
    until(async || dan.get(&format!("{SHOP}/one-b")).await.code == 200).await;
    assert_eq!(apply("new").await.code, 201);
    assert_eq!((of_shop(&fixture, "a"), of_shop(&fixture, "b")), (3, 2));
    dan.get(&format!("{SHOP}/new")).await.refused(404);
    // In the third cluster, Dan may change but not read objects. This cluster may have an object with the new name, so
    // the router refuses the apply.
    let_dan(2, &[("configmaps", &["patch"])]);
    let attempt = std::cell::Cell::new(0);
    until(async || {
        attempt.set(attempt.get() + 1);
        apply(&format!("newer-{}", attempt.get())).await.code == 404
    })
    .await;
    assert_eq!(of_shop(&fixture, "c"), 2);
}

/// Grants Bob the right to create ConfigMaps anywhere in `a` and `b`, and to read objects only in `a`.
async fn bob() -> (Fixture, Client) {
    let fixture = ann().await;
    for name in ["a", "b"] {
        let member = fixture.member(name);
        member.apply(role("", "maker", [&["create"], &[""], &["configmaps"], &[]])).unwrap();
        member.apply(binding("", "bob-makes", ("ClusterRole", "maker"), "bob")).unwrap();
        member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop"}})).unwrap();
    }
    let a = fixture.member("a");
    a.apply(role("", "looker", [&["get", "list"], &[""], &["namespaces", "configmaps"], &[]])).unwrap();
    a.apply(binding("", "bob-looks", ("ClusterRole", "looker"), "bob")).unwrap();
    let bob = fixture.user("bob", &[]);
    until(async || bob.get("/api/v1/namespaces/shop").await.code == 200).await;
    (fixture, bob)
}

/// Two clusters have the namespace, but Bob may get the namespace in only one of them.
#[tokio::test]
async fn create_is_refused_if_a_hidden_namespace_makes_it_ambiguous() {
    let (fixture, bob) = bob().await;
    let message = write(&bob, "POST", SHOP, &config_map_of("shop", "new")).await.refused(503);
    assert!(message.contains("b") && message.contains("the cluster forbids you to get namespaces"), "{message}");
    assert_eq!((of_shop(&fixture, "a"), of_shop(&fixture, "b")), (2, 2));
    let mut named = config_map_of("shop", "new");
    named["metadata"]["annotations"] = json!({"tributary.dev/cluster": "b"});
    assert_eq!(write(&bob, "POST", SHOP, &named).await.code, 201);
    assert_eq!(of_shop(&fixture, "b"), 3);
}

/// Both clusters have the namespace. Carl may read objects in both clusters, and create objects in only one cluster.
#[tokio::test]
async fn create_ignores_clusters_that_forbid_the_create() {
    let (fixture, _bob) = bob().await;
    for name in ["a", "b"] {
        let member = fixture.member(name);
        member.apply(role("", "looker", [&["get", "list"], &[""], &["namespaces", "configmaps"], &[]])).unwrap();
        member.apply(binding("", "carl-looks", ("ClusterRole", "looker"), "carl")).unwrap();
    }
    fixture.member("a").apply(binding("", "carl-makes", ("ClusterRole", "maker"), "carl")).unwrap();
    let carl = fixture.user("carl", &[]);
    for name in ["a", "b"] {
        until(async || carl.get(&format!("{SHOP}/one-{name}")).await.code == 200).await;
    }
    fixture.members.iter().for_each(|member| member.control().reset_counters());
    until(async || write(&carl, "POST", SHOP, &config_map_of("shop", "new")).await.code == 201).await;
    assert_eq!((of_shop(&fixture, "a"), of_shop(&fixture, "b")), (3, 2));
    let asked = fixture.member("b").control().request_log();
    assert!(!asked.iter().any(|line| line.contains("/namespaces/shop")), "{asked:?}");
}

/// Without its owner, the object would be deleted by the garbage collector of the other cluster.
#[tokio::test]
async fn object_whose_owner_is_hidden_is_not_created_in_another_cluster() {
    let (fixture, bob) = bob().await;
    let owner = |member: &str| fixture.member(member).get("configmaps", "shop", &format!("one-{member}")).unwrap();
    let owned = |member: &str| {
        let uid = &owner(member)["metadata"]["uid"];
        let mut object = config_map_of("shop", "new");
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": format!("one-{member}"), "uid": uid}]);
        object
    };
    let message = write(&bob, "POST", SHOP, &owned("b")).await.refused(503);
    assert!(message.contains("the cluster forbids you to get configmaps"), "{message}");
    assert_eq!((of_shop(&fixture, "a"), of_shop(&fixture, "b")), (2, 2));
    assert_eq!(write(&bob, "POST", SHOP, &owned("a")).await.code, 201);
    assert_eq!((of_shop(&fixture, "a"), of_shop(&fixture, "b")), (3, 2));
    // Eve may create objects in only one cluster, so the object goes to this cluster.
    let (b, eve) = (fixture.member("b"), fixture.user("eve", &[]));
    b.apply(binding("", "eve-makes", ("ClusterRole", "maker"), "eve")).unwrap();
    until(async || write(&eve, "POST", SHOP, &owned("b")).await.code == 201).await;
}

#[tokio::test]
async fn observer_reads_the_report_while_a_live_authorization_member_is_down() {
    let (fixture, chain) = with_live().await;
    let root = fixture.user("root", &[]);
    for name in ["a", "b", "c"] {
        let mut observer = role("", "observer", [&["get"], &[], &[], &[]]);
        observer["rules"] = json!([{"verbs": ["get"], "nonResourceURLs": ["/tributary/status", "/readyz/*"]}]);
        let member = fixture.member(name);
        member.apply(observer).unwrap();
        member.apply(binding("", "root-observes", ("ClusterRole", "observer"), "root")).unwrap();
    }
    chain.learn(fixture.member("c"));
    fixture.member("c").control().stop_listening().await;
    fixture.out_of_reach("c").await;
    until(async || root.get("/readyz?verbose").await.code != 403).await;
}

#[tokio::test]
async fn access_review_of_a_path_goes_to_permitting_clusters() {
    let fixture = ann().await;
    let a = fixture.member("a");
    let mut metrics = role("", "metrics", [&["get"], &[], &[], &[]]);
    metrics["rules"] = json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]);
    a.apply(metrics).unwrap();
    a.apply(binding("", "ann-metrics", ("ClusterRole", "metrics"), "ann")).unwrap();
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}});
    let said = async |client: &Client| write(client, "POST", ACCESS, &review).await.ok()["status"]["allowed"].clone();
    let (ann, bob) = (fixture.user("ann", &[]), fixture.user("bob", &[]));
    until(async || said(&ann).await == true).await;
    // The simulated members would allow Bob everything. So a denial proves that the router asks no member.
    fixture.members.iter().for_each(|member| member.control().reset_counters());
    assert_eq!(said(&bob).await, false);
    assert_eq!(said(&ann).await, true);
    let asked = fixture.members.iter().map(|member| {
        member.control().request_log().iter().filter(|line| line.contains("selfsubjectaccessreviews")).count()
    });
    assert_eq!(asked.collect::<Vec<_>>(), [1, 0, 0]);
}

/// A webhook may grant rights without a role, and the router cannot get the list of another user's rules from the
/// member.
#[tokio::test]
async fn rules_review_is_incomplete_with_a_non_rbac_authorizer() {
    let (fixture, _chains) = found_out([Mode::Rbac, Mode::Abac(&["bob"]), Mode::Rbac]).await;
    decided(&fixture, "b", RightsDecider::Review).await;
    decided(&fixture, "c", RightsDecider::Rbac).await;
    let bob = fixture.user("bob", &[]);
    assert_eq!(items(&bob.get("/api/v1/configmaps").await.ok()).len(), 4, "what is of b");
    let review = json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"namespace": "shop"}});
    let status = write(&bob, "POST", RULES, &review).await.ok()["status"].clone();
    let is_told = status["resourceRules"].as_array().is_some_and(|rules| !rules.is_empty());
    assert!(is_told || status["incomplete"] == true, "{status}");
    assert_eq!(status["evaluationError"], "your rights in some clusters are not known");
}
