//! Tests of watches of users with partial and changing rights.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout};
use tributary_router::{Policies, ResourcePolicy};

use crate::access::rights::{RBAC, ann, binding, config_map_of, grant, listed, lists, role, scoped};
use crate::harness::{Events, allow, brief, pass, until, version};

const ALL: &str = "/api/v1/configmaps?watch=1";

/// The maximum time until the loss of a right ends an open watch.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);

/// Opens a watch from the version of a new list.
async fn watch(client: &crate::harness::Client) -> Events {
    let list = client.get("/api/v1/configmaps").await.ok();
    client.watch(&format!("{ALL}&resourceVersion={}", version(&list))).await
}

/// Checks that the next event is an ERROR with 410, and that the stream ends after the event.
async fn expires(events: &mut Events) {
    let event = events.soon().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()), "{event}");
    assert_eq!(event["object"]["message"], "your rights have changed since the resourceVersion: list again");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn watch_sends_only_objects_that_its_user_may_list() {
    let fixture = ann().await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    let (mut of_ann, mut of_root) = (watch(&ann).await, watch(&root).await);
    let changes = [("c", "shop"), ("b", "bank"), ("b", "shop"), ("c", "bank"), ("a", "bank")];
    for (member, namespace) in changes {
        let name = format!("new-{member}-{namespace}");
        let revision = fixture.member(member).apply(config_map_of(namespace, &name)).unwrap().to_string();
        let event = of_root.soon().await;
        assert_eq!(brief(&event), format!("ADDED {member}/{name}"));
        let (is_scoped, components) = scoped(&version(&event["object"]));
        assert!(!is_scoped && components[member] == *revision, "{components}");
        assert_eq!(components.as_object().unwrap().len(), 3);
        if member != "c" && (member, namespace) != ("b", "bank") {
            let event = of_ann.soon().await;
            assert_eq!(brief(&event), format!("ADDED {member}/{name}"));
            let (is_scoped, components) = scoped(&version(&event["object"]));
            assert!(is_scoped && components[member] == *revision, "{components}");
            assert_eq!(components.as_object().unwrap().len(), 2, "what is not ann's is not named");
        }
    }
    of_ann.nothing().await;
    // A watch can resume from the version of its last event, or of a single object.
    let from = {
        fixture.member("b").apply(config_map_of("shop", "more")).unwrap();
        version(&of_ann.soon().await["object"])
    };
    fixture.member("a").apply(config_map_of("shop", "last")).unwrap();
    let mut resumed = ann.watch(&format!("{ALL}&resourceVersion={from}")).await;
    assert_eq!(resumed.brief().await, "ADDED a/last");
    let object = ann.get("/api/v1/namespaces/shop/configmaps/more").await.ok();
    let path = "/api/v1/namespaces/shop/configmaps?watch=1&fieldSelector=metadata.name%3Dmore";
    let mut one = ann.watch(&format!("{path}&resourceVersion={}", version(&object))).await;
    fixture.member("b").delete("configmaps", "shop", "more").unwrap();
    assert_eq!(one.brief().await, "DELETED b/more");
}

/// The user may list this object but not watch it. A watch of all objects omits it.
#[tokio::test]
async fn watch_of_an_object_with_only_list_rights_is_refused() {
    let fixture = ann().await;
    let (b, ann) = (fixture.member("b"), fixture.user("ann", &[]));
    b.apply(role("", "one", [&["list"], &[""], &["configmaps"], &["one-b"]])).unwrap();
    b.apply(binding("bank", "ann-lists-one", ("ClusterRole", "one"), "ann")).unwrap();
    let one = "fieldSelector=metadata.name%3Done-b";
    let bank = "/api/v1/namespaces/bank/configmaps";
    until(async || ann.get(&format!("{bank}?{one}")).await.code == 200).await;
    for path in [format!("{ALL}&{one}"), format!("{bank}?watch=1&{one}")] {
        let message = ann.get(&path).await.refused(403);
        assert!(message.contains("cannot watch resource \"configmaps\""), "{path}: {message}");
    }
    let mut of_ann = watch(&ann).await;
    b.apply(config_map_of("bank", "hidden")).unwrap();
    b.apply(config_map_of("shop", "shown")).unwrap();
    assert_eq!(of_ann.brief().await, "ADDED b/shown");
}

