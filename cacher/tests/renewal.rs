//! Tests in which the credentials of requests to the member change while a watch is open.

mod common;

use std::time::Duration;

use common::*;
use tokio::time::Instant;
use tributary_cacher::{CacherState, StaleReason};

const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn watch_reopens_with_new_credentials_without_list_or_lost_event() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let started_at = Instant::now();
    cacher.reopen(WITHIN);
    feed.send(event("ADDED", &pod("b", 6)));
    assert_eq!(updates.changes().await.0, [("ADDED", "b".to_owned(), 6)], "the open watch continues until then");
    let request = member.expect(&["watch=1", "resourceVersion=6&"]).await;
    assert!(request.at - started_at <= WITHIN, "{:?}", request.at - started_at);
    assert!(feed.is_dropped());
    let feed = request.stream();
    feed.send(event("ADDED", &pod("c", 7)));
    assert_eq!(updates.changes().await.0, [("ADDED", "c".to_owned(), 7)]);
    assert_eq!((cacher.state(), cacher.stats().relists, cacher.stats().failures), (CacherState::Synced, 0, 0));
    // The watch is reopened only once.
    tokio::time::sleep(WITHIN).await;
    assert!(!member.has_request());
}

#[tokio::test(start_paused = true)]
async fn reopened_watch_reveals_revoked_access_rights() {
    let (cacher, mut member, mut updates) = start();
    let _feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let started_at = Instant::now();
    cacher.reopen(WITHIN);
    member.expect(&["watch=1", "resourceVersion=5&"]).await.status(403, "{}");
    assert!(started_at.elapsed() <= WITHIN);
    let stale =
        state(&cacher, |state| matches!(state, CacherState::Stale { reason: StaleReason::Forbidden, .. })).await;
    assert_eq!(stale.reason(), Some(&StaleReason::Forbidden));
    assert_eq!(cacher.snapshot().unwrap().len(), 1, "the last state stays served");
}

#[tokio::test(start_paused = true)]
async fn call_of_retry_ends_the_cachers_delay_after_a_refusal() {
    let (cacher, mut member, mut updates) = start();
    let _feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    cacher.retry();
    tokio::time::sleep(WITHIN).await;
    assert!(!member.has_request() && cacher.failed_at().is_none(), "the collection is healthy");
    cacher.reopen(Duration::ZERO);
    let late = http::Response::builder().status(403).header("retry-after", "60");
    member.expect(&["watch=1", "resourceVersion=5&"]).await.respond(late, "{}");
    state(&cacher, |state| matches!(state, CacherState::Stale { reason: StaleReason::Forbidden, .. })).await;
    let first = cacher.failed_at().expect("a refusal");
    assert!(!member.has_request());
    let wanted = Instant::now();
    cacher.retry();
    let request = member.expect(&["limit=1"]).await;
    assert_eq!((request.at, cacher.failed_at()), (wanted, Some(first)));
    // The user may neither list nor watch: the request for the member's latest version and the watch both get 403.
    request.status(403, "{}");
    member.expect(&["watch=1", "resourceVersion=5&"]).await.status(403, "{}");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(cacher.failed_at(), Some(wanted));
    assert!(!member.has_request(), "a retry is done once");
    let request = member.expect(&["limit=1"]).await;
    assert!(request.at - wanted > Duration::from_millis(1));
    request.text(list(&[], 5, None));
    let _feed = member.expect(&["watch=1", "resourceVersion=5&"]).await.stream();
    state(&cacher, |state| *state == CacherState::Synced).await;
}

#[tokio::test(start_paused = true)]
async fn watch_reopening_requested_during_a_list_happens_once_after_the_list() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.expect(&["sendInitialEvents=true"]).await.stream();
    // The test calls `reopen` during the list, which was sent with the old credentials. So the cacher opens a new watch
    // after the list.
    cacher.reopen(Duration::from_secs(5));
    tokio::time::sleep(Duration::from_secs(6)).await;
    feed.send(event("ADDED", &pod("a", 1)) + &end_bookmark(5));
    updates.synced().await;
    let feed = member.expect(&["watch=1", "resourceVersion=5&"]).await.stream();
    feed.send(bookmark(8));
    updates.next().await;
    // The member ends the watch before `WITHIN` has passed. The cacher opens the next watch with the new credentials,
    // so it does not reopen that watch.
    cacher.reopen(WITHIN);
    drop(feed);
    let _feed = member.expect(&["watch=1", "resourceVersion=8&"]).await.stream();
    tokio::time::sleep(WITHIN).await;
    assert!(!member.has_request());
}
