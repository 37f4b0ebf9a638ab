//! Tests of watches that resume after a single event, identified by its cluster and native version.

use super::*;

#[test]
fn watch_resumes_after_an_event_identified_by_its_integer_version() {
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
fn watch_resumed_before_a_join_receives_the_joined_clusters_objects() {
    let mut log = log(&[("a", 10, &["x 9"])]);
    change(&mut log, "a", "y 11");
    log.join(&name("b"), snapshot(20, &["x 19"]), NOW);
    change(&mut log, "b", "-x 21");
    let mut again = Watcher::after_event(&log, 0, &name("a"), ResourceVersion(11), everything as Matches).unwrap();
    assert_eq!(text(&log, &again.bookmark(&log).unwrap()), "a:11");
    // The watch sends x of cluster a again, because x in cluster b was deleted.
    assert_eq!(read(&log, &mut again).len(), 3);
    assert_eq!(text(&log, &again.bookmark(&log).unwrap()), "a:11 b:21");
}

/// Returns whether a watch can resume after the event with this version. Assumes that no watch sent a private version,
/// which is valid for only one client.
pub(crate) fn resumes_after(log: &Log, cluster: &str, version: u64) -> bool {
    resumes_after_private(log, 0, cluster, version)
}

/// Returns whether a watch can resume after the event with this version. Assumes that watches sent private versions
/// (each valid for only one client) before the log position `private_before`.
fn resumes_after_private(log: &Log, private_before: u64, cluster: &str, version: u64) -> bool {
    Watcher::after_event(log, private_before, &name(cluster), ResourceVersion(version), everything as Matches).is_some()
}

#[test]
fn watch_does_not_resume_from_an_integer_version_of_two_events() {
    let mut log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 20, &[])]);
    change(&mut log, "a", "z 11");
    change(&mut log, "b", "x 21");
    change(&mut log, "a", "v 12");
    assert!(resumes_after(&log, "a", 11) && resumes_after(&log, "b", 21) && resumes_after(&log, "a", 12));
    // DELETED events of objects that the list no longer contains carry the cluster's version before the list. So
    // several events carry version 12, and no watch can resume from it.
    log.relist(&name("a"), snapshot(15, &["x 9", "z 11", "v 12"]), NOW);
    assert!(resumes_after(&log, "a", 11) && resumes_after(&log, "b", 21) && !resumes_after(&log, "a", 12));
    // After the deletion of x in cluster a, watches send x of cluster b again, with its old version. So two events
    // carry version 21, and no watch can resume from it.
    change(&mut log, "a", "-x 16");
    assert!(resumes_after(&log, "a", 16) && resumes_after(&log, "a", 11) && !resumes_after(&log, "b", 21));
}

#[test]
fn watch_does_not_resume_from_an_event_version_that_only_one_client_received() {
    let lacking_one = || {
        let mut log = log(&[("a", 10, &[]), ("b", 20, &["y 19"])]);
        change(&mut log, "a", "x 11");
        change(&mut log, "b", "y 21");
        change(&mut log, "a", "x 12");
        log
    };
    let mut log = lacking_one();
    let mut further = resume(&log, "a:10 b:21").unwrap();
    assert!(resumes_after(&log, "a", 11), "no watcher has received the event yet");
    let (lines, private_before) = read_with_private(&log, &mut further);
    assert_eq!(lines, ["ADDED* a/x@11 a:11 b:21", "MODIFIED* a/x@12 a:12 b:21"]);
    assert!(!resumes_after_private(&log, private_before, "a", 11), "b's y would be sent again");
    assert!(resumes_after_private(&log, private_before, "a", 12), "the client has exactly the log up to here");
    change(&mut log, "b", "y 22");
    assert!(resumes_after_private(&log, private_before, "b", 22));
    assert_eq!(
        read_with_private(&log, &mut further),
        (vec!["MODIFIED b/y@22 a:12 b:22".to_owned()], 0),
        "events are shared by now"
    );
    // In the log, b's x changes after the deletion of a's x, but the client's version already includes the change of
    // b's x. So the watch sends b's x directly after the deletion, with a private version for this client.
    let mut log = crate::log(&[("a", 10, &["x 9"]), ("b", 20, &[])]);
    for (cluster, text) in [("a", "v 11"), ("a", "-x 12"), ("a", "w 13"), ("b", "x 21")] {
        change(&mut log, cluster, text);
    }
    let mut further = resume(&log, "a:11 b:21").unwrap();
    let mut events = Vec::new();
    let private_before = further.next(&log, 2, &mut events).private_before;
    let lines: Vec<_> = events.iter().map(|event| line(&log, event)).collect();
    assert_eq!(lines, ["DELETED* a/x@12 a:11 b:21", "ADDED* b/x@21 a:12-1 b:21"]);
    assert!(!resumes_after_private(&log, private_before, "b", 21), "a's w would be missing");
    let log = lacking_one();
    let mut missing = resume(&log, "a:12").unwrap();
    let (lines, private_before) = read_with_private(&log, &mut missing);
    assert_eq!(lines, ["ADDED* b/y@21 a:12 b:21"]);
    assert!(!resumes_after_private(&log, private_before, "b", 21), "a's x would be sent again");
    assert!(resumes_after(&log, "b", 21), "reading does not change the log");
}

#[test]
fn watch_resumed_after_a_delete_receives_another_clusters_same_named_object() {
    let mut log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 20, &["x 19"])]);
    change(&mut log, "a", "-x 11");
    change(&mut log, "a", "-y 12");
    let after =
        |version| Watcher::after_event(&log, 0, &name("a"), ResourceVersion(version), everything as Matches).unwrap();
    let lines = read(&log, &mut after(11));
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("DELETED a/x") && lines[1].starts_with("ADDED b/x"), "{lines:?}");
    assert!(lines[2].starts_with("DELETED a/y"), "{lines:?}");
    assert!(read(&log, &mut after(12)).is_empty(), "no other cluster has y");
}

#[test]
fn watch_does_not_resume_after_an_event_whose_object_another_event_resent() {
    let after = |log: &Log| Watcher::after_event(log, 0, &name("a"), ResourceVersion(11), everything as Matches);
    let relisted = || {
        let mut log = log(&[("a", 10, &[]), ("b", 20, &[])]);
        change(&mut log, "a", "x 11");
        change(&mut log, "a", "y 12");
        log.relist(&name("a"), snapshot(14, &["x 11", "z 13"]), NOW);
        log.leave(&name("b"), NOW);
        assert!(after(&log).is_some(), "a relist sends only differences");
        change(&mut log, "a", "x 15");
        log
    };
    let mut reset = relisted();
    reset.reset(&name("a"), snapshot(12, &["x 11", "y 12"]), NOW);
    assert!(after(&reset).is_none(), "x is sent again at 11");
    let mut left = relisted();
    left.leave(&name("a"), NOW);
    left.join(&name("a"), snapshot(15, &["x 11"]), NOW);
    assert!(after(&left).is_none());
}
