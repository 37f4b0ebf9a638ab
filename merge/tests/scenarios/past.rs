//! Tests of the limits of the history, and of lists of past states.

use std::ops::ControlFlow;

use tributary_merge::OpeningList;

use super::*;

#[test]
fn history_of_a_quiet_cluster_stays_despite_many_changes_in_another_cluster() {
    let config = LogConfig { history_bytes_max: 8 << 10, history_entries_min: 5, ..LogConfig::default() };
    let mut log = Log::new(config);
    log.join(&name("a"), snapshot(10, &[]), NOW);
    log.join(&name("b"), snapshot(10, &[]), NOW);
    change(&mut log, "a", "quiet 11");
    let mut slow = Watcher::now(&log, everything as Matches);
    for version in 11..1011 {
        change(&mut log, "b", &format!("storm {version}"));
    }
    assert!(log.len() < 40 && log.history_bytes() < 9 << 10, "{} entries", log.len());
    assert_eq!(read(&log, &mut resume(&log, "a:10 b:1010").unwrap()), ["ADDED* a/quiet@11 a:11 b:1010"]);
    assert!(too_old(&log, "a:10 b:500").starts_with("too old resource version of cluster b: 500 ("));
    assert_eq!(read(&log, &mut slow), ["Lagged"]);
    let oldest = log.oldest(&name("b")).unwrap();
    assert!(resume(&log, &format!("a:11 b:{oldest}")).is_ok());
}

