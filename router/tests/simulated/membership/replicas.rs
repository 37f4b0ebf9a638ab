//! Tests of several router processes over the same members. A client's requests may reach any process. Each process
//! accepts the versions of the others, in the long and the compact form.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tributary_router::{ClusterAddress, ClusterSetup};
use tributary_simulator::{Rejection, RequestKind};

use crate::clients::informer::Informer;
use crate::harness::{
    CONFIG_MAPS, Fixture, SOON, allow, brief, cluster, composite, config, config_map, config_map_in, items, pass,
    setup, until, vector, version,
};

const FILTER: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

const ROUNDS: usize = 250;

/// Each informer opens a watch at least once in this number of changes. The changes wait for it.
const ROUNDS_PER_WATCH: usize = 25;

/// Changes members and injects faults at random. Waits for the informers from time to time. The values of objects only
/// increase.
async fn churn(fixture: &Fixture, mut random: StdRng, relists: bool, watches: &Cell<usize>) {
    for round in 1..=ROUNDS {
        let member = &fixture.members[random.random_range(0..fixture.members.len())];
        let object = format!("x{}", random.random_range(0..8));
        match random.random_range(0..100) {
            0..60 => drop(member.apply(config_map(&object, &round.to_string())).unwrap()),
            60..90 => drop(member.delete("configmaps", "default", &object)),
            90..94 => member.control().cut_streams(),
            94..96 => member.control().disconnect(),
            96..98 if relists => member.control().expire_watches(),
            _ => {
                member.control().stop_listening().await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                member.control().start_listening().await;
            }
        }
        if round % 4 == 0 {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        if round % ROUNDS_PER_WATCH == 0 {
            let opened = watches.get();
            until(|| async { watches.get() >= opened + INFORMERS }).await;
        }
    }
}

const INFORMERS: usize = 4;

/// Runs informers whose requests reach either of two replicas, until the changes end and all informers are up to date.
async fn led_about(fixture: &Fixture, seed: u64, relists: bool) -> Vec<Informer> {
    let other = fixture.restarted(allow()).await;
    let clients = vec![fixture.client(), other.client()];
    let over = Cell::new(false);
    let watches = Rc::new(Cell::new(0));
    let mut informers: Vec<_> = (0..INFORMERS)
        .map(|number| {
            let mut informer = Informer::new(clients.clone(), CONFIG_MAPS, seed * 10 + number as u64).paged(number * 2);
            informer.forward = !relists;
            informer.watches = Rc::clone(&watches);
            informer
        })
        .collect();
    let done = |informer: &Informer| over.get() && informer.holds(&fixture.config_maps_of_members());
    let changes = async {
        churn(fixture, StdRng::seed_from_u64(seed), relists, &watches).await;
        over.set(true);
    };
    let follow = futures::future::join_all(informers.iter_mut().map(|informer| informer.follow(done)));
    let in_time = tokio::time::timeout(SOON * 3, async { tokio::join!(changes, follow) }).await.is_ok();
    let expected = fixture.config_maps_of_members();
    let held: Vec<_> = informers.iter().map(|informer| (&informer.objects, &informer.names, &informer.from)).collect();
    assert!(in_time, "seed {seed}: the members have {expected:#?}\nthe informers {held:#?}");
    informers
}

#[tokio::test]
async fn informers_across_replicas_miss_no_event_and_never_go_back() {
    let seeds = std::env::var("STORM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1);
    for seed in 0..seeds {
        let fixture = Fixture::start(["a", "b", "c"]).await;
        let informers = led_about(&fixture, seed, false).await;
        let watches = informers[0].watches.get();
        assert!(watches >= ROUNDS / ROUNDS_PER_WATCH * INFORMERS, "they were hardly led about: {watches} watches");
    }
}

#[tokio::test]
async fn informers_across_replicas_survive_compacted_members() {
    let seeds = std::env::var("STORM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1);
    for seed in 0..seeds {
        let fixture = Fixture::start(["a", "b", "c"]).await;
        led_about(&fixture, 1000 + seed, true).await;
    }
}

#[tokio::test]
async fn paged_list_continues_at_another_replica() {
    let fixture = Fixture::start(["a", "b"]).await;
    let other = fixture.restarted(allow()).await;
    other.get(CONFIG_MAPS).await.ok();
    for number in 0..12 {
        fixture.put("a", &format!("m{number:02}"), "0");
        fixture.put("b", &format!("n{number:02}"), "0");
    }
    let whole = fixture.get(CONFIG_MAPS).await.ok();
    let (mut paged, mut query, mut turn) = (Vec::new(), "limit=5".to_owned(), 0);
    loop {
        let replica = [&fixture, &other][turn % 2];
        let page = replica.get(&format!("{CONFIG_MAPS}?{query}")).await.ok();
        assert_eq!(version(&page), version(&whole));
        paged.extend(page["items"].as_array().unwrap().iter().cloned());
        for number in 0..12 {
            fixture.put("a", &format!("m{number:02}"), &turn.to_string());
            fixture.member("b").delete("configmaps", "default", &format!("n{number:02}"));
        }
        turn += 1;
        let Some(token) = page["metadata"]["continue"].as_str() else { break };
        query = format!("limit=5&continue={token}");
    }
    assert_eq!(json!(paged), whole["items"]);
}

#[tokio::test]
async fn deletion_is_sent_although_an_idle_collection_is_behind_the_client() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "").await;
    let other = fixture.restarted(allow()).await;
    let list = other.get(&format!("{CONFIG_MAPS}?{FILTER}")).await.ok();
    // A write to another resource advances the revision of `b`, while its ConfigMaps stay the same. The first replica
    // has received the new revision.
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "default"}});
    let revision = fixture.member("b").apply(service).unwrap();
    let mut ahead = vector(&version(&list));
    ahead["b"] = json!(revision.to_string());
    let control = fixture.member("b").control();
    control.reset_counters();
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let mut events =
        other.watch(&format!("{CONFIG_MAPS}?{FILTER}&watch=1&resourceVersion={}", composite(&ahead))).await;
    assert!(started.elapsed() < Duration::from_millis(100), "it opens at once");
    fixture.member("a").delete("configmaps", "default", "x");
    // The replica must reach the client's version of `b` before it sends the deletion, because `b` may also have an
    // object with this name.
    let gone = events.soon().await;
    assert_eq!(brief(&gone), "DELETED a/x");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert_eq!(vector(&version(&gone["object"]))["b"], json!(revision.to_string()));
    tokio::time::resume();
    let asked = control.request_log().into_iter().filter(|line| line.contains("/configmaps?"));
    let listed: Vec<_> = asked.filter(|line| !line.contains("watch=1&resourceVersion=")).collect();
    assert!(!listed.is_empty() && listed.iter().all(|line| line.contains("limit=1")), "{listed:?}");
}

