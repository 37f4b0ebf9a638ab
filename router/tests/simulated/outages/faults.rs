//! Tests of members with faults: unreachable, restarted, restored, forbidding, and with malformed responses.

use std::time::Duration;

use serde_json::json;
use tributary_router::{Policies, ResourcePolicy};
use tributary_simulator::{Rejection, RequestKind};

use crate::harness::{
    CONFIG_MAPS, Fixture, SOON, allow, at_once, brief, config, config_map_in, items, pass, quiet_without_time, until,
    vector, version,
};

/// Maximum wait of a request for a cluster in an unknown state, with a policy that denies partial responses.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);

const FILTER: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

fn made() -> String {
    format!("{CONFIG_MAPS}?{FILTER}")
}

#[tokio::test]
async fn list_without_an_unreachable_cluster_has_a_warning() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "");
    fixture.member("b").control().stop_listening().await;
    let other = fixture.restarted(allow()).await;
    let started = tokio::time::Instant::now();
    let answer = other.get(&made()).await;
    assert!(started.elapsed() < KNOWN_WITHIN / 2, "it does not wait for who is out of reach");
    assert_eq!(items(&answer.ok()), ["a/x"]);
    let warnings = answer.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].starts_with("299 - \"cluster b: configmaps are missing"),
        "{warnings:?}"
    );
    // The unreachable cluster may have the object, so a 404 would be wrong.
    assert!(other.get(&format!("{CONFIG_MAPS}/y")).await.refused(503).contains('b'));
    assert_eq!(other.get(&format!("{CONFIG_MAPS}/x")).await.ok()["metadata"]["name"], "x");
    let text = String::from_utf8(other.get("/readyz?verbose").await.body.to_vec()).unwrap();
    assert!(text.contains("[+]cluster/a ok\n[-]cluster/b failed: "), "{text}");
    // An open watch receives the objects of the cluster when the cluster becomes reachable.
    let mut events = other.watch(&format!("{CONFIG_MAPS}?watch=1&{FILTER}")).await;
    assert_eq!(events.brief().await, "ADDED a/x");
    fixture.put("b", "z", "");
    fixture.member("b").control().start_listening().await;
    other.client().send("GET", "/apis/unknown.io/v1", &[], "").await.no_route();
    assert_eq!(events.brief().await, "ADDED b/z");
    assert!(other.get(&made()).await.warnings().is_empty());
}

#[tokio::test]
async fn partial_deny_refuses_a_list_while_a_cluster_is_unreachable() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.member("b").control().stop_listening().await;
    let other = fixture.restarted(Policies::default()).await;
    // The first request starts the cachers in real time. Then the clock is paused and leaps over half a minute.
    let client = other.client();
    let asked = tokio::spawn(async move { client.send("GET", CONFIG_MAPS, &[], "").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!asked.is_finished(), "it waits for the cluster");
    tokio::time::pause();
    let answer = asked.await.unwrap();
    tokio::time::resume();
    let message = answer.refused(429);
    assert!(message.contains("configmaps of these clusters have not been read yet: b"), "{message}");
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
}

#[tokio::test]
async fn refusal_for_an_unreachable_cluster_has_no_retry_after() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "");
    fixture.member("b").control().stop_listening().await;
    let other = fixture.restarted(allow()).await;
    let absent = format!("{CONFIG_MAPS}/y");
    for method in ["GET", "DELETE", "PATCH"] {
        let headers = [("content-type", "application/merge-patch+json")];
        let answer = other.client().send(method, &absent, &headers, if method == "PATCH" { "{}" } else { "" }).await;
        assert!(answer.refused(503).contains("these clusters cannot be queried now: b"), "{method}");
        assert!(!answer.headers.contains_key("retry-after"), "{method}: client-go would come again ten times");
    }
    let own = other.get(&format!("/clusters/b{CONFIG_MAPS}")).await;
    assert!(own.refused(503).contains("refused") && !own.headers.contains_key("retry-after"), "{own:?}");
}

#[tokio::test]
async fn version_of_a_never_reached_cluster_gets_a_429() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("b", "y", "");
    let from = version(&fixture.get(CONFIG_MAPS).await.ok());
    fixture.member("b").control().stop_listening().await;
    let other = fixture.restarted(allow()).await;
    for query in ["", "watch=1&", "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&"] {
        let answer = other.get(&format!("{CONFIG_MAPS}?{query}resourceVersion={from}")).await;
        assert!(answer.refused(429).contains('b'), "no informer may drop its objects: {query}");
        assert!(answer.headers.contains_key("retry-after"));
    }
}

