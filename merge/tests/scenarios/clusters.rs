//! Tests of watches across clusters that join, leave and return.

use super::*;
use crate::integers::resumes_after;

#[test]
fn objects_of_a_joining_cluster_are_added_in_ascending_versions() {
    let mut log = log(&[("a", 10, &[])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.join(&name("b"), snapshot(30, &["x 29", "y 25", "z 27"]), NOW);
    let added = ["ADDED b/y@25 a:10 b:25", "ADDED b/z@27 a:10 b:27", "ADDED b/x@29 a:10 b:30"];
    assert_eq!(read(&log, &mut watcher), added);
    let mut missing = resume(&log, "a:10").unwrap();
    let private: Vec<_> = added.iter().map(|line| line.replace("ADDED", "ADDED*")).collect();
    assert_eq!(read(&log, &mut missing), private, "a client that never saw the cluster receives the same");
    assert_eq!(too_old(&log, "a:10 b:27"), "too old resource version of cluster b: 27 (30)");
}

#[test]
fn watch_does_not_resume_from_a_deleted_object_of_a_leaving_cluster() {
    let mut log = log(&[("a", 10, &["x 9", "y 10"])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.leave(&name("a"), NOW);
    let mut events = Vec::new();
    watcher.next(&log, 10, &mut events);
    for event in events {
        let WatchEvent::Object(event) = event else { panic!("{event:?}") };
        assert_eq!((event.change_type, event.native_version), (ChangeType::Deleted, ResourceVersion(1)));
    }
    // The cluster returns unchanged. A watch must not resume from `a:1`, the cluster's version in a DELETED event: this
    // version would mean that the client still has all objects of the cluster.
    log.join(&name("a"), snapshot(10, &["x 9", "y 10"]), NOW);
    assert!(resume(&log, "a:1").is_err() && !resumes_after(&log, "a", 1));
}

#[test]
fn last_deletion_of_a_leaving_cluster_removes_it_from_the_composite_version() {
    let mut log = log(&[("a", 10, &[]), ("b", 30, &["x 29", "y 25"])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.leave(&name("b"), NOW);
    assert_eq!(read(&log, &mut watcher), ["DELETED b/x@29 a:10 b:0", "DELETED b/y@25 a:10"]);
    let mut late = resume(&log, "a:10 b:30").unwrap();
    assert_eq!(read(&log, &mut late), ["DELETED b/x@29 a:10 b:0", "DELETED b/y@25 a:10"]);
    assert!(too_old(&log, "a:10 b:0").contains("cluster b: 0"), "a client cut in the middle of the leave starts over");
    assert!(
        too_old(&log, "a:10 b:31").contains("cluster b: 31"),
        "the version comes from a replica that saw more of the cluster"
    );
    assert!(too_old(&log, "a:10 c:1").contains("cluster c"), "the cluster is unknown");
}

#[test]
fn watch_from_an_older_version_receives_the_leave_and_rejoin_of_a_cluster() {
    let mut log = log(&[("b", 30, &["x 29"])]);
    log.leave(&name("b"), NOW);
    log.join(&name("b"), snapshot(40, &["x 29", "y 35"]), NOW);
    let mut before = resume(&log, "b:30").unwrap();
    assert_eq!(read(&log, &mut before).len(), 3, "the client receives a deletion and two additions");
    assert!(resume(&log, "b:35").is_err(), "the state between is unknown here");
    assert!(read(&log, &mut resume(&log, "b:40").unwrap()).is_empty());
    assert!(resume(&log, "b:0").is_err(), "the client has only half of the leave");
}

/// Some time after a cluster has left, the log drops the cluster, even if the log still stores an older change of a
/// different cluster. A client that resumes from this change receives no event of the dropped cluster. A client whose
/// version contains the dropped cluster must list again.
#[test]
fn watch_resumes_after_the_changes_of_a_removed_cluster_are_evicted() {
    let mut log = log(&[("a", 10, &[]), ("b", 30, &["x 29"])]);
    change(&mut log, "a", "w 11");
    let (mut slow, mut head) = (Watcher::now(&log, everything as Matches), Watcher::now(&log, everything as Matches));
    log.leave(&name("b"), NOW);
    assert_eq!(read(&log, &mut head), ["DELETED b/x@29 a:11"]);
    log.trim(Duration::from_secs(600));
    // The slow watch has not read the deletions of the cluster that left, and the log no longer has them. So the watch
    // fails, and a version with a component of the dropped cluster is too old.
    assert_eq!(read(&log, &mut slow), ["Lagged"]);
    assert!(too_old(&log, "a:10 b:30").contains("cluster b: 30"));
    assert!(!resumes_after(&log, "a", 11), "the client may have received the other cluster's events");
    let mut late = resume(&log, "a:10").unwrap();
    assert_eq!(read(&log, &mut late), ["ADDED* a/w@11 a:11"]);
    change_at(&mut log, "a", "w 12", Duration::from_secs(600));
    for watcher in [&mut late, &mut head] {
        assert_eq!(read(&log, watcher), ["MODIFIED a/w@12 a:12"], "events are shared from here on");
    }
    // The log treats a cluster that joins under the name of the dropped cluster as a new cluster.
    log.join(&name("b"), snapshot(40, &["y 35"]), Duration::from_secs(600));
    assert_eq!(read(&log, &mut late), ["ADDED b/y@35 a:12 b:40"]);
}

/// A watch must not send an object of a dropped cluster, because no later event would delete the object.
#[test]
fn deletion_is_not_followed_by_a_same_named_object_of_a_removed_cluster() {
    let mut log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 30, &["x 29", "y 28"])]);
    for text in ["-x 11", "-y 12"] {
        change(&mut log, "a", text);
    }
    log.leave(&name("b"), NOW);
    log.trim(Duration::from_secs(600));
    let lines = ["DELETED* a/x@11 a:11-1", "DELETED* a/y@12 a:12-1"];
    assert_eq!(read(&log, &mut resume(&log, "a:10").unwrap()), lines);
    // Even if the cluster returns before the watch reads the deletions, the watch sends the object only with the join,
    // and not directly after the deletion.
    let mut late = resume(&log, "a:10").unwrap();
    log.join(&name("b"), snapshot(40, &["x 29"]), Duration::from_secs(600));
    assert_eq!(read(&log, &mut late), [lines[0], lines[1], "ADDED b/x@29 a:12 b:40"]);
}

#[test]
fn watch_from_a_version_above_the_log_expires_if_the_cluster_rejoins() {
    let mut log = log(&[("a", 10, &[]), ("b", 20, &[])]);
    let mut ahead = resume(&log, "a:12 b:20").unwrap();
    assert!(read(&log, &mut ahead).is_empty() && ahead.ahead().is_some());
    log.leave(&name("a"), NOW);
    log.join(&name("a"), snapshot(11, &["x 11"]), NOW);
    let lines = read(&log, &mut ahead);
    assert!(lines.len() == 1 && lines[0].starts_with("Expired"), "{lines:?}");
}

#[test]
fn composite_version_has_zero_for_a_leaving_cluster_until_its_last_deletion() {
    let mut log = log(&[("a", 10, &["x 9"]), ("b", 30, &["x 29", "y 25"])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.leave(&name("b"), NOW);
    let lines = read(&log, &mut watcher);
    // If the watch breaks after the first event, the client's version is `a:10 b:0`. A replica that still has cluster
    // `b` must not conclude that the client has `x` of `b`.
    assert_eq!(lines, ["DELETED b/x@29 a:10 b:0", "ADDED a/x@9 a:10 b:0", "DELETED b/y@25 a:10"]);
}
