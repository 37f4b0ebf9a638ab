//! Tests of the first list, the following watch, and their updates.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use tokio::time::Instant;
use tributary_apimachinery::ResourceVersion;
use tributary_cacher::{Cacher, CacherState, StaleReason, Update, UpdateObserver};

#[tokio::test(start_paused = true)]
async fn collection_is_streamed_from_a_member_with_watch_list_support() {
    let (cacher, mut member, mut updates) = start();
    assert!(matches!(cacher.state(), CacherState::Syncing { reason: None, .. }));
    assert!(cacher.snapshot().is_none());
    let request = member
        .expect(&[
            "/api/v1/pods?watch=1",
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
            "allowWatchBookmarks=true",
        ])
        .await;
    assert!(!request.uri.contains("resourceVersion="), "the first list is consistent");
    assert_eq!((&request.headers["accept"], &request.headers["accept-encoding"]).0, "application/json");
    assert_eq!(request.headers["accept-encoding"], "identity");
    let feed = request.stream();
    feed.send(event("ADDED", &pod("a", 3)) + &event("ADDED", &pod("b", 7)));
    feed.send(end_bookmark(9) + &event("MODIFIED", &pod("a", 10)) + &event("DELETED", &pod("b", 11)));
    let snapshot = updates.synced().await;
    assert_eq!((contents(&snapshot), snapshot.resource_version().revision().0), (names(&[("a", 3), ("b", 7)]), 9));
    let (changes, snapshot) = updates.changes().await;
    assert_eq!(changes, [("MODIFIED", "a".to_owned(), 10), ("DELETED", "b".to_owned(), 11)]);
    assert_eq!((contents(&snapshot), snapshot.resource_version().revision().0), (names(&[("a", 10)]), 11));
    assert_eq!(cacher.state(), CacherState::Synced);
    feed.send(bookmark(15));
    assert!(
        matches!(updates.next().await, Update::Progress { snapshot } if snapshot.resource_version().revision().0 == 15)
    );
    feed.send(bookmark(15) + &event("ADDED", &pod("c", 12)));
    feed.send(event("ADDED", &pod("d", 16)));
    let (changes, _) = updates.changes().await;
    assert_eq!(changes, [("ADDED", "d".to_owned(), 16)], "repetitions are not changes");
    let stats = cacher.stats();
    assert_eq!((stats.objects, stats.events, stats.watches, stats.relists, stats.decode_errors), (2, 3, 1, 0, 0));
    assert!(stats.object_bytes > 200 && stats.received_bytes > 500);
}

#[tokio::test(start_paused = true)]
async fn warning_headers_of_a_list_are_reported_before_its_objects() {
    use http::HeaderValue;
    struct Warned(std::sync::mpsc::Sender<Vec<HeaderValue>>, Arc<dyn Fn() -> bool + Send + Sync>);
    impl UpdateObserver for Warned {
        fn update(&self, _: Update) {}
        fn warnings(&self, warnings: &[HeaderValue]) {
            assert!((self.1)(), "the warnings come after the objects");
            let _ = self.0.send(warnings.to_vec());
        }
    }
    let (transport, mut member) = transport();
    let (sender, warned) = std::sync::mpsc::channel();
    let cacher = Arc::new(std::sync::OnceLock::<Cacher>::new());
    let unknown = {
        let cacher = Arc::clone(&cacher);
        Arc::new(move || cacher.get().is_none_or(|cacher| cacher.snapshot().is_none_or(|it| it.is_empty())))
    };
    let _first = cacher.set(Cacher::start(config(Default::default()), transport, Arc::new(Warned(sender, unknown))));
    let head = || http::Response::builder().status(200);
    let long = "x".repeat(2000);
    let answer = head()
        .header("warning", "299 - \"v1 Pods are deprecated\"")
        .header("warning", "110 - \"of a proxy\"")
        .header("warning", format!("299 - \"{long}\""));
    let objects = event("ADDED", &pod("a", 3)) + &end_bookmark(9) + &event("DELETED", &pod("a", 10));
    member.expect(&["sendInitialEvents"]).await.respond(answer, &objects);
    // The next response repeats the warning, and the response after it omits the warning.
    let again = head().header("warning", "299 - \"v1 Pods are deprecated\"");
    member.expect(&["resourceVersion=9"]).await.respond(again, &bookmark(11));
    member.expect(&["resourceVersion=11"]).await.respond(head(), &bookmark(12));
    let _open = member.expect(&["resourceVersion=12"]).await;
    let warnings: Vec<_> = warned.try_iter().collect();
    assert_eq!(warnings, [vec![HeaderValue::from_static("299 - \"v1 Pods are deprecated\"")], vec![]]);
}

