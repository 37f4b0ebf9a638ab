//! Other credentials for requests to the member, in the middle of a watch.

mod common;

use std::time::Duration;

use common::*;
use tokio::time::Instant;
use tributary_cacher::{CacherState, StaleReason};

const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn the_watch_is_opened_anew_within_the_time_and_nothing_is_listed_or_lost() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let said = Instant::now();
    cacher.reopen(WITHIN);
    feed.send(event("ADDED", &pod("b", 6)));
    assert_eq!(updates.changes().await.0, [("ADDED", "b".to_owned(), 6)], "until then the open one goes on");
    let asked = member.expect(&["watch=1", "resourceVersion=6&"]).await;
    assert!(asked.at - said <= WITHIN, "{:?}", asked.at - said);
    assert!(feed.is_dropped());
    let feed = asked.stream();
    feed.send(event("ADDED", &pod("c", 7)));
    assert_eq!(updates.changes().await.0, [("ADDED", "c".to_owned(), 7)]);
    assert_eq!((cacher.state(), cacher.stats().relists, cacher.stats().failures), (CacherState::Synced, 0, 0));
    // Once is enough.
    tokio::time::sleep(WITHIN).await;
    assert!(!member.is_asked());
}

#[tokio::test(start_paused = true)]
async fn lesser_rights_show() {
    let (cacher, mut member, mut updates) = start();
    let _feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let said = Instant::now();
    cacher.reopen(WITHIN);
    member.expect(&["watch=1", "resourceVersion=5&"]).await.status(403, "{}");
    assert!(said.elapsed() <= WITHIN);
    let stale =
        state(&cacher, |state| matches!(state, CacherState::Stale { reason: StaleReason::Forbidden, .. })).await;
    assert_eq!(stale.reason(), Some(&StaleReason::Forbidden));
    assert_eq!(cacher.snapshot().unwrap().len(), 1, "what is held is served");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_refused_is_asked_again_at_once_where_that_is_wanted() {
    let (cacher, mut member, mut updates) = start();
    let _feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    cacher.retry();
    tokio::time::sleep(WITHIN).await;
    assert!(!member.is_asked() && cacher.failed_at().is_none(), "nothing is wrong");
    cacher.reopen(Duration::ZERO);
    let late = http::Response::builder().status(403).header("retry-after", "60");
    member.expect(&["watch=1", "resourceVersion=5&"]).await.respond(late, "{}");
    state(&cacher, |state| matches!(state, CacherState::Stale { reason: StaleReason::Forbidden, .. })).await;
    let first = cacher.failed_at().expect("a refusal");
    assert!(!member.is_asked());
    let wanted = Instant::now();
    cacher.retry();
    let asked = member.expect(&["limit=1"]).await;
    assert_eq!((asked.at, cacher.failed_at()), (wanted, Some(first)));
    // Who may not list cannot ask; the watch tells.
    asked.status(403, "{}");
    member.expect(&["watch=1", "resourceVersion=5&"]).await.status(403, "{}");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(cacher.failed_at(), Some(wanted));
    assert!(!member.is_asked(), "what was asked for once is done");
    let asked = member.expect(&["limit=1"]).await;
    assert!(asked.at - wanted > Duration::from_millis(1));
    asked.text(list(&[], 5, None));
    let _feed = member.expect(&["watch=1", "resourceVersion=5&"]).await.stream();
    state(&cacher, |state| *state == CacherState::Synced).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_under_way_is_finished_and_a_watch_that_is_opened_anyway_is_enough() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.expect(&["sendInitialEvents=true"]).await.stream();
    // Said while the list is under way, with the earlier credentials.
    cacher.reopen(Duration::from_secs(5));
    tokio::time::sleep(Duration::from_secs(6)).await;
    feed.send(event("ADDED", &pod("a", 1)) + &end_bookmark(5));
    updates.synced().await;
    let feed = member.expect(&["watch=1", "resourceVersion=5&"]).await.stream();
    feed.send(bookmark(8));
    updates.next().await;
    // The member ends the watch before it is due: the next one has the new credentials already.
    cacher.reopen(WITHIN);
    drop(feed);
    let _feed = member.expect(&["watch=1", "resourceVersion=8&"]).await.stream();
    tokio::time::sleep(WITHIN).await;
    assert!(!member.is_asked());
}