#[tokio::test]
async fn relist_after_an_expired_watch_sends_only_differences() {
    let fixture = Fixture::start(["a", "b"]).await;
    for name in ["x", "y", "z"] {
        fixture.put("a", name, "1");
    }
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&list))).await;
    let control = fixture.member("a").control();
    control.stop_listening().await;
    fixture.put("a", "x", "2");
    fixture.member("a").delete("configmaps", "default", "y");
    fixture.put("a", "new", "1");
    control.compact();
    control.start_listening().await;
    let told = [events.brief().await, events.brief().await, events.brief().await];
    assert_eq!(told[0], "DELETED a/y", "deletions first");
    assert!(told.contains(&"MODIFIED a/x".to_owned()) && told.contains(&"ADDED a/new".to_owned()), "{told:?}");
    control.expire_watches();
    events.nothing().await;
    fixture.put("b", "q", "");
    assert_eq!(events.brief().await, "ADDED b/q");
}

#[tokio::test]
async fn watch_receives_differences_after_a_member_restarts() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "1");
    fixture.put("a", "y", "1");
    let list = fixture.get(&made()).await.ok();
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={}", made(), version(&list))).await;
    let control = fixture.member("a").control();
    control.stop_listening().await;
    fixture.put("b", "meanwhile", "");
    assert_eq!(events.brief().await, "ADDED b/meanwhile", "the others go on");
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["a/x", "a/y", "b/meanwhile"], "and it is served");
    fixture.member("a").delete("configmaps", "default", "x");
    fixture.put("a", "y", "2");
    control.start_listening().await;
    let mut told = [events.brief().await, events.brief().await];
    told.sort();
    assert_eq!(told, ["DELETED a/x", "MODIFIED a/y"]);
    control.cut_streams();
    events.nothing().await;
    fixture.put("a", "y", "3");
    assert_eq!(events.brief().await, "MODIFIED a/y");
}

#[tokio::test]
async fn stale_objects_are_served_with_a_warning() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("b", "y", "");
    fixture.get(CONFIG_MAPS).await.ok();
    fixture.member("b").control().stop_listening().await;
    until(|| async {
        // The paused clock leaps over the time for which the router waits, so the test is fast.
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(2)).await;
        tokio::time::resume();
        let answer = fixture.get(&made()).await;
        assert_eq!(items(&answer.ok()), ["b/y"]);
        answer.warnings().iter().any(|warning| {
            warning.starts_with("299 - \"cluster b: configmaps may be stale, last updated ")
                && warning.contains(" s ago")
        })
    })
    .await;
    let one = fixture.get(&format!("{CONFIG_MAPS}/y")).await;
    assert_eq!((one.code, one.warnings().len()), (200, 1));
    let watch = fixture.client().call("GET", &format!("{CONFIG_MAPS}?watch=1"), &[], "").await;
    assert!(watch.headers().contains_key("warning"));
}

#[tokio::test]
async fn restored_member_removes_undone_objects_from_watches() {
    let fixture = Fixture::start(["a", "b"]).await;
    let before = fixture.put("a", "kept", "1");
    fixture.put("a", "undone", "1");
    fixture.put("a", "kept", "2");
    let list = fixture.get(&made()).await.ok();
    let from = version(&list);
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    assert!(fixture.member("a").control().restore(before));
    let mut told = [events.brief().await, events.brief().await];
    told.sort();
    assert_eq!(told, ["DELETED a/undone", "MODIFIED a/kept"]);
    let list = fixture.get(&made()).await.ok();
    assert_eq!((items(&list), &list["items"][0]["data"]["v"]), (vec!["a/kept".to_owned()], &json!("1")));
    // From an undone version, a client can neither resume nor list. It gets 410 and must list again.
    let mut old = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(old.soon().await["object"]["code"], 410);
    for query in ["", "&resourceVersionMatch=Exact", "&resourceVersionMatch=NotOlderThan"] {
        fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={from}{query}")).await.refused(410);
    }
    fixture.put("a", "after", "");
    assert_eq!(events.brief().await, "ADDED a/after");
    events.nothing().await;
}

