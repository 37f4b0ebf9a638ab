//! Tests of the events of a watch, and of their composite versions.

use super::*;

#[test]
fn initial_events_are_in_key_order_before_one_bookmark() {
    let mut log = log(&[("b", 20, &["x 19", "a 20"]), ("a", 10, &["z 3"])]);
    let mut with = Watcher::initial(&log, everything as Matches, true);
    let mut without = Watcher::initial(&log, everything as Matches, false);
    assert_eq!(with.bookmark(&log), None, "no version can be resumed before the end");
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
fn selector_turns_modifications_into_added_and_deleted_events() {
    let mut log = log(&[("a", 10, &["x 9 red"])]);
    let mut watcher = Watcher::now(&log, red as Matches);
    for text in ["x 11 blue", "x 12 blue", "x 13 red", "x 14 red", "-x 15 red", "y 16 blue", "-y 17 blue"] {
        change(&mut log, "a", text);
    }
    assert_eq!(
        read(&log, &mut watcher),
        ["DELETED a/x@9 a:11", "ADDED a/x@13 a:13", "MODIFIED a/x@14 a:14", "DELETED a/x@15 a:15-1"]
    );
    assert_eq!(text(&log, &watcher.bookmark(&log).unwrap()), "a:17");
}

#[test]
fn resumed_watch_keeps_the_clients_higher_versions_until_the_log_has_them() {
    let mut log = log(&[("a", 10, &[]), ("b", 20, &[])]);
    change(&mut log, "a", "x 11");
    change(&mut log, "b", "y 21");
    change(&mut log, "b", "z 22");
    let mut watcher = resume(&log, "a:10 b:21").unwrap();
    assert_eq!(read(&log, &mut watcher), ["ADDED* a/x@11 a:11 b:21", "ADDED* b/z@22 a:11 b:22"]);
    change(&mut log, "a", "x 12");
    assert_eq!(read(&log, &mut watcher), ["MODIFIED a/x@12 a:12 b:22"], "events are shared from here on");
}

#[test]
fn watch_omits_events_that_the_version_of_its_client_includes() {
    let mut log = log(&[("a", 10, &["x 9"]), ("b", 20, &["x 19"])]);
    let mut watcher = resume(&log, "a:12 b:20").unwrap();
    assert_eq!(watcher.ahead(), Some((&name("a"), ResourceVersion(12).into())));
    change(&mut log, "a", "y 11");
    change(&mut log, "b", "z 21");
    assert_eq!(read(&log, &mut watcher), ["ADDED* b/z@21 a:12 b:21"]);
    change(&mut log, "b", "-x 22");
    assert!(read(&log, &mut watcher).is_empty(), "a deletion waits for the object that may have to follow it");
    change(&mut log, "a", "x 12");
    change(&mut log, "a", "y 13");
    assert_eq!(
        read(&log, &mut watcher),
        ["DELETED* b/x@22 a:12 b:21", "ADDED* a/x@12 a:12 b:22-1", "MODIFIED* a/y@13 a:13 b:22"]
    );
    assert_eq!(watcher.ahead(), None);
}

#[test]
fn deletion_is_followed_by_an_added_event_of_the_same_name_in_another_cluster() {
    let mut log = log(&[("a", 10, &["x 9 red"]), ("b", 20, &["x 15 red"]), ("c", 30, &["x 25 blue"])]);
    let (mut all, mut reds) = (Watcher::now(&log, everything as Matches), Watcher::now(&log, red as Matches));
    change(&mut log, "a", "-x 11 red");
    change(&mut log, "b", "x 21 blue");
    assert_eq!(
        read(&log, &mut all),
        ["DELETED a/x@11 a:10 b:20 c:30", "ADDED b/x@15 a:11-1 b:20 c:30", "MODIFIED b/x@21 a:11 b:21 c:30"]
    );
    assert_eq!(
        read(&log, &mut reds),
        ["DELETED a/x@11 a:10 b:20 c:30", "ADDED b/x@15 a:11-1 b:20 c:30", "DELETED b/x@15 a:11 b:21 c:30"]
    );
    assert_eq!(log.find("n/x").len(), 2);
}
