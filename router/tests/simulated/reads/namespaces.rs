//! Tests of requests for one namespace while a cluster forbids reading all namespaces.

use std::time::Duration;

use futures::future::select;
use serde_json::{Value, json};
use tokio::time::timeout;
use tributary_proxy::ClientTuning;
use tributary_router::limits::NAMESPACE_UNUSED_AFTER;
use tributary_router::{Limits, Policies, Router, RouterConfig};
use tributary_simulator::{Rejection, RequestKind, Simulator, SimulatorConfig};

use crate::harness::{
    CONFIG_MAPS, Events, Fixture, SOON, allow, at_once, brief, composite, config, config_map_in, items, pass,
    quiet_without_time, router, setup_through, until, vector, version,
};

const FILTER: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

fn made() -> String {
    format!("{CONFIG_MAPS}?{FILTER}")
}

fn of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// Makes a member forbid lists and watches of all namespaces, but not those of single namespaces. An empty `resources`
/// means all resources.
pub(crate) fn forbid(fixture: &Fixture, member: &str, resources: &[&str]) {
    fixture.member(member).control().reject(Some(Rejection {
        kinds: vec![RequestKind::List, RequestKind::Watch],
        cluster_wide_only: true,
        resources: resources.iter().map(ToString::to_string).collect(),
        ..Rejection::all(403)
    }));
}

/// Starts members behind a router that caches up to `namespace_views` single namespaces, in addition to the view of all
/// namespaces.
async fn holding<const N: usize>(names: [&str; N], namespace_views: usize) -> Fixture {
    let Fixture { members, .. } = Fixture::with(names.map(config), Policies::default()).await;
    let limits = Limits { namespace_views, ..Limits::default() };
    let router = Router::new(RouterConfig { policies: allow(), limits, alone: true, ..RouterConfig::default() });
    let fixture = Fixture { members, router };
    fixture.set_clusters(&names).await;
    fixture.router.asked_once(crate::harness::SOON).await;
    fixture
}

/// Returns the number of watches of ConfigMaps that a member has received.
fn watches(fixture: &Fixture, member: &str) -> u64 {
    fixture.member(member).control().requests_of(RequestKind::Watch, "configmaps")
}

#[tokio::test]
async fn only_clusters_that_forbid_cluster_wide_lists_are_read_by_namespace() {
    let fixture = holding(["a", "b", "c"], 16).await;
    // Cluster `c` also forbids listing its namespaces, which is usual if an account has rights only in single
    // namespaces.
    forbid(&fixture, "c", &[]);
    for number in 0..200 {
        let answer = fixture.get(&of(&format!("made-up-{}", number * 7919 % 1000))).await;
        assert_eq!((items(&answer.ok()), answer.warnings()), (vec![], vec![]));
    }
    assert_eq!([watches(&fixture, "a"), watches(&fixture, "b")], [1, 1], "theirs are of all namespaces");
    let of_c = watches(&fixture, "c");
    assert!(of_c >= 200, "{of_c}");
    // A refused watch may be retried, so for a moment one watch more than the limit (16) may be open.
    until(|| async { fixture.member("c").control().open_watches() <= 16 }).await;
    fixture.put("a", "x", "1");
    fixture.put("c", "z", "1");
    until(|| async { items(&fixture.get(&made()).await.ok()) == ["a/x", "c/z"] }).await;
}

#[tokio::test]
async fn read_of_a_missing_namespace_starts_no_namespace_view() {
    let fixture = Fixture::with(["a", "b", "c"].map(config), Policies::default()).await;
    forbid(&fixture, "c", &["configmaps"]);
    for number in 0..200 {
        let answer = fixture.get(&of(&format!("made-up-{number}"))).await;
        assert_eq!((items(&answer.ok()), answer.warnings()), (vec![], vec![]), "as a kube-apiserver answers");
        fixture.get(&format!("{}/nobody", of(&format!("made-up-{number}")))).await.refused(404);
    }
    let asked = fixture.member("c").control().request_log();
    assert!(!asked.iter().any(|line| line.contains("/namespaces/made-up-")), "{asked:?}");
    // A watch of a missing namespace waits for the creation of the namespace.
    let mut events = fixture.watch(&format!("{}?watch=1", of("late"))).await;
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "late"}});
    fixture.member("c").apply(namespace).unwrap();
    let mut object = crate::harness::config_map("z", "1");
    object["metadata"]["namespace"] = "late".into();
    fixture.member("c").apply(object).unwrap();
    assert_eq!(events.brief().await, "ADDED c/z");
    until(|| async { items(&fixture.get(&of("late")).await.ok()) == ["c/z"] }).await;
}