fn object_with_bytes(key: &str, version: u64, bytes: usize) -> Arc<Object> {
    let metadata = format!(r#"{{"namespace":"n","name":"{key}","uid":"u","resourceVersion":"{version}"}}"#);
    let json = format!(r#"{{"metadata":{metadata},"data":"{}"}}"#, "x".repeat(bytes));
    Arc::new(ObjectDecoder::new("v1", "ConfigMap", [].into()).decode(json.as_bytes()).unwrap())
}

fn snapshot_of(version: u64, objects: &[Arc<Object>]) -> Snapshot {
    let mut snapshot: Snapshot = objects.iter().cloned().collect();
    snapshot.set_resource_version(ResourceVersion(version));
    snapshot
}

/// A client could write large objects and then shrink them, so that only the history keeps the large states.
#[test]
fn size_of_the_history_includes_the_larger_object_of_each_change() {
    const LARGE: usize = 100 << 10;
    for (bytes, entries) in [(1000 * LARGE, 100), (10 * LARGE, 19)] {
        let mut log = Log::new(LogConfig { history_bytes_max: bytes, ..LogConfig::default() });
        let mut now: Vec<_> = (0..100).map(|number| object_with_bytes(&format!("m{number}"), 1, LARGE)).collect();
        log.join(&name("a"), snapshot_of(100, &now), NOW);
        log.trim(Duration::from_secs(301));
        assert!(log.is_empty(), "the log forgets the join");
        for number in 0..100 {
            let small = object_with_bytes(&format!("m{number}"), 101 + number as u64, 1);
            let previous = Some(std::mem::replace(&mut now[number], small.clone()));
            let change = Change { change_type: ChangeType::Modified, object: small, previous };
            log.append(&name("a"), vec![change], snapshot_of(101 + number as u64, &now), Duration::from_secs(302));
        }
        assert_eq!(log.len(), entries, "{bytes}");
        assert!(log.history_bytes() >= entries * LARGE, "{} of {entries}", log.history_bytes());
    }
}

/// A client could make an object large in one cluster, and often change the object of the same name in another cluster.
/// The log entries of the other cluster refer to the large object. These references must not keep the object in memory
/// after its own cluster has no entry for it.
#[test]
fn evicted_object_is_freed_despite_references_from_another_clusters_changes() {
    const LARGE: usize = 100 << 10;
    const BOUND: usize = 1 << 20;
    let mut log = Log::new(LogConfig { history_bytes_max: BOUND, ..LogConfig::default() });
    log.join(&name("a"), snapshot(10, &["m 9 red"]), NOW);
    log.join(&name("b"), snapshot_of(10, &[object_with_bytes("m", 9, LARGE)]), NOW);
    let mut slow = Watcher::now(&log, everything as Matches);
    let mut objects = Vec::new();
    for version in 11..1011 {
        let large = object_with_bytes("m", version, LARGE);
        objects.push(Arc::downgrade(&large));
        let mut after = log.snapshot(&name("b")).unwrap().clone();
        let previous = after.insert(large.clone());
        after.set_resource_version(ResourceVersion(version));
        log.append(&name("b"), vec![Change { change_type: ChangeType::Modified, object: large, previous }], after, NOW);
        let color = if version % 2 == 0 { "red" } else { "blue" };
        change(&mut log, "a", &format!("m {version} {color}"));
    }
    let count = objects.iter().filter(|object| object.upgrade().is_some()).count();
    assert!(count <= 2 * BOUND / LARGE + 2, "{count} are kept");
    assert_eq!(read(&log, &mut slow), ["Lagged"]);
}

/// A weak reference keeps the allocation of an object after the object's text has been freed. So the history size
/// includes the references.
#[test]
fn size_of_the_history_includes_references_to_same_named_objects() {
    let added_by_a_change = |others: &[&str]| {
        let mut log = log(&[("a", 10, &["m 9 red"]), ("b", 10, others)]);
        let before = log.history_bytes();
        change(&mut log, "a", "m 11 blue");
        log.history_bytes() - before
    };
    let (alone, named) = (added_by_a_change(&[]), added_by_a_change(&["m 9 red"]));
    assert!((alone + 16..alone + 64).contains(&named), "{named} and {alone}");
}

/// A slow watch reads the deletion late. It receives the other cluster's object in its state at the deletion, although
/// the object has changed since.
#[test]
fn late_watch_sends_the_same_named_object_in_its_state_at_the_deletion() {
    let mut log = log(&[("a", 10, &["m 9 red"]), ("b", 10, &["m 9 red"]), ("c", 10, &["m 9 blue"])]);
    let mut slow = Watcher::now(&log, red as Matches);
    change(&mut log, "a", "m 11 blue");
    change(&mut log, "b", "m 12 red");
    change(&mut log, "b", "-m 13");
    log.leave(&name("b"), NOW);
    let lines: Vec<_> = read(&log, &mut slow);
    let expected = ["DELETED a/m@9 ", "ADDED b/m@9 ", "MODIFIED b/m@12 ", "DELETED b/m@13 "];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{lines:?}");
    }
}

/// A cluster may be relisted often, and all its objects may change each time. The history size must stay limited.
#[test]
fn history_keeps_the_newest_relist_and_as_many_others_as_its_limit_allows() {
    // Each case: (maximum history size in snapshots, number of snapshots in the history)
    for (states, entries) in [(1, 1), (3, 3)] {
        let one = ten_large_objects(10).iter().map(|object| object.size()).sum::<usize>();
        let mut log = Log::new(LogConfig { history_bytes_max: states * one, ..LogConfig::default() });
        log.join(&name("a"), ten_large_objects(10), NOW);
        let mut connected = Watcher::now(&log, everything as Matches);
        for version in 11..31 {
            log.relist(&name("a"), ten_large_objects(version), NOW);
            assert_eq!(read(&log, &mut connected).len(), 10, "a connected client receives the relist at {version}");
        }
        assert_eq!(log.len(), entries, "{states}");
        assert!(log.history_bytes() > entries * one && log.history_bytes() < (entries + 1) * one);
        assert!(resume(&log, "a:29").is_ok() && resume(&log, "a:11").is_err());
        // A later change does not evict the newest snapshot.
        change(&mut log, "a", "m1 31");
        assert!(resume(&log, "a:29").is_ok());
    }
}

fn ten_large_objects(version: u64) -> Snapshot {
    let objects: Vec<_> = (0..10).map(|number| object_with_bytes(&format!("m{number}"), version, 10 << 10)).collect();
    snapshot_of(version, &objects)
}

/// A cluster leaves and returns a moment later, or is relisted with few changes. The log must not evict an event that
/// connected watches still need.
#[test]
fn small_relist_does_not_evict_a_large_relist() {
    let one = ten_large_objects(10).iter().map(|object| object.size()).sum::<usize>();
    let mut log = Log::new(LogConfig { history_bytes_max: one / 2, ..LogConfig::default() });
    log.join(&name("a"), ten_large_objects(10), NOW);
    let mut connected = Watcher::now(&log, everything as Matches);
    log.leave(&name("a"), NOW);
    log.join(&name("a"), ten_large_objects(11), NOW);
    let again = log.snapshot(&name("a")).unwrap().clone();
    log.relist(&name("a"), again, NOW);
    let lines = read(&log, &mut connected);
    let of_type = |change_type: &str| lines.iter().filter(|line| line.starts_with(change_type)).count();
    assert_eq!((of_type("DELETED"), of_type("ADDED"), lines.len()), (10, 10, 20), "{lines:?}");
    // The next large relist evicts the earlier large entries.
    log.relist(&name("a"), ten_large_objects(12), NOW);
    assert_eq!(read(&log, &mut connected).len(), 10);
    assert!(log.history_bytes() < 2 * one, "{} of {one}", log.history_bytes());
}

#[test]
fn old_changes_are_evicted_from_the_event_log_except_a_minimum_number() {
    let config = LogConfig { history_entries_min: 2, ..LogConfig::default() };
    let mut log = Log::new(config);
    log.join(&name("a"), snapshot(10, &[]), NOW);
    for version in 11..16 {
        change(&mut log, "a", &format!("x {version}"));
    }
    log.progress(&name("a"), ResourceVersion(99), NOW);
    log.trim(Duration::from_secs(301));
    assert_eq!((log.len(), log.oldest(&name("a"))), (2, Some(ResourceVersion(13).into())));
    assert!(resume(&log, "a:13").is_ok() && resume(&log, "a:12").is_err());
    assert_eq!(log.resource_version(), vector("a:99"));
    log.relist(&name("a"), snapshot(100, &[]), Duration::from_secs(302));
    log.trim(Duration::from_secs(700));
    assert!(log.is_empty(), "a boundary holds a whole snapshot and expires");
    log.leave(&name("a"), Duration::from_secs(701));
    log.trim(Duration::from_secs(1100));
    assert!(log.is_empty() && resume(&log, "a:100").is_err());
}

#[test]
fn snapshot_at_a_composite_version_has_exactly_the_state_at_that_version() {
    let mut log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 20, &[])]);
    change(&mut log, "a", "x 11");
    change(&mut log, "a", "-y 12");
    log.leave(&name("b"), NOW);
    log.relist(&name("a"), snapshot(20, &["z 15"]), NOW);
    let keys = |at: &str| -> Result<Vec<String>, SnapshotError> {
        let snapshots = log.snapshot_at(&vector(at))?;
        assert_eq!(CompositeResourceVersion::from_snapshots(&snapshots), vector(at));
        let objects = snapshots.iter().flat_map(|(_, snapshot)| snapshot.iter());
        Ok(objects.map(|o| format!("{}@{}", o.name(), o.resource_version())).collect())
    };
    assert_eq!(keys("a:10 b:20"), Ok(vec!["x@9".into(), "y@8".into()]));
    assert_eq!(keys("a:11"), Ok(vec!["x@11".into(), "y@8".into()]));
    assert_eq!(keys("a:12"), Ok(vec!["x@11".into()]));
    assert_eq!(keys("a:20"), Ok(vec!["z@15".into()]));
    assert!(matches!(keys("a:9"), Err(SnapshotError::Expired(_))));
    assert!(matches!(keys("a:15"), Err(SnapshotError::Expired(_))), "the version lies inside a relist");
    assert!(matches!(keys("a:21"), Err(SnapshotError::TooNew { .. })));
}