#[tokio::test]
async fn recreated_cluster_at_the_same_address_is_detected() {
    let fixture = Fixture::start(["a"]).await;
    fixture.put("a", "x", "");
    let from = version(&fixture.get(CONFIG_MAPS).await.ok());
    fixture.member("a").control().new_incarnation();
    // The request for an unknown group makes the router read discovery again, and with it the new uid.
    fixture.get("/apis/unknown.io/v1").await.no_route();
    until(|| async {
        let mut old = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
        // A watch that opens before the router has read the new uid sends no event, so the test repeats it.
        let event = tokio::time::timeout(crate::harness::QUIET, old.next()).await;
        event.is_ok_and(|event| event.is_some_and(|event| event["object"]["code"] == 410))
    })
    .await;
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["a/x"]);
}

#[tokio::test]
async fn malformed_events_from_a_member_are_skipped() {
    let fixture = Fixture::start(["a"]).await;
    fixture.put("a", "x", "1");
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&list))).await;
    for frame in [
        r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1"}}}"#,
        r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n","resourceVersion":"x"}}}"#,
        r#"{"type":"MODIFIED","object":{"kind":"ConfigMap","metadata":{"name":"x","#,
        "nonsense",
    ] {
        assert!(fixture.member("a").control().inject("configmaps", frame));
        fixture.put("a", "x", frame);
        let event = events.soon().await;
        assert_eq!((brief(&event).as_str(), event["object"]["data"]["v"].as_str()), ("MODIFIED a/x", Some(frame)));
    }
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["a/x"]);
}

#[tokio::test]
async fn single_namespace_is_readable_if_cluster_wide_lists_are_forbidden() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "");
    fixture.put("b", "y", "");
    fixture.member("b").control().reject(Some(Rejection {
        kinds: vec![RequestKind::List, RequestKind::Watch],
        cluster_wide_only: true,
        ..Rejection::all(403)
    }));
    let answer = fixture.get(&made()).await;
    assert_eq!((items(&answer.ok()), answer.warnings()), (vec!["a/x".to_owned(), "b/y".to_owned()], vec![]));
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={}", made(), version(&answer.ok()))).await;
    fixture.put("b", "y", "2");
    assert_eq!(events.brief().await, "MODIFIED b/y");
    let all = fixture.get(&format!("/api/v1/configmaps?{FILTER}")).await;
    let warnings = all.warnings();
    assert!(items(&all.ok()).contains(&"a/x".to_owned()) && !items(&all.ok()).contains(&"b/y".to_owned()));
    assert!(
        warnings.len() == 1 && warnings[0].contains("cluster b") && warnings[0].contains("forbidden"),
        "{warnings:?}"
    );
    let health = fixture.get("/readyz/cluster/b").await;
    let told = String::from_utf8_lossy(&health.body).into_owned();
    assert!(health.code == 500 && told.contains("configmaps: forbidden"), "a cluster that answers and refuses: {told}");
    assert_eq!(fixture.get("/readyz").await.code, 200, "what it shows is served");
    let made = fixture.write("POST", CONFIG_MAPS, &crate::harness::config_map_in("b", "z", "")).await;
    assert_eq!(made.code, 201);
    assert_eq!(fixture.get(&format!("{CONFIG_MAPS}/z")).await.ok()["metadata"]["name"], "z", "own writes are seen");
}

#[tokio::test]
async fn warning_contains_the_members_error() {
    for (code, reason) in [(401, "unauthorized"), (500, "500"), (429, "too many requests")] {
        let fixture = Fixture::start(["a", "b"]).await;
        fixture.put("a", "x", "");
        fixture
            .member("b")
            .control()
            .reject(Some(Rejection { kinds: vec![RequestKind::List, RequestKind::Watch], ..Rejection::all(code) }));
        let answer = fixture.get(&made()).await;
        assert_eq!(items(&answer.ok()), ["a/x"], "{code}");
        let warnings = answer.warnings();
        assert!(warnings.len() == 1 && warnings[0].to_lowercase().contains(reason), "{warnings:?}");
        fixture.member("b").control().reject(None);
    }
}

