//! Tests of a member with several addresses that loses an address, and of a member with one address that becomes
//! silent.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::timeout;
use tributary_proxy::{BreakerTuning, ClientTuning, ClusterClient, EndpointSubset};
use tributary_simulator::Simulator;
use tributary_simulator::{Relay, RelayMode};

use crate::harness::{
    CONFIG_MAPS, Fixture, QUIET, SOON, allow, config, config_map, config_map_in, name, router, setup_through, until,
};

const WRITES: usize = 200;

fn url(relay: &Relay) -> http::Uri {
    format!("https://127.0.0.1:{}", relay.port()).parse().unwrap()
}

/// Starts a member behind `N` relays, which are its addresses, and a router over this member.
async fn behind<const N: usize>(tuning: ClientTuning) -> (Fixture, Vec<Relay>) {
    let (fixture, relays, _) = with_client::<N>(tuning).await;
    (fixture, relays)
}

/// Like [`behind`], and also returns the router's client for the member.
async fn with_client<const N: usize>(tuning: ClientTuning) -> (Fixture, Vec<Relay>, ClusterClient) {
    let member = Simulator::start(config("a")).await.unwrap();
    let mut relays = Vec::new();
    for seed in 0..N {
        relays.push(Relay::start(member.address().port(), seed as u64).await.unwrap());
    }
    let urls: Vec<_> = relays.iter().map(url).collect();
    let setup = setup_through(&member, "a", &urls, tuning).await;
    let client = setup.client.clone().unwrap();
    let fixture = Fixture { members: vec![member], router: router(allow()) };
    fixture.router.set_clusters(vec![setup]);
    fixture.router.asked_once(SOON).await;
    (fixture, relays, client)
}

async fn readyz(fixture: &Fixture) -> String {
    String::from_utf8(fixture.get("/readyz?verbose").await.body.to_vec()).unwrap()
}

