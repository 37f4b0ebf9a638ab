//! A member behind a slow line.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_router::Policies;
use tributary_simulator::{Config, RequestKind, Simulator};

use crate::fleet::setup;
use crate::harness::{Fixture, SOON, config, items, router};

/// The member has no WatchList, and a list of all of its pods takes five times as long as it gives a request.
#[tokio::test(start_paused = true)]
async fn a_collection_is_synced_that_takes_longer_than_the_member_gives_a_request() {
    let member = Simulator::start_in_process(Config { pods: 60, watch_list: false, ..config("a") }).unwrap();
    let member = Arc::new(member);
    let fixture = Fixture { members: Vec::new(), router: router(Policies::default()) };
    fixture.router.set_clusters(vec![setup(&member).await]);
    fixture.router.asked_once(SOON).await;
    let bytes: usize = member.list("pods").iter().map(|pod| pod.to_string().len()).sum();
    member.control().slow(Some(bytes as u64 / 300));
    member.control().request_timeout(Some(Duration::from_secs(60)));
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
    let asked = member.control().requests_of(RequestKind::List, "pods");
    assert!((5..30).contains(&asked), "{asked}");
}
