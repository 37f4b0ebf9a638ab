//! Tests of waiting readers and of staleness, for a collection without bookmarks because the member does not cache it.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use tokio::time::Instant;
use tributary_apimachinery::{GroupVersionResource, ResourceVersion};
use tributary_cacher::{Cacher, CacherConfig, ReflectorTuning, Update};

const THREE_SECONDS: Duration = Duration::from_secs(3);

fn start_collection(group: &str, resource: &str) -> (Cacher, Member, Updates) {
    let config = CacherConfig {
        resource: GroupVersionResource::new(group, "v1", resource),
        ..config(ReflectorTuning::default())
    };
    start_with_config(config)
}

#[tokio::test(start_paused = true)]
async fn waiting_read_of_kubernetes_events_causes_a_list_at_once() {
    for group in ["", "events.k8s.io"] {
        let (cacher, mut member, mut updates) = start_collection(group, "events");
        let feed = member.sync(&[pod("a", 1)], 5).await;
        updates.synced().await;
        let script = async {
            member.expect(&["limit=1"]).await.text(list(&[], 20, None));
            let feed = member.expect(&["sendInitialEvents=true"]).await.stream();
            feed.send(event("ADDED", &pod("a", 1)) + &end_bookmark(21));
            feed
        };
        let started = Instant::now();
        let (found, again) = tokio::join!(cacher.wait_for(ResourceVersion(20), THREE_SECONDS), script);
        assert_eq!(found.unwrap().resource_version(), ResourceVersion(21));
        assert!(started.elapsed() < Duration::from_millis(500), "after {:?}", started.elapsed());
        assert!(feed.is_dropped(), "there is one source of events");
        assert!(matches!(updates.next().await, Update::Relisted { .. }));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!member.has_request() && !again.is_dropped(), "there are no waiters left");
        assert_eq!(cacher.stats().relists, 0, "no event was lost");
        again.send(expired());
        let _feed = member.sync(&[pod("a", 1)], 30).await;
        assert!(matches!(updates.next().await, Update::Relisted { .. }));
        assert_eq!(cacher.stats().relists, 1, "the events that the member has forgotten are lost");
    }
}

#[tokio::test(start_paused = true)]
async fn list_that_returns_an_older_version_to_a_waiting_read_resets_the_cacher() {
    let (cacher, mut member, mut updates) = start_collection("", "events");
    let _feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 20, None));
        let feed = member.expect(&["sendInitialEvents=true"]).await.stream();
        feed.send(end_bookmark(3));
        feed
    };
    let (_, _feed) = tokio::join!(cacher.wait_for(ResourceVersion(20), THREE_SECONDS), script);
    assert!(matches!(updates.next().await, Update::Reset { .. }));
    assert_eq!((cacher.stats().relists, cacher.stats().resets), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn second_waiting_read_causes_a_list_if_the_member_sent_no_bookmark() {
    let (cacher, mut member, mut updates) = start_collection("example.com", "widgets");
    let _feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 20, None));
        let short = member.expect(&["resourceVersion=5&", "timeoutSeconds=3&"]).await.stream();
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(short);
        member.expect(&["resourceVersion=5&"]).await.stream()
    };
    let (first, long) = tokio::join!(cacher.wait_for(ResourceVersion(20), THREE_SECONDS), script);
    assert!(first.is_err(), "the first waiter gets no bookmark");
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 30, None));
        let again = member.expect(&["sendInitialEvents=true"]).await.stream();
        again.send(event("ADDED", &pod("a", 1)) + &end_bookmark(30));
        again
    };
    let (second, again) = tokio::join!(cacher.wait_for(ResourceVersion(30), THREE_SECONDS), script);
    assert!(second.is_ok() && long.is_dropped());
    // After a bookmark, the cacher again expects bookmarks for this collection, and opens a short watch for a waiting
    // reader.
    again.send(bookmark(31));
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 40, None));
        let short = member.expect(&["resourceVersion=31&", "timeoutSeconds=3&"]).await.stream();
        short.send(bookmark(40));
        short
    };
    let (third, _short) = tokio::join!(cacher.wait_for(ResourceVersion(40), THREE_SECONDS), script);
    assert!(third.is_ok());
}

/// Without bookmarks, the watch of a quiet collection delivers nothing. The cacher requests the member's latest version
/// before the state would become stale.
#[tokio::test(start_paused = true)]
async fn silent_collection_without_bookmarks_stays_synced() {
    let (cacher, mut member, mut updates) = start_collection("example.com", "widgets");
    let mut feeds = vec![member.sync(&[pod("a", 1)], 5).await];
    updates.synced().await;
    let states = cacher.states();
    for _ in 0..3 {
        member.expect(&["limit=1"]).await.text(list(&[], 20, None));
        let short = member.expect(&["resourceVersion=5&", "timeoutSeconds=3&"]).await.stream();
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(short);
        let long = member.expect(&["resourceVersion=5&"]).await;
        assert!(!long.has("timeoutSeconds=3&"), "{}", long.uri);
        feeds.push(long.stream());
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!states.has_changed().unwrap(), "{cacher:?}");
    }
}