#[tokio::test]
async fn write_to_an_unreachable_member_names_the_member() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("b", "y", "");
    fixture.get(CONFIG_MAPS).await.ok();
    fixture.member("b").control().stop_listening().await;
    let patch = json!({"data": {"v": "2"}});
    for path in [format!("{CONFIG_MAPS}/y"), format!("/clusters/b{CONFIG_MAPS}/y")] {
        let answer = fixture.patch(&path, "merge-patch+json", &patch).await;
        let status = answer.json();
        assert!((500..=504).contains(&answer.code), "{status}");
        assert!(status["message"].as_str().unwrap().contains('b'), "{status}");
    }
}

#[tokio::test]
async fn refusal_of_a_create_in_an_unknown_cluster_lists_the_clusters() {
    let policies = Policies {
        default: ResourcePolicy { placement: Some("gone".parse().unwrap()), ..ResourcePolicy::default() },
        ..Policies::default()
    };
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    let message = fixture.write("POST", CONFIG_MAPS, &crate::harness::config_map("x", "")).await.refused(400);
    assert!(message.contains("\"gone\"") && message.contains("a, b"), "{message}");
    assert_eq!(vector(&version(&fixture.get(CONFIG_MAPS).await.ok())).as_object().unwrap().len(), 2);
}

#[tokio::test]
async fn read_names_a_cluster_that_becomes_stale_while_waiting() {
    let fixture = Fixture::start(["a"]).await;
    fixture.put_and_see("a", "x", "1").await;
    fixture.connect_clients("a").await;
    let control = fixture.member("a").control();
    let kinds = vec![RequestKind::List, RequestKind::Watch];
    control.reject(Some(Rejection { kinds, ..Rejection::all(500) }));
    control.cut_streams();
    tokio::time::sleep(crate::harness::QUIET).await;
    // A lost connection causes a Warning only after five seconds. So after 3 s, a list must wait for the write.
    pass(Duration::from_secs(3)).await;
    // The clock must stand still until the list waits for the write.
    let mut asked = tokio::task::JoinSet::new();
    at_once(async {
        let written = fixture.write("POST", CONFIG_MAPS, &crate::harness::config_map("y", "")).await;
        assert_eq!(written.code, 201, "{written:?}");
        let client = fixture.client();
        asked.spawn(async move { client.send("GET", CONFIG_MAPS, &[], "").await });
        quiet_without_time().await;
        assert!(asked.try_join_next().is_none(), "it waits for what was written");
    })
    .await;
    tokio::time::pause();
    let answer = asked.join_next().await.unwrap().unwrap();
    tokio::time::resume();
    assert!(!items(&answer.ok()).contains(&"a/y".to_owned()), "it has not come");
    let warnings = answer.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("cluster a: configmaps may be stale"), "{warnings:?}");
}

#[tokio::test]
async fn watch_from_a_future_revision_gets_410_if_the_member_never_reaches_it() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "1");
    fixture.put("b", "y", "1");
    let list = fixture.get(&made()).await.ok();
    let control = fixture.member("a").control();
    // The version is from another replica, which has received a later revision of `a`. The member forbids lists, so
    // this router cannot ask it whether it has reached the revision.
    let seen = vector(&version(&list));
    let from = crate::harness::composite(&json!({"a": (control.revision() + 5).to_string(), "b": seen["b"]}));
    control.reject(Some(Rejection { kinds: vec![RequestKind::List], ..Rejection::all(500) }));
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    fixture.put("b", "z", "1");
    assert_eq!(events.brief().await, "ADDED b/z", "it may still come");
    control.reject(None);
    tokio::time::pause();
    let event = tokio::time::timeout(SOON * 6, events.next()).await.expect("an answer").expect("not the end");
    tokio::time::resume();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{event}");
    assert!(events.next().await.is_none());
}

/// The request times out before the router detects that the cluster is silent. The response must name the cluster.
#[tokio::test]
async fn timed_out_request_names_the_silent_cluster() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("b", "x", "1").await;
    fixture.connect_clients("b").await;
    fixture.member("b").control().half_open(true);
    // The paused clock leaps while all tasks wait, so the timeout takes no real time.
    tokio::time::pause();
    let path = format!("{CONFIG_MAPS}/x?timeout=2s");
    let message = fixture.write("PUT", &path, &config_map_in("b", "x", "2")).await.refused(504);
    assert!(message.ends_with("(the request's parameter timeout: 2s; no answer yet from b)"), "{message}");
}