#[tokio::test(start_paused = true)]
async fn cacher_updates_do_not_depend_on_the_chunk_size() {
    let text = event("ADDED", &pod("a", 3))
        + &end_bookmark(9)
        + &event("MODIFIED", &pod("a", 10))
        + &event("ADDED", &pod("b", 11))
        + &event("DELETED", &pod("a", 12))
        + &bookmark(13);
    for cut in 0..text.len() {
        let (cacher, mut member, _updates) = start();
        let feed = member.expect(&["sendInitialEvents"]).await.stream();
        feed.send(&text[..cut]);
        feed.send(&text[cut..]);
        let snapshot = cacher.wait_for(ResourceVersion(13), Duration::from_secs(3)).await.unwrap();
        assert_eq!(contents(&snapshot), names(&[("b", 11)]), "cut at {cut}");
        assert_eq!((cacher.stats().events, cacher.stats().decode_errors), (3, 0), "cut at {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn member_without_watch_list_support_is_listed_in_pages() {
    let (cacher, mut member, mut updates) = start();
    member.expect(&["sendInitialEvents"]).await.status(422, r#"{"code":422,"reason":"Invalid"}"#);
    let first = member.expect(&["/api/v1/pods?limit=10000"]).await;
    assert!(!first.uri.contains("continue"));
    first.text(list(&[pod("a", 1)], 20, Some("abc+/")));
    member
        .expect(&["continue=abc%2B%2F"])
        .await
        .status(410, r#"{"code":410,"reason":"Expired","metadata":{"continue":"inconsistent"}}"#);
    state(&cacher, |state| matches!(state, CacherState::Syncing { reason: Some(StaleReason::Expired), .. })).await;
    let again = member.expect(&["/api/v1/pods?limit=0"]).await;
    assert!(!again.uri.contains("continue"), "a list of two moments would be inconsistent");
    again.text(list(&[pod("b", 2)], 30, Some("t2")));
    assert!(updates.try_next().is_none());
    let second = member.expect(&["continue=t2"]).await.stream();
    let text = list(&[pod("c", 3), pod("d", 4)], 30, None);
    for piece in text.as_bytes().chunks(11) {
        second.send(piece);
    }
    drop(second);
    let snapshot = updates.synced().await;
    assert_eq!(
        (contents(&snapshot), snapshot.resource_version().revision().0),
        (names(&[("b", 2), ("c", 3), ("d", 4)]), 30)
    );
    let watch = member.expect(&["watch=1", "resourceVersion=30", "allowWatchBookmarks=true", "timeoutSeconds="]).await;
    assert_eq!(watch.headers["accept-encoding"], "identity");
    let feed = watch.stream();
    feed.send(event("ADDED", &pod("e", 31)));
    assert_eq!(updates.changes().await.0, [("ADDED", "e".to_owned(), 31)]);
    feed.send(expired());
    let relist = member.expect(&["limit=10000"]).await;
    relist.text(list(&[], 40, None));
    assert!(matches!(updates.next().await, Update::Relisted { after, .. } if after.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn initial_events_without_an_end_bookmark_are_replaced_by_pages() {
    // A member that ignores sendInitialEvents sends no end bookmark.
    let (_cacher, mut member, mut updates) = start();
    let start_time = Instant::now();
    let feed = member.expect(&["sendInitialEvents"]).await.stream();
    feed.send(event("ADDED", &pod("a", 3)));
    let request = member.expect(&["limit=10000"]).await;
    assert_eq!(request.at - start_time, Duration::from_secs(10));
    assert!(feed.is_dropped());
    request.text(list(&[pod("a", 3)], 5, None));
    assert_eq!(updates.synced().await.len(), 1);

    // A bookmark without the annotation `k8s.io/initial-events-end` does not end the initial events.
    let (_cacher, mut member, _updates) = start();
    let feed = member.expect(&["sendInitialEvents"]).await.stream();
    feed.send(event("ADDED", &pod("a", 3)) + &bookmark(5));
    member.expect(&["limit=10000"]).await;
}

#[tokio::test(start_paused = true)]
async fn cacher_of_a_namespace_requests_the_namespaced_path() {
    let (transport, mut member) = transport();
    struct IgnoreUpdates;
    impl UpdateObserver for IgnoreUpdates {
        fn update(&self, _update: Update) {}
    }
    let config =
        tributary_cacher::CacherConfig { namespace: Some("kube-system".to_owned()), ..config(Default::default()) };
    let cacher = Cacher::start(config, transport, Arc::new(IgnoreUpdates));
    member.expect(&["/api/v1/namespaces/kube-system/pods?watch=1"]).await;
    assert!(format!("{cacher:?}").contains("kube-system"));
}

#[tokio::test(start_paused = true)]
async fn malformed_objects_are_skipped_and_counted_without_ending_the_watch() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.expect(&["sendInitialEvents"]).await.stream();
    feed.send(event("ADDED", &pod("a", 3)));
    feed.send(event("ADDED", r#"{"metadata":{"name":"no-version"}}"#));
    feed.send(event("ADDED", r#"{"metadata":{"name":"broken","resourceVersion":"5"},"spec":{"x":}}"#));
    feed.send(end_bookmark(9));
    assert_eq!(contents(&updates.synced().await), names(&[("a", 3)]));
    assert_eq!(cacher.stats().decode_errors, 2);
    feed.send("no json at all\n{\"type\":\"ADDED\",\"object\":{\n{\"type\":\"RENAMED\",\"object\":{}}\n[]\n");
    feed.send(event("MODIFIED", r#"{"metadata":{"name":"a","namespace":"ns","resourceVersion":"x"}}"#));
    feed.send(
        b"\xff\xfe\n{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"\xff\",\"resourceVersion\":\"11\"}}}\n",
    );
    feed.send(event("ADDED", &pod("b", 12)));
    let (changes, snapshot) = updates.changes().await;
    assert_eq!(changes, [("ADDED", "b".to_owned(), 12)]);
    assert_eq!(contents(&snapshot), names(&[("a", 3), ("b", 12)]), "the last known state stays");
    assert_eq!(cacher.stats().decode_errors, 9);
    assert!(!feed.is_dropped());
    assert_eq!(cacher.state(), CacherState::Synced);

    // In pages, the cacher also skips objects that it cannot decode.
    let (cacher, mut member, mut updates) = start();
    member.expect(&["sendInitialEvents"]).await.status(400, "");
    let items = [pod("a", 3), "7".to_owned(), r#"{"metadata":{}}"#.to_owned(), pod("b", 4)];
    member.expect(&["limit"]).await.text(list(&items, 9, None));
    assert_eq!(contents(&updates.synced().await), names(&[("a", 3), ("b", 4)]));
    assert_eq!(cacher.stats().decode_errors, 2);
}

#[tokio::test(start_paused = true)]
async fn oversized_watch_frame_restarts_the_watch() {
    let tuning = tributary_cacher::ReflectorTuning { object_size_max: 1000, ..Default::default() };
    let (_cacher, mut member, mut updates) = start_with(tuning);
    let feed = member.sync(&[pod("a", 3)], 5).await;
    updates.synced().await;
    feed.send("x".repeat(600));
    feed.send("x".repeat(600));
    feed.dropped().await;
    member.expect(&["limit=1"]).await.text(list(&[], 5, None));
    member.expect(&["watch=1", "resourceVersion=5"]).await;
}

#[tokio::test(start_paused = true)]
async fn list_page_that_is_not_a_list_is_a_failure() {
    let (cacher, mut member, _updates) = start();
    member.expect(&["sendInitialEvents"]).await.status(400, "");
    member.expect(&["limit"]).await.text("<html>hello</html>");
    let reason = state(&cacher, |state| state.reason().is_some()).await;
    assert!(
        matches!(reason.reason(), Some(StaleReason::Other(text)) if text == "the list is not valid JSON at byte 0")
    );
    member.expect(&["limit"]).await.text(r#"{"metadata":{"resourceVersion":"3"},"items":[{"#);
    member.expect(&["limit"]).await.text(list(&[], 3, None));
    state(&cacher, |state| *state == CacherState::Synced).await;
}

/// An observer that reads the cacher's snapshot while the cacher calls `update`.
struct Reader {
    cacher: std::sync::OnceLock<std::sync::Weak<Cacher>>,
    seen: std::sync::mpsc::Sender<(u64, Option<u64>)>,
}

impl UpdateObserver for Reader {
    fn update(&self, update: Update) {
        let cacher = self.cacher.get().and_then(std::sync::Weak::upgrade);
        let seen = cacher.and_then(|cacher| cacher.snapshot()).map(|s| s.resource_version().revision().0);
        let _ = self.seen.send((update.snapshot().resource_version().revision().0, seen));
    }
}

#[tokio::test(start_paused = true)]
async fn observer_receives_updates_before_readers_see_them() {
    let (transport, mut member) = transport();
    let (sender, seen) = std::sync::mpsc::channel();
    let reader = Arc::new(Reader { cacher: Default::default(), seen: sender });
    let cacher = Arc::new(Cacher::start(config(Default::default()), transport, reader.clone()));
    let _ = reader.cacher.set(Arc::downgrade(&cacher));
    let feed = member.sync(&[pod("a", 3)], 5).await;
    feed.send(event("MODIFIED", &pod("a", 6)));
    cacher.wait_for(ResourceVersion(6), Duration::from_secs(3)).await.unwrap();
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [(5, None), (6, Some(5))]);
}