/// If a member does not change, it has no bookmark to send. If the cacher concluded from this that bookmarks are
/// missing, it would list the collection for each waiting reader.
#[tokio::test(start_paused = true)]
async fn silent_watch_of_an_unchanged_member_is_not_taken_for_missing_bookmarks() {
    let (cacher, mut member, mut updates) = start_collection("example.com", "widgets");
    let mut feeds = vec![member.sync(&[pod("a", 1)], 5).await];
    updates.synced().await;
    let states = cacher.states();
    for _ in 0..2 {
        member.expect(&["limit=1"]).await.text(list(&[], 5, None));
        let short = member.expect(&["resourceVersion=5&", "timeoutSeconds=3"]).await.stream();
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(short);
        feeds.push(member.expect(&["resourceVersion=5&"]).await.stream());
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!states.has_changed().unwrap(), "{cacher:?}");
    }
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 20, None));
        let short = member.expect(&["resourceVersion=5&", "timeoutSeconds=3"]).await.stream();
        short.send(bookmark(20));
        short
    };
    let (found, _short) = tokio::join!(cacher.wait_for(ResourceVersion(20), THREE_SECONDS), script);
    assert_eq!(found.unwrap().resource_version(), ResourceVersion(20));
}

#[tokio::test(start_paused = true)]
async fn short_watch_that_ends_early_is_not_taken_for_missing_bookmarks() {
    let (cacher, mut member, mut updates) = start_collection("example.com", "widgets");
    let _feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 20, None));
        drop(member.expect(&["resourceVersion=5&", "timeoutSeconds=3&"]).await.stream());
        let long = member.expect(&["resourceVersion=5&"]).await.stream();
        member.expect(&["limit=1"]).await.text(list(&[], 20, None));
        let short = member.expect(&["resourceVersion=5&", "timeoutSeconds=3&"]).await.stream();
        assert!(long.is_dropped());
        short.send(bookmark(20));
        short
    };
    let (found, _short) = tokio::join!(cacher.wait_for(ResourceVersion(20), THREE_SECONDS), script);
    assert!(found.is_ok());
}

#[tokio::test(start_paused = true)]
async fn continuously_waiting_reads_cause_at_most_one_list_per_second() {
    let (cacher, mut member, mut updates) = start_collection("", "events");
    let mut feed = member.sync(&[], 5).await;
    updates.synced().await;
    let cacher = Arc::new(cacher);
    let readers = tokio::spawn({
        let cacher = Arc::clone(&cacher);
        async move {
            for version in 6..10 {
                cacher.wait_for(ResourceVersion(version), THREE_SECONDS).await.expect("the list arrives in time");
            }
        }
    });
    let (mut revision, mut lists) = (5, Vec::new());
    while lists.len() < 4 {
        let request = member.next_request().await;
        if request.uri.contains("limit=1") {
            request.text(list(&[], revision + 1, None));
        } else {
            revision += 1;
            lists.push(request.at);
            feed = request.stream();
            feed.send(end_bookmark(revision));
        }
    }
    readers.await.expect("no panic");
    assert!(lists.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(1)), "{lists:?}");
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn slow_list_for_waiting_reads_delays_the_next_list() {
    let (cacher, mut member, mut updates) = start_collection("", "events");
    let mut feed = member.sync(&[], 5).await;
    updates.synced().await;
    let readers = tokio::spawn(async move {
        for version in 6.. {
            let _in_time_or_not = cacher.wait_for(ResourceVersion(version), THREE_SECONDS).await;
        }
    });
    let (mut revision, mut lists, started) = (5, 0, Instant::now());
    while started.elapsed() < Duration::from_secs(200) {
        let request = member.next_request().await;
        revision += 100;
        if request.uri.contains("limit=1") {
            request.text(list(&[], revision, None));
        } else {
            lists += 1;
            feed = request.stream();
            tokio::time::sleep(Duration::from_secs(4)).await;
            feed.send(end_bookmark(revision));
        }
    }
    readers.abort();
    assert!((2..=10).contains(&lists), "{lists} lists of 4 s in 200 s");
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn read_that_waits_for_all_deletions_of_the_latest_revision_causes_a_list() {
    let (cacher, mut member, mut updates) = start_collection("example.com", "widgets");
    let feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    feed.send(event("DELETED", &pod("a", 6)));
    updates.next().await;
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 6, None));
        let again = member.expect(&["sendInitialEvents=true"]).await.stream();
        again.send(end_bookmark(6));
        again
    };
    let (found, again) = tokio::join!(cacher.wait_for(ResourceVersion(6), THREE_SECONDS), script);
    assert_eq!(found.unwrap().resource_version(), ResourceVersion(6));
    // The cacher still expects bookmarks for this collection, so it opens a short watch for the next waiting reader.
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 9, None));
        let short = member.expect(&["resourceVersion=6&", "timeoutSeconds=3&"]).await.stream();
        short.send(bookmark(9));
        short
    };
    let (found, _short) = tokio::join!(cacher.wait_for(ResourceVersion(9), THREE_SECONDS), script);
    assert!(found.is_ok() && again.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn short_watch_that_sends_an_event_is_not_taken_for_missing_bookmarks() {
    let (cacher, mut member, mut updates) = start_collection("example.com", "widgets");
    let _feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 20, None));
        let short = member.expect(&["resourceVersion=5&", "timeoutSeconds=3&"]).await.stream();
        short.send(event("DELETED", &pod("a", 20)));
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(short);
        member.expect(&["resourceVersion=19&"]).await.stream()
    };
    let (_, _long) = tokio::join!(cacher.wait_for(ResourceVersion(20), THREE_SECONDS), script);
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 30, None));
        member.expect(&["timeoutSeconds=3&"]).await.stream()
    };
    let (_, _short) = tokio::join!(cacher.wait_for(ResourceVersion(30), Duration::from_secs(1)), script);
}