#[tokio::test]
async fn bookmark_contains_no_hidden_cluster() {
    let fixture = ann().await;
    let ann = fixture.user("ann", &[]);
    let path = format!("{ALL}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    let mut events = ann.watch(&path).await;
    for _ in 0..6 {
        let event = events.soon().await;
        assert_eq!(event["type"], "ADDED");
        assert_ne!(crate::harness::cluster(&event["object"]), "c");
    }
    let bookmark = events.soon().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    let (is_scoped, components) = scoped(&version(&bookmark["object"]));
    assert!(is_scoped && components.get("c").is_none(), "{components}");
}

/// Hidden events do not wake a watch, but the revisions in its bookmarks advance past them.
#[tokio::test]
async fn bookmark_advances_past_hidden_events() {
    let fixture = ann().await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    let list = ann.get("/api/v1/configmaps").await.ok();
    let path = format!("{ALL}&allowWatchBookmarks=true&resourceVersion={}", version(&list));
    let (mut events, mut of_root) = (ann.watch(&path).await, watch(&root).await);
    events.nothing().await;
    for minute in 0..2 {
        let mut latest = String::new();
        for number in 0..5 {
            let name = format!("new-{minute}-{number}");
            latest = fixture.member("b").apply(config_map_of("bank", &name)).unwrap().to_string();
            assert_eq!(of_root.brief().await, format!("ADDED b/{name}"));
        }
        pass(Duration::from_secs(60)).await;
        let bookmark = events.soon().await;
        assert_eq!(bookmark["type"], "BOOKMARK");
        assert_eq!(scoped(&version(&bookmark["object"])).1["b"], *latest, "minute {minute}");
    }
}

#[tokio::test]
async fn watch_ends_within_seconds_after_its_right_is_revoked() {
    let fixture = ann().await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    let (mut of_ann, mut of_root) = (watch(&ann).await, watch(&root).await);
    let before = version(&ann.get("/api/v1/configmaps").await.ok());
    let taken = Instant::now();
    fixture.member("b").delete(&format!("rolebindings.{RBAC}"), "shop", "ann-reads").unwrap();
    timeout(crate::harness::SOON, expires(&mut of_ann)).await.expect("an end");
    assert!(taken.elapsed() < REVOKED_WITHIN, "{:?}", taken.elapsed());
    of_root.nothing().await;
    // A client that was disconnected during the change has objects that it may no longer see, so it cannot resume.
    expires(&mut ann.watch(&format!("{ALL}&resourceVersion={before}")).await).await;
    // A role that loses a verb has the same effect as a deleted binding.
    let mut of_ann = watch(&ann).await;
    fixture.member("a").apply(role("", "reader", [&["get", "list"], &[""], &["configmaps"], &[]])).unwrap();
    expires(&mut of_ann).await;
    expires(&mut of_root).await;
}

#[tokio::test]
async fn watch_ends_half_a_minute_after_its_user_gains_a_right() {
    let fixture = ann().await;
    let ann = fixture.user("ann", &[]);
    let mut of_ann = watch(&ann).await;
    grant(fixture.member("b"), "bank", "ann");
    listed(&fixture, "b", "ann", "bank shop").await;
    of_ann.nothing().await;
    fixture.member("b").apply(config_map_of("shop", "meanwhile")).unwrap();
    assert_eq!(of_ann.brief().await, "ADDED b/meanwhile");
    pass(Duration::from_secs(31)).await;
    expires(&mut of_ann).await;
    assert_eq!(ann.get("/api/v1/namespaces/bank/configmaps/one-b").await.code, 200);
}

#[tokio::test]
async fn resumed_watch_sends_the_objects_of_a_newly_allowed_cluster() {
    let fixture = ann().await;
    let ann = fixture.user("ann", &[]);
    let mut of_ann = watch(&ann).await;
    fixture.member("a").apply(config_map_of("shop", "before")).unwrap();
    let from = version(&of_ann.soon().await["object"]);
    grant(fixture.member("c"), "shop", "ann");
    listed(&fixture, "c", "ann", "shop").await;
    pass(Duration::from_secs(31)).await;
    assert_eq!(of_ann.next().await, None, "it ends, and nothing is wrong with what its client has");
    let mut resumed = ann.watch(&format!("{ALL}&resourceVersion={from}")).await;
    let told = [resumed.brief().await, resumed.brief().await];
    assert_eq!(told, ["ADDED c/one-c", "ADDED c/two-c"]);
}

#[tokio::test]
async fn watch_without_the_watch_right_is_refused() {
    let fixture = ann().await;
    let a = fixture.member("a");
    a.apply(role("", "lister", [&["list"], &[""], &["configmaps"], &[]])).unwrap();
    a.apply(role("", "watcher", [&["watch"], &[""], &["configmaps"], &[]])).unwrap();
    a.apply(binding("", "bob-lists", ("ClusterRole", "lister"), "bob")).unwrap();
    a.apply(binding("shop", "bob-watches", ("ClusterRole", "watcher"), "bob")).unwrap();
    listed(&fixture, "a", "bob", "all").await;
    let bob = fixture.user("bob", &[]);
    crate::harness::until(async || {
        bob.get("/api/v1/namespaces/shop/configmaps?watch=1&timeoutSeconds=1").await.code == 200
    })
    .await;
    assert!(bob.get(ALL).await.refused(403).contains("cannot watch"));
    assert_eq!(lists(&fixture, "b", "bob"), "none");
}

/// A watch of all clusters needs the right to list in each cluster. A Warning names the clusters in which the user may
/// only watch.
#[tokio::test]
async fn warning_names_clusters_where_the_user_may_watch_but_not_list() {
    let fixture = ann().await;
    let bob = fixture.user("bob", &[]);
    let b = fixture.member("b");
    b.apply(role("", "watcher", [&["get", "watch"], &[""], &["configmaps"], &[]])).unwrap();
    b.apply(binding("", "bob-watches", ("ClusterRole", "watcher"), "bob")).unwrap();
    crate::harness::until(async || bob.get("/api/v1/namespaces/shop/configmaps/one-b").await.code == 200).await;
    // The message names the missing right to list, not to watch.
    assert_eq!(
        bob.get(ALL).await.refused(403),
        "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" at the cluster \
         scope: a watch of all clusters needs the right to list; watch one cluster (kubectl --context <name>, or the \
         path /clusters/<name>) where you may watch but not list: b"
    );
    grant(fixture.member("a"), "", "bob");
    listed(&fixture, "a", "bob", "all").await;
    let answer = bob.get(&format!("{ALL}&timeoutSeconds=1")).await;
    let missing = "you may watch but not list configmaps in these clusters, which are missing; watch each cluster \
                   (kubectl --context <name>, or the path /clusters/<name>): b";
    assert_eq!(answer.code, 200);
    assert_eq!(bob.get("/clusters/b/api/v1/configmaps?watch=1&timeoutSeconds=1").await.code, 200);
    assert!(answer.warnings().iter().any(|warning| warning.contains(missing)), "{:?}", answer.warnings());
}

#[tokio::test]
async fn watch_of_selected_clusters_ignores_rights_in_other_clusters() {
    let fixture = ann().await;
    let ann = fixture.user("ann", &[]);
    let of_b = "labelSelector=tributary.dev%2Fcluster%3Db";
    let list = ann.get(&format!("/api/v1/configmaps?{of_b}")).await.ok();
    let mut events = ann.watch(&format!("{ALL}&{of_b}&resourceVersion={}", version(&list))).await;
    fixture.member("a").delete(&format!("clusterrolebindings.{RBAC}"), "", "ann-reads").unwrap();
    listed(&fixture, "a", "ann", "none").await;
    grant(fixture.member("c"), "", "ann");
    listed(&fixture, "c", "ann", "all").await;
    pass(Duration::from_secs(40)).await;
    fixture.member("b").apply(config_map_of("shop", "seen")).unwrap();
    assert_eq!(events.brief().await, "ADDED b/seen");
    fixture.member("b").delete(&format!("rolebindings.{RBAC}"), "shop", "ann-reads").unwrap();
    expires(&mut events).await;
}

/// A watch omits clusters that the ResourceRegistry does not select, and ignores rights in these clusters.
#[tokio::test]
async fn watch_ignores_rights_in_clusters_outside_its_registry() {
    let fixture = ann().await;
    let clusters = Some(["a", "b"].map(|name| name.parse().unwrap()).into());
    fixture
        .router
        .set_policies(Policies { default: ResourcePolicy { clusters, ..allow().default }, ..Policies::default() });
    let root = fixture.user("root", &[]);
    let mut events = watch(&root).await;
    fixture.member("c").delete(&format!("clusterrolebindings.{RBAC}"), "", "root-reads").unwrap();
    listed(&fixture, "c", "root", "none").await;
    events.nothing().await;
    grant(fixture.member("c"), "", "root");
    listed(&fixture, "c", "root", "all").await;
    pass(Duration::from_secs(40)).await;
    fixture.member("b").apply(config_map_of("shop", "seen")).unwrap();
    assert_eq!(events.brief().await, "ADDED b/seen");
    // When the ResourceRegistry selects the cluster, watches include the cluster.
    let from = {
        fixture.member("b").apply(config_map_of("shop", "last")).unwrap();
        version(&events.soon().await["object"])
    };
    fixture.router.set_policies(allow());
    pass(Duration::from_secs(31)).await;
    assert_eq!(events.next().await, None);
    let mut resumed = root.watch(&format!("{ALL}&resourceVersion={from}")).await;
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(resumed.brief().await);
    }
    assert!(told.iter().all(|event| event.starts_with("ADDED c/")), "{told:?}");
}

