//! Tests of failures of the member and of the connection, and of the cacher's recovery from each failure.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use tokio::time::Instant;
use tributary_apimachinery::ResourceVersion;
use tributary_cacher::{CacherConfig, CacherState, Continuity, Precedence, ReflectorTuning, StaleReason, Update};

#[tokio::test(start_paused = true)]
async fn expired_watch_causes_a_relist_while_old_objects_are_served() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("same", 1), pod("changed", 2), pod("gone", 3)], 5).await;
    updates.synced().await;
    feed.send(event("ADDED", &pod("late", 6)) + &expired());
    assert_eq!(updates.changes().await.0, [("ADDED", "late".to_owned(), 6)], "events before the error count");
    let relist = member.expect(&["sendInitialEvents=true"]).await;
    assert!(!relist.uri.contains("resourceVersion="), "the list is consistent, so that time does not go back");
    assert_eq!(cacher.snapshot().unwrap().len(), 4);
    let feed = relist.stream();
    feed.send(event("ADDED", &pod("changed", 8)) + &event("ADDED", &pod("new", 9)));
    state(&cacher, |state| matches!(state, CacherState::Stale { reason: StaleReason::Expired, .. })).await;
    assert_eq!(cacher.snapshot().unwrap().len(), 4, "an incomplete list is never visible");
    feed.send(event("ADDED", &pod("same", 1)) + &end_bookmark(10) + &event("DELETED", &pod("new", 11)));
    let Update::Relisted { before, after } = updates.next().await else { panic!("not relisted") };
    assert_eq!(contents(&before), names(&[("same", 1), ("changed", 2), ("gone", 3), ("late", 6)]));
    assert_eq!(contents(&after), names(&[("same", 1), ("changed", 8), ("new", 9)]));
    assert_eq!((before.resource_version().revision().0, after.resource_version().revision().0), (6, 10));
    let same = |key| Arc::ptr_eq(before.get(key).unwrap(), after.get(key).unwrap());
    assert!(same("ns/same") && !same("ns/changed"));
    assert_eq!(updates.changes().await.0, [("DELETED", "new".to_owned(), 11)]);
    assert_eq!(cacher.state(), CacherState::Synced);
    assert_eq!((cacher.stats().relists, cacher.stats().resets), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn watch_refused_with_http_410_causes_a_relist() {
    let (_cacher, mut member, mut updates) = start();
    drop(member.sync(&[], 5).await);
    updates.synced().await;
    member.expect(&["resourceVersion=5"]).await.status(410, r#"{"code":410,"reason":"Gone"}"#);
    member.sync(&[pod("a", 7)], 9).await;
    assert!(matches!(updates.next().await, Update::Relisted { after, .. } if after.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn watch_that_ends_resumes_at_once_from_the_last_version() {
    let (cacher, mut member, mut updates) = start();
    let mut feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    for version in 6..10 {
        feed.send(event("MODIFIED", &pod("a", version)));
        updates.changes().await;
        let ended = Instant::now();
        drop(feed);
        let request = member.expect(&["watch=1", &format!("resourceVersion={version}&")]).await;
        assert_eq!(request.at, ended);
        feed = request.stream();
    }
    // After the first watch that ends without data, the cacher reopens the watch at once. After the next such watch, it
    // waits.
    drop(feed);
    let ended = Instant::now();
    let request = member.expect(&["resourceVersion=9"]).await;
    assert_eq!(request.at, ended);
    drop(request.stream());
    let request = member.expect(&["limit=1"]).await;
    assert!(request.at > ended);
    request.text(list(&[], 9, None));
    let feed = member.expect(&["resourceVersion=9"]).await.stream();
    feed.send(event("DELETED", &pod("a", 10)));
    assert_eq!(updates.changes().await.0, [("DELETED", "a".to_owned(), 10)]);
    assert_eq!(cacher.state(), CacherState::Synced);
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_dropped_and_resumed_from_the_last_version() {
    let (_cacher, mut member, mut updates) = start();
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    tokio::time::advance(Duration::from_secs(60)).await;
    feed.send(bookmark(6));
    updates.next().await;
    let last_data_at = Instant::now();
    let request = member.expect(&["limit=1"]).await;
    assert_eq!(request.at - last_data_at, Duration::from_secs(90));
    assert!(feed.is_dropped());
    request.text(list(&[], 6, None));
    member.expect(&["watch=1", "resourceVersion=6"]).await;
}

/// A proxy in front of a failed member may accept watches and deliver nothing. So an open watch alone does not prove
/// that the collection is current.
#[tokio::test(start_paused = true)]
async fn collection_with_silent_watches_is_stale_until_data_arrives() {
    let (cacher, mut member, mut updates) = start();
    let mut feeds = vec![member.sync(&[], 5).await];
    updates.synced().await;
    let last_data_at = Instant::now();
    for _ in 0..3 {
        member.expect(&["limit=1"]).await.text(list(&[], 5, None));
        feeds.push(member.expect(&["watch=1", "resourceVersion=5", "timeoutSeconds=3&"]).await.stream());
        tokio::time::sleep(Duration::from_secs(20)).await;
        let state = cacher.state();
        assert!(
            matches!(state, CacherState::Stale { since, .. } if since == last_data_at),
            "{state:?}, not since {last_data_at:?}"
        );
        assert_eq!(*cacher.continuity().borrow(), Continuity::Broken);
    }
    // The watch delivers a bookmark with the current version, and no event.
    let feed = feeds.pop().unwrap();
    feed.send(bookmark(5));
    state(&cacher, |state| *state == CacherState::Synced).await;
    assert!(matches!(*cacher.continuity().borrow(), Continuity::Resumed(_)));
}

/// The watch of a healthy, quiet collection delivers nothing, so about every 90 s the cacher checks it by a request for
/// the latest version. This check takes longer if preceding RBAC collections are refreshed first and the round trip is
/// long.
#[tokio::test(start_paused = true)]
async fn quiet_collection_stays_synced_while_its_silent_watch_is_checked() {
    let precedence = Precedence::default();
    precedence.begin();
    let config = CacherConfig { precedence: precedence.clone(), ..config(ReflectorTuning::default()) };
    let (cacher, mut member, mut updates) = start_with_config(config);
    let mut feeds = vec![member.sync(&[], 5).await];
    updates.synced().await;
    let states = cacher.states();
    for _ in 0..2 {
        member.expect(&["limit=1"]).await.text(list(&[], 5, None));
        precedence.until_awaited().await;
        tokio::time::sleep(Duration::from_millis(2500)).await;
        precedence.mark_known(Instant::now());
        let short = member.expect(&["watch=1", "resourceVersion=5&", "timeoutSeconds=3"]).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let short = short.stream();
        tokio::time::sleep(Duration::from_millis(2300)).await;
        short.send(bookmark(5));
        tokio::time::sleep(Duration::from_millis(700)).await;
        drop(short);
        feeds.push(member.expect(&["watch=1", "resourceVersion=5&"]).await.stream());
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!states.has_changed().unwrap(), "{cacher:?}");
        assert!(matches!(*cacher.continuity().borrow(), Continuity::Resumed(_)));
    }
    // If the short watch after the silent watch also delivers nothing, the collection becomes stale.
    member.expect(&["limit=1"]).await.text(list(&[], 5, None));
    let silent = Instant::now();
    precedence.until_awaited().await;
    precedence.mark_known(Instant::now());
    feeds.push(member.expect(&["watch=1", "timeoutSeconds=3"]).await.stream());
    state(&cacher, |state| matches!(state, CacherState::Stale { .. })).await;
    let after = silent.elapsed();
    assert!(after <= Duration::from_secs(16), "after {after:?}");
}

#[tokio::test(start_paused = true)]
async fn request_without_answer_times_out() {
    let (cacher, mut member, _updates) = start();
    let started = Instant::now();
    let request = member.next_request().await;
    request.cancelled().await;
    assert_eq!(started.elapsed(), Duration::from_secs(30));
    state(&cacher, |state| matches!(state.reason(), Some(StaleReason::Unreachable(text)) if text.contains("30 s")))
        .await;
    // A list times out if its body stops in the middle.
    member.expect(&["sendInitialEvents"]).await.status(400, "");
    let feed = member.expect(&["limit"]).await.stream();
    feed.send(r#"{"items":["#);
    feed.dropped().await;
    member.next_request().await;
}

#[tokio::test(start_paused = true)]
async fn retry_delay_grows_with_jitter_and_resets_after_success() {
    let (cacher, mut member, mut updates) = start();
    let mut last = Instant::now();
    let full: Vec<f64> = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0].to_vec();
    member.next_request().await.refuse_connection();
    let mut jittered = false;
    for expected in &full {
        let request = member.expect(&["sendInitialEvents"]).await;
        let delay = (request.at - last).as_secs_f64();
        last = request.at;
        assert!(delay >= expected / 2.0 && delay <= expected + 0.002, "{delay} of {expected}");
        jittered |= (delay - expected).abs() > 0.005;
        request.refuse_connection();
    }
    assert!(jittered);
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    feed.send(bookmark(6));
    updates.next().await;
    let failed = Instant::now();
    feed.cut();
    let request = member.expect(&["limit=1"]).await;
    assert!(request.at - failed <= Duration::from_millis(202));
    assert_eq!(cacher.stats().failures, 12);
}

#[tokio::test(start_paused = true)]
async fn list_with_an_unrequested_content_encoding_is_a_failure() {
    let (cacher, mut member, _updates) = start();
    member.next_request().await.respond(http::Response::builder().header("Content-Encoding", "gzip"), "\u{1f}");
    state(&cacher, |state| matches!(state.reason(), Some(StaleReason::Other(text)) if text.contains("gzip"))).await;
    assert_eq!(cacher.stats().decode_errors, 0);
    member
        .next_request()
        .await
        .respond(http::Response::builder().header("Content-Encoding", "identity"), &end_bookmark(5));
    assert!(cacher.wait_for(ResourceVersion(5), Duration::from_secs(1)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn retry_after_header_is_respected_up_to_a_limit() {
    let (cacher, mut member, _updates) = start();
    let request = member.next_request().await;
    let started = request.at;
    request.respond(http::Response::builder().status(429).header("Retry-After", "7"), "");
    let again = member.next_request().await;
    assert_eq!((again.at - started).as_secs(), 7);
    assert_eq!(cacher.state().reason(), Some(&StaleReason::TooManyRequests));
    // The Retry-After of an ERROR event also delays the next request, up to a limit.
    let feed = again.stream();
    let failed = Instant::now();
    feed.send(event("ERROR", r#"{"code":500,"message":"boom","details":{"retryAfterSeconds":86400}}"#));
    assert_eq!((member.next_request().await.at - failed).as_secs(), 60);
    assert_eq!(cacher.state().reason(), Some(&StaleReason::Other("500: boom".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn cacher_reports_the_reason_of_each_refusal_and_recovers() {
    let (cacher, mut member, _updates) = start();
    let reasons = [
        (401, StaleReason::Unauthorized),
        (403, StaleReason::Forbidden),
        (404, StaleReason::NotFound),
        (503, StaleReason::Other("503: Service Unavailable".to_owned())),
    ];
    for (code, reason) in reasons {
        member.expect(&["sendInitialEvents"]).await.status(code, "");
        let state = state(&cacher, |state| state.reason() == Some(&reason)).await;
        assert!(state.is_unknown());
        assert!(cacher.snapshot().is_none());
    }
    let feed = member.sync(&[], 5).await;
    state(&cacher, |state| *state == CacherState::Synced).await;
    // After the first list, responses with 401 make the state stale. The collection is still served.
    feed.cut();
    let lost = Instant::now();
    while !matches!(cacher.state(), CacherState::Stale { .. }) {
        member.expect(&["limit=1"]).await.status(401, "");
        tokio::task::yield_now().await;
    }
    let CacherState::Stale { since, reason } = cacher.state() else { panic!("not stale") };
    assert_eq!((since, reason), (lost, StaleReason::Unauthorized));
    assert!(cacher.snapshot().is_some());
    member.expect(&["limit=1"]).await.text(list(&[], 5, None));
    let feed = member.expect(&["resourceVersion=5"]).await.stream();
    feed.send(bookmark(6));
    state(&cacher, |state| *state == CacherState::Synced).await;
}

#[tokio::test(start_paused = true)]
async fn short_watch_interruption_does_not_make_the_state_stale() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    let states = cacher.states();
    feed.cut();
    member.expect(&["limit=1"]).await.refuse_connection();
    member.expect(&["limit=1"]).await.text(list(&[], 5, None));
    let feed = member.expect(&["resourceVersion=5"]).await.stream();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(cacher.state(), CacherState::Synced);
    assert!(!states.has_changed().unwrap_or(true), "the published state did not change");
    assert!(!feed.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn cacher_state_becomes_stale_when_the_grace_time_passes() {
    let (cacher, mut member, mut updates) =
        start_with(ReflectorTuning { backoff_min: Duration::from_secs(60), ..ReflectorTuning::default() });
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    let lost = Instant::now();
    feed.cut();
    state(&cacher, |state| matches!(state, CacherState::Stale { since, .. } if *since == lost)).await;
    assert!((lost.elapsed().as_secs_f64() - 5.0).abs() < 0.01, "{:?}", lost.elapsed());
}

#[tokio::test(start_paused = true)]
async fn decreased_revision_of_a_member_resets_the_cacher() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 90), pod("b", 91)], 100).await;
    updates.synced().await;
    feed.cut();
    // The member was restored to version 50. It would accept a watch from version 100, but send no events. So the
    // cacher first requests the latest version.
    member.expect(&["limit=1"]).await.text(list(&[], 50, None));
    // The member's version exceeds 100 again before the list is complete.
    member.sync(&[pod("a", 90), pod("b", 101)], 120).await;
    let Update::Reset { before, after } = updates.next().await else { panic!("not reset") };
    assert_eq!((before.resource_version().revision().0, after.resource_version().revision().0), (100, 120));
    assert!(Arc::ptr_eq(before.get("ns/a").unwrap(), after.get("ns/a").unwrap()));
    assert_eq!(cacher.state(), CacherState::Synced);
    assert_eq!((cacher.stats().relists, cacher.stats().resets), (1, 1));

    // The restored member is detected only by the list after a 410: the list's version is below the current version.
    let (_cacher, mut member, mut updates) = start();
    member.sync(&[pod("a", 90)], 100).await.send(expired());
    updates.synced().await;
    member.sync(&[pod("a", 20)], 30).await;
    assert!(matches!(updates.next().await, Update::Reset { after, .. } if after.resource_version().revision().0 == 30));
}

#[tokio::test(start_paused = true)]
async fn call_of_reset_makes_the_cacher_list_the_collection_again() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    cacher.reset();
    feed.dropped().await;
    member.sync(&[pod("a", 1)], 6).await;
    assert!(matches!(updates.next().await, Update::Reset { .. }));
    // `Cacher::reset` also ends the delay after a failure.
    member.expect(&["resourceVersion=6"]).await.refuse_connection();
    tokio::task::yield_now().await;
    cacher.reset();
    member.sync(&[], 7).await;
    assert!(matches!(updates.next().await, Update::Reset { after, .. } if after.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn bookmark_below_the_current_version_triggers_a_latest_version_request() {
    let (_cacher, mut member, mut updates) = start();
    let feed = member.sync(&[], 50).await;
    updates.synced().await;
    feed.send(bookmark(40));
    member.expect(&["limit=1"]).await.text(list(&[], 50, None));
    member.expect(&["watch=1", "resourceVersion=50"]).await;
}

#[tokio::test(start_paused = true)]
async fn failed_watch_resumes_without_the_right_to_list() {
    let (_cacher, mut member, mut updates) = start();
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    feed.cut();
    member.expect(&["limit=1"]).await.status(403, "");
    let feed = member.expect(&["resourceVersion=5"]).await.stream();
    feed.send(event("ADDED", &pod("a", 6)));
    assert_eq!(updates.changes().await.0.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn watch_that_only_repeats_old_events_is_reopened_after_a_delay() {
    let (_cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    drop(feed);
    let started = Instant::now();
    let mut watches = 0;
    while started.elapsed() < Duration::from_secs(60) {
        let request = member.next_request().await;
        if request.uri.contains("limit=1") {
            request.text(list(&[], 5, None));
        } else {
            watches += 1;
            request.text("<html>\n".to_owned() + &event("ADDED", &pod("a", 1)));
        }
    }
    assert!(watches < 15, "{watches} watches in a minute");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_cacher_cancels_its_request() {
    let (cacher, mut member, _updates) = start();
    let feed = member.sync(&[], 5).await;
    cacher.wait_for(ResourceVersion(5), Duration::from_secs(1)).await.unwrap();
    let mut states = cacher.states();
    drop(cacher);
    feed.dropped().await;
    while states.changed().await.is_ok() {}
    assert!(!matches!(*states.borrow(), CacherState::Synced), "a dropped cacher is not synced");

    let (cacher, mut member, _updates) = start();
    let request = member.next_request().await;
    drop(cacher);
    request.cancelled().await;
}

struct Panics;

impl tributary_cacher::UpdateObserver for Panics {
    fn update(&self, _update: Update) {
        panic!("on purpose");
    }
}

#[tokio::test(start_paused = true)]
async fn cacher_state_is_not_synced_after_the_reflector_has_ended() {
    let (transport, mut member) = transport();
    let cacher = tributary_cacher::Cacher::start(config(ReflectorTuning::default()), transport, Arc::new(Panics));
    member.sync(&[], 5).await;
    state(
        &cacher,
        |state| matches!(state.reason(), Some(StaleReason::Other(text)) if text.contains("no longer cached")),
    )
    .await;
    assert!(cacher.wait_for(ResourceVersion(5), Duration::from_secs(3)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn repeated_continue_token_restarts_the_list_after_a_delay() {
    let (cacher, mut member, _updates) = start();
    member.expect(&["sendInitialEvents=true"]).await.status(400, "");
    member.expect(&["limit="]).await.text(list(&[], 5, Some("again")));
    member.expect(&["continue=again"]).await.text(list(&[], 5, Some("again")));
    let sent_at = Instant::now();
    let next = member.expect(&["limit="]).await;
    assert!(next.at - sent_at >= Duration::from_millis(100), "the next request waits");
    assert!(!next.uri.contains("continue"), "the list starts over: {}", next.uri);
    state(&cacher, |state| state.reason().is_some_and(|reason| reason.to_string().contains("does not advance"))).await;
}

#[tokio::test(start_paused = true)]
async fn endless_refusal_body_is_read_up_to_a_limit() {
    let (cacher, mut member, _updates) = start();
    let feed = member.expect(&["sendInitialEvents=true"]).await.stream_with(503);
    for _ in 0..80 {
        feed.send("x".repeat(1024));
    }
    state(&cacher, |state| state.reason().is_some_and(|reason| reason.to_string().contains("503"))).await;
    assert!(feed.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn reopening_of_watches_that_end_early_is_rate_limited() {
    let (cacher, mut member, mut updates) = start();
    let mut feed = member.sync(&[pod("a", 1)], 5).await;
    updates.synced().await;
    let began = Instant::now();
    for version in 6..56 {
        feed.send(event("MODIFIED", &pod("a", version)));
        updates.changes().await;
        drop(feed);
        feed = member.expect(&["watch=1", &format!("resourceVersion={version}&")]).await.stream();
    }
    let took = began.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(6)).contains(&took), "{took:?}");
    assert_eq!(cacher.state(), CacherState::Synced);
}

/// Calico's API server writes versions such as `1234/5678` and `1234/`; other servers write UUIDs or empty texts.
#[tokio::test(start_paused = true)]
async fn collection_with_opaque_versions_is_listed_again_after_a_minute() {
    for version in ["100/107", "107/", "", "018f3c2a-7d1e-7000-8000-000000000000", "eyJhIjoiMSJ9"] {
        let opaque =
            |text: String| text.replace(r#""resourceVersion":"7""#, &format!(r#""resourceVersion":"{version}""#));
        for answer in [
            opaque(list(&[pod("a", 3)], 7, None)),
            opaque(list(&[pod("a", 7)], 3, None)),
            opaque(list(&[pod("a", 7), pod("b", 7)], 7, None)),
        ] {
            let (cacher, mut member, _updates) = start();
            member.expect(&["sendInitialEvents=true"]).await.status(400, r#"{"code":400,"reason":"Invalid"}"#);
            let request = member.expect(&["limit="]).await;
            let first = request.at;
            request.text(answer);
            state(&cacher, |state| matches!(state.reason(), Some(StaleReason::OpaqueVersions(_)))).await;
            assert_eq!(cacher.state().reason(), Some(&StaleReason::OpaqueVersions(version.to_owned())));
            let again = member.expect(&["limit="]).await;
            assert!(again.at - first >= Duration::from_secs(60), "{version}: again after {:?}", again.at - first);
            again.text(list(&[pod("a", 3)], 7, None));
            state(&cacher, |state| *state == CacherState::Synced).await;
        }
        // An API server without watches answers a WatchList with a list. The cacher does not report the first such
        // response as a failure, but requests a list.
        let (cacher, mut member, _updates) = start();
        member.expect(&["sendInitialEvents=true"]).await.text(opaque(list(&[pod("a", 7)], 7, None)));
        let request = member.expect(&["limit="]).await;
        assert_eq!(cacher.state().reason(), None);
        request.text(opaque(list(&[pod("a", 7)], 7, None)));
        state(&cacher, |state| matches!(state.reason(), Some(StaleReason::OpaqueVersions(_)))).await;
        let (cacher, mut member, _updates) = start();
        let feed = member.expect(&["sendInitialEvents=true"]).await.stream();
        feed.send(opaque(event("ADDED", &pod("a", 7))) + &opaque(end_bookmark(7)));
        state(&cacher, |state| matches!(state.reason(), Some(StaleReason::OpaqueVersions(_)))).await;
        let (cacher, mut member, _updates) = start();
        let feed = member.expect(&["sendInitialEvents=true"]).await.stream();
        feed.send(event("ADDED", &pod("a", 3)) + &opaque(end_bookmark(7)));
        state(&cacher, |state| matches!(state.reason(), Some(StaleReason::OpaqueVersions(_)))).await;
        assert!(cacher.snapshot().is_none());
    }
}
