//! Tests of waits for versions and deletions, and of requests for the latest version of an idle member.

mod common;

use std::time::Duration;

use common::*;
use tokio::time::Instant;
use tributary_apimachinery::ResourceVersion;
use tributary_cacher::{LatestError, NotReached, StaleReason, StillExists, Update};

const THREE_SECONDS: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn wait_for_a_version_ends_when_an_event_reaches_it() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let started = Instant::now();
    let snapshot = cacher.wait_for(ResourceVersion(5), Duration::ZERO).await.unwrap();
    assert_eq!(snapshot.len(), 1);
    let (found, ()) = tokio::join!(cacher.wait_for(ResourceVersion(7), THREE_SECONDS), async {
        feed.send(event("ADDED", &pod("b", 6)));
        tokio::task::yield_now().await;
        feed.send(event("ADDED", &pod("c", 8)));
    });
    assert_eq!(found.unwrap().resource_version().revision().0, 8);
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(!member.has_request(), "arriving events need no question");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!member.has_request());
    assert_eq!(cacher.stats().progress_requests, 0);
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_version_lasts_until_the_first_list_is_complete() {
    let (cacher, mut member, _updates) = start();
    let early = cacher.wait_for(ResourceVersion(5), THREE_SECONDS).await;
    assert_eq!(early.unwrap_err(), NotReached::TooNew { wanted: ResourceVersion(5).into(), current: None });
    let (found, _feed) = tokio::join!(cacher.wait_for(ResourceVersion(5), THREE_SECONDS), member.sync(&[], 5));
    assert!(found.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_latest_version_request_serves_all_waiters() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let started = Instant::now();
    let script = async {
        let request = member.expect(&["/api/v1/pods?limit=1"]).await;
        assert_eq!(request.at - started, Duration::from_millis(200));
        assert!(!feed.is_dropped(), "the watch continues while the member is asked");
        feed.send(event("ADDED", &pod("b", 6)));
        tokio::task::yield_now().await;
        request.text(list(&[], 20, Some("more")));
        let short = member.expect(&["watch=1", "resourceVersion=6&", "timeoutSeconds=3&", "allowWatchBookmarks"]).await;
        assert!(feed.is_dropped(), "the short watch replaces the long one");
        let short = short.stream();
        tokio::time::advance(Duration::from_millis(1300)).await;
        short.send(bookmark(20));
        short
    };
    let (first, second, third, short) = tokio::join!(
        cacher.wait_for(ResourceVersion(20), THREE_SECONDS),
        cacher.wait_for(ResourceVersion(17), THREE_SECONDS),
        cacher.wait_for(ResourceVersion(20), THREE_SECONDS),
        script
    );
    for found in [first, second, third] {
        let snapshot = found.unwrap();
        assert_eq!((snapshot.resource_version().revision().0, snapshot.len()), (20, 2));
    }
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(cacher.stats().progress_requests, 1);
    updates.changes().await;
    assert!(matches!(updates.next().await, Update::Progress { .. }));
    tokio::time::advance(Duration::from_secs(2)).await;
    drop(short);
    let long = member.expect(&["watch=1", "resourceVersion=20&"]).await;
    assert!(!long.has("timeoutSeconds=3&"), "{}", long.uri);
}

#[tokio::test(start_paused = true)]
async fn waiter_for_a_newer_version_causes_a_second_latest_version_request() {
    let (cacher, mut member, mut updates) = start();
    let _feed = member.sync(&[], 5).await;
    updates.synced().await;
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 20, None));
        let short = member.expect(&["resourceVersion=5&", "timeoutSeconds=3&"]).await.stream();
        tokio::time::sleep(Duration::from_millis(1300)).await;
        short.send(bookmark(20));
        member.expect(&["limit=1"]).await.text(list(&[], 30, None));
        let short = member.expect(&["resourceVersion=20&", "timeoutSeconds=3&"]).await.stream();
        short.send(bookmark(30));
        short
    };
    let waiters = async {
        cacher.wait_for(ResourceVersion(20), THREE_SECONDS).await.unwrap();
        cacher.wait_for(ResourceVersion(30), THREE_SECONDS).await.unwrap();
    };
    let (_short, ()) = tokio::join!(script, waiters);
    assert_eq!(cacher.stats().progress_requests, 2);
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_version_that_the_member_has_not_reached_fails_early() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    let started = Instant::now();
    let script = async {
        let request = member.expect(&["limit=1"]).await;
        // A waiter that arrives while a request for the latest version is pending gets the result of the next request.
        let late = cacher.wait_for(ResourceVersion(900), THREE_SECONDS);
        let answer = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            request.text(list(&[], 20, None));
            member.expect(&["limit=1"]).await.text(list(&[], 21, None));
        };
        let (late, ()) = tokio::join!(late, answer);
        let (wanted, latest) = (ResourceVersion(900), ResourceVersion(21));
        assert_eq!(late.unwrap_err(), NotReached::Beyond { wanted: wanted.into(), latest });
    };
    let first = async {
        let error = cacher.wait_for(ResourceVersion(1000), THREE_SECONDS).await.unwrap_err();
        let (wanted, latest) = (ResourceVersion(1000), ResourceVersion(20));
        assert_eq!(error, NotReached::Beyond { wanted: wanted.into(), latest });
        assert_eq!(error.to_string(), "too large resource version: 1000, the cluster's latest: 20");
        assert!(started.elapsed() < Duration::from_millis(300), "{:?}", started.elapsed());
    };
    tokio::join!(first, script);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!member.has_request() && !feed.is_dropped(), "without waiters there is no question, and the watch stays");
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_version_fails_if_a_later_list_has_a_lower_version() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    feed.send(expired());
    let list = member.expect(&["sendInitialEvents=true"]).await.stream();
    let early = cacher.wait_for(ResourceVersion(31), Duration::from_secs(60));
    let script = async {
        tokio::task::yield_now().await;
        // This list was already in progress when the wait began. So its version 20 does not prove that the member lacks
        // version 31.
        list.send(end_bookmark(20));
        tokio::task::yield_now().await;
        list.send(expired());
        // This list began after the wait, so its version 30 proves that the member does not have version 31 yet. The
        // event with version 31 comes too late to change the result.
        let list = member.expect(&["sendInitialEvents=true"]).await.stream();
        list.send(end_bookmark(30) + &event("ADDED", &pod("a", 31)));
        list
    };
    let (early, _list) = tokio::join!(early, script);
    let (wanted, latest) = (ResourceVersion(31), ResourceVersion(30));
    assert_eq!(early.unwrap_err(), NotReached::Beyond { wanted: wanted.into(), latest });
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_version_fails_as_too_new_if_the_member_returns_errors() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    let script = async {
        for _ in 0..3 {
            member.expect(&["limit=1"]).await.status(500, "{}");
        }
    };
    let (found, ()) = tokio::join!(cacher.wait_for(ResourceVersion(1000), THREE_SECONDS), script);
    let error = found.unwrap_err();
    let (wanted, current) = (ResourceVersion(1000), Some(ResourceVersion(5)));
    assert_eq!(error, NotReached::TooNew { wanted: wanted.into(), current: current.map(Into::into) });
    assert_eq!(error.to_string(), "too large resource version: 1000, current: 5");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!member.has_request() && !feed.is_dropped(), "the wait costs few requests");
}

