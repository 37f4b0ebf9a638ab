//! Tests of several deletions at a single revision, as at the end of an etcd lease.

use super::*;

const OBJECTS: [&str; 3] = ["x 5", "y 6", "z 7"];

#[test]
fn versions_contain_the_deletion_count_of_a_revision_until_its_bookmark() {
    let mut log = log(&[("a", 10, &OBJECTS)]);
    let mut watcher = resume(&log, "a:10").unwrap();
    let bookmark = |log: &Log, watcher: &Watcher<Matches>| text(log, &watcher.bookmark(log).unwrap());
    delete(&mut log, "a", &["x 11"]);
    assert_eq!(read(&log, &mut watcher), ["DELETED a/x@11 a:11-1"]);
    delete(&mut log, "a", &["y 11"]);
    assert_eq!(read(&log, &mut watcher), ["DELETED a/y@11 a:11-2"]);
    assert_eq!(bookmark(&log, &watcher), "a:11-2");
    log.progress(&name("a"), ResourceVersion(11), NOW);
    assert_eq!(read(&log, &mut watcher), [""; 0]);
    assert_eq!(bookmark(&log, &watcher), "a:11");
}

#[test]
fn watch_cut_between_deletions_of_one_revision_receives_all_of_them_again() {
    let mut log = log(&[("a", 10, &OBJECTS)]);
    delete(&mut log, "a", &["x 11"]);
    let mut early = resume(&log, "a:11-1").unwrap();
    assert_eq!(read(&log, &mut early), [""; 0]);
    delete(&mut log, "a", &["y 11"]);
    assert_eq!(read(&log, &mut early), ["DELETED a/y@11 a:11-2"]);
    // The number after the hyphen counts the deletions that the client has received. The watch still resumes at the
    // first deletion, because a different replica may have received the deletions in a different order.
    for from in ["a:11-0", "a:11-1", "a:11-2", "a:11-3"] {
        let lines = read(&log, &mut resume(&log, from).unwrap());
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("DELETED* a/x@11") && lines[1].contains(" a/y@11"), "{lines:?}");
    }
    assert_eq!(read(&log, &mut resume(&log, "a:10").unwrap()), ["DELETED a/x@11 a:11-1", "DELETED a/y@11 a:11-2"]);
    change(&mut log, "a", "w 12");
    assert_eq!(read(&log, &mut resume(&log, "a:11-1").unwrap())[2..], ["ADDED a/w@12 a:12"]);
    assert_eq!(read(&log, &mut resume(&log, "a:11").unwrap()), ["ADDED* a/w@12 a:12"]);
}

#[test]
fn client_version_that_includes_all_deletions_of_a_revision_is_accepted() {
    let mut log = log(&[("a", 10, &OBJECTS), ("b", 3, &["w 2"])]);
    delete(&mut log, "a", &["x 11"]);
    let mut watcher = resume(&log, "a:11 b:3").unwrap();
    assert_eq!(watcher.ahead(), None);
    change(&mut log, "b", "w 4");
    // The client's version already covers the deletion of y in cluster a.
    delete(&mut log, "a", &["y 11"]);
    delete(&mut log, "b", &["w 5"]);
    assert_eq!(read(&log, &mut watcher), ["MODIFIED* b/w@4 a:11 b:4", "DELETED* b/w@5 a:11 b:5-1"]);
    assert_eq!(watcher.ahead(), None);
    log.progress(&name("a"), ResourceVersion(11), NOW);
    change(&mut log, "b", "w 6");
    assert_eq!(read(&log, &mut watcher), ["ADDED* b/w@6 a:11 b:6"]);
}

/// Creates a log that has only some deletions of revision 11 of cluster `b`, and a watch of a client that already has
/// all of them. Later, cluster `a` deletes an object whose name exists in `b`, too. The watch must wait, because a
/// missing deletion of revision 11 may delete `b`'s object.
fn log_and_watcher_behind_a_part(comes_late: bool, rest: &[(&str, u64, &[&str])]) -> (Log, Watcher<Matches>) {
    let mut log = log(&[&[("a", 10, &["x 9"] as &[_]), ("b", 10, &["x 8", "y 7", "z 6"])], rest].concat());
    delete(&mut log, "b", &["y 11"]);
    let early = resume(&log, "a:10 b:11 c:3").or_else(|_| resume(&log, "a:10 b:11")).unwrap();
    delete(&mut log, "a", &["x 11"]);
    let late = || resume(&log, "a:10 b:11 c:3").or_else(|_| resume(&log, "a:10 b:11")).unwrap();
    let watcher = if comes_late { late() } else { early };
    (log, watcher)
}

