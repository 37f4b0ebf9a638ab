//! The contract of a merged watch, one rule at a time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tributary_apimachinery::{
    Change, ChangeType, ClusterName, Filter, Object, ObjectDecoder, ResourceVersion, Snapshot,
};
use tributary_merge::{
    CompositeResourceVersion, EventVersion, ListCursor, ListPage, Log, LogConfig, Position, Progress, SnapshotError,
    TooOld, WatchEvent, Watcher,
};

const NOW: Duration = Duration::ZERO;

fn name(text: &str) -> ClusterName {
    ClusterName::new(text).unwrap()
}

/// An object from `key version color`.
fn object(text: &str) -> Arc<Object> {
    let parts: Vec<_> = text.split(' ').collect();
    let (version, color) = (parts[1], parts.get(2).unwrap_or(&"blue"));
    let json = format!(
        r#"{{"metadata":{{"namespace":"n","name":"{}","uid":"u","resourceVersion":"{version}","labels":{{"color":"{color}"}}}}}}"#,
        parts[0]
    );
    Arc::new(ObjectDecoder::new("v1", "Pod", [].into()).decode(json.as_bytes()).unwrap())
}

fn snapshot(version: u64, objects: &[&str]) -> Snapshot {
    let mut snapshot: Snapshot = objects.iter().map(|text| object(text)).collect();
    snapshot.set_resource_version(ResourceVersion(version));
    snapshot
}

fn vector(text: &str) -> CompositeResourceVersion {
    let components = text.split_whitespace().map(|part| part.split_once(':').unwrap());
    components.map(|(cluster, version)| (name(cluster), ResourceVersion(version.parse().unwrap()))).collect()
}

/// A log with some clusters, each `name`, version, objects.
fn log(clusters: &[(&str, u64, &[&str])]) -> Log {
    let mut log = Log::new(LogConfig::default());
    for (cluster, version, objects) in clusters {
        log.join(&name(cluster), snapshot(*version, objects), NOW);
    }
    log
}

/// Puts or deletes (`-key version`) an object, as the member would report it.
fn change(log: &mut Log, cluster: &str, text: &str) {
    change_at(log, cluster, text, NOW);
}

fn change_at(log: &mut Log, cluster: &str, text: &str, now: Duration) {
    let mut snapshot = log.snapshot(&name(cluster)).unwrap().clone();
    let object = object(text.trim_start_matches('-'));
    let (change_type, previous) = if text.starts_with('-') {
        (ChangeType::Deleted, snapshot.remove(object.key().as_str()))
    } else {
        let previous = snapshot.insert(object.clone());
        (if previous.is_some() { ChangeType::Modified } else { ChangeType::Added }, previous)
    };
    snapshot.set_resource_version(object.resource_version());
    log.append(&name(cluster), vec![Change { change_type, object, previous }], snapshot, now);
}

fn everything(_: &ClusterName, _: &Object) -> bool {
    true
}

fn red(_: &ClusterName, object: &Object) -> bool {
    object.label("color") == Some("red")
}

type Matches = fn(&ClusterName, &Object) -> bool;

/// What a watcher gives out until it has to wait, as `TYPE cluster/name@version vector`; `*` marks what is not shared.
fn read(log: &Log, watcher: &mut Watcher<Matches>) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut events = Vec::new();
        let progress = watcher.next(log, 1, &mut events);
        lines.extend(events.iter().map(|event| line(log, event)));
        match progress {
            Progress::More => {}
            Progress::CaughtUp => return lines,
            other => {
                lines.push(format!("{other:?}"));
                return lines;
            }
        }
    }
}

fn line(log: &Log, event: &WatchEvent) -> String {
    match event {
        WatchEvent::InitialEventsEnd(version) => format!("END {}", text(log, version)),
        WatchEvent::Object(event) => {
            let mark = if event.shared.is_some() { "" } else { "*" };
            let (cluster, object) = (&event.cluster, &event.object);
            let version = text(log, &event.version);
            let (name, own) = (object.name(), object.resource_version());
            format!("{}{mark} {cluster}/{name}@{own} {version}", event.change_type.as_str())
        }
    }
}

fn text(log: &Log, version: &EventVersion) -> String {
    let vector = match version {
        EventVersion::Item(item) => return format!("item {item}"),
        EventVersion::Log(version) => log.vector(*version).unwrap(),
        EventVersion::Vector(vector) => (**vector).clone(),
    };
    vector.iter().map(|(cluster, version)| format!("{cluster}:{version}")).collect::<Vec<_>>().join(" ")
}