#[tokio::test]
async fn list_shows_a_write_into_a_namespace_unknown_to_the_router() {
    let fixture = Fixture::with(["a", "c"].map(config), Policies::default()).await;
    forbid(&fixture, "c", &["configmaps"]);
    assert_eq!(items(&fixture.get(&of("new")).await.ok()), [""; 0]);
    // The watch of namespaces is slow, so the router does not know that the namespace exists.
    fixture.member("c").control().slow(Some(10));
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "new"}});
    fixture.member("c").apply(namespace).unwrap();
    let mut object = config_map_in("c", "z", "1");
    object["metadata"]["namespace"] = "new".into();
    fixture.write("POST", &of("new"), &object).await.ok();
    fixture.member("c").control().slow(None);
    assert_eq!(items(&fixture.get(&of("new")).await.ok()), ["c/z"]);
}

#[tokio::test]
async fn list_shows_a_write_into_a_namespace_without_a_view() {
    let fixture = Fixture::with(["a", "c"].map(config), Policies::default()).await;
    forbid(&fixture, "c", &["configmaps"]);
    // The router has the view of all namespaces, and no view of the single namespace. The member delays the watches of
    // both views.
    fixture.get(CONFIG_MAPS).await;
    for member in ["a", "c"] {
        let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "new"}});
        fixture.member(member).apply(namespace).unwrap();
    }
    fixture.member("a").control().lag_watches(Duration::from_secs(1));
    let mut object = config_map_in("a", "x", "1");
    object["metadata"]["namespace"] = "new".into();
    fixture.write("POST", &of("new"), &object).await.ok();
    fixture.get(&format!("{}/x", of("new").split('?').next().unwrap_or_default())).await.ok();
    assert_eq!(items(&fixture.get(&of("new")).await.ok()), ["a/x"]);
}

/// Starts members `a`, which allows reading all namespaces, and `b`, which forbids it. Each has an object. Also opens a
/// watch of the namespace.
async fn two(policies: Policies) -> (Fixture, Events) {
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    forbid(&fixture, "b", &[]);
    fixture.put("a", "x", "1");
    fixture.put("b", "y", "1");
    until(|| async { items(&fixture.get(&made()).await.ok()) == ["a/x", "b/y"] }).await;
    let list = fixture.get(&made()).await.ok();
    let clusters = vector(&version(&list));
    assert_eq!(clusters.as_object().unwrap().len(), 2, "{clusters}");
    let events = fixture.watch(&format!("{}&watch=1&resourceVersion={}", made(), version(&list))).await;
    (fixture, events)
}

