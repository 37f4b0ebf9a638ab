//! Tests of watches across relists of clusters.

use super::*;
use crate::integers::resumes_after;

#[test]
fn relist_sends_the_changed_objects_with_deletions_first() {
    let mut log = log(&[("a", 10, &[]), ("b", 30, &["w 21", "x 29", "y 25", "z 27"])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.relist(&name("b"), snapshot(40, &["x 38", "z 27", "v 35"]), NOW);
    let expected =
        ["DELETED b/w@21 a:10 b:30", "DELETED b/y@25 a:10 b:30", "ADDED b/v@35 a:10 b:35", "MODIFIED b/x@38 a:10 b:40"];
    assert_eq!(read(&log, &mut watcher), expected);
    assert_eq!(read(&log, &mut resume(&log, "a:10 b:30").unwrap()).len(), 4, "the relist is replayed from its start");
    assert!(too_old(&log, "a:10 b:35").contains("35 (30)"), "inside the relist the client's state is unknown");
    assert!(read(&log, &mut resume(&log, "a:10 b:40").unwrap()).is_empty());
}

#[test]
fn deletion_found_by_a_relist_has_the_version_before_the_relist() {
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
    // With a single cluster, an integer version identifies a complete composite version.
    let mut resumed = Watcher::resume(&log, &vector("a:12"), everything as Matches).unwrap();
    assert_eq!(read(&log, &mut resumed).len(), 3);
    assert!(!resumes_after(&log, "a", 12), "y and the deletion of x both carry version 12");
    // The DELETED event of an object that leaves a selection does not carry the object's own version, which may be
    // above the versions of later events.
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

/// Applies the events of a watch to `has`, the client's state. Returns the client's version and state after each event.
fn follow(
    log: &Log,
    watcher: &mut Watcher<Matches>,
    has: &mut BTreeMap<String, u64>,
) -> Vec<(String, BTreeMap<String, u64>)> {
    let mut cuts = Vec::new();
    loop {
        let mut events = Vec::new();
        let progress = watcher.next(log, 1, &mut events).progress;
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

fn red_objects(snapshot: &Snapshot, cluster: &str) -> BTreeMap<String, u64> {
    let reds = snapshot.iter().filter(|object| red(&name(cluster), object));
    reds.map(|object| (object.name().to_owned(), object.resource_version().0)).collect()
}

#[test]
fn watch_cut_during_a_relist_converges_when_resumed_at_an_older_replica() {
    // Each of two objects is red, blue or absent at three times: before the relist, in the relist, and later.
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
        let mut has = red_objects(&before, "a");
        let states = follow(&one, &mut watcher, &mut has);
        assert_eq!(has, red_objects(&then, "a"));
        for (version, had) in states {
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
                let expected = if leaves { BTreeMap::new() } else { red_objects(&later, "a") };
                assert_eq!(has, expected, "{version} from {before:?} by {then:?} to {later:?}");
                cuts += 1;
            }
        }
    }
    assert!(cuts > 100, "{cuts}");
}
