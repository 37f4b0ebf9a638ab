//! Informers in a storm: members change and fail at random while clients follow, and in the end each holds what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::harness::{CONFIG_MAPS, Client, Events, Fixture, SOON, cluster, name, until, vector, version};

/// An informer: lists, watches from the list, goes on after an end, and lists again only when it is told to.
struct Informer {
    client: Client,
    /// By cluster and name.
    objects: BTreeMap<(String, String), Value>,
    /// By name alone, as most clients keep them: the cluster whose object was seen last.
    names: BTreeMap<String, String>,
    from: Option<String>,
    lists: usize,
}

impl Informer {
    fn new(fixture: &Fixture) -> Self {
        let (objects, names) = (BTreeMap::new(), BTreeMap::new());
        Self { client: fixture.client(), objects, names, from: None, lists: 0 }
    }

    fn add(&mut self, object: &Value) {
        self.names.insert(name(object), cluster(object));
        self.objects.insert((cluster(object), name(object)), object["data"].clone());
    }

    async fn list(&mut self) {
        let answer = self.client.send("GET", CONFIG_MAPS, &[], "").await;
        if answer.code != 200 || !answer.warnings().is_empty() {
            // What is missing or stale is no ground to forget what was known.
            tokio::time::sleep(Duration::from_millis(20)).await;
            return;
        }
        let list = answer.ok();
        (self.objects, self.names) = Default::default();
        list["items"].as_array().unwrap().iter().for_each(|item| self.add(item));
        self.from = Some(version(&list));
        self.lists += 1;
    }

    /// Opens a watch where the last one ended.
    async fn watch(&mut self) -> Option<Events> {
        while self.from.is_none() {
            self.list().await;
        }
        let path = format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={}", self.from.as_ref()?);
        let response = self.client.call("GET", &path, &[], "").await;
        (response.status() == 200).then(|| Events::of(response))
    }

    fn event(&mut self, event: &Value) {
        let object = &event["object"];
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => self.add(object),
            Some("DELETED") => {
                self.objects.remove(&(cluster(object), name(object)));
                self.names.remove(&name(object));
            }
            Some("BOOKMARK") => {}
            _ => {
                assert_eq!(object["code"], 410, "{event}");
                self.from = None;
                return;
            }
        }
        self.from = Some(version(object));
    }

    /// Follows until `done` says so, giving up each stream after a while as clients do that lose their connection.
    async fn follow(&mut self, mut cuts: StdRng, done: impl Fn(&Self) -> bool) {
        loop {
            let Some(mut events) = self.watch().await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let patience = Duration::from_millis(cuts.random_range(5..200));
            let _ = tokio::time::timeout(patience, async {
                while let Some(event) = events.next().await {
                    self.event(&event);
                }
            })
            .await;
            if done(self) {
                return;
            }
        }
    }
}

/// Changes members, and plays faults in them, at random.
async fn storm(fixture: &Fixture, mut random: StdRng) {
    for round in 0..220 {
        let member = &fixture.members[random.random_range(0..fixture.members.len())];
        let object = format!("x{}", random.random_range(0..8));
        match random.random_range(0..100) {
            0..55 => drop(member.apply(crate::harness::config_map(&object, &round.to_string())).unwrap()),
            55..85 => drop(member.delete("configmaps", "default", &object)),
            85..88 => member.control().cut_streams(),
            88..91 => member.control().expire_watches(),
            91..93 => member.control().disconnect(),
            93..95 => {
                member.control().stop_listening().await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                member.control().start_listening().await;
            }
            95..97 => {
                let revision = member.control().revision().saturating_sub(random.random_range(1..6));
                // Revisions that have passed what was seen before anybody looks cannot be told from those that were undone.
                if member.control().restore(revision) {
                    until(|| async { seen(fixture, member.name()).await.is_none_or(|seen| seen <= revision) }).await;
                }
            }
            _ => {
                let names: Vec<_> = fixture.members.iter().map(|member| member.name()).collect();
                let left = &names[usize::from(random.random_bool(0.5))..];
                fixture.set_clusters(left).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                fixture.set_clusters(&names).await;
            }
        }
        if round % 4 == 0 {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }
}

/// Which revision of a member the router has seen.
async fn seen(fixture: &Fixture, member: &str) -> Option<u64> {
    let list = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.ok();
    vector(&version(&list)).get(member)?.as_str()?.parse().ok()
}

async fn weathered(seed: u64) {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    let over = std::cell::Cell::new(false);
    let mut informers = [Informer::new(&fixture), Informer::new(&fixture)];
    let done = |informer: &Informer| {
        let expected = fixture.config_maps_of_members();
        over.get() && informer.objects == expected && {
            let names: BTreeSet<_> = expected.keys().map(|(_, name)| name).collect();
            informer.names.keys().collect::<BTreeSet<_>>() == names
                && informer.names.iter().all(|(name, cluster)| expected.contains_key(&(cluster.clone(), name.clone())))
        }
    };
    let [first, second] = &mut informers;
    let all = async {
        tokio::join!(
            async {
                storm(&fixture, StdRng::seed_from_u64(seed)).await;
                over.set(true);
            },
            first.follow(StdRng::seed_from_u64(seed + 1), done),
            second.follow(StdRng::seed_from_u64(seed + 2), done),
        )
    };
    let in_time = tokio::time::timeout(SOON, all).await.is_ok();
    let expected = fixture.config_maps_of_members();
    let held = informers.each_ref().map(|informer| (&informer.objects, &informer.names, informer.lists));
    assert!(in_time, "seed {seed}: the members have {expected:#?}\nthe informers {held:#?}");
}

#[tokio::test]
async fn informers_hold_what_there_is_when_the_storm_is_over() {
    let seeds = std::env::var("STORM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1);
    for seed in 0..seeds {
        weathered(seed * 10).await;
    }
}
