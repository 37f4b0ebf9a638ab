//! Tests of several deletions at one revision, as at the end of an etcd lease. The member sends a DELETED event for
//! each deletion. No event shows that it is the last of its revision.

mod common;

use std::time::Duration;

use common::*;
use tributary_apimachinery::{CollectionVersion, ResourceVersion};
use tributary_cacher::{NotReached, Update};

const THREE_SECONDS: Duration = Duration::from_secs(3);

fn deletion(name: &str) -> String {
    event("DELETED", &pod(name, 11))
}

#[tokio::test(start_paused = true)]
async fn deletions_of_one_revision_may_span_several_updates() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1), pod("b", 2), pod("c", 3), pod("d", 4)], 10).await;
    updates.synced().await;
    feed.send(deletion("a") + &deletion("b"));
    let (changes, snapshot) = updates.changes().await;
    assert_eq!(changes, [("DELETED", "a".to_owned(), 11), ("DELETED", "b".to_owned(), 11)]);
    assert_eq!(snapshot.resource_version(), CollectionVersion::part(ResourceVersion(11), 2));
    feed.send(deletion("c"));
    let (changes, snapshot) = updates.changes().await;
    assert_eq!(changes, [("DELETED", "c".to_owned(), 11)]);
    assert_eq!(snapshot.resource_version(), CollectionVersion::part(ResourceVersion(11), 3));
    feed.send(bookmark(11));
    assert!(matches!(updates.next().await, Update::Progress { .. }));
    assert_eq!(cacher.snapshot().unwrap().resource_version(), ResourceVersion(11));
    feed.send(event("DELETED", &pod("d", 12)) + &event("ADDED", &pod("e", 13)));
    let (_, snapshot) = updates.changes().await;
    assert_eq!(snapshot.resource_version(), ResourceVersion(13), "a later revision completes the earlier one");
}

#[tokio::test(start_paused = true)]
async fn watch_cut_between_deletions_of_one_revision_resumes_before_the_revision() {
    let (_cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1), pod("b", 2)], 10).await;
    updates.synced().await;
    feed.send(deletion("a"));
    updates.changes().await;
    drop(feed);
    let feed = member.expect(&["watch=1", "resourceVersion=10&"]).await.stream();
    feed.send(deletion("a") + &deletion("b"));
    let (changes, _) = updates.changes().await;
    assert_eq!(changes, [("DELETED", "b".to_owned(), 11)], "events before the cut are not published again");
    drop(feed);
    member.expect(&["watch=1", "resourceVersion=10&"]).await;
}

#[tokio::test(start_paused = true)]
async fn read_that_waits_for_all_deletions_of_one_revision_causes_a_list() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1), pod("b", 2)], 10).await;
    updates.synced().await;
    feed.send(deletion("a"));
    updates.changes().await;
    let own = CollectionVersion::begun(ResourceVersion(11));
    assert_eq!(cacher.wait_for(own, Duration::ZERO).await.unwrap().len(), 1);
    let script = async {
        member.expect(&["limit=1"]).await.text(list(&[], 11, None));
        // A reopened watch would start before revision 11. It would repeat the deletion, but send no bookmark of
        // revision 11, so it could not prove that the revision is complete. The cacher therefore lists the collection.
        let again = member.expect(&["sendInitialEvents=true"]).await.stream();
        again.send(end_bookmark(11));
        again
    };
    let (found, again) = tokio::join!(cacher.wait_for(ResourceVersion(11), THREE_SECONDS), script);
    assert_eq!(found.unwrap().len(), 0);
    drop((feed, again));
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_nonexistent_version_fails_between_deletions_of_one_revision() {
    let (cacher, mut member, mut updates) = start();
    let feed = member.sync(&[pod("a", 1)], 10).await;
    updates.synced().await;
    feed.send(deletion("a"));
    updates.changes().await;
    let script = async { member.expect(&["limit=1"]).await.text(list(&[], 11, None)) };
    let (beyond, ()) = tokio::join!(cacher.wait_for(ResourceVersion(12), THREE_SECONDS), script);
    let wanted = ResourceVersion(12).into();
    assert_eq!(beyond.unwrap_err(), NotReached::Beyond { wanted, latest: ResourceVersion(11) });
}