#[test]
fn watch_waits_if_a_missing_deletion_can_affect_a_same_named_object() {
    type End = (fn(&mut Log), &'static [&'static str]);
    const BOTH: [&str; 2] = ["DELETED* a/x@11 a:10 b:11", "ADDED* b/x@8 a:11-1 b:11"];
    let ends: [End; 10] = [
        (|log| delete(log, "b", &["x 11"]), &["DELETED* a/x@11 a:11-1 b:11"]),
        (|log| log.relist(&name("b"), snapshot(11, &[]), NOW), &["DELETED* a/x@11 a:11-1 b:11"]),
        // Each of the next four changes shows that the log has all deletions of revision 11.
        (|log| log.progress(&name("b"), ResourceVersion(11), NOW), &BOTH),
        (|log| log.relist(&name("b"), snapshot(11, &["x 8"]), NOW), &BOTH),
        (|log| change(log, "b", "w 12"), &[BOTH[0], BOTH[1], "ADDED* b/w@12 a:11-1 b:12"]),
        (|log| change(log, "b", "x 12"), &[BOTH[0], BOTH[1], "MODIFIED* b/x@12 a:11-1 b:12"]),
        // After each of the remaining changes, the log never receives the missing deletions of revision 11. An
        // unchanged object of `b` was not deleted, so the watch sends it after the DELETED. The client receives changed
        // objects later, with the events of their changes.
        (|log| log.relist(&name("b"), snapshot(20, &["x 8"]), NOW), &BOTH),
        (
            |log| log.relist(&name("b"), snapshot(20, &["x 15"]), NOW),
            &["DELETED* a/x@11 a:11-1 b:11", "MODIFIED* b/x@15 a:11-1 b:20"],
        ),
        (
            |log| log.relist(&name("b"), snapshot(20, &[]), NOW),
            &["DELETED* a/x@11 a:11-1 b:11", "DELETED* b/x@8 a:11-1 b:20"],
        ),
        (|log| log.leave(&name("b"), NOW), &["DELETED* a/x@11 a:11-1 b:11", "DELETED b/x@8 a:11-1"]),
    ];
    for comes_late in [false, true] {
        for (end, expected) in ends {
            let (mut log, mut watcher) = log_and_watcher_behind_a_part(comes_late, &[]);
            for _ in 0..2 {
                assert_eq!(read(&log, &mut watcher), [""; 0]);
                assert_eq!(watcher.ahead(), Some((&name("b"), ResourceVersion(11).into())));
                // A deletion of another object does not show that the revision is complete.
                delete(&mut log, "b", &["z 11"]);
            }
            end(&mut log);
            assert_eq!(read(&log, &mut watcher), expected);
            assert_eq!(watcher.ahead(), None);
        }
    }
}

#[test]
fn same_named_object_of_a_third_cluster_follows_a_deletion_immediately() {
    for comes_late in [false, true] {
        let (log, mut watcher) = log_and_watcher_behind_a_part(comes_late, &[("c", 3, &["x 2"])]);
        let expected = ["DELETED* a/x@11 a:10 b:11 c:3", "ADDED* c/x@2 a:11-1 b:11 c:3"];
        assert_eq!((read(&log, &mut watcher), watcher.ahead()), (expected.map(str::to_owned).into(), None));
    }
}

#[test]
fn watch_waiting_for_missing_deletions_expires_on_a_reset() {
    for comes_late in [false, true] {
        let (mut log, mut watcher) = log_and_watcher_behind_a_part(comes_late, &[]);
        assert_eq!(read(&log, &mut watcher), [""; 0]);
        log.reset(&name("b"), snapshot(9, &["x 8", "y 7", "z 6"]), NOW);
        assert!(read(&log, &mut watcher)[0].starts_with("Expired"));
    }
}