#[test]
fn list_at_an_older_version_is_exact_for_an_object_that_changed_often() {
    let mut log = log(&[("a", 10, &["x 9", "y 8"])]);
    for text in ["x 11", "-x 12", "x 13", "y 14", "x 15", "-y 16", "new 17", "-new 18"] {
        change(&mut log, "a", text);
    }
    let shown = |version: u64| -> Vec<String> {
        let past = log.past(&name("a"), ResourceVersion(version).into()).unwrap();
        let state = past.rebuild();
        assert_eq!(state.resource_version(), ResourceVersion(version));
        state.iter().map(|object| format!("{}@{}", object.name(), object.resource_version())).collect()
    };
    let expected = [
        (10, "x@9 y@8"),
        (11, "x@11 y@8"),
        (12, "y@8"),
        (13, "x@13 y@8"),
        (14, "x@13 y@14"),
        (15, "x@15 y@14"),
        (16, "x@15"),
        (17, "new@17 x@15"),
        (18, "x@15"),
    ];
    for (version, state) in expected {
        assert_eq!(shown(version).join(" "), state, "at {version}");
    }
}

#[test]
fn list_page_has_the_number_of_remaining_objects() {
    let log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 20, &["v 11", "w 12", "x 13"]), ("c", 30, &[])]);
    for namespace in [None, Some("n".into())] {
        let filter = Filter { namespace, ..Filter::default() };
        let (mut start, mut remaining, mut listed) = (None, None, Vec::new());
        for (count, left) in [(2, Some(3)), (2, Some(1)), (1, None)] {
            let page = ListPage { start: start.clone(), limit: 2, remaining };
            let mut cursor = ListCursor::new(log.latest().clone(), filter.clone(), page);
            assert_eq!(cursor.remaining_item_count(), left);
            let before = listed.len();
            while cursor.next_chunk(1, |cluster, object| listed.push(format!("{cluster}/{}", object.name()))) {}
            assert_eq!(listed.len() - before, count);
            // After the page with three remaining objects, the test drops this number, because an inconsistent token
            // does not contain it. The next page must then count the remaining objects again.
            remaining = if left == Some(3) { None } else { left };
            start = cursor.continue_position().cloned();
        }
        assert_eq!(listed, ["a/x", "a/y", "b/v", "b/w", "b/x"]);
        assert_eq!(start, None);
    }
}

