//! The figures of doors: requests to members, watches and connections, which tests check, and CPU times, which
//! measurements print.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tributary_simulator::{RequestKind, SimulatedCluster, Simulator, SimulatorConfig};

use super::table::{DoorRow, MEMBERS, MERGED_VIEWS};
use crate::harness::{CONFIG_MAPS, Events, Fixture, SOON, allow, config, config_map, router, until};
use crate::membership::fleet;

/// The query of client-go's reflectors.
const WATCH_LIST: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Starts members without sockets. The first one has the name `a`.
async fn start(count: usize) -> (Fixture, Vec<Arc<SimulatedCluster>>) {
    let name = |number: usize| if number == 0 { "a".to_owned() } else { format!("member-{number:03}") };
    let member = |number| {
        let config = SimulatorConfig { seed: number as u64, ..config(&name(number)) };
        Arc::new(Simulator::start_in_process(config).unwrap())
    };
    let members: Vec<_> = (0..count).map(member).collect();
    let fixture = Fixture { members: Vec::new(), router: router(allow()) };
    fixture.router.set_clusters(join_all(members.iter().map(fleet::setup)).await);
    fixture.router.asked_once(SOON).await;
    (fixture, members)
}

/// Returns the door whose prefix contains this text.
fn row(rows: &'static [DoorRow], part: &str) -> &'static DoorRow {
    rows.iter().find(|row| row.prefix.contains(part)).unwrap()
}

/// Karmada sends the GET to each of its members.
#[tokio::test]
async fn named_get_of_all_clusters_is_answered_from_memory() {
    const MEMBERS: usize = 100;
    let (fixture, members) = start(MEMBERS).await;
    members[MEMBERS / 2].apply(config_map("x", "1")).unwrap();
    let client = row(MERGED_VIEWS, "clusters/*").client(&fixture);
    let path = format!("{CONFIG_MAPS}/x");
    until(async || client.get(&path).await.code == 200).await;
    members.iter().for_each(|member| member.control().reset_counters());
    for _ in 0..10 {
        assert_eq!(client.get(&path).await.ok()["data"]["v"], "1");
    }
    let requests: Vec<_> = members.iter().flat_map(|member| member.control().request_log()).collect();
    assert_eq!(requests, Vec::<String>::new());
}

#[tokio::test]
async fn controllers_of_the_merged_view_share_one_watch_of_each_member_and_kind() {
    const KINDS: [(&str, &str); 3] =
        [("/api/v1", "configmaps"), ("/api/v1", "pods"), ("/apis/apps/v1", "deployments.apps")];
    const CONTROLLERS: u16 = 3;
    let (fixture, members) = start(20).await;
    for row in MERGED_VIEWS.iter().filter(|row| row.allows_watches()) {
        let mut watches = Vec::new();
        for controller in 0..CONTROLLERS {
            let client = row.client(&fixture).by_port(controller + 1);
            for (root, kind) in KINDS {
                let plural = kind.split('.').next().unwrap();
                let mut events = client.watch(&format!("{root}/{plural}?{WATCH_LIST}")).await;
                while events.soon().await["type"] != "BOOKMARK" {}
                watches.push(events);
            }
        }
        for member in &members {
            for (_, kind) in KINDS {
                let watches = member.control().requests_of(RequestKind::Watch, kind);
                assert_eq!(watches, 1, "{row:?}: {} {kind}", member.name());
            }
        }
        drop(watches);
    }
}

/// A controller with the kubeconfig of a published Secret sends a watch for each kind to the path of the cluster.
#[tokio::test]
async fn watches_through_published_secrets_share_connections_of_a_hundred_watches() {
    const KINDS: [&str; 3] = ["configmaps", "pods", "services"];
    const CONTROLLERS: u16 = 80;
    let fixture = Fixture::start(["a"]).await;
    fixture.put_and_see("a", "x", "1").await;
    let row = &MEMBERS[0];
    let control = fixture.member("a").control();
    let before = control.open_connections();
    let mut watches: Vec<Events> = Vec::new();
    for controller in 0..CONTROLLERS {
        let client = row.client(&fixture).by_port(controller + 1);
        for kind in KINDS {
            let mut events = client.watch(&format!("/api/v1/{kind}?{WATCH_LIST}")).await;
            while events.soon().await["type"] != "BOOKMARK" {}
            watches.push(events);
        }
    }
    let more = control.open_connections() - before;
    let most = u64::try_from(watches.len().div_ceil(100) + 1).unwrap();
    assert!((1..=most).contains(&more), "{} watches use {more} connections", watches.len());
}

/// Returns the CPU time of this process. `schedstat` counts nanoseconds.
fn cpu_time() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let text = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("schedstat")).ok());
    let nanoseconds = text.map(|text| text.split_whitespace().next().unwrap().parse::<u64>().unwrap());
    Duration::from_nanos(nanoseconds.sum())
}

/// Measures the same path at each door, in turns. Returns the median of the CPU times of a request for each door, in
/// microseconds.
async fn compare(fixture: &Fixture, rows: &[&'static DoorRow], path: &str, requests: u32) -> Vec<f64> {
    const ROUNDS: usize = 15;
    let clients: Vec<_> = rows.iter().map(|row| row.client(fixture)).collect();
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (client, times) in clients.iter().zip(&mut times) {
            let before = cpu_time();
            for _ in 0..requests {
                assert_eq!(client.get(path).await.code, 200);
            }
            times.push((cpu_time() - before).as_secs_f64() * 1e6 / f64::from(requests));
        }
    }
    for (row, times) in rows.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{path} at {row:?}: median {:.1} µs, fastest {:.1} µs", times[ROUNDS / 2], times[0]);
    }
    times.iter().map(|times| times[ROUNDS / 2]).collect()
}

/// The times contain the simulated member's part, which is the same at each door. The goal is 5 µs in an optimized
/// build.
#[tokio::test]
#[ignore = "measures"]
async fn cpu_time_of_a_forwarded_get_at_each_door() {
    let (fixture, members) = start(1).await;
    members[0].apply(config_map("x", "1")).unwrap();
    let rows: Vec<_> = MEMBERS.iter().collect();
    let times = compare(&fixture, &rows, &format!("{CONFIG_MAPS}/x"), 500).await;
    let most = times.iter().fold(0.0, |most: f64, time| most.max(time - times[0]));
    println!("at most {most:.1} µs more than at {:?}", MEMBERS[0].prefix);
}

/// The goal is 5 %.
#[tokio::test]
#[ignore = "measures"]
async fn cpu_time_of_a_list_at_the_search_proxy() {
    let (fixture, members) = start(2).await;
    for member in &members {
        for number in 0..500 {
            member.apply(config_map(&format!("map-{number:03}"), &"x".repeat(500))).unwrap();
        }
    }
    let rows = [&MERGED_VIEWS[0], row(MERGED_VIEWS, "proxying")];
    for path in [CONFIG_MAPS, &format!("{CONFIG_MAPS}?limit=100")] {
        let times = compare(&fixture, &rows, path, 20).await;
        println!("{path}: {:.1} % of the merged view", times[1] / times[0] * 100.0);
    }
}