/// The client connects after the relist. Its watch sends the deletion in `a` without waiting, because the relist
/// deletes the object in `b`.
#[test]
fn watch_opened_after_a_relist_does_not_wait_for_missing_deletions() {
    let (mut log, _) = log_and_watcher_behind_a_part(false, &[]);
    log.relist(&name("b"), snapshot(20, &["z 6"]), NOW);
    let lines = read(&log, &mut resume(&log, "a:10 b:11").unwrap());
    assert_eq!(lines, ["DELETED* a/x@11 a:11-1 b:11", "DELETED* b/x@8 a:11-1 b:20"]);
    let lines = read(&log, &mut resume(&log, "a:10 b:10").unwrap());
    assert_eq!(lines[1..3], ["DELETED a/x@11 a:10 b:11-1", "ADDED b/x@8 a:11-1 b:11-1"]);
}

#[test]
fn version_with_some_deletions_of_a_revision_is_ahead_of_an_older_log() {
    let mut log = log(&[("a", 10, &OBJECTS)]);
    let mut watcher = resume(&log, "a:11-1").unwrap();
    assert!(watcher.ahead().is_some());
    delete(&mut log, "a", &["x 11"]);
    assert_eq!(read(&log, &mut watcher), [""; 0]);
    delete(&mut log, "a", &["y 11", "z 11"]);
    assert_eq!(read(&log, &mut watcher), ["DELETED a/y@11 a:11-2", "DELETED a/z@11 a:11-3"]);
}

#[test]
fn version_with_some_deletions_of_a_revision_is_too_old_for_a_newer_log() {
    let log = log(&[("a", 11, &["z 7"])]);
    assert!(too_old(&log, "a:11-1").starts_with("too old resource version of cluster a: 11-1"));
    assert!(resume(&log, "a:11").is_ok());
}