#[tokio::test]
async fn watch_newer_than_a_reconfigured_clusters_memory_gets_the_members_410() {
    let fixture = Fixture::start(["a"]).await;
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let mut ahead = vector(&version(&list));
    let revision: u64 = ahead["a"].as_str().unwrap().parse().unwrap();
    ahead["a"] = json!((revision + 5).to_string());
    // The member forbids lists, so the router cannot ask it whether it has reached the version.
    let lists = Rejection { kinds: vec![RequestKind::List], ..Rejection::all(500) };
    fixture.member("a").control().reject(Some(lists));
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", composite(&ahead))).await;
    events.nothing().await;
    let changed =
        ClusterSetup { address: ClusterAddress::from_description("another"), ..setup(fixture.member("a"), "a").await };
    fixture.router.set_clusters(vec![changed]);
    let error = events.soon().await;
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)), "{error}");
}

#[tokio::test]
async fn compact_version_is_decoded_by_every_replica() {
    let names: Vec<String> =
        (0..44).map(|number| format!("production-cluster-in-a-region-far-away-from-here-number-{number:06}")).collect();
    let fixture = Fixture::with(std::array::from_fn::<_, 44, _>(|number| config(&names[number])), allow()).await;
    let other = fixture.restarted(allow()).await;
    let compact = |text: &str| text.starts_with("c1.") && text.len() < 1024;
    // When a replica has read the uid of every cluster, its versions have the compact form.
    until(|| async {
        let both = [&fixture, &other];
        let lists = futures::future::join_all(both.map(|replica| replica.get(CONFIG_MAPS))).await;
        lists.iter().all(|list| list.code == 200 && compact(&version(&list.json())))
    })
    .await;
    let first = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}")).await.ok();
    assert_eq!(version(&first), version(&other.get(&format!("{CONFIG_MAPS}?{FILTER}")).await.ok()), "byte-stable");
    for (number, name) in names.iter().enumerate().take(6) {
        fixture.put(name, &format!("x{number}"), "");
    }
    // After each event, the watch resumes at the other replica.
    let mut from = version(&first);
    for number in 0..6 {
        let replica = [&fixture, &other][number % 2];
        let mut events = replica.watch(&format!("{CONFIG_MAPS}?{FILTER}&watch=1&resourceVersion={from}")).await;
        // The events of different clusters arrive in any order. A resumed watch sends only the missing events.
        let event = events.soon().await;
        from = version(&event["object"]);
        assert!(compact(&from), "{from}");
    }
    let list = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&resourceVersion={from}")).await.ok();
    assert_eq!((items(&list).len(), version(&list)), (6, from.clone()));
    let page = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&limit=4")).await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = other.get(&format!("{CONFIG_MAPS}?{FILTER}&limit=4&continue={token}")).await.ok();
    assert_eq!((items(&rest).len(), version(&rest)), (2, version(&page)));
    // The router also decodes the long form. It answers 410, because the cluster has not reached this version.
    let long = composite(&json!({ names[0].as_str(): "1000000" }));
    fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={long}")).await.refused(410);
    // A replica that has not read the uids of all clusters cannot decode the compact form. It must not answer 410,
    // because a new list would lack the unreachable cluster.
    let away = fixture.member(&names[43]).control();
    away.stop_listening().await;
    let late = fixture.restarted(allow()).await;
    for query in [
        format!("resourceVersion={from}"),
        format!("limit=4&continue={token}"),
        format!("watch=1&resourceVersion={from}"),
    ] {
        let answer = late.get(&format!("{CONFIG_MAPS}?{FILTER}&{query}")).await;
        assert!(answer.refused(429).contains(&names[43]) && answer.headers.contains_key("retry-after"), "{query}");
    }
    away.start_listening().await;
    // The router tries to reach an unreachable cluster every 8 to 12 seconds, so an attempt is due after this time.
    pass(Duration::from_secs(12)).await;
    until(|| async { late.get(&format!("{CONFIG_MAPS}?{FILTER}&resourceVersion={from}")).await.code == 200 }).await;
    // A router with different clusters cannot decode the version, so the client must list again.
    let elsewhere = Fixture { members: Vec::new(), router: crate::harness::router(allow()) };
    let mut setups = Vec::new();
    for name in &names[1..] {
        setups.push(setup(fixture.member(name), name).await);
    }
    elsewhere.router.set_clusters(setups);
    elsewhere.router.asked_once(SOON).await;
    // Before the router has reached all its clusters, it answers 429.
    until(|| async { elsewhere.get(&format!("{CONFIG_MAPS}?resourceVersion={from}")).await.code != 429 }).await;
    elsewhere.get(&format!("{CONFIG_MAPS}?resourceVersion={from}")).await.refused(410);
    elsewhere.get(&format!("{CONFIG_MAPS}?limit=4&continue={token}")).await.refused(410);
    let mut refused = elsewhere.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(refused.soon().await["object"]["code"], 410);
}

