//! Tests of the time until each collection of a recovered member is fresh, for each state of the collection.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use tokio::time::{Instant, sleep, timeout};
use tributary_cacher::{
    Cacher, CacherConfig, CacherState, ListPermits, MemberHealth, MemberLoss, Precedence, ReflectorTuning, StaleReason,
};

/// The time within which a collection must be fresh after the member is reported as recovered. The value is the
/// documented time without the time to detect the recovery.
const FRESH_WITHIN: Duration = Duration::from_secs(4);

fn loss() -> MemberHealth {
    let loss = MemberLoss { last_data_at: Instant::now(), reason: Arc::from("silent") };
    MemberHealth { loss: Some(loss), unready_since: None, recoveries: 1 }
}

fn well(recoveries: u64) -> MemberHealth {
    MemberHealth { loss: None, unready_since: None, recoveries }
}

async fn serve(member: &mut Member) -> Vec<Feed> {
    let mut feeds = Vec::new();
    loop {
        let request = member.next_request().await;
        let is_streamed = request.uri.contains("sendInitialEvents=true");
        match request.uri.contains("watch=1") {
            true => {
                let feed = request.stream();
                if is_streamed {
                    feed.send(end_bookmark(5));
                }
                feeds.push(feed);
            }
            false => request.text(list(&[], 5, None)),
        }
    }
}

/// Checks that a collection becomes fresh within [`FRESH_WITHIN`] after its member has recovered.
async fn expect_fresh_soon(story: &str, cacher: &Cacher, mut member: Member) {
    assert_ne!(cacher.state(), CacherState::Synced, "{story}");
    cacher.set_member_health(well(2));
    let started_at = Instant::now();
    let fresh = state(cacher, |state| *state == CacherState::Synced);
    tokio::select! {
        _ = serve(&mut member) => {}
        _ = fresh => {}
    }
    assert!(started_at.elapsed() <= FRESH_WITHIN, "{story}: {:?}", started_at.elapsed());
}

async fn synced_and_lost() -> (Cacher, Member, Updates, Feed) {
    let (cacher, mut member, mut updates) = start();
    cacher.set_member_health(well(1));
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    sleep(Duration::from_secs(2)).await;
    cacher.set_member_health(loss());
    (cacher, member, updates, feed)
}

async fn refuse_for(time: Duration, member: &mut Member) {
    let failing = async {
        loop {
            member.next_request().await.refuse_connection();
        }
    };
    let _: Result<(), _> = timeout(time, failing).await;
}

#[tokio::test(start_paused = true)]
async fn collection_in_each_phase_is_fresh_soon_after_member_recovery() {
    let minutes = Duration::from_secs(300);

    let (cacher, mut member, _updates, feed) = synced_and_lost().await;
    feed.cut();
    refuse_for(minutes, &mut member).await;
    expect_fresh_soon("the collection waits half a minute", &cacher, member).await;

    let (cacher, mut member, _updates) = start();
    cacher.set_member_health(loss());
    refuse_for(minutes, &mut member).await;
    expect_fresh_soon("the collection was never complete", &cacher, member).await;

    for (code, header) in [(401, ""), (403, ""), (429, "60"), (503, "60"), (500, "")] {
        let (cacher, mut member, _updates, feed) = synced_and_lost().await;
        feed.cut();
        for _ in 0..12 {
            let mut head = http::Response::builder().status(code);
            if !header.is_empty() {
                head = head.header("retry-after", header);
            }
            member.next_request().await.respond(head, "");
        }
        expect_fresh_soon(&format!("the cluster refused the request with {code}"), &cacher, member).await;
    }

    let (cacher, mut member, _updates, feed) = synced_and_lost().await;
    feed.cut();
    let request = member.next_request().await;
    sleep(Duration::from_secs(6)).await;
    expect_fresh_soon("the answer with the latest version never comes", &cacher, member).await;
    request.cancelled().await;

    let (cacher, mut member, _updates, feed) = synced_and_lost().await;
    feed.cut();
    member.next_request().await.text(list(&[], 5, None));
    let request = member.expect(&["watch=1"]).await;
    sleep(Duration::from_secs(6)).await;
    expect_fresh_soon("the opened watch never starts", &cacher, member).await;
    request.cancelled().await;

    let (cacher, mut member, _updates) = start();
    cacher.set_member_health(loss());
    let request = member.next_request().await;
    sleep(Duration::from_secs(20)).await;
    expect_fresh_soon("the first list never starts", &cacher, member).await;
    request.cancelled().await;

    let (cacher, mut member, _updates, feed) = synced_and_lost().await;
    feed.send(expired());
    let request = member.expect(&["sendInitialEvents=true"]).await;
    sleep(Duration::from_secs(6)).await;
    expect_fresh_soon("the collection is listed again, and the list never starts", &cacher, member).await;
    request.cancelled().await;
}

#[tokio::test(start_paused = true)]
async fn request_to_a_healthy_member_survives_a_recovery_report() {
    let (cacher, mut member, _updates) = start();
    cacher.set_member_health(well(1));
    let request = member.next_request().await;
    // The member becomes ready only after the first report of recovery, so a second report follows.
    cacher.set_member_health(well(2));
    sleep(Duration::from_secs(20)).await;
    let feed = request.stream();
    feed.send(end_bookmark(5));
    state(&cacher, |state| *state == CacherState::Synced).await;
}

