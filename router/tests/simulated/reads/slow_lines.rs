//! Tests of a member with a slow connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_router::Policies;
use tributary_simulator::{RequestKind, Simulator, SimulatorConfig};

use crate::harness::{Fixture, SOON, config, items, router};
use crate::membership::fleet::setup;

/// A list of all pods takes five times the request timeout of the member.
#[tokio::test(start_paused = true)]
async fn collection_slower_than_the_request_timeout_is_synced() {
    let asked = lists_until_synced(300, Duration::from_secs(60)).await;
    assert!((5..30).contains(&asked), "{asked}");
}

/// A proxy in front of the member ends lists long before the member would.
#[tokio::test(start_paused = true)]
async fn collection_is_synced_although_a_proxy_cuts_lists() {
    // Each list ends after 8 s. In this time, the slow connection transfers about four of the 60 pods.
    let asked = lists_until_synced(120, Duration::from_secs(8)).await;
    assert!((20..50).contains(&asked), "{asked}");
}

/// Returns the number of lists that the router needs to read all pods of a member without WatchList. One complete list
/// would take `seconds`, but each list ends after `given`.
async fn lists_until_synced(seconds: u64, given: Duration) -> u64 {
    let member = Simulator::start_in_process(SimulatorConfig { pods: 60, watch_list: false, ..config("a") }).unwrap();
    let member = Arc::new(member);
    let fixture = Fixture { members: Vec::new(), router: router(Policies::default()) };
    fixture.router.set_clusters(vec![setup(&member).await]);
    fixture.router.asked_once(SOON).await;
    let bytes: usize = member.list("pods").iter().map(|pod| pod.to_string().len()).sum();
    member.control().slow(Some(bytes as u64 / seconds));
    member.control().request_timeout(Some(given));
    let begun = Instant::now();
    let list = loop {
        let answer = fixture.get("/api/v1/pods").await;
        if answer.code == 200 {
            break answer.ok();
        }
        answer.refused(429);
        assert!(begun.elapsed() < Duration::from_secs(3600), "it is never synced");
    };
    assert_eq!(items(&list).len(), 60);
    member.control().requests_of(RequestKind::List, "pods")
}