#[test]
fn relist_sends_the_missing_deletions_of_an_incomplete_revision() {
    let mut log = log(&[("a", 10, &OBJECTS)]);
    delete(&mut log, "a", &["x 11"]);
    log.relist(&name("a"), snapshot(20, &["w 15"]), NOW);
    let sent_objects = |log: &Log, from| {
        let lines = read(log, &mut resume(log, from).unwrap());
        lines.iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(sent_objects(&log, "a:11-1"), ["a/y@6", "a/z@7", "a/w@15"]);
    // `a:11-2` is the version of a client that has received more deletions of the revision from a different replica.
    // The relist deletes the same objects for this client.
    assert_eq!(sent_objects(&log, "a:11-2"), sent_objects(&log, "a:11-1"));
    assert_eq!(sent_objects(&log, "a:11"), sent_objects(&log, "a:11-1"));
    assert!(too_old(&log, "a:12-1").contains("12-1"));
    assert!(too_old(&log, "a:20-1").contains("20-1"));
    // The log lacks the other deletions of revision 11, so it cannot rebuild the states `a:11-2` and `a:11`.
    let at = |version| log.snapshot_at(&vector(version)).map(|state| state[0].1.len());
    assert_eq!((at("a:10"), at("a:11-1"), at("a:20")), (Ok(3), Ok(2), Ok(1)));
    for unknown in ["a:11-2", "a:11"] {
        assert!(matches!(at(unknown), Err(SnapshotError::Expired(_))), "{unknown}: {:?}", at(unknown));
    }
}

#[test]
fn version_of_a_watch_does_not_decrease_at_a_relist() {
    let mut log = log(&[("a", 10, &OBJECTS)]);
    delete(&mut log, "a", &["x 11"]);
    let mut watcher = resume(&log, "a:11").unwrap();
    read(&log, &mut watcher);
    log.relist(&name("a"), snapshot(20, &["w 15"]), NOW);
    assert_eq!(read(&log, &mut watcher), ["DELETED* a/y@6 a:11", "DELETED* a/z@7 a:11", "ADDED* a/w@15 a:20"]);
    change(&mut log, "a", "w 21");
    assert_eq!(read(&log, &mut watcher), ["MODIFIED a/w@21 a:21"]);
}

/// The relist at the same revision shows that no more deletions of this revision will follow.
#[test]
fn relist_at_the_same_revision_completes_an_incomplete_revision() {
    let mut log = log(&[("a", 10, &OBJECTS)]);
    delete(&mut log, "a", &["x 11"]);
    log.relist(&name("a"), snapshot(11, &["z 7"]), NOW);
    assert_eq!(read(&log, &mut resume(&log, "a:11-1").unwrap()), ["DELETED a/y@6 a:11"]);
    assert_eq!(read(&log, &mut resume(&log, "a:11").unwrap()), [""; 0]);
    change(&mut log, "a", "w 12");
    assert_eq!(read(&log, &mut resume(&log, "a:11").unwrap()), ["ADDED a/w@12 a:12"]);
    let at = |version| log.snapshot_at(&vector(version)).unwrap()[0].1.len();
    assert_eq!(["a:10", "a:11-1", "a:11", "a:12"].map(at), [3, 2, 1, 2]);
}

#[test]
fn namespaced_log_resumes_from_a_version_that_has_deletions_of_all_namespaces() {
    let mut log = Log::for_namespace(LogConfig::default());
    log.join(&name("a"), snapshot(10, &["z 7"]), NOW);
    delete(&mut log, "a", &["z 11"]);
    // A log of all namespaces may count this deletion as the third of its revision. So a client of this namespace may
    // have any of these versions.
    for from in ["a:11-0", "a:11-1", "a:11-2"] {
        let lines = read(&log, &mut resume(&log, from).unwrap());
        assert!(
            lines.len() == 1 && lines[0].starts_with("DELETED") && lines[0].contains("a/z@11"),
            "{from}: {lines:?}"
        );
    }
    assert_eq!(read(&log, &mut resume(&log, "a:11").unwrap()), [""; 0]);
    change(&mut log, "a", "z 12");
    assert_eq!(read(&log, &mut resume(&log, "a:12").unwrap()), [""; 0]);
}

/// A log of a namespace may start in the middle of a revision. If a client has received at least the deletions before
/// this start, its watch resumes and sends the events after the start.
#[test]
fn watch_resumes_after_a_cluster_joined_between_deletions_of_one_revision() {
    let mut state = snapshot(10, &["y 6", "z 7"]);
    state.set_resource_version(CollectionVersion::part(ResourceVersion(11), 2));
    let config = LogConfig { history_age_max: Duration::from_secs(10), ..LogConfig::default() };
    let [mut log, mut forgetful] = [config.clone(), config].map(Log::for_namespace);
    for log in [&mut log, &mut forgetful] {
        log.join(&name("a"), state.clone(), NOW);
    }
    assert!(too_old(&log, "a:11-1").contains("11-1"));
    let listed = |log: &Log| read(log, &mut resume(log, "a:11-2").unwrap());
    assert_eq!(listed(&log), [""; 0]);
    delete(&mut log, "a", &["y 11"]);
    for from in ["a:11-2", "a:11-3", "a:11-4"] {
        let lines = read(&log, &mut resume(&log, from).unwrap());
        assert!(lines.len() == 1 && lines[0].contains("a/y@11"), "{from}: {lines:?}");
    }
    // The log evicts the join, its only entry. The watch still resumes.
    forgetful.trim(Duration::from_secs(20));
    assert!(forgetful.is_empty());
    assert_eq!(listed(&forgetful), [""; 0]);
    delete(&mut forgetful, "a", &["y 11"]);
    assert_eq!(listed(&forgetful).len(), 1);
}

#[test]
fn version_that_lacks_an_evicted_deletion_of_its_revision_is_too_old() {
    let config = LogConfig { history_age_max: Duration::from_secs(10), history_entries_min: 1, ..LogConfig::default() };
    for (mut log, is_of_namespace) in [(Log::new(config.clone()), false), (Log::for_namespace(config), true)] {
        log.join(&name("a"), snapshot(10, &OBJECTS), NOW);
        delete(&mut log, "a", &["x 11", "y 11", "z 11"]);
        log.trim(Duration::from_secs(20));
        assert_eq!(log.len(), 1, "the log keeps the third deletion");
        for fewer in ["a:11-0", "a:11-1"] {
            assert!(too_old(&log, fewer).contains("too old"), "{fewer}");
        }
        // If a client's version counts at least as many deletions as the log has evicted, the client has received the
        // evicted deletions. In a log of a namespace this conclusion is invalid, because the client's count may include
        // deletions in other namespaces.
        for many in ["a:11-2", "a:11-3", "a:11-4"] {
            match resume(&log, many) {
                Ok(mut watcher) => {
                    let lines = read(&log, &mut watcher);
                    assert!(
                        !is_of_namespace && lines.len() == 1 && lines[0].starts_with("DELETED"),
                        "{many}: {lines:?}"
                    );
                }
                Err(error) => assert!(is_of_namespace, "{many}: {error}"),
            }
        }
        assert_eq!(read(&log, &mut resume(&log, "a:11").unwrap()), [""; 0]);
    }
}

/// When Kubernetes Events expire, etcd deletes several at one revision. A long time may pass until the next change, so
/// the log may evict these deletions.
#[test]
fn watch_resumes_from_a_list_after_its_revisions_deletions_are_evicted() {
    for entries in [0, 1, 100] {
        let config = LogConfig { history_entries_min: entries, ..LogConfig::default() };
        let mut log = Log::new(config);
        let names: Vec<_> = (0..150).map(|number| format!("x{number} 5")).collect();
        log.join(&name("a"), snapshot(10, &names.iter().map(String::as_str).collect::<Vec<_>>()), NOW);
        for number in 0..149 {
            delete(&mut log, "a", &[&format!("x{number} 11")]);
        }
        log.trim(Duration::from_secs(600));
        assert_eq!(log.len(), entries);
        let listed = log.resource_version();
        assert_eq!(listed, vector("a:11-149"));
        let mut watcher = Watcher::resume(&log, &listed, everything as Matches).unwrap();
        let lines = read(&log, &mut watcher);
        assert!(lines.len() == entries && lines.iter().all(|line| line.starts_with("DELETED")), "{lines:?}");
        delete(&mut log, "a", &["x149 11"]);
        assert_eq!(read(&log, &mut watcher), ["DELETED a/x149@11 a:11-150"]);
        log.progress(&name("a"), ResourceVersion(11), NOW);
        assert_eq!(read(&log, &mut Watcher::resume(&log, &listed, everything as Matches).unwrap()).len(), entries + 1);
        assert_eq!(read(&log, &mut resume(&log, "a:11").unwrap()), [""; 0]);
    }
}

#[test]
fn snapshot_between_deletions_of_one_revision_is_exact() {
    let mut log = log(&[("a", 10, &OBJECTS)]);
    let at = |log: &Log, version| log.snapshot_at(&vector(version)).unwrap()[0].1.len();
    delete(&mut log, "a", &["x 11"]);
    assert_eq!((at(&log, "a:11-1"), at(&log, "a:10")), (2, 3));
    assert!(matches!(log.snapshot_at(&vector("a:11-2")), Err(SnapshotError::TooNew { .. })));
    delete(&mut log, "a", &["y 11"]);
    change(&mut log, "a", "w 12");
    assert_eq!((at(&log, "a:11-1"), at(&log, "a:11-2"), at(&log, "a:11"), at(&log, "a:12")), (2, 1, 1, 2));
}

#[test]
fn watch_does_not_resume_from_an_integer_version_of_several_deletions() {
    let mut log = log(&[("a", 10, &OBJECTS)]);
    let after =
        |log: &Log, version| Watcher::after_event(log, 0, &name("a"), ResourceVersion(version), everything as Matches);
    change(&mut log, "a", "w 11");
    delete(&mut log, "a", &["x 12"]);
    assert!(after(&log, 12).is_some_and(|mut watcher| read(&log, &mut watcher).is_empty()));
    delete(&mut log, "a", &["y 12"]);
    assert!(after(&log, 12).is_none() && after(&log, 11).is_some());
    let of_item = |version| log.version_of_item(&name("a"), ResourceVersion(version)).to_string();
    assert_eq!(["11", "12-1", "10-1"].map(str::to_owned), [11, 12, 10].map(of_item));
}