/// When a cluster begins to serve the resource, watches end if their users may list the resource in this cluster. A
/// resumed watch receives the cluster's objects. A cluster without the resource ends no watch.
#[tokio::test]
async fn resumed_watch_receives_objects_of_a_newly_serving_cluster() {
    const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
    let fixture = ann().await;
    let root = fixture.user("root", &[]);
    for member in &fixture.members {
        member.apply(role("", "deployer", [&["get", "list", "watch"], &["apps"], &["deployments"], &[]])).unwrap();
        member.apply(binding("", "root-deploys", ("ClusterRole", "deployer"), "root")).unwrap();
    }
    let c = fixture.member("c");
    let metadata = json!({"namespace": "shop", "name": "of-c"});
    c.apply(json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": metadata})).unwrap();
    c.control().serve("deployments.apps", false);
    pass(Duration::from_secs(60)).await;
    let list = crate::harness::in_time(|| root.get(DEPLOYMENTS)).await.ok();
    assert!(scoped(&version(&list)).1.get("c").is_none(), "{list}");
    let mut events = root.watch(&format!("{DEPLOYMENTS}?watch=1&resourceVersion={}", version(&list))).await;
    c.delete(&format!("clusterrolebindings.{RBAC}"), "", "root-deploys").unwrap();
    events.nothing().await;
    c.apply(binding("", "root-deploys", ("ClusterRole", "deployer"), "root")).unwrap();
    events.nothing().await;
    c.control().serve("deployments.apps", true);
    pass(Duration::from_secs(120)).await;
    assert_eq!(events.next().await, None);
    let mut resumed = root.watch(&format!("{DEPLOYMENTS}?watch=1&resourceVersion={}", version(&list))).await;
    assert_eq!(resumed.brief().await, "ADDED c/of-c");
}