fn resume(log: &Log, from: &str) -> Result<Watcher<Matches>, TooOld> {
    Watcher::resume(log, &vector(from), everything as Matches)
}

fn too_old(log: &Log, from: &str) -> String {
    resume(log, from).map(drop).unwrap_err().to_string()
}

#[test]
fn initial_events_come_in_key_order_with_one_end_bookmark() {
    let mut log = log(&[("b", 20, &["x 19", "a 20"]), ("a", 10, &["z 3"])]);
    let mut with = Watcher::initial(&log, everything as Matches, true);
    let mut without = Watcher::initial(&log, everything as Matches, false);
    assert_eq!(with.bookmark(&log), None, "nothing can be resumed before the end");
    change(&mut log, "a", "z 11");
    assert_eq!(
        read(&log, &mut with),
        [
            "ADDED* a/z@3 item 3",
            "ADDED* b/a@20 item 20",
            "ADDED* b/x@19 item 19",
            "END a:10 b:20",
            "MODIFIED a/z@11 a:11 b:20"
        ]
    );
    assert_eq!(
        read(&log, &mut without),
        ["ADDED* a/z@3 item 3", "ADDED* b/a@20 item 20", "ADDED* b/x@19 a:10 b:20", "MODIFIED a/z@11 a:11 b:20"]
    );
}

#[test]
fn selectors_turn_changes_into_additions_and_deletions() {
    let mut log = log(&[("a", 10, &["x 9 red"])]);
    let mut watcher = Watcher::now(&log, red as Matches);
    for text in ["x 11 blue", "x 12 blue", "x 13 red", "x 14 red", "-x 15 red", "y 16 blue", "-y 17 blue"] {
        change(&mut log, "a", text);
    }
    assert_eq!(
        read(&log, &mut watcher),
        ["DELETED a/x@9 a:11", "ADDED a/x@13 a:13", "MODIFIED a/x@14 a:14", "DELETED a/x@15 a:15"]
    );
    assert_eq!(text(&log, &watcher.bookmark(&log).unwrap()), "a:17");
}

#[test]
fn a_resumed_stream_joins_its_version_until_the_log_has_passed_it() {
    let mut log = log(&[("a", 10, &[]), ("b", 20, &[])]);
    change(&mut log, "a", "x 11");
    change(&mut log, "b", "y 21");
    change(&mut log, "b", "z 22");
    let mut watcher = resume(&log, "a:10 b:21").unwrap();
    assert_eq!(read(&log, &mut watcher), ["ADDED* a/x@11 a:11 b:21", "ADDED* b/z@22 a:11 b:22"]);
    change(&mut log, "a", "x 12");
    assert_eq!(read(&log, &mut watcher), ["MODIFIED a/x@12 a:12 b:22"], "and is shared from then on");
}

#[test]
fn a_component_from_the_future_is_skipped_as_it_comes() {
    let mut log = log(&[("a", 10, &["x 9"]), ("b", 20, &["x 19"])]);
    let mut watcher = resume(&log, "a:12 b:20").unwrap();
    assert_eq!(watcher.ahead(), Some((&name("a"), ResourceVersion(12))));
    change(&mut log, "a", "y 11");
    change(&mut log, "b", "z 21");
    assert_eq!(read(&log, &mut watcher), ["ADDED* b/z@21 a:12 b:21"]);
    change(&mut log, "b", "-x 22");
    assert!(read(&log, &mut watcher).is_empty(), "a deletion waits for what it may have to be followed by");
    change(&mut log, "a", "x 12");
    change(&mut log, "a", "y 13");
    assert_eq!(
        read(&log, &mut watcher),
        ["DELETED* b/x@22 a:12 b:21", "ADDED* a/x@12 a:12 b:22", "MODIFIED* a/y@13 a:13 b:22"]
    );
    assert_eq!(watcher.ahead(), None);
}

