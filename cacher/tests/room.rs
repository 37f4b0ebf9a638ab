//! The bound of all collections of a process: a collection that exceeds it is refused, and the others stay.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use tributary_apimachinery::{Object, ObjectDecoder, SelectableField};
use tributary_cacher::{
    Cacher, CacherConfig, CacherState, HeldObjects, ObjectRoom, Precedence, ReflectorTuning, StaleReason,
};

/// 128 KiB: of those below it is far more than one pod, and less than a hundred.
const ROOM: u64 = 128 << 10;

/// A pod of a little more than 1 KiB.
fn large_pod(name: &str, version: u64) -> String {
    pod(name, version).replacen('{', &format!(r#"{{"data":"{}","#, "x".repeat(1 << 10)), 1)
}

fn pods(count: u64) -> Vec<String> {
    (0..count).map(|number| large_pod(&format!("p{number}"), number + 1)).collect()
}

fn start_within(room: &ObjectRoom) -> (Cacher, Member, Updates) {
    start_of_config(CacherConfig { room: room.clone(), ..config(ReflectorTuning::default()) })
}

/// A collection that has grown until it found no room, how it stands, and what keeps it going.
async fn greedy(room: &ObjectRoom) -> (Cacher, CacherState, (Member, Updates, Feed)) {
    let (cacher, mut member, updates) = start_within(room);
    let feed = member.sync(&pods(20), 100).await;
    is_synced(&cacher).await;
    for number in 0..200 {
        feed.send(event("ADDED", &large_pod(&format!("more{number}"), 101 + number)));
    }
    let stale = state(&cacher, has_no_room).await;
    (cacher, stale, (member, updates, feed))
}

/// Begins to send so many pods as the first list, and not its end.
async fn send_some(member: &mut Member, count: u64) -> Feed {
    let feed = member.expect(&["sendInitialEvents=true"]).await.stream();
    feed.send(pods(count).iter().map(|pod| event("ADDED", pod)).collect::<String>());
    feed
}

fn has_no_room(state: &CacherState) -> bool {
    matches!(state.reason(), Some(StaleReason::NoRoom { max: ROOM, .. }))
}

#[tokio::test(start_paused = true)]
async fn a_collection_without_room_is_refused_and_leaves_the_others_theirs() {
    let room = ObjectRoom::new(ROOM, |_| ());
    let (served, mut member, mut updates) = start_within(&room);
    let _feed = member.sync(&pods(20), 100).await;
    updates.synced().await;
    let own = served.stats().object_bytes;
    assert_eq!(room.used(), own);
    let (refused, mut large, _updates) = start_within(&room);
    let feed = send_some(&mut large, 200).await;
    let state = state(&refused, has_no_room).await;
    assert!(state.is_unknown(), "{state:?}");
    let text = state.reason().map(ToString::to_string).unwrap_or_default();
    assert!(text.contains("131072 (--max-total-collection-bytes)") && text.contains("more memory"), "{text}");
    feed.dropped().await;
    assert_eq!((room.used(), served.state()), (own, CacherState::Synced), "what came of it was let go");
    // It is asked for again, in its time, and held once there is less of it.
    let _feed = large.sync(&pods(20), 300).await;
    is_synced(&refused).await;
    assert_eq!(room.used(), own + refused.stats().object_bytes);
    drop(served);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(room.used(), refused.stats().object_bytes, "whoever goes gives back");
}

async fn is_synced(cacher: &Cacher) {
    state(cacher, |state| *state == CacherState::Synced).await;
}

#[tokio::test(start_paused = true)]
async fn a_collection_that_grows_beyond_the_bound_is_served_as_it_was() {
    let room = ObjectRoom::new(ROOM, |_| ());
    let (served, mut member, mut updates) = start_within(&room);
    let _feed = member.sync(&pods(20), 100).await;
    updates.synced().await;
    let (greedy, stale, _goes_on) = greedy(&room).await;
    assert!(matches!(stale, CacherState::Stale { .. }), "{stale:?}");
    let held = greedy.snapshot().unwrap().len();
    assert!((40..120).contains(&held), "{held} objects are served, as of when there was room");
    assert!(room.used() > ROOM - ROOM / 4, "{} of {ROOM}", room.used());
    assert_eq!(served.state(), CacherState::Synced);
    // A later collection finds no room until some is free.
    let (late, mut other, _updates) = start_within(&room);
    drop(send_some(&mut other, 2).await);
    state(&late, has_no_room).await;
    drop(greedy);
    let _feed = other.sync(&pods(2), 100).await;
    is_synced(&late).await;
}

/// Objects that only the observer keeps are counted, too: it holds as much.
#[tokio::test(start_paused = true)]
async fn objects_that_decide_about_rights_find_room_in_the_reserve() {
    let room = ObjectRoom::new(ROOM, |_| ());
    let _goes_on = greedy(&room).await;
    let before = room.used();
    let config =
        CacherConfig { room: room.with_reserve(), held: HeldObjects::UntilTold, ..config(ReflectorTuning::default()) };
    let (first, mut member, mut updates) = start_of_config(config);
    let _feed = member.sync(&pods(4), 100).await;
    updates.synced().await;
    assert_eq!(room.used(), before + first.stats().object_bytes);
}

/// The next list waits for what comes first, which is not known for as long as the member is away.
#[tokio::test(start_paused = true)]
async fn what_came_of_a_list_that_broke_off_has_no_room_while_the_next_one_waits() {
    let (room, precedence) = (ObjectRoom::new(ROOM, |_| ()), Precedence::default());
    precedence.begin();
    let config = CacherConfig { room: room.clone(), precedence, ..config(ReflectorTuning::default()) };
    let (_cacher, mut member, _updates) = start_of_config(config);
    let feed = send_some(&mut member, 60).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(room.used() > 0);
    feed.cut();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!member.is_asked(), "it waits");
    assert_eq!(room.used(), 0);
}

/// A cluster whose configuration changes is followed anew.
#[tokio::test(start_paused = true)]
async fn a_successor_has_the_room_of_the_collection() {
    let room = ObjectRoom::new(ROOM, |_| ());
    let (served, mut member, mut updates) = start_within(&room);
    let _feed = member.sync(&pods(20), 100).await;
    updates.synced().await;
    let _goes_on = greedy(&room).await;
    let config = CacherConfig { room: room.clone(), ..config(ReflectorTuning::default()) };
    let (after, mut member, mut updates) = start_after(Some(&served), config);
    drop(served);
    let _feed = member.sync(&pods(20), 300).await;
    updates.synced().await;
    assert_eq!(after.state(), CacherState::Synced);
    assert!(room.used() <= ROOM);
}

/// Whoever compares the two by pointers finds what differs; and memory has no more than that twice.
#[tokio::test(start_paused = true)]
async fn who_takes_the_place_of_another_shares_what_is_the_same_in_both() {
    let (served, mut member, mut updates) = start();
    let _feed = member.sync(&pods(3), 100).await;
    let before = updates.synced().await;
    let same = config(ReflectorTuning::default());
    let fields = [SelectableField::dotted("spec.nodeName")].into();
    let other = CacherConfig { decoder: ObjectDecoder::new("v1", "Pod", fields), ..same.clone() };
    for (config, expected) in [(same, [true, true, false]), (other, [false; 3])] {
        let (_after, mut member, mut updates) = start_after(Some(&served), config);
        let mut objects = pods(2);
        objects.push(large_pod("p2", 200));
        let _feed = member.sync(&objects, 300).await;
        let after = updates.synced().await;
        let is_shared = |key| Arc::ptr_eq(before.get(key).unwrap(), after.get(key).unwrap());
        assert_eq!(["ns/p0", "ns/p1", "ns/p2"].map(is_shared), expected);
    }
}

/// A cluster may be reconfigured once more while it is listed, or while there is no room for what it has by now. What
/// was held of it before both is served all the time.
#[tokio::test(start_paused = true)]
async fn who_comes_third_shares_with_the_first_where_the_second_was_never_complete() {
    for (sent, is_refused) in [(10, false), (200, true)] {
        let room = ObjectRoom::new(ROOM, |_| ());
        let (first, mut member, mut updates) = start_within(&room);
        let _feed = member.sync(&pods(20), 100).await;
        let before = updates.synced().await;
        let own = first.stats().object_bytes;
        let same = CacherConfig { room: room.clone(), ..config(ReflectorTuning::default()) };
        let (second, mut member, _updates) = start_after(Some(&first), same.clone());
        drop(first);
        let _listed = send_some(&mut member, sent).await;
        if is_refused {
            state(&second, has_no_room).await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(room.used() <= own, "{} of {own}", room.used());
        let (third, mut member, mut updates) = start_after(Some(&second), same);
        drop(second);
        let mut objects = pods(19);
        objects.push(large_pod("p19", 21));
        let _feed = member.sync(&objects, 300).await;
        let after = updates.synced().await;
        let is_shared = |old: &Arc<Object>| Arc::ptr_eq(old, after.get(old.key().as_str()).unwrap());
        assert_eq!(before.iter().filter(|old| is_shared(old)).count(), 19, "{sent}");
        // It is counted once, and what was replaced is held no longer than by those who read it.
        assert_eq!((third.state(), room.used()), (CacherState::Synced, own), "{sent}");
        let replaced = Arc::downgrade(before.get("ns/p19").unwrap());
        drop(before);
        assert!(replaced.upgrade().is_none(), "{sent}");
    }
}

/// It may be read for as long as somebody has it: it goes on, beside the one that has its room.
#[tokio::test(start_paused = true)]
async fn whose_place_was_taken_goes_on_and_has_no_room_a_second_time() {
    let room = ObjectRoom::new(ROOM, |_| ());
    let (served, mut member, mut updates) = start_within(&room);
    let feed = member.sync(&pods(20), 100).await;
    updates.synced().await;
    let _goes_on = greedy(&room).await;
    let config = CacherConfig { room: room.clone(), ..config(ReflectorTuning::default()) };
    let (_after, _next, _updates) = start_after(Some(&served), config);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let used = room.used();
    feed.send(event("ADDED", &large_pod("late", 101)));
    assert_eq!(updates.changes().await.0, [("ADDED", "late".to_owned(), 101)]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((served.state(), room.used()), (CacherState::Synced, used));
    assert!(!member.is_asked(), "it is not listed anew");
}

#[tokio::test(start_paused = true)]
async fn a_collection_that_becomes_smaller_leaves_its_room_to_others() {
    let room = ObjectRoom::new(ROOM, |_| ());
    let (served, mut member, mut updates) = start_within(&room);
    let feed = member.sync(&pods(60), 100).await;
    updates.synced().await;
    for number in 0..50 {
        feed.send(event("DELETED", &large_pod(&format!("p{number}"), 101 + number)));
    }
    while updates.changes().await.1.len() > 10 {}
    let (other, mut large, _updates) = start_within(&room);
    let _feed = large.sync(&pods(50), 300).await;
    is_synced(&other).await;
    assert_eq!(served.state(), CacherState::Synced);
}