#[tokio::test]
async fn endpoint_lost_under_load_affects_only_writes_in_flight() {
    let (fixture, mut relays) = behind::<2>(ClientTuning::default()).await;
    let mut events =
        fixture.watch(&format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name!=kube-root-ca.crt")).await;
    assert!(readyz(&fixture).await.contains(&format!("[+]cluster/a/endpoint/127.0.0.1:{} ok\n", relays[0].port())));
    // Each request makes the router open a watch. With several watches, each endpoint carries at least one.
    for resource in ["events", "services", "pods", "namespaces", "nodes"] {
        fixture.get(&format!("/api/v1/{resource}")).await.ok();
    }
    let passed = |relay: &Relay| relay.passed();
    assert!(relays.iter().all(|relay| passed(relay) > 0), "both are used");
    let (mut made, mut unsure) = (BTreeSet::new(), BTreeSet::new());
    let mut lost_port = 0;
    for number in 0..WRITES {
        if number == WRITES / 2 {
            let lost = relays.remove(0);
            lost_port = lost.port();
            // Dropping the relay closes its port and its connections.
            drop(lost);
        }
        let object = config_map(&format!("x{number:03}"), "");
        match fixture.write("POST", CONFIG_MAPS, &object).await {
            answer if answer.code == 201 => made.insert(name(&object)),
            answer => {
                assert!(answer.refused(502).contains("may have been carried out"));
                unsure.insert(name(&object))
            }
        };
        let read = fixture.get(&format!("/clusters/a{CONFIG_MAPS}/x000")).await;
        assert_eq!((read.code, name(&read.json())), (200, "x000".to_owned()), "reads are sent again");
        let listed = fixture.get(&format!("{CONFIG_MAPS}?limit=1")).await;
        listed.ok();
    }
    assert!(unsure.len() <= 1, "one after the other at most one is in flight: {unsure:?}");
    let mut told = BTreeSet::new();
    while !made.is_subset(&told) {
        let event = events.soon().await;
        assert_eq!(event["type"], "ADDED");
        assert!(told.insert(name(&event["object"])), "told twice: {event}");
    }
    assert!(told.is_subset(&(&made | &unsure)));
    let said = readyz(&fixture).await;
    assert!(said.contains("[+]cluster/a ok\n"), "{said}");
    assert!(said.contains(&format!("[-]cluster/a/endpoint/127.0.0.1:{lost_port} failed: ")), "{said}");
    assert!(said.contains(&format!("[+]cluster/a/endpoint/127.0.0.1:{} ok\n", relays[0].port())), "{said}");
    let metrics = fixture.router.metrics().expose();
    let reachable = |port| format!("tributary_endpoint_reachable{{cluster=\"a\",endpoint=\"127.0.0.1:{port}\"}}");
    assert!(metrics.contains(&format!("{} 0\n", reachable(lost_port))), "{metrics}");
    assert!(metrics.contains(&format!("{} 1\n", reachable(relays[0].port()))), "{metrics}");
}

/// The limit of requests in flight is lower than the capacity of the connections. One client may use only a part of the
/// limit.
#[tokio::test]
async fn requests_of_one_client_do_not_exhaust_the_circuit_breaker() {
    for breaker in [
        BreakerTuning { max_in_flight: Some(10), ..BreakerTuning::default() },
        BreakerTuning { max_in_flight_per_endpoint: Some(5), ..BreakerTuning::default() },
    ] {
        let (fixture, _relays) = behind::<2>(ClientTuning { breaker, ..ClientTuning::default() }).await;
        fixture.put_and_see("a", "x", "").await;
        fixture.connect_clients("a").await;
        let (eve, ann) = (fixture.connection(1), fixture.connection(2));
        let path = format!("/clusters/a{CONFIG_MAPS}/x");
        fixture.member("a").control().hold_requests(true);
        let mut of_eve: FuturesUnordered<_> = (0..20).map(|_| eve.get(&path)).collect();
        while let Ok(answer) = timeout(QUIET, of_eve.next()).await {
            let message = answer.expect("some of them wait").refused(429);
            assert!(message.starts_with("cluster a: too many short requests: of the limit 10, "), "{message}");
        }
        let mut of_ann = Box::pin(ann.get(&path));
        let refused = timeout(QUIET, &mut of_ann).await;
        assert!(refused.is_err(), "{refused:?}");
        fixture.member("a").control().hold_requests(false);
        of_ann.await.ok();
        while let Some(answer) = of_eve.next().await {
            answer.ok();
        }
    }
}

/// A drained endpoint gets no requests. The router has sent nothing, so the client may retry. Reads from memory still
/// succeed.
#[tokio::test]
async fn drained_endpoints_get_no_requests_and_reads_use_memory() {
    let (fixture, relays, client) = with_client::<2>(ClientTuning::default()).await;
    fixture.put_and_see("a", "x", "").await;
    let drain = |relays: &[&Relay]| {
        let urls: Vec<_> = relays.iter().map(|relay| url(relay).to_string()).collect();
        client.set_drained(&EndpointSubset::new(&urls));
    };
    let forwarded = format!("/clusters/a{CONFIG_MAPS}/x");
    let left_out = |relay: &Relay, is_drained: u8| {
        let endpoint = format!("127.0.0.1:{}", relay.port());
        format!("tributary_endpoint_left_out{{cluster=\"a\",endpoint=\"{endpoint}\",reason=\"drain\"}} {is_drained}\n")
    };
    drain(&[&relays[0]]);
    fixture.get(&forwarded).await.ok();
    let metrics = fixture.router.metrics().expose();
    assert!(metrics.contains(&left_out(&relays[0], 1)) && metrics.contains(&left_out(&relays[1], 0)), "{metrics}");

    drain(&[&relays[0], &relays[1]]);
    for (method, body) in [("GET", ""), ("DELETE", "")] {
        let answer = fixture.client().send(method, &forwarded, &[], body).await;
        let message = answer.refused(503);
        assert!(message.contains("the configuration drains the endpoint (drain)"), "{method}: {message}");
        assert_eq!(answer.headers["retry-after"], "1", "{method}");
    }
    assert_eq!(name(&fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok()), "x");
    let said = readyz(&fixture).await;
    assert!(said.contains("cluster/a failed: all endpoints of the cluster are drained"), "{said}");
    drain(&[]);
    fixture.get(&forwarded).await.ok();
}

#[tokio::test]
async fn requests_to_a_silent_member_fail_immediately() {
    let tuning = ClientTuning {
        keep_alive_interval: Duration::from_millis(300),
        // On a busy machine, a response on a working connection takes less than this timeout.
        keep_alive_timeout: Duration::from_secs(2),
        ..ClientTuning::default()
    };
    let (fixture, relays) = behind::<1>(tuning).await;
    fixture.put("a", "x", "");
    let forwarded = format!("/clusters/a{CONFIG_MAPS}/x");
    fixture.get(&forwarded).await.ok();
    relays[0].set(RelayMode::Silent);
    let started = tokio::time::Instant::now();
    let read = fixture.get(&forwarded).await.refused(503);
    assert!(read.contains("cluster a"), "{read}");
    assert!(started.elapsed() < SOON / 2, "it was in flight when the pings failed: {:?}", started.elapsed());
    // The router now knows that the member is silent, so it refuses each request immediately.
    let started = tokio::time::Instant::now();
    for _ in 0..20 {
        let read = fixture.get(&forwarded).await;
        assert!(read.refused(503).contains("cluster a"));
        let written = fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "y", "")).await;
        assert!(written.refused(503).contains("cluster a"));
    }
    assert!(started.elapsed() < Duration::from_secs(20), "not a second for each: {:?}", started.elapsed());
    relays[0].set(RelayMode::Clear);
    until(|| async { fixture.get(&forwarded).await.code == 200 }).await;
}