#[tokio::test]
async fn namespace_is_one_collection_across_cluster_wide_and_namespaced_views() {
    let (fixture, mut events) = two(Policies::default()).await;
    fixture.resumes_after_each(&mut events).await;
    fixture.member("a").delete("configmaps", "default", "x");
    assert_eq!(events.brief().await, "DELETED a/x");
    fixture.put("b", "x", "of b");
    assert_eq!(events.brief().await, "ADDED b/x");
    // Both clusters have an object with this name. After one of them is deleted, the watch sends the other one.
    fixture.put("a", "x", "of a");
    assert_eq!(events.brief().await, "ADDED a/x");
    fixture.get(&format!("{CONFIG_MAPS}/x")).await.refused(409);
    fixture.member("b").delete("configmaps", "default", "x");
    assert_eq!([events.brief().await, events.brief().await], ["DELETED b/x", "ADDED a/x"]);
    // A watch of one namespace sends no events of other namespaces.
    let mut elsewhere = crate::harness::config_map("elsewhere", "");
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    fixture.member("a").apply(elsewhere).unwrap();
    events.nothing().await;
    let created = fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "own", "1")).await.ok();
    assert_eq!(fixture.get(&format!("{CONFIG_MAPS}/own")).await.ok()["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(events.brief().await, "ADDED a/own");
    assert_eq!(
        [watches(&fixture, "a"), fixture.member("a").control().requests_of(RequestKind::List, "configmaps")],
        [1, 0]
    );
}

#[tokio::test]
async fn version_of_all_namespaces_is_valid_in_each_namespace() {
    let (fixture, _) = two(allow()).await;
    let mut elsewhere = crate::harness::config_map("elsewhere", "");
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    let revision = fixture.member("a").apply(elsewhere).unwrap();
    let all = composite(&json!({ "a": revision.to_string() }));
    fixture.get(&format!("/api/v1/configmaps?resourceVersion={all}&resourceVersionMatch=NotOlderThan")).await.ok();
    // The version covers a write in a different namespace, so no event of this namespace has this revision.
    let reached = |list: &Value| vector(&version(list))["a"].as_str().unwrap().parse::<u64>().unwrap() >= revision;
    for query in ["&resourceVersionMatch=NotOlderThan", "&limit=5"] {
        let list = fixture.get(&format!("{}&resourceVersion={all}{query}", made())).await.ok();
        assert_eq!(items(&list), ["a/x", "b/y"], "{query}");
        assert!(reached(&list), "{query}: {list}");
    }
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={all}", made())).await;
    assert_eq!(events.brief().await, "ADDED b/y", "of b the version says nothing");
    fixture.member("a").delete("configmaps", "default", "x");
    assert_eq!(events.brief().await, "DELETED a/x");
}

#[tokio::test]
async fn relist_and_restore_of_all_namespaces_reach_each_namespaces_watch() {
    let (fixture, mut events) = two(Policies::default()).await;
    let control = fixture.member("a").control();
    let before = fixture.put("a", "w", "1");
    assert_eq!(events.brief().await, "ADDED a/w");
    control.stop_listening().await;
    fixture.put("a", "x", "2");
    fixture.member("a").delete("configmaps", "default", "w");
    control.compact();
    control.start_listening().await;
    assert_eq!([events.brief().await, events.brief().await], ["DELETED a/w", "MODIFIED a/x"]);
    events.nothing().await;
    let after = fixture.put("a", "undone", "1");
    let told = events.soon().await;
    assert_eq!(brief(&told), "ADDED a/undone");
    assert!(after > before);
    assert!(control.restore(after - 1));
    assert_eq!(events.brief().await, "DELETED a/undone");
    let from = version(&told["object"]);
    let mut resumed = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    assert_eq!(resumed.soon().await["type"], "ERROR", "what was undone is resumed from nowhere");
}

/// Each view of a namespace has its own cacher, which begins with the objects of the view of all namespaces. It must
/// also detect that a cluster was recreated.
#[tokio::test]
async fn recreated_cluster_is_a_new_cluster_in_each_namespace() {
    let (fixture, _) = two(allow()).await;
    let from = version(&fixture.get(&made()).await.ok());
    forbid(&fixture, "a", &[]);
    fixture.member("a").control().new_incarnation();
    // The request for an unknown group makes the router read discovery again, and with it the new uid.
    fixture.get("/apis/unknown.io/v1").await.no_route();
    fixture.put("a", "w", "1");
    until(|| async { items(&fixture.get(&made()).await.ok()) == ["a/w", "a/x", "b/y"] }).await;
    let may_follow = || async {
        let mut old = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
        // A watch that opens before the router has read the new uid sends no event, so the test repeats it.
        let event = timeout(crate::harness::QUIET, old.next()).await;
        event.is_ok_and(|event| event.is_some_and(|event| event["object"]["code"] == 410))
    };
    until(may_follow).await;
}

#[tokio::test]
async fn watch_continues_when_a_cluster_allows_all_namespaces_again() {
    let (fixture, mut events) = two(Policies::default()).await;
    fixture.member("b").control().reject(None);
    // In this time, the cacher of all namespaces tries again to read the cluster.
    pass(Duration::from_secs(60)).await;
    until(|| async { fixture.get("/api/v1/configmaps").await.warnings().is_empty() }).await;
    for number in 0..50 {
        fixture.put("b", "y", &format!("again {number}"));
        assert_eq!(events.brief().await, "MODIFIED b/y");
    }
    events.nothing().await;
    // The namespace's own cacher must end, so that only the watch of all namespaces stays open at `b`.
    until(|| async {
        pass(Duration::from_secs(10)).await;
        fixture.member("b").control().open_watches() == fixture.member("a").control().open_watches()
    })
    .await;
    fixture.put("b", "y", "at last");
    assert_eq!(events.brief().await, "MODIFIED b/y");
}

#[tokio::test]
async fn watches_of_missing_namespaces_do_not_block_other_namespaces() {
    let fixture = holding(["a", "b"], 2).await;
    forbid(&fixture, "b", &["configmaps"]);
    let watch = |namespace: &str| format!("{}?watch=1&allowWatchBookmarks=true", of(namespace));
    let [first, second] = [1, 2].map(|port| fixture.connection(port));
    let mut made_up = [first.watch(&watch("made-up-1")).await, second.watch(&watch("made-up-2")).await];
    for events in &mut made_up {
        let end = &events.soon().await["object"];
        assert_eq!(end["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }
    // The router refuses a watch of a third missing namespace. If it did not, the views of the three namespaces would
    // replace each other forever.
    fixture.get(&watch("made-up-3")).await.refused(429);
    for member in ["a", "b"] {
        fixture.put(member, "x", "1");
    }
    until(|| async { items(&fixture.get(&made()).await.ok()) == ["a/x", "b/x"] }).await;
    let _kept = fixture.connection(3).watch(&watch("default")).await;
    let [first, second] = made_up.map(|events| Box::pin(events.types()));
    let (told, other) = timeout(SOON, select(first, second)).await.expect("one makes room").factor_first();
    assert!(told.iter().all(|kind| kind == "BOOKMARK"), "{told:?}");
    // The view of the next namespace takes the capacity of the second missing namespace.
    fixture.connection(4).watch(&watch("kube-system")).await;
    timeout(SOON, other).await.expect("the other one makes room");
    for namespace in ["default", "kube-system"] {
        fixture.get(&of(namespace)).await.ok();
    }
}

#[tokio::test]
async fn cached_view_of_a_namespace_is_evicted_for_another_only_after_minutes() {
    let fixture = holding(["a", "b"], 2).await;
    // The cluster forbids lists of its namespaces, and of the objects in them.
    let kinds = vec![RequestKind::List, RequestKind::Watch];
    fixture.member("b").control().reject(Some(Rejection { kinds, ..Rejection::all(403) }));
    let watch = |namespace: &str| format!("{}?watch=1", of(namespace));
    let [first, second] = [1, 2].map(|port| fixture.connection(port));
    let (mut first, mut second) = (first.watch(&watch("one")).await, second.watch(&watch("two")).await);
    for path in [of("three"), watch("four")] {
        fixture.get(&path).await.refused(429);
    }
    first.nothing().await;
    second.nothing().await;
    // After this time, the router drops a view whose namespace stays forbidden, so that another namespace can use its
    // capacity.
    pass(NAMESPACE_UNUSED_AFTER).await;
    let _third = fixture.watch(&watch("three")).await;
    timeout(SOON, select(Box::pin(first.types()), Box::pin(second.types()))).await.expect("one makes room");
}

#[tokio::test]
async fn namespace_watches_over_http2_leave_streams_for_clients() {
    let member = Simulator::start(config("a")).await.unwrap();
    // The router has one connection of each kind to the member. The connection for clients' requests carries 64 HTTP/2
    // streams.
    let tuning = ClientTuning { max_connections: 1, ..ClientTuning::default() };
    let setup = setup_through(&member, "a", &[member.url().parse().unwrap()], tuning).await;
    let fixture = Fixture { members: vec![member], router: router(allow()) };
    let resources = ["configmaps", "serviceaccounts"];
    forbid(&fixture, "a", &resources);
    fixture.router.set_clusters(vec![setup]);
    fixture.router.asked_once(SOON).await;
    let mut watches = Vec::new();
    for number in 0..34 {
        let namespace = format!("n{number}");
        let object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}});
        fixture.member("a").apply(object).unwrap();
        for resource in resources {
            let path = format!("/api/v1/namespaces/{namespace}/{resource}?watch=1");
            watches.push(fixture.connection(1).watch(&path).await);
        }
    }
    let control = fixture.member("a").control();
    until(|| async { control.open_watches() >= watches.len() as u64 }).await;
    let path = format!("/clusters/a{CONFIG_MAPS}?watch=1");
    let _other = fixture.connection(2).watch(&path).await;
}

/// Starts a member with HTTP/1.1 that forbids reads of ConfigMaps in all namespaces, and opens watches of eight
/// namespaces. The router has eight connections for long-running requests.
async fn eight_namespaces_over_http1() -> (Fixture, Vec<Events>) {
    let member = Simulator::start(SimulatorConfig { http2: false, ..config("a") }).await.unwrap();
    let tuning = ClientTuning { max_http1_requests: 8, ..ClientTuning::default() };
    let setup = setup_through(&member, "a", &[member.url().parse().unwrap()], tuning).await;
    let fixture = Fixture { members: vec![member], router: router(allow()) };
    forbid(&fixture, "a", &["configmaps"]);
    fixture.router.set_clusters(vec![setup]);
    fixture.router.asked_once(SOON).await;
    let mut watches = Vec::new();
    for number in 0..8 {
        let namespace = format!("n{number}");
        let object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}});
        fixture.member("a").apply(object).unwrap();
        watches.push(fixture.watch(&format!("{}?watch=1", of(&namespace))).await);
    }
    (fixture, watches)
}

