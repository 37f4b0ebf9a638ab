//! Tests of the memory limit of all collections of a process. A collection that would exceed the limit is refused, and
//! existing collections stay.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use tributary_apimachinery::{Object, ObjectDecoder, SelectableField};
use tributary_cacher::{
    Cacher, CacherConfig, CacherState, ObjectMemoryLimit, ObjectRetention, Precedence, ReflectorTuning, StaleReason,
};

/// The memory limit of the tests. 128 KiB: larger than a single pod of the tests, and smaller than a hundred such pods.
const ROOM: u64 = 128 << 10;

fn large_pod(name: &str, version: u64) -> String {
    pod(name, version).replacen('{', &format!(r#"{{"data":"{}","#, "x".repeat(1 << 10)), 1)
}

fn pods(count: u64) -> Vec<String> {
    (0..count).map(|number| large_pod(&format!("p{number}"), number + 1)).collect()
}

fn start_within(object_memory: &ObjectMemoryLimit) -> (Cacher, Member, Updates) {
    start_with_config(CacherConfig { object_memory: object_memory.clone(), ..config(ReflectorTuning::default()) })
}

/// Lets a collection grow until it reaches the memory limit. Returns the cacher, its last state and its connection.
async fn growing_collection(object_memory: &ObjectMemoryLimit) -> (Cacher, CacherState, (Member, Updates, Feed)) {
    let (cacher, mut member, updates) = start_within(object_memory);
    let feed = member.sync(&pods(20), 100).await;
    is_synced(&cacher).await;
    for number in 0..200 {
        feed.send(event("ADDED", &large_pod(&format!("more{number}"), 101 + number)));
    }
    let stale = state(&cacher, has_no_room).await;
    (cacher, stale, (member, updates, feed))
}

async fn send_first_objects(member: &mut Member, count: u64) -> Feed {
    let feed = member.expect(&["sendInitialEvents=true"]).await.stream();
    feed.send(pods(count).iter().map(|pod| event("ADDED", pod)).collect::<String>());
    feed
}

fn has_no_room(state: &CacherState) -> bool {
    matches!(state.reason(), Some(StaleReason::MemoryLimitReached { max: ROOM, .. }))
}

#[tokio::test(start_paused = true)]
async fn first_list_above_the_memory_limit_is_refused() {
    let object_memory = ObjectMemoryLimit::new(ROOM, |_| ());
    let (served, mut member, mut updates) = start_within(&object_memory);
    let _feed = member.sync(&pods(20), 100).await;
    updates.synced().await;
    let own = served.stats().object_bytes;
    assert_eq!(object_memory.used(), own);
    let (refused, mut large, _updates) = start_within(&object_memory);
    let feed = send_first_objects(&mut large, 200).await;
    let state = state(&refused, has_no_room).await;
    assert!(state.is_unknown(), "{state:?}");
    let text = state.reason().map(ToString::to_string).unwrap_or_default();
    assert!(text.contains("131072 (--max-total-collection-bytes)") && text.contains("more memory"), "{text}");
    feed.dropped().await;
    assert_eq!((object_memory.used(), served.state()), (own, CacherState::Synced), "the unfinished list was released");
    // After the retry delay, the cacher lists the collection again. The collection is now small enough, so the cacher
    // keeps it.
    let _feed = large.sync(&pods(20), 300).await;
    is_synced(&refused).await;
    assert_eq!(object_memory.used(), own + refused.stats().object_bytes);
    drop(served);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(object_memory.used(), refused.stats().object_bytes, "a dropped cacher releases its memory");
}

async fn is_synced(cacher: &Cacher) {
    state(cacher, |state| *state == CacherState::Synced).await;
}

#[tokio::test(start_paused = true)]
async fn collection_growing_above_the_memory_limit_serves_its_last_state() {
    let object_memory = ObjectMemoryLimit::new(ROOM, |_| ());
    let (served, mut member, mut updates) = start_within(&object_memory);
    let _feed = member.sync(&pods(20), 100).await;
    updates.synced().await;
    let (growing_collection, stale, _connection) = growing_collection(&object_memory).await;
    assert!(matches!(stale, CacherState::Stale { .. }), "{stale:?}");
    let count = growing_collection.snapshot().unwrap().len();
    assert!((40..120).contains(&count), "{count} objects are served, of the last state that fitted");
    assert!(object_memory.used() > ROOM - ROOM / 4, "{} of {ROOM}", object_memory.used());
    assert_eq!(served.state(), CacherState::Synced);
    // A collection that starts later is refused until the other collection frees its memory.
    let (late, mut other, _updates) = start_within(&object_memory);
    drop(send_first_objects(&mut other, 2).await);
    state(&late, has_no_room).await;
    drop(growing_collection);
    let _feed = other.sync(&pods(2), 100).await;
    is_synced(&late).await;
}

/// The cacher drops these objects after their publication. The memory limit still includes them, because the observer
/// stores a compiled form of similar size.
#[tokio::test(start_paused = true)]
async fn rbac_objects_use_the_reserved_part_of_the_memory_limit() {
    let object_memory = ObjectMemoryLimit::new(ROOM, |_| ());
    let _connection = growing_collection(&object_memory).await;
    let before = object_memory.used();
    let config = CacherConfig {
        object_memory: object_memory.with_reserve(),
        retention: ObjectRetention::UntilPublished,
        ..config(ReflectorTuning::default())
    };
    let (first, mut member, mut updates) = start_with_config(config);
    let _feed = member.sync(&pods(4), 100).await;
    updates.synced().await;
    assert_eq!(object_memory.used(), before + first.stats().object_bytes);
}

/// The cacher opens the next list only after the preceding RBAC collections are current. While the member is
/// unreachable, these collections are not current, so the wait can be long.
#[tokio::test(start_paused = true)]
async fn interrupted_list_releases_its_memory_before_the_next_list() {
    let (object_memory, precedence) = (ObjectMemoryLimit::new(ROOM, |_| ()), Precedence::default());
    precedence.begin();
    let config =
        CacherConfig { object_memory: object_memory.clone(), precedence, ..config(ReflectorTuning::default()) };
    let (_cacher, mut member, _updates) = start_with_config(config);
    let feed = send_first_objects(&mut member, 60).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(object_memory.used() > 0);
    feed.cut();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!member.has_request(), "the next list waits");
    assert_eq!(object_memory.used(), 0);
}

/// When the configuration of a cluster changes, a new cacher (the successor) replaces the cacher of the collection.
#[tokio::test(start_paused = true)]
async fn collection_of_a_new_cacher_uses_the_reservation_of_the_replaced_cacher() {
    let object_memory = ObjectMemoryLimit::new(ROOM, |_| ());
    let (served, mut member, mut updates) = start_within(&object_memory);
    let _feed = member.sync(&pods(20), 100).await;
    updates.synced().await;
    let _connection = growing_collection(&object_memory).await;
    let config = CacherConfig { object_memory: object_memory.clone(), ..config(ReflectorTuning::default()) };
    let (after, mut member, mut updates) = start_after(Some(&served), config);
    drop(served);
    let _feed = member.sync(&pods(20), 300).await;
    updates.synced().await;
    assert_eq!(after.state(), CacherState::Synced);
    assert!(object_memory.used() <= ROOM);
}

/// The successor reuses unchanged objects, so only changed objects are in memory twice. The observer can then find the
/// differences by comparing pointers.
#[tokio::test(start_paused = true)]
async fn new_cacher_shares_unchanged_objects_with_the_replaced_cacher() {
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

/// The configuration of a cluster may change again while the second cacher still lists the collection, or while the
/// second collection exceeds the memory limit. Until the third cacher is ready, clients read the first collection.
#[tokio::test(start_paused = true)]
async fn third_cacher_shares_objects_with_the_first_if_the_second_is_incomplete() {
    for (sent, is_refused) in [(10, false), (200, true)] {
        let object_memory = ObjectMemoryLimit::new(ROOM, |_| ());
        let (first, mut member, mut updates) = start_within(&object_memory);
        let _feed = member.sync(&pods(20), 100).await;
        let before = updates.synced().await;
        let own = first.stats().object_bytes;
        let same = CacherConfig { object_memory: object_memory.clone(), ..config(ReflectorTuning::default()) };
        let (second, mut member, _updates) = start_after(Some(&first), same.clone());
        drop(first);
        let _listed = send_first_objects(&mut member, sent).await;
        if is_refused {
            state(&second, has_no_room).await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(object_memory.used() <= own, "{} of {own}", object_memory.used());
        let (third, mut member, mut updates) = start_after(Some(&second), same);
        drop(second);
        let mut objects = pods(19);
        objects.push(large_pod("p19", 21));
        let _feed = member.sync(&objects, 300).await;
        let after = updates.synced().await;
        let is_shared = |old: &Arc<Object>| Arc::ptr_eq(old, after.get(old.key().as_str()).unwrap());
        assert_eq!(before.iter().filter(|old| is_shared(old)).count(), 19, "{sent}");
        // The shared objects use the memory limit only once. A replaced object is freed when its last reader drops the
        // snapshot.
        assert_eq!((third.state(), object_memory.used()), (CacherState::Synced, own), "{sent}");
        let replaced = Arc::downgrade(before.get("ns/p19").unwrap());
        drop(before);
        assert!(replaced.upgrade().is_none(), "{sent}");
    }
}

/// Readers may still use a replaced cacher. So it keeps running beside its successor until its last reader drops it.
#[tokio::test(start_paused = true)]
async fn replaced_cacher_keeps_running_without_a_memory_reservation() {
    let object_memory = ObjectMemoryLimit::new(ROOM, |_| ());
    let (served, mut member, mut updates) = start_within(&object_memory);
    let feed = member.sync(&pods(20), 100).await;
    updates.synced().await;
    let _connection = growing_collection(&object_memory).await;
    let config = CacherConfig { object_memory: object_memory.clone(), ..config(ReflectorTuning::default()) };
    let (_after, _next, _updates) = start_after(Some(&served), config);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let used = object_memory.used();
    feed.send(event("ADDED", &large_pod("late", 101)));
    assert_eq!(updates.changes().await.0, [("ADDED", "late".to_owned(), 101)]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((served.state(), object_memory.used()), (CacherState::Synced, used));
    assert!(!member.has_request(), "the collection is not listed again");
}

#[tokio::test(start_paused = true)]
async fn shrunken_collection_releases_its_unused_memory_reservation() {
    let object_memory = ObjectMemoryLimit::new(ROOM, |_| ());
    let (served, mut member, mut updates) = start_within(&object_memory);
    let feed = member.sync(&pods(60), 100).await;
    updates.synced().await;
    for number in 0..50 {
        feed.send(event("DELETED", &large_pod(&format!("p{number}"), 101 + number)));
    }
    while updates.changes().await.1.len() > 10 {}
    let (other, mut large, _updates) = start_within(&object_memory);
    let _feed = large.sync(&pods(50), 300).await;
    is_synced(&other).await;
    assert_eq!(served.state(), CacherState::Synced);
}