#[tokio::test(start_paused = true)]
async fn member_version_below_the_version_of_the_collection_resets_the_cacher() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[], 50).await;
    updates.synced().await;
    let script = async {
        // An event raises the collection's version to 55 while the request for the latest version is pending. The
        // response (52) is older than the collection, but does not mean that revisions went back.
        let request = member.expect(&["limit=1"]).await;
        feed.send(event("ADDED", &pod("a", 55)));
        tokio::task::yield_now().await;
        request.text(list(&[], 52, None));
        member.expect(&["limit=1"]).await.text(list(&[], 30, None));
        member.sync(&[], 31).await
    };
    let (found, _feed) = tokio::join!(cacher.wait_for(ResourceVersion(70), THREE_SECONDS), script);
    assert!(found.is_err());
    updates.changes().await;
    assert!(matches!(updates.next().await, Update::Reset { .. }));
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_deletion_ends_when_the_uid_is_gone() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    updates.synced().await;
    assert!(cacher.wait_until_deleted("ns/x", "uid-x", None, THREE_SECONDS).await.is_ok());
    assert!(cacher.wait_until_deleted("ns/a", "another", None, THREE_SECONDS).await.is_ok());
    let still = cacher.wait_until_deleted("ns/a", "uid-a", None, THREE_SECONDS).await.unwrap_err();
    assert_eq!(still, StillExists { key: "ns/a".to_owned(), uid: "uid-a".to_owned() });
    let (found, ()) = tokio::join!(cacher.wait_until_deleted("ns/a", "uid-a", None, THREE_SECONDS), async {
        feed.send(event("DELETED", &pod("a", 6)));
    });
    assert_eq!(found.unwrap().resource_version().revision().0, 6);
    let (found, ()) =
        tokio::join!(cacher.wait_until_deleted("ns/b", "uid-b", Some(ResourceVersion(2)), THREE_SECONDS), async {
            feed.send(event("MODIFIED", &pod("b", 7)));
        });
    assert_eq!(found.unwrap().resource_version().revision().0, 7, "the object is being deleted");
    let again = pod("b", 9).replace("uid-b", "uid-b2");
    let (found, ()) = tokio::join!(cacher.wait_until_deleted("ns/b", "uid-b", None, THREE_SECONDS), async {
        feed.send(event("DELETED", &pod("b", 8)) + &event("ADDED", &again));
    });
    assert_eq!(found.unwrap().len(), 1, "a different object of the name does not count");
}

#[tokio::test(start_paused = true)]
async fn latest_version_request_returns_the_members_version_or_its_error() {
    let (cacher, mut member, mut updates) = start();
    let _feed = member.sync(&[], 5).await;
    updates.synced().await;
    let (latest, ()) = tokio::join!(cacher.latest(), async {
        member.expect(&["/api/v1/pods?limit=1"]).await.text(list(&[pod("a", 1)], 77, Some("t")));
    });
    assert_eq!(latest.unwrap().0, 77);
    assert_eq!(cacher.snapshot().unwrap().resource_version().revision().0, 5, "the store does not change");
    let (refused, ()) = tokio::join!(cacher.latest(), async {
        member.next_request().await.status(403, r#"{"code":403,"message":"no"}"#);
    });
    assert!(matches!(refused, Err(LatestError::Refused(refusal)) if refusal.reason == StaleReason::Forbidden));
    let (unreachable, ()) = tokio::join!(cacher.latest(), async { member.next_request().await.refuse_connection() });
    assert!(matches!(unreachable, Err(LatestError::Unreachable(_))));
    let (malformed, ()) = tokio::join!(cacher.latest(), async { member.next_request().await.text("{}") });
    assert!(matches!(malformed, Err(LatestError::Malformed(_))));
    let (silent, ()) = tokio::join!(cacher.latest(), async { member.next_request().await.cancelled().await });
    assert!(matches!(silent, Err(LatestError::Timeout(_))));
}
