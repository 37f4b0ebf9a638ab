//! Tests of watches: initial events, bookmarks, selectors, ERROR events, and slow readers.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::doors::table::MERGED_VIEWS;
use crate::harness::{CONFIG_MAPS, Fixture, SOON, brief, config_map, name, pass, until, vector, version};

/// The query with which client-go's reflectors and controller-runtime open a watch.
const WATCH_LIST: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test]
async fn initial_events_end_with_one_bookmark() {
    for door in MERGED_VIEWS.iter().filter(|door| door.allows_watches()) {
        let fixture = door.start(["a", "b"]).await;
        for number in 0..5 {
            fixture.put("a", &format!("m{number}"), "");
            fixture.put("b", &format!("n{number}"), "");
        }
        let filter = "fieldSelector=metadata.name!=kube-root-ca.crt";
        let mut events = fixture.watch(&format!("{CONFIG_MAPS}?{WATCH_LIST}&{filter}")).await;
        let mut names = Vec::new();
        let end = loop {
            let event = events.soon().await;
            if event["type"] == "BOOKMARK" {
                break event;
            }
            assert_eq!(event["type"], "ADDED");
            assert_eq!(vector(&version(&event["object"])).as_object().unwrap().len(), 1, "the item form: {event}");
            names.push(name(&event["object"]));
        };
        assert_eq!(names, ["m0", "m1", "m2", "m3", "m4", "n0", "n1", "n2", "n3", "n4"]);
        assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        let from = version(&end["object"]);
        assert_eq!(vector(&from).as_object().unwrap().len(), 2);
        events.nothing().await;
        fixture.put("b", "later", "");
        let event = events.soon().await;
        assert_eq!(brief(&event), "ADDED b/later");
        assert_eq!(vector(&version(&event["object"]))["a"], vector(&from)["a"]);
        // A watch that resumes from the bookmark receives the next event.
        let mut resumed = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}&{filter}")).await;
        assert_eq!(resumed.soon().await, event);
    }
}

#[tokio::test]
async fn watch_resumes_from_any_event() {
    let fixture = Fixture::start(["a", "b"]).await;
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let from = version(&list);
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    fixture.resumes_after_each(&mut events).await;
}

