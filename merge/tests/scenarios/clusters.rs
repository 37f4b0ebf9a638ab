//! Clusters that come, leave and come back.

use super::*;
use crate::integers::goes_on;

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

/// A cluster that left is forgotten with time, though another one's old changes are kept: whoever goes on from those is
/// not told of it, and who was told of it begins anew.
#[test]
fn a_cluster_that_left_long_ago_is_in_nobodys_way() {
    let mut log = log(&[("a", 10, &[]), ("b", 30, &["x 29"])]);
    change(&mut log, "a", "w 11");
    let (mut slow, mut head) = (Watcher::now(&log, everything as Matches), Watcher::now(&log, everything as Matches));
    log.leave(&name("b"), NOW);
    assert_eq!(read(&log, &mut head), ["DELETED b/x@29 a:11"]);
    log.trim(Duration::from_secs(600));
    // Made by who was there all the time, and by who comes with what it had of the quiet cluster.
    assert_eq!(read(&log, &mut slow), ["Lagged"]);
    assert!(too_old(&log, "a:10 b:30").contains("cluster b: 30"));
    assert!(!goes_on(&log, "a", 11), "it may have been told of the other");
    let mut late = resume(&log, "a:10").unwrap();
    assert_eq!(read(&log, &mut late), ["ADDED* a/w@11 a:11"]);
    change_at(&mut log, "a", "w 12", Duration::from_secs(600));
    for watcher in [&mut late, &mut head] {
        assert_eq!(read(&log, watcher), ["MODIFIED a/w@12 a:12"], "shared from here on");
    }
    // It comes back as a new one.
    log.join(&name("b"), snapshot(40, &["y 35"]), Duration::from_secs(600));
    assert_eq!(read(&log, &mut late), ["ADDED b/y@35 a:12 b:40"]);
}

/// Nor is an object of it told behind another cluster's deletion of that name: nothing would ever delete it.
#[test]
fn a_cluster_that_left_long_ago_takes_no_deleted_ones_place() {
    let mut log = log(&[("a", 10, &["x 9", "y 8"]), ("b", 30, &["x 29", "y 28"])]);
    for text in ["-x 11", "-y 12"] {
        change(&mut log, "a", text);
    }
    log.leave(&name("b"), NOW);
    log.trim(Duration::from_secs(600));
    let told = ["DELETED* a/x@11 a:11-1", "DELETED* a/y@12 a:12-1"];
    assert_eq!(read(&log, &mut resume(&log, "a:10").unwrap()), told);
    // Not even if it comes back while the deletions are told.
    let mut late = resume(&log, "a:10").unwrap();
    log.join(&name("b"), snapshot(40, &["x 29"]), Duration::from_secs(600));
    assert_eq!(read(&log, &mut late), [told[0], told[1], "ADDED b/x@29 a:12 b:40"]);
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
fn a_leaving_cluster_claims_nothing_though_another_has_its_objects() {
    let mut log = log(&[("a", 10, &["x 9"]), ("b", 30, &["x 29", "y 25"])]);
    let mut watcher = Watcher::now(&log, everything as Matches);
    log.leave(&name("b"), NOW);
    let told = read(&log, &mut watcher);
    // A stream that is cut behind the first must not go on, where `b` is still known, as if `x` were not deleted.
    assert_eq!(told, ["DELETED b/x@29 a:10 b:0", "ADDED a/x@9 a:10 b:0", "DELETED b/y@25 a:10"]);
}