#[test]
fn a_cluster_that_joins_is_added_in_ascending_versions() {
    let mut log = log(&[("a", 10, &[])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.join(&name("b"), snapshot(30, &["x 29", "y 25", "z 27"]), NOW);
    let added = ["ADDED b/y@25 a:10 b:25", "ADDED b/z@27 a:10 b:27", "ADDED b/x@29 a:10 b:30"];
    assert_eq!(read(&log, &mut watcher), added);
    let mut missing = resume(&log, "a:10").unwrap();
    let private: Vec<_> = added.iter().map(|line| line.replace("ADDED", "ADDED*")).collect();
    assert_eq!(read(&log, &mut missing), private, "and so it is for a client that never saw it");
    assert_eq!(too_old(&log, "a:10 b:27"), "too old resource version of cluster b: 27 (30)");
}

#[test]
fn nobody_goes_on_from_an_object_of_a_cluster_that_leaves() {
    let mut log = log(&[("a", 10, &["x 9", "y 10"])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.leave(&name("a"), NOW);
    let mut events = Vec::new();
    watcher.next(&log, 10, &mut events);
    for event in events {
        let WatchEvent::Object(event) = event else { panic!("{event:?}") };
        assert_eq!((event.change_type, event.native_version), (ChangeType::Deleted, ResourceVersion(1)));
    }
    // Where it comes back as it was, its own version would be the whole of it.
    log.join(&name("a"), snapshot(10, &["x 9", "y 10"]), NOW);
    assert!(resume(&log, "a:1").is_err() && !goes_on(&log, "a", 1));
}

#[test]
fn a_cluster_that_leaves_is_deleted_and_goes_with_the_last() {
    let mut log = log(&[("a", 10, &[]), ("b", 30, &["x 29", "y 25"])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.leave(&name("b"), NOW);
    assert_eq!(read(&log, &mut watcher), ["DELETED b/x@29 a:10 b:0", "DELETED b/y@25 a:10"]);
    let mut late = resume(&log, "a:10 b:30").unwrap();
    assert_eq!(read(&log, &mut late), ["DELETED b/x@29 a:10 b:0", "DELETED b/y@25 a:10"]);
    assert!(too_old(&log, "a:10 b:0").contains("cluster b: 0"), "a stream cut in the middle starts anew");
    assert!(too_old(&log, "a:10 b:31").contains("cluster b: 31"), "another replica saw more of it");
    assert!(too_old(&log, "a:10 c:1").contains("cluster c"), "a cluster that nobody knows");
}

#[test]
fn a_cluster_that_comes_back_is_told_to_those_who_saw_it_before() {
    let mut log = log(&[("b", 30, &["x 29"])]);
    log.leave(&name("b"), NOW);
    log.join(&name("b"), snapshot(40, &["x 29", "y 35"]), NOW);
    let mut before = resume(&log, "b:30").unwrap();
    assert_eq!(read(&log, &mut before).len(), 3, "deleted, and added again");
    assert!(resume(&log, "b:35").is_err(), "nobody here knows what was between");
    assert!(read(&log, &mut resume(&log, "b:40").unwrap()).is_empty());
    assert!(resume(&log, "b:0").is_err(), "half of the leave was told");
}

#[test]
fn a_relist_tells_the_differences_deletions_first() {
    let mut log = log(&[("a", 10, &[]), ("b", 30, &["w 21", "x 29", "y 25", "z 27"])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.relist(&name("b"), snapshot(40, &["x 38", "z 27", "v 35"]), NOW);
    let expected =
        ["DELETED b/w@21 a:10 b:30", "DELETED b/y@25 a:10 b:30", "ADDED b/v@35 a:10 b:35", "MODIFIED b/x@38 a:10 b:40"];
    assert_eq!(read(&log, &mut watcher), expected);
    assert_eq!(read(&log, &mut resume(&log, "a:10 b:30").unwrap()).len(), 4, "from its start it is replayed");
    assert!(too_old(&log, "a:10 b:35").contains("35 (30)"), "inside it nobody knows what the client saw");
    assert!(read(&log, &mut resume(&log, "a:10 b:40").unwrap()).is_empty());
}

#[test]
fn a_reset_ends_what_was_handed_out_before() {
    let mut log = log(&[("b", 30, &["x 29", "y 5"])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.relist(&name("b"), snapshot(20, &["x 18", "y 5"]), NOW);
    assert_eq!(read(&log, &mut watcher), ["MODIFIED b/x@18 b:20"]);
    assert!(resume(&log, "b:19").is_err());
    change(&mut log, "b", "x 21");
    assert_eq!(read(&log, &mut watcher), ["MODIFIED b/x@21 b:21"]);
    assert_eq!(read(&log, &mut resume(&log, "b:20").unwrap()), ["MODIFIED b/x@21 b:21"]);
}

#[test]
fn a_client_ahead_of_a_reset_is_not_caught_up_with_by_other_changes() {
    let mut log = log(&[("a", 10, &[]), ("b", 30, &["x 29"])]);
    log.relist(&name("b"), snapshot(28, &["y 5"]), NOW);
    let mut undone = resume(&log, "a:10 b:30").unwrap();
    assert_eq!(undone.ahead(), Some((&name("b"), ResourceVersion(30))));
    change(&mut log, "b", "x 29");
    assert!(read(&log, &mut undone).is_empty(), "the member may come to what another process has seen");
    change(&mut log, "b", "z 30");
    change(&mut log, "b", "w 31");
    let too_old = TooOld { cluster: name("b"), requested: ResourceVersion(30), oldest: Some(ResourceVersion(28)) };
    assert_eq!(undone.next(&log, 10, &mut Vec::new()), Progress::Expired(too_old), "of which 30 is it?");
    assert!(resume(&log, "a:10 b:30").is_err() && resume(&log, "a:10 b:31").is_ok(), "a new list has another");
}

#[test]
fn a_name_that_another_cluster_has_is_announced_again() {
    let mut log = log(&[("a", 10, &["x 9 red"]), ("b", 20, &["x 15 red"]), ("c", 30, &["x 25 blue"])]);
    let (mut all, mut reds) = (Watcher::now(&log, everything as Matches), Watcher::now(&log, red as Matches));
    change(&mut log, "a", "-x 11 red");
    change(&mut log, "b", "x 21 blue");
    assert_eq!(
        read(&log, &mut all),
        ["DELETED a/x@11 a:10 b:20 c:30", "ADDED b/x@15 a:11 b:20 c:30", "MODIFIED b/x@21 a:11 b:21 c:30"]
    );
    assert_eq!(
        read(&log, &mut reds),
        ["DELETED a/x@11 a:10 b:20 c:30", "ADDED b/x@15 a:11 b:20 c:30", "DELETED b/x@15 a:11 b:21 c:30"]
    );
    assert_eq!(log.find("n/x").len(), 2);
}

#[test]
fn one_clusters_storm_pushes_nobody_elses_history_out() {
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

#[test]
fn history_ages_but_the_newest_entries_stay() {
    let config = LogConfig { history_entries_min: 2, ..LogConfig::default() };
    let mut log = Log::new(config);
    log.join(&name("a"), snapshot(10, &[]), NOW);
    for version in 11..16 {
        change(&mut log, "a", &format!("x {version}"));
    }
    log.progress(&name("a"), ResourceVersion(99), NOW);
    log.trim(Duration::from_secs(301));
    assert_eq!((log.len(), log.oldest(&name("a"))), (2, Some(ResourceVersion(13))));
    assert!(resume(&log, "a:13").is_ok() && resume(&log, "a:12").is_err());
    assert_eq!(log.resource_version(), vector("a:99"));
    log.relist(&name("a"), snapshot(100, &[]), Duration::from_secs(302));
    log.trim(Duration::from_secs(700));
    assert!(log.is_empty(), "a boundary holds a whole snapshot and goes in time");
    log.leave(&name("a"), Duration::from_secs(701));
    log.trim(Duration::from_secs(1100));
    assert!(log.is_empty() && resume(&log, "a:100").is_err());
}

#[test]
fn past_states_are_exact() {
    let mut log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 20, &[])]);
    change(&mut log, "a", "x 11");
    change(&mut log, "a", "-y 12");
    log.leave(&name("b"), NOW);
    log.relist(&name("a"), snapshot(20, &["z 15"]), NOW);
    let keys = |at: &str| -> Result<Vec<String>, SnapshotError> {
        let snapshots = log.snapshot_at(&vector(at))?;
        assert_eq!(CompositeResourceVersion::of(&snapshots), vector(at));
        let objects = snapshots.iter().flat_map(|(_, snapshot)| snapshot.iter());
        Ok(objects.map(|o| format!("{}@{}", o.name(), o.resource_version())).collect())
    };
    assert_eq!(keys("a:10 b:20"), Ok(vec!["x@9".into(), "y@8".into()]));
    assert_eq!(keys("a:11"), Ok(vec!["x@11".into(), "y@8".into()]));
    assert_eq!(keys("a:12"), Ok(vec!["x@11".into()]));
    assert_eq!(keys("a:20"), Ok(vec!["z@15".into()]));
    assert!(matches!(keys("a:9"), Err(SnapshotError::Expired(_))));
    assert!(matches!(keys("a:15"), Err(SnapshotError::Expired(_))), "inside a relist");
    assert!(matches!(keys("a:21"), Err(SnapshotError::TooNew { .. })));
}

#[test]
fn a_version_that_stands_for_two_states_is_expired() {
    let mut log = log(&[("a", 10, &["x 9"])]);
    for version in 11..20 {
        change(&mut log, "a", &format!("x {version}"));
    }
    log.reset(&name("a"), snapshot(13, &["x 13"]), NOW);
    let expired = |log: &Log, at: &str| matches!(log.snapshot_at(&vector(at)), Err(SnapshotError::Expired(_)));
    assert!(!expired(&log, "a:13"), "the restored state is the same in both");
    change(&mut log, "a", "y 15");
    assert!(expired(&log, "a:14") && expired(&log, "a:15"), "there was another state at this version");
    change(&mut log, "a", "y 20");
    assert!(expired(&log, "a:15") && !expired(&log, "a:20"));
    log.trim(Duration::from_secs(301));
    assert!(!expired(&log, "a:20"));
}

#[test]
fn a_watch_goes_on_after_one_named_event() {
    let mut log = log(&[("a", 10, &[]), ("b", 20, &[])]);
    change(&mut log, "a", "x 11");
    change(&mut log, "b", "y 21");
    change(&mut log, "a", "x 12");
    let mut watcher = Watcher::after_event(&log, &name("a"), ResourceVersion(11), everything as Matches).unwrap();
    assert_eq!(read(&log, &mut watcher), ["ADDED b/y@21 a:11 b:21", "MODIFIED a/x@12 a:12 b:21"]);
    for (cluster, version) in [("a", 10), ("a", 13), ("c", 1)] {
        let version = ResourceVersion(version);
        assert!(Watcher::after_event(&log, &name(cluster), version, everything as Matches).is_none());
    }
}

#[test]
fn an_event_before_another_cluster_came_says_nothing_of_that() {
    let mut log = log(&[("a", 10, &["x 9"])]);
    change(&mut log, "a", "y 11");
    log.join(&name("b"), snapshot(20, &["x 19"]), NOW);
    change(&mut log, "b", "-x 21");
    let mut again = Watcher::after_event(&log, &name("a"), ResourceVersion(11), everything as Matches).unwrap();
    assert_eq!(text(&log, &again.bookmark(&log).unwrap()), "a:11");
    // Behind the deletion a's x is told again.
    assert_eq!(read(&log, &mut again).len(), 3);
    assert_eq!(text(&log, &again.bookmark(&log).unwrap()), "a:11 b:21");
}

/// Whether a watch goes on after an event.
fn goes_on(log: &Log, cluster: &str, version: u64) -> bool {
    Watcher::after_event(log, &name(cluster), ResourceVersion(version), everything as Matches).is_some()
}

#[test]
fn no_watch_goes_on_after_a_version_that_two_events_carry() {
    let mut log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 20, &[])]);
    change(&mut log, "a", "z 11");
    change(&mut log, "b", "x 21");
    change(&mut log, "a", "v 12");
    assert!(goes_on(&log, "a", 11) && goes_on(&log, "b", 21) && goes_on(&log, "a", 12));
    // What was found gone carries the version before the list.
    log.relist(&name("a"), snapshot(15, &["x 9", "z 11", "v 12"]), NOW);
    assert!(goes_on(&log, "a", 11) && goes_on(&log, "b", 21) && !goes_on(&log, "a", 12));
    // b's x is told again.
    change(&mut log, "a", "-x 16");
    assert!(goes_on(&log, "a", 16) && goes_on(&log, "a", 11) && !goes_on(&log, "b", 21));
}

#[test]
fn no_watch_goes_on_after_what_was_told_to_a_client_that_had_more() {
    let lacking_one = || {
        let mut log = log(&[("a", 10, &[]), ("b", 20, &["y 19"])]);
        change(&mut log, "a", "x 11");
        change(&mut log, "b", "y 21");
        change(&mut log, "a", "x 12");
        log
    };
    let mut log = lacking_one();
    let mut further = resume(&log, "a:10 b:21").unwrap();
    assert!(goes_on(&log, "a", 11), "nobody has been told yet");
    assert_eq!(read(&log, &mut further), ["ADDED* a/x@11 a:11 b:21", "MODIFIED* a/x@12 a:12 b:21"]);
    assert!(!goes_on(&log, "a", 11), "b's y would be told again");
    assert!(goes_on(&log, "a", 12), "it has no more than stands there");
    change(&mut log, "b", "y 22");
    assert!(goes_on(&log, "b", 22));
    // An object that was told behind another's deletion, as the client had it: further than the place of that.
    let mut log = crate::log(&[("a", 10, &["x 9"]), ("b", 20, &[])]);
    for (cluster, text) in [("a", "v 11"), ("a", "-x 12"), ("a", "w 13"), ("b", "x 21")] {
        change(&mut log, cluster, text);
    }
    let mut further = resume(&log, "a:11 b:21").unwrap();
    let mut events = Vec::new();
    further.next(&log, 2, &mut events);
    let told: Vec<_> = events.iter().map(|event| line(&log, event)).collect();
    assert_eq!(told, ["DELETED* a/x@12 a:11 b:21", "ADDED* b/x@21 a:12 b:21"]);
    assert!(!goes_on(&log, "b", 21), "a's w would not be told");
    let log = lacking_one();
    let mut missing = resume(&log, "a:12").unwrap();
    assert_eq!(read(&log, &mut missing), ["ADDED* b/y@21 a:12 b:21"]);
    assert!(!goes_on(&log, "b", 21), "a's x would be told again");
}

#[test]
fn a_restore_shows_when_a_cluster_comes_back() {
    // The version is passed, and z was not there at 10, nor x at 8.
    for objects in [&["x 7", "z 9"][..], &["x 8"], &["x 6", "y 12"]] {
        let mut log = log(&[("a", 10, &["x 7", "y 9"])]);
        log.leave(&name("a"), NOW);
        log.join(&name("a"), snapshot(12, objects), NOW);
        assert!(resume(&log, "a:10").is_err() && resume(&log, "a:9").is_err(), "{objects:?}");
    }
    for objects in [&["x 7", "y 9"][..], &["x 11"], &[], &["y 9", "z 12"]] {
        let mut log = log(&[("a", 10, &["x 7", "y 9"])]);
        log.leave(&name("a"), NOW);
        log.join(&name("a"), snapshot(12, objects), NOW);
        assert!(resume(&log, "a:10").is_ok(), "{objects:?}");
    }
}

#[test]
fn a_version_that_was_undone_is_too_old_once_it_is_passed() {
    let reset = |log: &mut Log| log.reset(&name("a"), snapshot(8, &["x 7"]), NOW);
    let come_back = |log: &mut Log| {
        log.leave(&name("a"), NOW);
        log.join(&name("a"), snapshot(8, &["x 7"]), NOW);
    };
    for undo in [reset as fn(&mut Log), come_back] {
        let mut log = log(&[("a", 10, &["x 7", "y 9"])]);
        undo(&mut log);
        change(&mut log, "a", "z 10");
        assert!(resume(&log, "a:9").is_ok(), "a list would give no other, so it would be refused again");
        change(&mut log, "a", "w 11");
        assert!(resume(&log, "a:9").is_err() && resume(&log, "a:10").is_err(), "its client may have y");
        assert!(resume(&log, "a:8").is_ok() && resume(&log, "a:11").is_ok());
        let past = |text| log.snapshot_at(&vector(text)).is_ok();
        assert!(!past("a:9") && !past("a:10") && past("a:11"), "which of the two it was is not known");
    }
}

#[test]
fn who_is_ahead_of_a_cluster_that_leaves_and_comes_back_begins_anew() {
    let mut log = log(&[("a", 10, &[]), ("b", 20, &[])]);
    let mut ahead = resume(&log, "a:12 b:20").unwrap();
    assert!(read(&log, &mut ahead).is_empty() && ahead.ahead().is_some());
    log.leave(&name("a"), NOW);
    log.join(&name("a"), snapshot(11, &["x 11"]), NOW);
    let told = read(&log, &mut ahead);
    assert!(told.len() == 1 && told[0].starts_with("Expired"), "{told:?}");
}

#[test]
fn a_watch_that_goes_on_after_a_deletion_is_told_the_other_object_of_that_name() {
    let mut log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 20, &["x 19"])]);
    change(&mut log, "a", "-x 11");
    change(&mut log, "a", "-y 12");
    let after =
        |version| Watcher::after_event(&log, &name("a"), ResourceVersion(version), everything as Matches).unwrap();
    let told = read(&log, &mut after(11));
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("DELETED a/x") && told[1].starts_with("ADDED b/x"), "{told:?}");
    assert!(told[2].starts_with("DELETED a/y"), "{told:?}");
    assert!(read(&log, &mut after(12)).is_empty(), "there is no other y");
}

#[test]
fn a_deletion_of_a_relist_has_the_version_before_so_that_what_follows_is_not_missed() {
    let mut log = log(&[("a", 10, &["w 7", "x 8", "y 9"])]);
    change(&mut log, "a", "y 12");
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.relist(&name("a"), snapshot(20, &["w 15", "y 12", "z 20"]), NOW);
    let mut events = Vec::new();
    watcher.next(&log, 10, &mut events);
    let natives = events.iter().map(|event| match event {
        WatchEvent::Object(event) => (event.change_type, event.native_version.0),
        WatchEvent::InitialEventsEnd(_) => panic!("{event:?}"),
    });
    let natives: Vec<_> = natives.collect();
    assert_eq!(natives, [(ChangeType::Deleted, 12), (ChangeType::Modified, 15), (ChangeType::Added, 20)]);
    // Over one cluster the integer is a whole vector.
    let mut resumed = Watcher::resume(&log, &vector("a:12"), everything as Matches).unwrap();
    assert_eq!(read(&log, &mut resumed).len(), 3);
    assert!(!goes_on(&log, "a", 12), "y and x, which has gone, carry it");
    // Nor has an object that leaves a selection its own version, which may be above others that follow.
    let mut reds = Watcher::now(&log, red as Matches);
    log.relist(&name("a"), snapshot(30, &["w 25", "y 27 red", "z 30 red"]), NOW);
    log.relist(&name("a"), snapshot(40, &["w 32 red", "y 38", "z 30 red"]), NOW);
    events.clear();
    reds.next(&log, 10, &mut events);
    let natives = events.iter().map(|event| match event {
        WatchEvent::Object(event) => (event.change_type, event.object.name().to_owned(), event.native_version.0),
        WatchEvent::InitialEventsEnd(_) => panic!("{event:?}"),
    });
    let expected = [("y", 27), ("z", 30)].map(|(name, version)| (ChangeType::Added, name.to_owned(), version));
    let expected = expected.into_iter().chain([(ChangeType::Deleted, "y".to_owned(), 30)]);
    assert_eq!(
        natives.collect::<Vec<_>>(),
        expected.chain([(ChangeType::Added, "w".to_owned(), 32)]).collect::<Vec<_>>()
    );
}

/// What a client has that takes in events, and each version with what it had then.
fn follow(
    log: &Log,
    watcher: &mut Watcher<Matches>,
    has: &mut BTreeMap<String, u64>,
) -> Vec<(String, BTreeMap<String, u64>)> {
    let mut cuts = Vec::new();
    loop {
        let mut events = Vec::new();
        let progress = watcher.next(log, 1, &mut events);
        for event in &events {
            let WatchEvent::Object(event) = event else { panic!("{event:?}") };
            match event.change_type {
                ChangeType::Deleted => has.remove(event.object.name()),
                _ => has.insert(event.object.name().to_owned(), event.object.resource_version().0),
            };
            cuts.push((text(log, &event.version), has.clone()));
        }
        match progress {
            Progress::More => {}
            Progress::CaughtUp => return cuts,
            other => panic!("{other:?}"),
        }
    }
}

/// What of a snapshot is red.
fn reds_of(snapshot: &Snapshot, cluster: &str) -> BTreeMap<String, u64> {
    let reds = snapshot.iter().filter(|object| red(&name(cluster), object));
    reds.map(|object| (object.name().to_owned(), object.resource_version().0)).collect()
}

#[test]
fn who_is_cut_in_a_relist_ends_with_what_there_is_wherever_the_other_replica_goes_from_before_it() {
    // Two objects that are red, blue or not there: before the relist, at it, and later.
    let colors = [None, Some("red"), Some("blue")];
    let pairs: Vec<_> = colors.iter().flat_map(|x| colors.map(|y| (*x, y))).collect();
    let state = |version: u64, (x, y): (Option<&str>, Option<&str>)| {
        let x = x.map(|color| format!("x {} {color}", version - 1));
        let y = y.map(|color| format!("y {version} {color}"));
        let texts: Vec<_> = x.into_iter().chain(y).collect();
        snapshot(version, &texts.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mut cuts = 0;
    for (before, then, later) in
        pairs.iter().flat_map(|a| pairs.iter().flat_map(|b| pairs.iter().map(|c| (*a, *b, *c))))
    {
        let [before, then, later] = [state(10, before), state(20, then), state(30, later)];
        let replica = || {
            let mut log = Log::new(LogConfig::default());
            log.join(&name("a"), before.clone(), NOW);
            log
        };
        let mut one = replica();
        let mut watcher = Watcher::now(&one, red as Matches);
        one.relist(&name("a"), then.clone(), NOW);
        let mut has = reds_of(&before, "a");
        let told = follow(&one, &mut watcher, &mut has);
        assert_eq!(has, reds_of(&then, "a"));
        for (version, had) in told {
            for leaves in [false, true] {
                let mut other = replica();
                let Ok(mut watcher) = Watcher::resume(&other, &vector(&version), red as Matches) else {
                    panic!("{version}")
                };
                if watcher.ahead().is_some() {
                    continue;
                }
                if leaves {
                    other.leave(&name("a"), NOW)
                } else {
                    other.relist(&name("a"), later.clone(), NOW)
                }
                let mut has = had.clone();
                follow(&other, &mut watcher, &mut has);
                let expected = if leaves { BTreeMap::new() } else { reds_of(&later, "a") };
                assert_eq!(has, expected, "{version} from {before:?} by {then:?} to {later:?}");
                cuts += 1;
            }
        }
    }
    assert!(cuts > 100, "{cuts}");
}

#[test]
fn no_watch_goes_on_after_an_event_whose_object_was_told_again() {
    let after = |log: &Log| Watcher::after_event(log, &name("a"), ResourceVersion(11), everything as Matches);
    let relisted = || {
        let mut log = log(&[("a", 10, &[]), ("b", 20, &[])]);
        change(&mut log, "a", "x 11");
        change(&mut log, "a", "y 12");
        log.relist(&name("a"), snapshot(14, &["x 11", "z 13"]), NOW);
        log.leave(&name("b"), NOW);
        assert!(after(&log).is_some(), "a relist tells news alone");
        change(&mut log, "a", "x 15");
        log
    };
    let mut reset = relisted();
    reset.reset(&name("a"), snapshot(12, &["x 11", "y 12"]), NOW);
    assert!(after(&reset).is_none(), "x is told at 11 once more");
    let mut left = relisted();
    left.leave(&name("a"), NOW);
    left.join(&name("a"), snapshot(15, &["x 11"]), NOW);
    assert!(after(&left).is_none());
}

#[test]
fn a_paged_list_counts_what_remains() {
    let log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 20, &["v 11", "w 12", "x 13"]), ("c", 30, &[])]);
    for namespace in [None, Some("n".into())] {
        let mut filter = Filter::default();
        filter.namespace = namespace;
        let (mut start, mut remaining, mut seen) = (None, None, Vec::new());
        for (count, left) in [(2, Some(3)), (2, Some(1)), (1, None)] {
            let page = ListPage { start: start.clone(), limit: 2, remaining };
            let mut cursor = ListCursor::new(log.head().clone(), filter.clone(), page);
            assert_eq!(cursor.remaining_item_count(), left);
            let before = seen.len();
            while cursor.next_chunk(1, |cluster, object| seen.push(format!("{cluster}/{}", object.name()))) {}
            assert_eq!(seen.len() - before, count);
            // Every other page counts anew, as an inconsistent token makes it.
            remaining = if left == Some(3) { None } else { left };
            start = cursor.continue_position().cloned();
        }
        assert_eq!(seen, ["a/x", "a/y", "b/v", "b/w", "b/x"]);
        assert_eq!(start, None);
    }
}

