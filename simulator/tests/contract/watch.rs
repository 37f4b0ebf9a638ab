//! Tests of watches.

use std::time::Duration;

use serde_json::json;
use tributary_simulator::{Churn, RequestKind, SimulatorConfig};

use crate::client::{End, Fixture, names, version};

fn pod(name: &str) -> serde_json::Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": "n1"}})
}

#[tokio::test]
async fn watch_after_a_list_receives_each_change_once() {
    let fixture = Fixture::small().await;
    let list = version(&fixture.get("/api/v1/pods").await.json());
    let mut events = fixture.watch(&format!("/api/v1/pods?watch=1&resourceVersion={list}")).await;
    assert!(events.quiet().await);
    let added = fixture.member.apply(pod("a")).unwrap();
    let modified = fixture.member.apply(pod("a")).unwrap();
    fixture.member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "other"}})).unwrap();
    let deleted = fixture.member.delete("pods", "default", "a").unwrap();
    for (event_type, revision) in [("ADDED", added), ("MODIFIED", modified), ("DELETED", deleted)] {
        let object = events.expect(event_type).await;
        assert_eq!((version(&object), &object["kind"]), (revision.to_string(), &json!("Pod")));
    }
    assert!(events.quiet().await);
    // A watch that starts at the version of an event receives only later events.
    let mut events = fixture.watch(&format!("/api/v1/pods?watch=true&resourceVersion={modified}")).await;
    assert_eq!(version(&events.expect("DELETED").await), deleted.to_string());
}

#[tokio::test]
async fn initial_events_end_with_a_single_bookmark() {
    let fixture = Fixture::small().await;
    let watch_list = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    // An old client sends `resourceVersion=0` without `sendInitialEvents`. This watch also begins with initial events.
    for query in [
        format!("resourceVersion=0&{watch_list}"),
        watch_list.to_owned(),
        "resourceVersion=0&allowWatchBookmarks=1".to_owned(),
    ] {
        let mut events = fixture.watch(&format!("/api/v1/pods?watch=1&{query}")).await;
        let (added, bookmark) = events.initial().await;
        assert_eq!(names(&added.into()), names(&fixture.member.list("pods").into()), "{query}");
        assert_eq!(version(&bookmark), fixture.member.control().revision().to_string());
        assert!(events.quiet().await);
    }
    let mut empty = fixture.watch(&format!("/api/v1/namespaces/none/pods?watch=1&{watch_list}")).await;
    assert!(empty.initial().await.0.is_empty());
    let mut none = fixture
        .watch("/api/v1/pods?watch=1&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
        .await;
    assert!(none.quiet().await);
}

#[tokio::test]
async fn contradictory_watch_options_return_422() {
    let fixture = Fixture::small().await;
    for query in [
        "sendInitialEvents=true",
        "resourceVersion=5&resourceVersionMatch=NotOlderThan",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
    ] {
        let answer = fixture.get(&format!("/api/v1/pods?watch=1&{query}")).await;
        assert_eq!((answer.code, answer.json()["reason"].clone()), (422, json!("Invalid")), "{query}");
    }
    let old = Fixture::start(SimulatorConfig { watch_list: false, ..SimulatorConfig::default() }).await;
    let answer = old.get("/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan").await;
    assert_eq!(answer.code, 422);
}

#[tokio::test]
async fn watch_from_expired_version_gets_an_error_event() {
    let fixture = Fixture::small().await;
    let list = version(&fixture.get("/api/v1/pods").await.json());
    fixture.member.apply(pod("a")).unwrap();
    fixture.member.control().compact();
    let mut events = fixture.watch(&format!("/api/v1/pods?watch=1&resourceVersion={list}")).await;
    let status = events.expect("ERROR").await;
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")));
    assert!(status["message"].as_str().unwrap().starts_with("too old resource version: "));
    assert_eq!(events.next().await, Err(End::Eof));
}

#[tokio::test]
async fn watch_from_before_the_watch_window_returns_410() {
    let fixture = Fixture::start(SimulatorConfig { watch_window: 5, ..SimulatorConfig::default() }).await;
    let first = fixture.member.apply(pod("a")).unwrap();
    for _ in 0..6 {
        fixture.member.apply(pod("a")).unwrap();
    }
    let mut old = fixture.watch(&format!("/api/v1/pods?watch=1&resourceVersion={first}")).await;
    old.expect("ERROR").await;
    let mut young = fixture.watch(&format!("/api/v1/pods?watch=1&resourceVersion={}", first + 1)).await;
    for _ in 0..5 {
        young.expect("MODIFIED").await;
    }
    assert!(young.quiet().await);
}

#[tokio::test]
async fn bookmarks_arrive_periodically_and_before_the_end() {
    let fixture =
        Fixture::start(SimulatorConfig { bookmark_interval: Duration::from_millis(200), ..SimulatorConfig::default() })
            .await;
    let from = fixture.member.control().revision();
    let mut events = fixture
        .watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=3"))
        .await;
    // A write of a different resource advances the revision of the member.
    let other =
        fixture.member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "other"}})).unwrap();
    assert_eq!(version(&events.expect("BOOKMARK").await), other.to_string());
    assert_eq!(
        events.next().await,
        Err(End::Eof),
        "without a change there is no bookmark, and the stream ends with EOF"
    );

    let slow =
        Fixture::start(SimulatorConfig { bookmark_interval: Duration::from_secs(60), ..SimulatorConfig::default() })
            .await;
    let from = slow.member.control().revision();
    let mut events = slow
        .watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=3"))
        .await;
    let other =
        slow.member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "other"}})).unwrap();
    assert_eq!(version(&events.expect("BOOKMARK").await), other.to_string(), "two seconds before the end");
    assert_eq!(events.next().await, Err(End::Eof));
    let mut without = slow.watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}&timeoutSeconds=1")).await;
    assert_eq!(without.next().await, Err(End::Eof));
}

