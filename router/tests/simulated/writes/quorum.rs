//! Tests of `consistency: Quorum`: a read without a version returns the current state of the members, even if no watch
//! has delivered it yet.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;
use tributary_apimachinery::{Consistency, Partial};
use tributary_router::{Policies, ResourcePolicy};
use tributary_simulator::{Rejection, RequestKind};

use crate::harness::{CONFIG_MAPS, Fixture, allow, cluster, config, config_map_in, items, name, pass, until, version};

const OWN: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

fn policies(partial: Partial) -> Policies {
    let default = ResourcePolicy { consistency: Consistency::Quorum, partial, ..allow().default };
    Policies { default, ..Policies::default() }
}

async fn start(partial: Partial) -> Fixture {
    let fixture = Fixture::with(["a", "b"].map(config), policies(partial)).await;
    fixture.get(CONFIG_MAPS).await.ok();
    fixture
}

#[tokio::test]
async fn quorum_reads_include_writes_that_bypass_the_router() {
    let fixture = start(Partial::Deny).await;
    for round in 0..40 {
        let member = if round % 3 == 0 { "a" } else { "b" };
        let value = round.to_string();
        fixture.put(member, &format!("x-{member}"), &value);
        let path = format!("{CONFIG_MAPS}/x-{member}");
        let seen = match round % 4 {
            0 => fixture.get(&path).await.ok()["data"]["v"].clone(),
            1 => {
                let list = fixture.get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dx-{member}")).await.ok();
                list["items"][0]["data"]["v"].clone()
            }
            // A watch sends initial events, either by default or on request.
            2 => {
                let query = format!("watch=1&fieldSelector=metadata.name%3Dx-{member}");
                fixture.watch(&format!("{CONFIG_MAPS}?{query}")).await.soon().await["object"]["data"]["v"].clone()
            }
            _ => {
                let query = format!(
                    "watch=1&fieldSelector=metadata.name%3Dx-{member}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
                );
                fixture.watch(&format!("{CONFIG_MAPS}?{query}")).await.soon().await["object"]["data"]["v"].clone()
            }
        };
        assert_eq!(seen, value, "round {round}");
    }
}

#[tokio::test]
async fn quorum_read_confirms_with_the_member_that_a_collection_is_unchanged() {
    let fixture = start(Partial::Deny).await;
    // The write to another resource gives the member a revision that no ConfigMap has.
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let revision = fixture.member("a").apply(pod).unwrap();
    let list = fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok();
    let reached: u64 = crate::harness::vector(&version(&list))["a"].as_str().unwrap().parse().unwrap();
    assert!(reached >= revision, "{reached} {revision}");
}

/// kube-apiserver has no watch cache for Events, so the router's watch of Events gets no bookmarks.
#[tokio::test]
async fn quorum_read_confirms_with_the_member_that_events_are_unchanged() {
    let fixture = start(Partial::Deny).await;
    let path = "/api/v1/namespaces/default/events";
    fixture.get(path).await.ok();
    for _ in 0..2 {
        let revision = fixture.put("a", "x", "");
        fixture.member("a").control().reset_counters();
        let list = fixture.get(path).await.ok();
        let reached: u64 = crate::harness::vector(&version(&list))["a"].as_str().unwrap().parse().unwrap();
        assert!(reached >= revision, "{reached} {revision}");
        // The router relists Events immediately. For other resources, it would first open a short watch and wait for a
        // bookmark.
        let log = fixture.member("a").control().request_log();
        let watches: Vec<_> = log.iter().filter(|line| line.contains("/events?watch=1")).collect();
        assert!((1..=2).contains(&watches.len()), "{log:#?}");
        assert!(watches.iter().all(|line| line.contains("sendInitialEvents=true")), "{log:#?}");
    }
}

