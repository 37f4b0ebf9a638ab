//! A member that could not be reached and is well again: how soon each of its collections is fresh, whatever it was at.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use tokio::time::{Instant, sleep, timeout};
use tributary_cacher::{
    Cacher, CacherConfig, CacherState, ListPlaces, MemberHealth, MemberLoss, Precedence, ReflectorTuning, StaleReason,
};

/// How soon a collection is to be fresh once its member is well: what is promised, less the time in which that is found
/// out.
const FRESH_WITHIN: Duration = Duration::from_secs(4);

fn lost() -> MemberHealth {
    let lost = MemberLoss { heard: Instant::now(), reason: Arc::from("silent") };
    MemberHealth { lost: Some(lost), unready_since: None, recoveries: 1 }
}

fn well(recoveries: u64) -> MemberHealth {
    MemberHealth { lost: None, unready_since: None, recoveries }
}

/// Answers whatever is asked, as a member that is well.
async fn serve(member: &mut Member) -> Vec<Feed> {
    let mut feeds = Vec::new();
    loop {
        let asked = member.asked().await;
        let is_streamed = asked.uri.contains("sendInitialEvents=true");
        match asked.uri.contains("watch=1") {
            true => {
                let feed = asked.stream();
                if is_streamed {
                    feed.send(end_bookmark(5));
                }
                feeds.push(feed);
            }
            false => asked.text(list(&[], 5, None)),
        }
    }
}

/// Looks that a collection is fresh soon after its member is well.
async fn is_fresh_soon(story: &str, cacher: &Cacher, mut member: Member) {
    assert_ne!(cacher.state(), CacherState::Synced, "{story}");
    cacher.set_member_health(well(2));
    let begun = Instant::now();
    let fresh = state(cacher, |state| *state == CacherState::Synced);
    tokio::select! {
        _ = serve(&mut member) => {}
        _ = fresh => {}
    }
    assert!(begun.elapsed() <= FRESH_WITHIN, "{story}: {:?}", begun.elapsed());
}

/// A collection that was held, and whose member is lost now.
async fn held_and_lost() -> (Cacher, Member, Updates, Feed) {
    let (cacher, mut member, mut updates) = start();
    cacher.set_member_health(well(1));
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    sleep(Duration::from_secs(2)).await;
    cacher.set_member_health(lost());
    (cacher, member, updates, feed)
}