#[tokio::test]
async fn version_of_the_last_replayed_event_gets_no_bookmark() {
    let fixture =
        Fixture::start(SimulatorConfig { bookmark_interval: Duration::from_millis(200), ..SimulatorConfig::default() })
            .await;
    let watch =
        |from: u64| format!("/api/v1/pods?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=3");
    let from = fixture.member.apply(pod("a")).unwrap();
    let mut live = fixture.watch(&watch(from)).await;
    let from = fixture.member.apply(pod("b")).unwrap();
    live.expect("ADDED").await;
    let deleted = fixture.member.delete("pods", "default", "a").unwrap();
    let mut replayed = fixture.watch(&watch(from)).await;
    assert_eq!(version(&replayed.expect("DELETED").await), deleted.to_string());
    assert_eq!(replayed.next().await, Err(End::Eof));
    let mut bookmarks = Vec::new();
    while let Ok(event) = live.next().await {
        if event["type"] == "BOOKMARK" {
            bookmarks.push(version(&event["object"]));
        }
    }
    assert_eq!(bookmarks.last(), Some(&deleted.to_string()));
}

#[tokio::test]
async fn selector_watch_turns_changes_into_added_and_deleted() {
    let fixture = Fixture::small().await;
    let from = fixture.member.apply(pod("a")).unwrap();
    let mut events = fixture
        .watch(&format!(
            "/api/v1/pods?watch=1&resourceVersion={from}&labelSelector=role%3Dweb&fieldSelector=spec.nodeName%3Dn1"
        ))
        .await;
    let mut web = pod("a");
    web["metadata"]["labels"] = json!({"role": "web"});
    fixture.member.apply(web.clone()).unwrap();
    events.expect("ADDED").await;
    fixture.member.apply(web).unwrap();
    events.expect("MODIFIED").await;
    let left = fixture.member.apply(pod("a")).unwrap();
    let deleted = events.expect("DELETED").await;
    assert_eq!(version(&deleted), left.to_string(), "the event's version");
    assert_eq!(deleted["metadata"]["labels"]["role"], "web", "the previous state");
    fixture.member.delete("pods", "default", "a").unwrap();
    assert!(events.quiet().await);
}

#[tokio::test]
async fn watch_from_future_version_waits_without_events() {
    let fixture = Fixture::small().await;
    let now = fixture.member.control().revision();
    let mut events = fixture.watch(&format!("/api/v1/pods?watch=1&resourceVersion={}", now + 1)).await;
    fixture.member.apply(pod("a")).unwrap();
    assert!(events.quiet().await);
    let second = fixture.member.apply(pod("a")).unwrap();
    assert_eq!(version(&events.expect("MODIFIED").await), second.to_string());
}

#[tokio::test]
async fn watch_of_one_object_sends_table_columns_only_once() {
    let fixture = Fixture::small().await;
    let from = fixture.member.control().revision();
    let path = format!("/api/v1/watch/namespaces/default/pods/a?resourceVersion={from}");
    let mut request = fixture.request("GET", &path, "application/json", "");
    request.headers_mut().insert("accept", "application/json;as=Table;v=v1;g=meta.k8s.io".parse().unwrap());
    let mut events = fixture.watch(&path).await;
    let table = fixture.send(request).await.unwrap();
    fixture.member.apply(pod("b")).unwrap();
    fixture.member.apply(pod("a")).unwrap();
    fixture.member.apply(pod("a")).unwrap();
    assert_eq!(events.expect("ADDED").await["metadata"]["name"], "a");
    drop(events);
    let mut body = table.into_body();
    let mut text = String::new();
    while text.matches('\n').count() < 2 {
        let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        text += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
    }
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows[0]["object"]["columnDefinitions"].is_array() && rows[1]["object"]["columnDefinitions"].is_null());
    assert_eq!(rows[1]["object"]["rows"][0]["cells"][0], "a");
}

#[tokio::test]
async fn list_and_watch_yield_the_state_after_continuous_changes() {
    let churn = Some(Churn { changes_per_second: 400.0 });
    let fixture = Fixture::start(SimulatorConfig { churn, ..SimulatorConfig::default() }).await;
    let list = fixture.get("/api/v1/pods").await.json();
    let mut state: std::collections::BTreeMap<String, String> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (names(&json!([item]))[0].clone(), version(item)))
        .collect();
    let mut events = fixture.watch(&format!("/api/v1/pods?watch=1&resourceVersion={}", version(&list))).await;
    let mut last = 0;
    for _ in 0..300 {
        let event = events.next().await.unwrap();
        let key = names(&json!([event["object"]]))[0].clone();
        let revision: u64 = version(&event["object"]).parse().unwrap();
        assert!(revision > last, "versions grow");
        last = revision;
        let before = match event["type"].as_str().unwrap() {
            "DELETED" => state.remove(&key),
            _ => state.insert(key, version(&event["object"])),
        };
        assert_eq!(before.is_some(), event["type"] != "ADDED", "{event}");
    }
    let then = fixture.get(&format!("/api/v1/pods?resourceVersion={last}&resourceVersionMatch=Exact")).await.json();
    let expected: std::collections::BTreeMap<String, String> = then["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (names(&json!([item]))[0].clone(), version(item)))
        .collect();
    assert_eq!(state, expected);
    assert_eq!(fixture.member.control().requests_of(RequestKind::List, "pods"), 2);
    assert_eq!(fixture.member.control().requests_of(RequestKind::Watch, "pods"), 1);
}
