//! Watches that go on from one event, named by its cluster and native version.

use super::*;

#[test]
fn a_watch_goes_on_after_one_named_event() {
    let mut log = log(&[("a", 10, &[]), ("b", 20, &[])]);
    change(&mut log, "a", "x 11");
    change(&mut log, "b", "y 21");
    change(&mut log, "a", "x 12");
    let mut watcher = Watcher::after_event(&log, 0, &name("a"), ResourceVersion(11), everything as Matches).unwrap();
    assert_eq!(read(&log, &mut watcher), ["ADDED b/y@21 a:11 b:21", "MODIFIED a/x@12 a:12 b:21"]);
    for (cluster, version) in [("a", 10), ("a", 13), ("c", 1)] {
        let version = ResourceVersion(version);
        assert!(Watcher::after_event(&log, 0, &name(cluster), version, everything as Matches).is_none());
    }
}

#[test]
fn an_event_before_another_cluster_came_says_nothing_of_that() {
    let mut log = log(&[("a", 10, &["x 9"])]);
    change(&mut log, "a", "y 11");
    log.join(&name("b"), snapshot(20, &["x 19"]), NOW);
    change(&mut log, "b", "-x 21");
    let mut again = Watcher::after_event(&log, 0, &name("a"), ResourceVersion(11), everything as Matches).unwrap();
    assert_eq!(text(&log, &again.bookmark(&log).unwrap()), "a:11");
    // Behind the deletion a's x is told again.
    assert_eq!(read(&log, &mut again).len(), 3);
    assert_eq!(text(&log, &again.bookmark(&log).unwrap()), "a:11 b:21");
}

/// Whether a watch goes on after an event, where nobody was told one with a version of its own.
pub(crate) fn goes_on(log: &Log, cluster: &str, version: u64) -> bool {
    goes_on_beside(log, 0, cluster, version)
}

/// Whether a watch goes on after an event, where somebody was told events before this position with
/// versions of its own.
fn goes_on_beside(log: &Log, own_before: u64, cluster: &str, version: u64) -> bool {
    Watcher::after_event(log, own_before, &name(cluster), ResourceVersion(version), everything as Matches).is_some()
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
    let (told, own_before) = read_own(&log, &mut further);
    assert_eq!(told, ["ADDED* a/x@11 a:11 b:21", "MODIFIED* a/x@12 a:12 b:21"]);
    assert!(!goes_on_beside(&log, own_before, "a", 11), "b's y would be told again");
    assert!(goes_on_beside(&log, own_before, "a", 12), "it has no more than stands there");
    change(&mut log, "b", "y 22");
    assert!(goes_on_beside(&log, own_before, "b", 22));
    assert_eq!(read_own(&log, &mut further), (vec!["MODIFIED b/y@22 a:12 b:22".to_owned()], 0), "shared by now");
    // An object that was told behind another's deletion, as the client had it: further than the place of that.
    let mut log = crate::log(&[("a", 10, &["x 9"]), ("b", 20, &[])]);
    for (cluster, text) in [("a", "v 11"), ("a", "-x 12"), ("a", "w 13"), ("b", "x 21")] {
        change(&mut log, cluster, text);
    }
    let mut further = resume(&log, "a:11 b:21").unwrap();
    let mut events = Vec::new();
    let own_before = further.next(&log, 2, &mut events).own_before;
    let told: Vec<_> = events.iter().map(|event| line(&log, event)).collect();
    assert_eq!(told, ["DELETED* a/x@12 a:11 b:21", "ADDED* b/x@21 a:12-1 b:21"]);
    assert!(!goes_on_beside(&log, own_before, "b", 21), "a's w would not be told");
    let log = lacking_one();
    let mut missing = resume(&log, "a:12").unwrap();
    let (told, own_before) = read_own(&log, &mut missing);
    assert_eq!(told, ["ADDED* b/y@21 a:12 b:21"]);
    assert!(!goes_on_beside(&log, own_before, "b", 21), "a's x would be told again");
    assert!(goes_on(&log, "b", 21), "whoever reads leaves nothing behind in the log");
}

#[test]
fn a_watch_that_goes_on_after_a_deletion_is_told_the_other_object_of_that_name() {
    let mut log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 20, &["x 19"])]);
    change(&mut log, "a", "-x 11");
    change(&mut log, "a", "-y 12");
    let after =
        |version| Watcher::after_event(&log, 0, &name("a"), ResourceVersion(version), everything as Matches).unwrap();
    let told = read(&log, &mut after(11));
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("DELETED a/x") && told[1].starts_with("ADDED b/x"), "{told:?}");
    assert!(told[2].starts_with("DELETED a/y"), "{told:?}");
    assert!(read(&log, &mut after(12)).is_empty(), "there is no other y");
}

#[test]
fn no_watch_goes_on_after_an_event_whose_object_was_told_again() {
    let after = |log: &Log| Watcher::after_event(log, 0, &name("a"), ResourceVersion(11), everything as Matches);
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