#[test]
fn a_page_goes_on_where_its_cluster_was() {
    let log = log(&[("a", 10, &["x 9"]), ("c", 30, &["a 5", "x 6"])]);
    for (cluster, after, expected) in
        [("a", "n/x", 2), ("b", "n/x", 2), ("c", "n/a", 1), ("c", "n/x", 0), ("d", "n/a", 0)]
    {
        let start = Some(Position { cluster: name(cluster), after: after.into() });
        let page = ListPage { start, ..ListPage::default() };
        let mut cursor = ListCursor::new(log.head().clone(), everything as Matches, page);
        let mut count = 0;
        while cursor.next_chunk(1 << 20, |_, _| count += 1) {}
        assert_eq!(count, expected, "{cluster} after {after}");
    }
}

#[test]
fn a_leaving_cluster_claims_nothing_though_another_has_its_objects() {
    let mut log = log(&[("a", 10, &["x 9"]), ("b", 30, &["x 29", "y 25"])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.leave(&name("b"), NOW);
    let told = read(&log, &mut watcher);
    // A stream that is cut behind the first must not go on, where `b` is still known, as if `x` were not deleted.
    assert_eq!(told, ["DELETED b/x@29 a:10 b:0", "ADDED a/x@9 a:10 b:0", "DELETED b/y@25 a:10"]);
}
