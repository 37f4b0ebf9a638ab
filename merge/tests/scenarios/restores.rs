//! Tests of watches across clusters whose revisions go back.

use super::*;

#[test]
fn versions_from_before_the_reset_of_a_cluster_are_expired() {
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
fn watch_from_before_a_reset_expires_when_the_cluster_reaches_its_version() {
    let mut log = log(&[("a", 10, &[]), ("b", 30, &["x 29"])]);
    log.relist(&name("b"), snapshot(28, &["y 5"]), NOW);
    let mut undone = resume(&log, "a:10 b:30").unwrap();
    assert_eq!(undone.ahead(), Some((&name("b"), ResourceVersion(30).into())));
    change(&mut log, "b", "x 29");
    assert!(read(&log, &mut undone).is_empty(), "the cluster may reach the client's version");
    change(&mut log, "b", "z 30");
    change(&mut log, "b", "w 31");
    let too_old =
        TooOld { cluster: name("b"), requested: ResourceVersion(30).into(), oldest: Some(ResourceVersion(28).into()) };
    let progress = undone.next(&log, 10, &mut Vec::new()).progress;
    assert_eq!(progress, Progress::Expired(too_old), "version 30 now stands for two states");
    assert!(
        resume(&log, "a:10 b:30").is_err() && resume(&log, "a:10 b:31").is_ok(),
        "a new list has a different version"
    );
}

#[test]
fn list_at_a_version_that_a_reset_made_ambiguous_is_expired() {
    let mut log = log(&[("a", 10, &["x 9"])]);
    for version in 11..20 {
        change(&mut log, "a", &format!("x {version}"));
    }
    log.reset(&name("a"), snapshot(13, &["x 13"]), NOW);
    let expired = |log: &Log, at: &str| matches!(log.snapshot_at(&vector(at)), Err(SnapshotError::Expired(_)));
    assert!(!expired(&log, "a:13"), "the restored state is the same before and after");
    change(&mut log, "a", "y 15");
    assert!(expired(&log, "a:14") && expired(&log, "a:15"), "the version stood for a different state before");
    change(&mut log, "a", "y 20");
    assert!(expired(&log, "a:15") && !expired(&log, "a:20"));
    log.trim(Duration::from_secs(301));
    assert!(!expired(&log, "a:20"));
}

#[test]
fn restore_from_backup_of_an_absent_cluster_is_detected_when_it_rejoins() {
    // The cluster returns with version 12, which is above 10. But its objects differ from those at version 10, so the
    // cluster was restored meanwhile.
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
fn version_from_before_a_reset_is_too_old_after_the_cluster_exceeds_it() {
    let reset = |log: &mut Log| log.reset(&name("a"), snapshot(8, &["x 7"]), NOW);
    let come_back = |log: &mut Log| {
        log.leave(&name("a"), NOW);
        log.join(&name("a"), snapshot(8, &["x 7"]), NOW);
    };
    for undo in [reset as fn(&mut Log), come_back] {
        let mut log = log(&[("a", 10, &["x 7", "y 9"])]);
        undo(&mut log);
        change(&mut log, "a", "z 10");
        assert!(resume(&log, "a:9").is_ok(), "a list would return the same version");
        change(&mut log, "a", "w 11");
        assert!(resume(&log, "a:9").is_err() && resume(&log, "a:10").is_err(), "the client may have y");
        assert!(resume(&log, "a:8").is_ok() && resume(&log, "a:11").is_ok());
        let past = |text| log.snapshot_at(&vector(text)).is_ok();
        assert!(!past("a:9") && !past("a:10") && past("a:11"), "the version stands for two states");
    }
}