#[tokio::test]
async fn idle_watch_gets_a_bookmark_each_minute() {
    for door in MERGED_VIEWS.iter().filter(|door| door.allows_watches()) {
        let fixture = door.start(["a"]).await;
        let from = version(&fixture.get(CONFIG_MAPS).await.ok());
        let mut events =
            fixture.watch(&format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={from}")).await;
        // A bookmark arrives each minute, even if the version has not changed.
        for _ in 0..3 {
            pass(Duration::from_secs(61)).await;
            assert_eq!(events.soon().await["type"], "BOOKMARK");
        }
    }
}

#[tokio::test]
async fn watch_sends_a_bookmark_before_it_ends() {
    for door in MERGED_VIEWS.iter().filter(|door| door.allows_watches()) {
        let fixture = door.start(["a"]).await;
        fixture.get(CONFIG_MAPS).await.ok();
        let query = "watch=1&resourceVersion=0&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dx";
        let mut events = fixture.watch(&format!("{CONFIG_MAPS}?{query}&timeoutSeconds=3")).await;
        let first = events.soon().await;
        assert_eq!(
            first["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true",
            "as kube-apiserver has it"
        );
        fixture.put("a", "x", "");
        assert_eq!(events.brief().await, "ADDED a/x");
        assert_eq!(events.soon().await["type"], "BOOKMARK", "about two seconds before the end");
        while let Some(event) = tokio::time::timeout(SOON, events.next()).await.expect("the end") {
            assert_eq!(event["type"], "BOOKMARK");
        }
        // A drain ends the watch immediately.
        let mut events = fixture.watch(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!([events.brief().await, events.brief().await], ["ADDED a/x", "BOOKMARK /"]);
        let revision = fixture.put("a", "other", "");
        until(|| async { vector(&version(&fixture.get(CONFIG_MAPS).await.ok()))["a"] == json!(revision.to_string()) })
            .await;
        events.nothing().await;
        fixture.router.drain();
        let last = events.soon().await;
        assert_eq!(last["type"], "BOOKMARK");
        assert_eq!(vector(&version(&last["object"]))["a"], json!(revision.to_string()));
        assert_eq!(events.next().await, None);
    }
}

#[tokio::test]
async fn watch_sends_objects_that_enter_and_leave_the_selection() {
    for door in MERGED_VIEWS.iter().filter(|door| door.allows_watches()) {
        let fixture = door.start(["a", "b"]).await;
        let mut object = config_map("x", "1");
        object["metadata"]["labels"] = json!({"app": "web"});
        fixture.member("a").apply(object.clone()).unwrap();
        fixture.get(CONFIG_MAPS).await.ok();
        let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&labelSelector=app%3Dweb")).await;
        assert_eq!(events.brief().await, "ADDED a/x");
        fixture.put("b", "other", "");
        let revision = fixture.put("a", "x", "2");
        let gone = events.soon().await;
        assert_eq!(brief(&gone), "DELETED a/x");
        assert_eq!(gone["object"]["data"]["v"], "1", "as it was when it was selected");
        assert_eq!(vector(&version(&gone["object"]))["a"], json!(revision.to_string()), "and the event's version");
        object["data"]["v"] = "3".into();
        fixture.member("a").apply(object).unwrap();
        assert_eq!(events.brief().await, "ADDED a/x");
        events.nothing().await;
    }
}

#[tokio::test]
async fn watch_from_an_unknown_version_gets_410_in_the_stream() {
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let unknown = crate::harness::composite(&json!({"nobody": "5"}));
    for given in ["1234", "garbage", &unknown] {
        let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={given}")).await;
        let event = events.soon().await;
        let status = &event["object"];
        assert_eq!(
            (&event["type"], &status["code"], &status["reason"]),
            (&json!("ERROR"), &json!(410), &json!("Expired"))
        );
        assert_eq!(events.next().await, None);
    }
    for query in ["resourceVersionMatch=Exact", "sendInitialEvents=true"] {
        fixture.get(&format!("{CONFIG_MAPS}?watch=1&{query}")).await.refused(422);
    }
}

#[tokio::test]
async fn slow_watch_is_ended_and_delays_no_other_watch() {
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let path = format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Dlarge");
    let mut slow = fixture.watch(&path).await;
    let mut quick = fixture.watch(&path).await;
    // The slow client does not read. Meanwhile there are more changes than the history of a cluster may contain (100
    // changes, or 32 MiB).
    let text = "x".repeat(320 << 10);
    for round in 0..110 {
        fixture.put("a", "large", &format!("{round}{text}"));
        let line = tokio::time::timeout(SOON, quick.line()).await.expect("an event").expect("not the end");
        assert!(line.starts_with(if round == 0 { br#"{"type":"ADDED""# } else { br#"{"type":"MODIFIED""# }));
    }
    let rest = async { while slow.line().await.is_some() {} };
    tokio::time::timeout(SOON, rest).await.expect("the end of the stream, without an error");
    fixture.put("a", "large", "at last");
    assert_eq!(quick.soon().await["object"]["data"]["v"], "at last");
}

#[tokio::test]
async fn deprecated_watch_path_and_single_object_can_be_watched() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("b", "x", "1");
    let mut events = fixture.watch("/api/v1/watch/namespaces/default/configmaps/x").await;
    assert_eq!(events.brief().await, "ADDED b/x");
    fixture.put("a", "y", "");
    fixture.put("b", "x", "2");
    assert_eq!(events.brief().await, "MODIFIED b/x");
    // As in kube-apiserver, `watch` has no effect at the path of an object.
    assert_eq!(fixture.get(&format!("{CONFIG_MAPS}/x?watch=1")).await.ok()["data"]["v"], "2");
}

#[tokio::test]
async fn slow_and_fast_watches_receive_equal_events() {
    let fixture = Fixture::start(["a", "b"]).await;
    let from = version(&fixture.get(CONFIG_MAPS).await.ok());
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
    let (mut quick, mut late) = (fixture.watch(&path).await, fixture.watch(&path).await);
    let mut told = Vec::new();
    for round in 0..50 {
        fixture.put(["a", "b"][round % 2], "x", &round.to_string());
        told.push(quick.soon().await);
        if round % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for event in told {
        assert_eq!(late.soon().await, event);
    }
}

/// The router encodes a changed row at most once a second, for all watches with the same columns and the same form of
/// the object.
#[tokio::test]
async fn table_row_is_printed_once_for_all_watches() {
    const WATCHERS: usize = 10;
    let fixture = Fixture::start(["a"]).await;
    fixture.put_and_see("a", "x", "0").await;
    let from = version(&fixture.get(CONFIG_MAPS).await.ok());
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let mut watchers = Vec::new();
    for number in 0..=WATCHERS {
        let include = if number == WATCHERS { "&includeObject=None" } else { "" };
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}{include}");
        watchers.push(fixture.client().call("GET", &path, &table, "").await.into_body());
    }
    let begun = tokio::time::Instant::now();
    let mut rows = Vec::new();
    for value in ["1", "2"] {
        rows.clear();
        fixture.put("a", "x", value);
        for watcher in &mut watchers {
            let frame = tokio::time::timeout(SOON, watcher.frame()).await.expect("an event").expect("not the end");
            rows.push(frame.unwrap().into_data().unwrap());
        }
        for row in &rows {
            let event: Value = serde_json::from_slice(row).unwrap();
            let columns = event["object"]["columnDefinitions"].as_array().is_some_and(|columns| !columns.is_empty());
            assert_eq!(columns, value == "1", "a watcher's first event defines the columns: {event}");
        }
    }
    let without = rows.pop().unwrap();
    let event: Value = serde_json::from_slice(&without).unwrap();
    assert_eq!(event["object"]["rows"][0]["object"], Value::Null, "{event}");
    // Equal rows are the same memory, so the number of addresses is the number of encoded texts.
    let mut printed: Vec<_> = rows.iter().map(|row| row.as_ptr()).collect();
    printed.sort_unstable();
    printed.dedup();
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap() + 2;
    assert!(printed.len() <= seconds, "{} times for {WATCHERS} watchers, within {seconds} seconds", printed.len());
}