/// Lets whatever is asked fail, for so long.
async fn fails_for(time: Duration, member: &mut Member) {
    let failing = async {
        loop {
            member.asked().await.refuse_connection();
        }
    };
    let _: Result<(), _> = timeout(time, failing).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_a_collection_was_at_it_is_fresh_soon_after_its_member_is_well() {
    let minutes = Duration::from_secs(300);

    let (cacher, mut member, _updates, feed) = held_and_lost().await;
    feed.cut();
    fails_for(minutes, &mut member).await;
    is_fresh_soon("it waits half a minute", &cacher, member).await;

    let (cacher, mut member, _updates) = start();
    cacher.set_member_health(lost());
    fails_for(minutes, &mut member).await;
    is_fresh_soon("it was never held", &cacher, member).await;

    for (code, header) in [(401, ""), (403, ""), (429, "60"), (503, "60"), (500, "")] {
        let (cacher, mut member, _updates, feed) = held_and_lost().await;
        feed.cut();
        for _ in 0..12 {
            let mut head = http::Response::builder().status(code);
            if !header.is_empty() {
                head = head.header("retry-after", header);
            }
            member.asked().await.respond(head, "");
        }
        is_fresh_soon(&format!("it was refused with {code}"), &cacher, member).await;
    }

    let (cacher, mut member, _updates, feed) = held_and_lost().await;
    feed.cut();
    let asked = member.asked().await;
    sleep(Duration::from_secs(6)).await;
    is_fresh_soon("what it asked for its latest version never comes", &cacher, member).await;
    asked.cancelled().await;

    let (cacher, mut member, _updates, feed) = held_and_lost().await;
    feed.cut();
    member.asked().await.text(list(&[], 5, None));
    let asked = member.expect(&["watch=1"]).await;
    sleep(Duration::from_secs(6)).await;
    is_fresh_soon("the watch that it opened never begins", &cacher, member).await;
    asked.cancelled().await;

    let (cacher, mut member, _updates) = start();
    cacher.set_member_health(lost());
    let asked = member.asked().await;
    sleep(Duration::from_secs(20)).await;
    is_fresh_soon("its first list never begins", &cacher, member).await;
    asked.cancelled().await;

    let (cacher, mut member, _updates, feed) = held_and_lost().await;
    feed.send(expired());
    let asked = member.expect(&["sendInitialEvents=true"]).await;
    sleep(Duration::from_secs(6)).await;
    is_fresh_soon("it is listed again, and that never begins", &cacher, member).await;
    asked.cancelled().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_of_a_member_that_was_well_is_waited_for() {
    let (cacher, mut member, _updates) = start();
    cacher.set_member_health(well(1));
    let asked = member.asked().await;
    // It becomes ready meanwhile, say.
    cacher.set_member_health(well(2));
    sleep(Duration::from_secs(20)).await;
    let feed = asked.stream();
    feed.send(end_bookmark(5));
    state(&cacher, |state| *state == CacherState::Synced).await;
}

/// A member that rejects our credentials, and whose `/readyz` is 200 for everybody.
#[tokio::test(start_paused = true)]
async fn a_member_that_is_said_to_be_well_again_and_again_in_vain_is_asked_ever_less() {
    let (cacher, mut member, _updates, feed) = held_and_lost().await;
    feed.cut();
    let flaps = async {
        for recoveries in 2.. {
            sleep(Duration::from_secs(1)).await;
            cacher.set_member_health(well(recoveries));
            sleep(Duration::from_secs(1)).await;
            cacher.set_member_health(MemberHealth { recoveries, ..lost() });
        }
    };
    let mut asked = Vec::new();
    let begun = Instant::now();
    let refuses = async {
        loop {
            member.asked().await.status(401, "");
            asked.push(begun.elapsed().as_secs());
        }
    };
    let minutes = Duration::from_secs(600);
    let _: Result<(), _> = timeout(minutes, async { tokio::join!(flaps, refuses).0 }).await;
    let within = |from, to| asked.iter().filter(|at| (from..to).contains(*at)).count();
    assert!(within(0, 60) <= 20, "{asked:?}");
    assert!(within(300, 600) <= 21, "one in 15 s: {asked:?}");
    assert!(matches!(cacher.state(), CacherState::Stale { reason: StaleReason::Unauthorized, .. }), "{cacher:?}");
    // Once it is well, that is believed as soon as it is found out, and then again at once.
    is_fresh_at_last(&cacher, member).await;
}

/// Serves until the collection is fresh, and looks that it is asked at once the next time.
async fn is_fresh_at_last(cacher: &Cacher, mut member: Member) {
    cacher.set_member_health(well(10_000));
    tokio::select! {
        _ = serve(&mut member) => {}
        _ = state(cacher, |state| *state == CacherState::Synced) => {}
    }
    assert_eq!(cacher.state(), CacherState::Synced);
}

#[tokio::test(start_paused = true)]
async fn collections_are_listed_again_a_few_at_a_time() {
    let list_places = ListPlaces::default();
    let mut all = Vec::new();
    for _ in 0..20 {
        let config = CacherConfig { list_places: list_places.clone(), ..config(ReflectorTuning::default()) };
        let (cacher, mut member, mut updates) = start_of_config(config);
        // The first list of a collection waits for no place: a client waits for it.
        let feed = member.sync(&[], 5).await;
        updates.synced().await;
        all.push((cacher, member, updates, feed));
    }
    sleep(Duration::from_secs(2)).await;
    let begun = Instant::now();
    for (_, _, _, feed) in &all {
        feed.send(expired());
    }
    let count = |all: &[(Cacher, Member, _, _)]| all.iter().filter(|(_, member, ..)| member.is_asked()).count();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(count(&all), 8);
    // One that is complete makes room for another at once.
    let at = all.iter().position(|(_, member, ..)| member.is_asked()).unwrap();
    let (_, member, ..) = &mut all[at];
    let feed = member.sync(&[], 6).await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(count(&all), 8, "seven of before and another");
    // Those that take long keep none waiting for longer than a second.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&all), 16);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&all), 19);
    assert!(begun.elapsed() < Duration::from_secs(3));
    drop(feed);
}

/// The feed of the watch that is opened once what comes first is known as of now, and not before. It has an event.
async fn resumed_once_known(cacher: &Cacher, member: &mut Member, precedence: &Precedence) -> Feed {
    sleep(Duration::from_secs(20)).await;
    assert!(!member.is_asked(), "what was known before contact was lost is not enough");
    assert!(matches!(cacher.state(), CacherState::Stale { .. }), "{cacher:?}");
    precedence.until_wanted().await;
    precedence.mark_known(Instant::now());
    let feed = member.expect(&["watch=1"]).await.stream();
    feed.send(event("ADDED", &pod("a", 6)));
    feed
}

/// Who may see an object is said by other objects: what comes after a failure must not be shown before these are known.
#[tokio::test(start_paused = true)]
async fn what_comes_first_is_known_before_events_are_read_on() {
    let precedence = Precedence::default();
    precedence.begin();
    let config = CacherConfig { precedence: precedence.clone(), ..config(ReflectorTuning::default()) };
    let (cacher, mut member, mut updates) = start_of_config(config);
    let feed = member.sync(&[], 5).await;
    updates.synced().await;
    precedence.mark_known(Instant::now());
    sleep(Duration::from_secs(1)).await;
    feed.cut();
    member.expect(&["limit=1"]).await.text(list(&[], 5, None));
    let feed = resumed_once_known(&cacher, &mut member, &precedence).await;
    assert!(matches!(updates.next().await, tributary_cacher::Update::Changes { .. }));
    // A watch that ends in order is resumed at once.
    drop(feed);
    member.expect(&["watch=1"]).await;
}

/// Whoever stands before a member may have forgotten all watches of it, those of what comes first as well.
#[tokio::test(start_paused = true)]
async fn what_comes_first_is_known_before_a_silent_watch_is_resumed() {
    let precedence = Precedence::default();
    precedence.begin();
    let config = CacherConfig { precedence: precedence.clone(), ..config(ReflectorTuning::default()) };
    let (cacher, mut member, mut updates) = start_of_config(config);
    let _silent = member.sync(&[], 5).await;
    updates.synced().await;
    sleep(Duration::from_secs(60)).await;
    precedence.mark_known(Instant::now());
    member.expect(&["limit=1"]).await.text(list(&[], 5, None));
    let _feed = resumed_once_known(&cacher, &mut member, &precedence).await;
    assert!(matches!(updates.next().await, tributary_cacher::Update::Changes { .. }));
}
