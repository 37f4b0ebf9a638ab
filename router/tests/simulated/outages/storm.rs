//! Informers under random faults: members change and fail while clients follow. At the end each client has all current
//! objects.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::clients::informer::Informer;
use crate::harness::{CONFIG_MAPS, Fixture, SOON, until, vector, version};

async fn storm(fixture: &Fixture, mut random: StdRng) {
    let mut undone = BTreeMap::new();
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
                // The router must read the state before the restore, and the state after it. If it missed one, the
                // member's revision could exceed the undone revisions undetected, or events from before the restore
                // could arrive after it.
                let newest = member.control().revision();
                until(|| async { seen(fixture, member.name()).await == Some(newest) }).await;
                let revision = newest.saturating_sub(random.random_range(1..6));
                if member.control().restore(revision) {
                    let highest = undone.entry(member.name()).or_insert(newest);
                    *highest = newest.max(*highest);
                    until(|| async { seen(fixture, member.name()).await.is_some_and(|seen| seen <= revision) }).await;
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
    // The loop lets each member exceed its undone revisions. A client that resumes from an undone version then gets
    // 410.
    for member in &fixture.members {
        while undone.get(member.name()).is_some_and(|undone| member.control().revision() <= *undone) {
            member.apply(crate::harness::config_map("last", "")).unwrap();
        }
    }
}

/// Returns the revision of a member that the router's ConfigMaps have reached. `None` if the router has no version of
/// the member. The part of the revision is ignored, because each revision in this test has at most one deletion.
async fn seen(fixture: &Fixture, member: &str) -> Option<u64> {
    let list = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.ok();
    let components = vector(&version(&list));
    components.get(member)?.as_str()?.split('-').next()?.parse().ok()
}

async fn weathered(seed: u64) {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    let over = std::cell::Cell::new(false);
    let mut informers = [1, 2].map(|number| Informer::new(vec![fixture.client()], CONFIG_MAPS, seed + number));
    let done = |informer: &Informer| over.get() && informer.holds(&fixture.config_maps_of_members());
    let [first, second] = &mut informers;
    let all = async {
        tokio::join!(
            async {
                storm(&fixture, StdRng::seed_from_u64(seed)).await;
                over.set(true);
            },
            first.follow(done),
            second.follow(done),
        )
    };
    let in_time = tokio::time::timeout(SOON * 3, all).await.is_ok();
    let expected = fixture.config_maps_of_members();
    let held = informers.each_ref().map(|informer| (&informer.objects, &informer.names, informer.lists));
    assert!(in_time, "seed {seed}: the members have {expected:#?}\nthe informers {held:#?}");
}

#[tokio::test]
async fn informers_have_all_current_objects_after_random_faults() {
    let seeds = std::env::var("STORM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1);
    for seed in 0..seeds {
        weathered(seed * 10).await;
    }
}