/// A member that rejects Tributary's credentials may still answer `/readyz` with 200. Tributary then reports a
/// recovery, although other requests still fail.
#[tokio::test(start_paused = true)]
async fn false_reports_of_recovery_cause_requests_with_growing_delay() {
    let (cacher, mut member, _updates, feed) = synced_and_lost().await;
    feed.cut();
    let flaps = async {
        for recoveries in 2.. {
            sleep(Duration::from_secs(1)).await;
            cacher.set_member_health(well(recoveries));
            sleep(Duration::from_secs(1)).await;
            cacher.set_member_health(MemberHealth { recoveries, ..loss() });
        }
    };
    let mut sent_at = Vec::new();
    let started_at = Instant::now();
    let refuses = async {
        loop {
            member.next_request().await.status(401, "");
            sent_at.push(started_at.elapsed().as_secs());
        }
    };
    let minutes = Duration::from_secs(600);
    let _: Result<(), _> = timeout(minutes, async { tokio::join!(flaps, refuses).0 }).await;
    let within = |from, to| sent_at.iter().filter(|at| (from..to).contains(*at)).count();
    assert!(within(0, 60) <= 20, "{sent_at:?}");
    assert!(within(300, 600) <= 21, "one request in 15 s: {sent_at:?}");
    assert!(matches!(cacher.state(), CacherState::Stale { reason: StaleReason::Unauthorized, .. }), "{cacher:?}");
    // After the real recovery, the collection becomes fresh, although all earlier reports were false.
    serve_until_fresh(&cacher, member).await;
}

async fn serve_until_fresh(cacher: &Cacher, mut member: Member) {
    cacher.set_member_health(well(10_000));
    tokio::select! {
        _ = serve(&mut member) => {}
        _ = state(cacher, |state| *state == CacherState::Synced) => {}
    }
    assert_eq!(cacher.state(), CacherState::Synced);
}

#[tokio::test(start_paused = true)]
async fn concurrent_lists_of_a_member_are_limited() {
    let list_permits = ListPermits::default();
    let mut all = Vec::new();
    for _ in 0..20 {
        let config = CacherConfig { list_permits: list_permits.clone(), ..config(ReflectorTuning::default()) };
        let (cacher, mut member, mut updates) = start_with_config(config);
        // The first list of a collection needs no list permit, because a client waits for the list.
        let feed = member.sync(&[], 5).await;
        updates.synced().await;
        all.push((cacher, member, updates, feed));
    }
    sleep(Duration::from_secs(2)).await;
    let started_at = Instant::now();
    for (_, _, _, feed) in &all {
        feed.send(expired());
    }
    let count = |all: &[(Cacher, Member, _, _)]| all.iter().filter(|(_, member, ..)| member.has_request()).count();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(count(&all), 8);
    // A complete list releases its permit immediately, so the next collection sends its list request.
    let at = all.iter().position(|(_, member, ..)| member.has_request()).unwrap();
    let (_, member, ..) = &mut all[at];
    let feed = member.sync(&[], 6).await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(count(&all), 8, "seven earlier lists and a new one");
    // A list that takes longer than a second releases its permit.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&all), 16);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&all), 19);
    assert!(started_at.elapsed() < Duration::from_secs(3));
    drop(feed);
}

/// Checks that the cacher opens the watch only after the preceding RBAC collections are current. Sends one event on the
/// watch, and returns it.
async fn expect_resumed_after_precedence(cacher: &Cacher, member: &mut Member, precedence: &Precedence) -> Feed {
    sleep(Duration::from_secs(20)).await;
    assert!(!member.has_request(), "the state before the loss of contact does not suffice");
    assert!(matches!(cacher.state(), CacherState::Stale { .. }), "{cacher:?}");
    precedence.until_awaited().await;
    precedence.mark_known(Instant::now());
    let feed = member.expect(&["watch=1"]).await.stream();
    feed.send(event("ADDED", &pod("a", 6)));
    feed
}

/// RBAC objects in the preceding collections decide which objects of this collection are visible. After a failure,
/// events must wait until those collections are current.
#[tokio::test(start_paused = true)]
async fn watch_resumes_only_after_preceding_collections_are_current() {
    let precedence = Precedence::default();
    precedence.begin();
    let config = CacherConfig { precedence: precedence.clone(), ..config(ReflectorTuning::default()) };
    let (cacher, mut member, mut updates) = start_with_config(config);
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    precedence.mark_known(Instant::now());
    sleep(Duration::from_secs(1)).await;
    feed.cut();
    member.expect(&["limit=1"]).await.text(list(&[], 5, None));
    let feed = expect_resumed_after_precedence(&cacher, &mut member, &precedence).await;
    assert!(matches!(updates.next().await, tributary_cacher::Update::Changes { .. }));
    // A watch that ended regularly is resumed without waiting for the preceding RBAC collections.
    drop(feed);
    member.expect(&["watch=1"]).await;
}

/// A proxy may have lost all watches of a member, including the watches of the preceding RBAC collections.
#[tokio::test(start_paused = true)]
async fn silent_watch_resumes_only_after_preceding_collections_are_current() {
    let precedence = Precedence::default();
    precedence.begin();
    let config = CacherConfig { precedence: precedence.clone(), ..config(ReflectorTuning::default()) };
    let (cacher, mut member, mut updates) = start_with_config(config);
    let _silent = member.sync(&[], 5).await;
    updates.synced().await;
    sleep(Duration::from_secs(60)).await;
    precedence.mark_known(Instant::now());
    member.expect(&["limit=1"]).await.text(list(&[], 5, None));
    let _feed = expect_resumed_after_precedence(&cacher, &mut member, &precedence).await;
    assert!(matches!(updates.next().await, tributary_cacher::Update::Changes { .. }));
}
