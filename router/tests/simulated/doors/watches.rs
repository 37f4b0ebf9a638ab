//! Tests of watches: each door sends the events of the first one.

use serde_json::Value;

use super::table::{DoorRow, MEMBERS, MERGED_VIEWS};
use crate::harness::{CONFIG_MAPS, Events, Fixture, version};

/// The query of client-go's reflectors.
const WATCH_LIST: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Opens a watch of ConfigMaps at each door that allows watches.
async fn open(rows: &'static [DoorRow], fixture: &Fixture, query: &str) -> Vec<(&'static DoorRow, Events)> {
    let mut all = Vec::new();
    for row in rows.iter().filter(|row| row.allows_watches()) {
        all.push((row, row.client(fixture).watch(&format!("{CONFIG_MAPS}?{query}")).await));
    }
    all
}

/// Reads the next event of each watch, which must be the same, and returns it.
async fn same_event(watches: &mut [(&'static DoorRow, Events)]) -> Value {
    let (first, others) = watches.split_first_mut().unwrap();
    let expected = first.1.soon().await;
    for (row, events) in others {
        let event = row.without_additions(events.soon().await);
        assert_eq!(event, expected, "{row:?}");
    }
    expected
}

async fn start() -> Fixture {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "one", "1").await;
    fixture.put_and_see("b", "two", "1").await;
    fixture
}

#[tokio::test]
async fn every_door_sends_the_initial_events_and_their_bookmark() {
    for rows in [MERGED_VIEWS, MEMBERS] {
        let fixture = start().await;
        let mut watches = open(rows, &fixture, WATCH_LIST).await;
        let mut count = 0;
        let bookmark = loop {
            let event = same_event(&mut watches).await;
            if event["type"] == "BOOKMARK" {
                break event;
            }
            assert_eq!(event["type"], "ADDED");
            count += 1;
        };
        assert!(count > 0);
        assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        fixture.put("a", "one", "2");
        assert_eq!(same_event(&mut watches).await["type"], "MODIFIED");
    }
}

#[tokio::test]
async fn every_door_sends_the_events_after_a_version_and_an_error_for_a_lost_version() {
    for rows in [MERGED_VIEWS, MEMBERS] {
        let fixture = start().await;
        let list = rows[0].client(&fixture).get(CONFIG_MAPS).await.ok();
        let mut watches = open(rows, &fixture, &format!("watch=1&resourceVersion={}", version(&list))).await;
        fixture.put("a", "new", "1");
        let added = same_event(&mut watches).await;
        fixture.member("a").delete("configmaps", "default", "new").unwrap();
        let deleted = same_event(&mut watches).await;
        assert_eq!([&added["type"], &deleted["type"]], ["ADDED", "DELETED"]);
        let mut resumed = open(rows, &fixture, &format!("watch=1&resourceVersion={}", version(&added["object"]))).await;
        assert_eq!(same_event(&mut resumed).await, deleted);
        // A version of a different format cannot be resumed.
        let lost = if rows[0].prefix.is_empty() { "1" } else { "eyJiIjoiMSJ9" };
        let mut lost = open(rows, &fixture, &format!("watch=1&resourceVersion={lost}")).await;
        for (row, events) in &mut lost {
            let error = events.soon().await;
            assert_eq!((&error["type"], &error["object"]["code"]), (&"ERROR".into(), &410.into()), "{row:?}");
        }
    }
}