fn owned_by(owner: &serde_json::Value, name: &str) -> serde_json::Value {
    let mut object = config_map(name, "");
    let of = &owner["metadata"];
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": of["name"], "uid": of["uid"]}]);
    object
}

/// Starts two replicas with `b` as the default placement. Neither replica receives events from `a`.
async fn blind_to_a() -> (Fixture, Fixture) {
    let mut policies = allow();
    policies.default.placement = Some("b".parse().unwrap());
    let fixture = Fixture::with(["a", "b"].map(config), policies.clone()).await;
    let other = fixture.restarted(policies).await;
    for replica in [&fixture, &other] {
        replica.get(CONFIG_MAPS).await.ok();
    }
    fixture.member("a").control().slow(Some(1));
    (fixture, other)
}

#[tokio::test]
async fn create_finds_the_cluster_of_an_uncached_owner() {
    let (fixture, other) = blind_to_a().await;
    let owner = fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "owner", "")).await.ok();
    let child = other.write("POST", CONFIG_MAPS, &owned_by(&owner, "child")).await.ok();
    assert_eq!(cluster(&child), "a", "its owner's garbage collector would delete it elsewhere");
    // The unreachable cluster may contain the owner, so the router cannot place the object.
    fixture.member("a").control().stop_listening().await;
    let late = other.write("POST", CONFIG_MAPS, &owned_by(&owner, "late")).await;
    assert!(late.refused(503).contains('a'));
    assert_eq!(fixture.member("b").get("configmaps", "default", "late"), None);
}

#[tokio::test]
async fn apply_finds_the_cluster_of_an_uncached_object() {
    let (fixture, other) = blind_to_a().await;
    fixture.put("a", "x", "1");
    let apply = |name: &str| {
        let (path, body) = (format!("{CONFIG_MAPS}/{name}?fieldManager=t"), config_map(name, "2"));
        let other = &other;
        async move { other.patch(&path, "apply-patch+yaml", &body).await }
    };
    let applied = apply("x").await;
    assert_eq!((applied.code, cluster(&applied.ok()).as_str()), (200, "a"));
    let made = apply("y").await;
    assert_eq!((made.code, cluster(&made.ok()).as_str()), (201, "b"), "it is nowhere");
    fixture.member("a").control().stop_listening().await;
    apply("z").await.refused(503);
    assert_eq!(fixture.member("b").get("configmaps", "default", "z"), None);
}