/// Opens a watch, and retries until a connection is free, because a closed connection is free only after a moment.
async fn opened(fixture: &Fixture, port: u16, path: &str) -> Events {
    let client = fixture.connection(port);
    let open = async {
        loop {
            let response = client.call("GET", path, &[], "").await;
            if response.status() == 200 {
                return Events::of(response);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, open).await.expect("room for a watch")
}

#[tokio::test]
async fn namespace_watches_over_http1_leave_connections_for_clients() {
    let (fixture, _watches) = eight_namespaces_over_http1().await;
    let control = fixture.member("a").control();
    let path = |name: &str| format!("/clusters/a{CONFIG_MAPS}{name}");
    for round in 0..3 {
        until(|| async { control.open_watches() >= 4 }).await;
        let name = format!("x{round}");
        fixture.put("a", &name, "1");
        // These two watches, of different clients, use a quarter of the eight connections.
        let watch = path("?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
        let lasting = [opened(&fixture, 1, &watch).await, opened(&fixture, 2, &watch).await];
        fixture.get(&path(&format!("/{name}"))).await.ok();
        fixture.put("a", &name, "2");
        for mut events in lasting {
            assert_eq!(crate::harness::name(&events.soon().await["object"]), name);
        }
        control.cut_streams();
    }
}

#[tokio::test]
async fn namespace_watches_over_http1_leave_connections_for_cluster_wide_watches() {
    let (fixture, _watches) = eight_namespaces_over_http1().await;
    let control = fixture.member("a").control();
    for round in 0..3 {
        let name = format!("s{round}");
        let metadata = json!({"name": name, "namespace": "default"});
        let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": {}});
        fixture.member("a").apply(service).unwrap();
        let seen = || async {
            let list = fixture.get("/api/v1/services?resourceVersion=0").await;
            list.warnings().is_empty() && items(&list.ok()).contains(&format!("a/{name}"))
        };
        until(seen).await;
        control.cut_streams();
    }
}

#[tokio::test]
async fn namespace_view_is_refused_while_all_views_are_used() {
    let fixture = holding(["a", "b"], 2).await;
    forbid(&fixture, "b", &[]);
    let watch = |namespace: &str| format!("{}?watch=1", of(namespace));
    let first = fixture.connection(1).watch(&watch("one")).await;
    let _second = fixture.connection(2).watch(&watch("two")).await;
    for path in [of("three"), watch("three"), format!("{}/x", of("three"))] {
        let refused = fixture.get(&path).await;
        let message = refused.refused(429);
        assert!(
            message.contains("configmaps are cached separately for 2 namespaces")
                && message.contains("--max-namespace-views"),
            "{message}"
        );
        assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    }
    fixture.get(&of("two")).await.ok();
    drop(first);
    until(|| async { fixture.get(&of("three")).await.code == 200 }).await;
}

/// Only clusters that forbid reads of all namespaces decide whether the router must wait for a namespace to exist. A
/// silent cluster that allows such reads must delay nothing.
#[tokio::test]
async fn silent_cluster_that_allows_cluster_wide_lists_delays_no_namespaced_list() {
    let fixture = Fixture::with(["a", "b"].map(config), allow()).await;
    forbid(&fixture, "b", &["configmaps"]);
    fixture.put("a", "x", "1");
    fixture.put("b", "y", "1");
    until(|| async { items(&fixture.get(&format!("/api/v1/configmaps?{FILTER}")).await.ok()) == ["a/x"] }).await;
    // A new connection waits with a timer, so this request opens the connections for lookups of namespaces before
    // `at_once`.
    fixture.get(&of("kube-system")).await.ok();
    fixture.member("a").control().hold_lists(true);
    let list = at_once(async { fixture.get(&made()).await.ok() }).await;
    assert_eq!(items(&list), ["a/x", "b/y"]);
}

#[tokio::test]
async fn namespace_views_of_one_client_do_not_exhaust_the_limit() {
    let fixture = holding(["a", "b"], 8).await;
    forbid(&fixture, "b", &["configmaps"]);
    for member in ["a", "b"] {
        for number in 1..=9 {
            let metadata = json!({"name": format!("n{number}")});
            let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": metadata});
            fixture.member(member).apply(namespace).unwrap();
        }
    }
    let path = |number: usize| of(&format!("n{number}"));
    let greedy = fixture.connection(1);
    let (mut watches, mut refusals) = (Vec::new(), Vec::new());
    for number in 1..=8 {
        let answer = greedy.call("GET", &format!("{}?watch=1", path(number)), &[], "").await;
        if answer.status() == 200 { watches.push(answer) } else { refusals.push(number) }
    }
    // The second and the third client still get responses, and so does the first client for one of its namespaces.
    let [second, third] = [2, 3].map(|port| fixture.connection(port));
    second.send("GET", &path(9), &[], "").await.ok();
    let _kept = second.watch(&format!("{}?watch=1", path(9))).await;
    third.send("GET", &path(8), &[], "").await.ok();
    greedy.send("GET", &path(1), &[], "").await.ok();
    assert_eq!((watches.len(), refusals), (3, vec![4, 5, 6, 7, 8]), "half of three quarters of eight");
    let message = greedy.send("GET", &path(7), &[], "").await.refused(429);
    assert!(
        message.contains("3 of these namespaces are for this connection") && message.contains("--max-namespace-views"),
        "{message}"
    );
    // After some watches have ended, every client may use their capacity, also the first.
    watches.truncate(1);
    until(|| async { greedy.send("GET", &path(7), &[], "").await.code == 200 }).await;
}

#[tokio::test]
async fn namespaces_above_the_view_limit_are_served_for_a_minute() {
    let fixture = holding(["a", "b"], 2).await;
    let namespaces = ["default", "kube-system", "kube-public"];
    let watch = |namespace: &str| format!("{}?watch=1&allowWatchBookmarks=true", of(namespace));
    for namespace in namespaces {
        let mut object = config_map_in("b", "held", "1");
        object["metadata"]["namespace"] = namespace.into();
        fixture.member("b").apply(object).unwrap();
        until(|| async { items(&fixture.get(&of(namespace)).await.ok()).contains(&"b/held".to_owned()) }).await;
    }
    let mut watches = Vec::new();
    for namespace in namespaces {
        watches.push(fixture.watch(&watch(namespace)).await);
    }
    forbid(&fixture, "b", &["configmaps"]);
    fixture.member("b").control().cut_streams();
    for events in watches {
        timeout(SOON, events.types()).await.expect("each ends where the namespace gets a view of its own");
    }
    let mut again = Vec::new();
    for namespace in namespaces {
        again.push(fixture.watch(&watch(namespace)).await);
    }
    let list = fixture.get(&of("kube-public")).await;
    assert!(items(&list.ok()).contains(&"b/held".to_owned()), "{list:?}");
    assert!(list.warnings().iter().any(|text| text.contains("cluster b: configmaps may be stale")), "{list:?}");
    fixture.get(&format!("{}/held", of("kube-public"))).await.ok();
    // The watch is still open, and delivers events of `a`.
    let mut last = again.pop().expect("three");
    let mut object = crate::harness::config_map("news", "1");
    object["metadata"]["namespace"] = "kube-public".into();
    fixture.member("a").apply(object).unwrap();
    let is_news = |event: &Value| brief(event) == "ADDED a/news";
    while !is_news(&last.soon().await) {}
    // After a minute, the router drops the old objects of `b`. It has no capacity for a view of this namespace, so it
    // refuses the requests.
    pass(Duration::from_secs(60 + 10 + 10 + 1)).await;
    timeout(SOON, last.types()).await.expect("it ends with what was held");
    for path in [of("kube-public"), watch("kube-public")] {
        fixture.get(&path).await.refused(429);
    }
}

/// Starts members `a` and `b` behind a router that caches one namespace in addition to the view of all namespaces. The
/// router has read one object of each member before `b` forbids reading all namespaces.
async fn one_namespace_at_a_time() -> Fixture {
    let fixture = holding(["a", "b"], 1).await;
    let mut object = crate::harness::config_map("there", "1");
    object["metadata"]["namespace"] = "kube-public".into();
    fixture.member("a").apply(object).unwrap();
    fixture.put("a", "y", "1");
    fixture.put("b", "x", "1");
    until(|| async { items(&fixture.get(&made()).await.ok()) == ["a/y", "b/x"] }).await;
    let events = fixture.watch(&format!("{}?watch=1", of("kube-public"))).await;
    forbid(&fixture, "b", &["configmaps"]);
    fixture.member("b").control().cut_streams();
    timeout(SOON, events.types()).await.expect("it ends where the namespace gets a view of its own");
    fixture
}

#[tokio::test]
async fn read_without_a_namespace_view_does_not_show_deleted_objects_again() {
    let fixture = one_namespace_at_a_time().await;
    fixture.member("b").delete("configmaps", "default", "x");
    until(|| async { items(&fixture.get(&made()).await.ok()) == ["a/y"] }).await;
    let from = version(&fixture.get(&made()).await.ok());
    // Between the list and the watch, a client reads another namespace, which takes the only capacity.
    let other = fixture.watch(&format!("{}?watch=1", of("kube-public"))).await;
    let refused = fixture.get(&made()).await;
    assert!(refused.refused(429).contains("--max-namespace-views"), "{refused:?}");
    fixture.get(&format!("{CONFIG_MAPS}/x")).await.refused(429);
    let watch = format!("{}&watch=1&resourceVersion={from}", made());
    assert_eq!(fixture.client().call("GET", &watch, &[], "").await.status(), 429);
    drop(other);
    let mut events = opened(&fixture, 1, &watch).await;
    fixture.member("a").delete("configmaps", "default", "y");
    assert_eq!(events.brief().await, "DELETED a/y");
}

/// The client's version is from another process with a later state of `b`. Because `b` forbids reading, this router
/// cannot reach that version.
#[tokio::test]
async fn unreachable_version_of_a_forbidding_cluster_is_refused_immediately() {
    let fixture = one_namespace_at_a_time().await;
    let mut wanted = vector(&version(&fixture.get("/api/v1/configmaps").await.ok()));
    wanted["b"] = fixture.put("b", "x", "2").to_string().into();
    let watch = format!("/api/v1/configmaps?watch=1&resourceVersion={}", composite(&wanted));
    assert_eq!(fixture.client().call("GET", &watch, &[], "").await.status(), 429);
}

/// A relist of all namespaces may be older than the write that a client waits for. The wait must continue after it.
#[tokio::test]
async fn awaited_version_survives_a_relist_of_all_namespaces() {
    let fixture = Fixture::with(["a", "b"].map(config), allow()).await;
    forbid(&fixture, "b", &["configmaps"]);
    let last = fixture.put("b", "x", "1");
    until(|| async { items(&fixture.get(&made()).await.ok()) == ["b/x"] }).await;
    let _kept = fixture.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let control = fixture.member("b").control();
    control.hold_lists(true);
    control.reject(None);
    control.reset_counters();
    until(|| async {
        pass(Duration::from_secs(5)).await;
        control.request_log().iter().any(|line| line.contains("/api/v1/configmaps?"))
    })
    .await;
    let next = composite(&json!({"b": (last + 1).to_string()}));
    let path = format!("{CONFIG_MAPS}/x?resourceVersion={next}");
    let take_over = async {
        control.hold_lists(false);
        while !fixture.get("/api/v1/configmaps").await.warnings().is_empty() {
            quiet_without_time().await;
        }
        quiet_without_time().await;
        fixture.put("b", "x", "2")
    };
    let (answer, revision) = at_once(async { tokio::join!(fixture.get(&path), take_over) }).await;
    assert_eq!((&answer.ok()["data"]["v"], revision), (&json!("2"), last + 1));
}