#[tokio::test]
async fn concurrent_quorum_reads_share_requests_to_members() {
    let fixture = start(Partial::Deny).await;
    fixture.put("a", "x", "");
    fixture.put("a", "y", "");
    let control = fixture.member("a").control();
    control.reset_counters();
    let client = fixture.client();
    let reads = (0..200).map(|_| client.send("GET", CONFIG_MAPS, &[], ""));
    for answer in join_all(reads).await {
        answer.ok();
    }
    let questions = control.requests_of(RequestKind::List, "configmaps");
    assert!((1..=20).contains(&questions), "{questions} questions for 200 reads");
    // Reads at a version, and reads that accept any version, cause no request to the member.
    control.reset_counters();
    let list = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.ok();
    fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={}", version(&list))).await.ok();
    let page = fixture.get(&format!("{CONFIG_MAPS}?limit=1&resourceVersion={}", version(&list))).await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap();
    fixture.get(&format!("{CONFIG_MAPS}?limit=1&continue={token}")).await.ok();
    fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await.soon().await;
    assert_eq!(control.requests_of(RequestKind::List, "configmaps"), 0);
}

#[tokio::test]
async fn quorum_get_finds_an_object_moved_to_another_cluster() {
    let fixture = start(Partial::Deny).await;
    let path = format!("{CONFIG_MAPS}/x");
    for round in 0..20 {
        let (from, to) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
        fixture.member(from).delete("configmaps", "default", "x");
        fixture.put(to, "x", "");
        assert_eq!(cluster(&fixture.get(&path).await.ok()), to, "round {round}");
    }
    for member in ["a", "b"] {
        fixture.member(member).delete("configmaps", "default", "x");
    }
    fixture.get(&path).await.refused(404);
}

/// If a cluster is unreachable, a 404 is from memory, with a Warning about the age of the objects. If the cluster is
/// reachable, the router asks it, even if memory is outdated.
#[tokio::test]
async fn quorum_404_warns_about_unreachable_clusters() {
    let fixture = start(Partial::Allow).await;
    fixture.put_and_see("b", "x", "").await;
    let held = format!("{CONFIG_MAPS}?resourceVersion=0");
    let nothing = format!("{CONFIG_MAPS}/nothing");
    let control = fixture.member("b").control();
    let kinds = vec![RequestKind::List, RequestKind::Watch];
    control.reject(Some(Rejection { kinds, resources: vec!["configmaps".to_owned()], ..Rejection::all(500) }));
    control.cut_streams();
    // After 8 s without contact, the objects in memory are stale.
    pass(Duration::from_secs(8)).await;
    until(|| async { !fixture.get(&held).await.warnings().is_empty() }).await;
    let missing = fixture.get(&nothing).await;
    missing.refused(404);
    assert_eq!(missing.warnings(), [""; 0], "it was asked");
    control.stop_listening().await;
    fixture.out_of_reach("b").await;
    for method in ["GET", "DELETE"] {
        let missing = fixture.client().send(method, &nothing, &[], "").await;
        missing.refused(404);
        let [warning] = &missing.warnings()[..] else { panic!("{method}: {:?}", missing.warnings()) };
        assert!(warning.starts_with("299 - \"cluster b: configmaps may be stale, last updated "), "{warning}");
    }
}

#[tokio::test]
async fn quorum_read_names_the_failing_member() {
    for partial in [Partial::Deny, Partial::Allow] {
        let fixture = start(partial).await;
        fixture.put_and_see("b", "x", "").await;
        fixture.member("b").control().reject(Some(Rejection::all(500)));
        let begun = Instant::now();
        let answer = fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await;
        // The wait is shorter than the half minute for a cluster in an unknown state.
        assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
        if partial == Partial::Deny {
            let message = answer.refused(504);
            assert!(message.contains("b: the cluster refused the list"), "{message}");
        } else {
            assert_eq!(items(&answer.ok()), ["b/x"]);
            let warnings = answer.warnings();
            assert!(warnings.len() == 1 && warnings[0].contains("cluster b"), "{warnings:?}");
            assert!(warnings[0].contains("did not confirm"), "{warnings:?}");
        }
        // Reads of any version are not affected by the fault.
        fixture.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.ok();
    }
}

#[tokio::test]
async fn quorum_reads_include_the_clients_own_writes() {
    let fixture = start(Partial::Deny).await;
    let created = fixture.write("POST", CONFIG_MAPS, &config_map_in("b", "x", "1")).await.ok();
    let list = fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok();
    assert_eq!(list["items"][0]["metadata"]["uid"], created["metadata"]["uid"]);
    fixture.client().send("DELETE", &format!("{CONFIG_MAPS}/x"), &[], "").await.ok();
    assert_eq!(fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok()["items"], json!([]));
    assert_eq!(name(&created), "x");
}