#[test]
fn list_continues_after_the_cluster_at_its_position_is_removed() {
    let log = log(&[("a", 10, &["x 9"]), ("c", 30, &["a 5", "x 6"])]);
    for (cluster, after, expected) in
        [("a", "n/x", 2), ("b", "n/x", 2), ("c", "n/a", 1), ("c", "n/x", 0), ("d", "n/a", 0)]
    {
        let start = Some(Position { cluster: name(cluster), after: after.into() });
        let page = ListPage { start, ..ListPage::default() };
        let mut cursor = ListCursor::new(log.latest().clone(), everything as Matches, page);
        let mut count = 0;
        while cursor.next_chunk(1 << 20, |_, _| count += 1) {}
        assert_eq!(count, expected, "{cluster} after {after}");
    }
}

/// Lists and watches share a thread with other tasks, so each of their steps may evaluate only a limited number of
/// objects.
#[test]
fn each_step_of_a_list_or_watch_evaluates_a_bounded_number_of_objects() {
    let names: Vec<_> = (0..1000).map(|number| format!("x{number:04} {}", 2000 - number)).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let log = log(&[("a", 10, &["y 9"]), ("b", 3000, &names)]);
    let evaluated = std::cell::Cell::new(0);
    let last_alone = |_: &ClusterName, object: &Object| {
        evaluated.set(evaluated.get() + 1);
        object.name() == "x0999"
    };
    // The only object of the page is the last object of the list, so the search walks to the end of the list.
    let page = ListPage { limit: 1, ..ListPage::default() };
    let mut opening = OpeningList::new(log.latest().clone(), last_alone, page);
    let mut steps = 0;
    let mut cursor = loop {
        evaluated.set(0);
        match opening.step(100 * Filter::COST_PER_OBJECT) {
            ControlFlow::Break(cursor) => break cursor,
            ControlFlow::Continue(more) => opening = more,
        }
        assert!(evaluated.get() <= 100, "{} objects in a step", evaluated.get());
        steps += 1;
    };
    assert_eq!((steps, cursor.continue_position()), (10, None));
    let mut listed = Vec::new();
    while cursor.next_chunk(100 * Filter::COST_PER_OBJECT, |_, object| listed.push(object.name().to_owned())) {}
    assert_eq!(listed, ["x0999"]);

    // A client that lacks a cluster receives the cluster's objects in the order of their versions. So the watch visits
    // all objects before it sends the first event.
    let mut watcher = Watcher::resume(&log, &vector("a:10"), |_: &ClusterName, _: &Object| {
        evaluated.set(evaluated.get() + 1);
        true
    })
    .unwrap();
    assert!(watcher.starts_with_state());
    let mut events = Vec::new();
    loop {
        evaluated.set(0);
        let progress = watcher.next(&log, 4, &mut events).progress;
        assert!(evaluated.get() <= 4 * 16, "{} objects in a batch", evaluated.get());
        if progress == Progress::CaughtUp {
            break;
        }
    }
    let versions = events.iter().filter_map(|event| match event {
        WatchEvent::Object(event) => Some(event.object.resource_version().0),
        WatchEvent::InitialEventsEnd(_) => None,
    });
    assert!(versions.eq(1001..=2000), "all objects, by version");
}
