//! Simulates a day in production in a short time. Three clusters of real kube-apiservers (one cluster has two
//! kube-apiservers) are behind Tributary in shared mode, with flow control, audit log and access log. Users, informers,
//! exec sessions and short connections send a mixed load. Each minute has one fault, which a seed selects.
//!
//! The test requires:
//!
//! * A request fails only if the minute's fault excuses the failure. A fault of a cluster never excuses a failed read
//!   from Tributary's cache.
//! * Tributary answers enough requests of each kind in each minute.
//! * No answer has objects of a wrong cluster or user.
//! * At the end of each minute, after the load stops, every informer has the clusters' objects, and no permit is in
//!   use. Memory, files and connections are back at their earlier level.
//!
//! Each run prints its seed. `TRIBUTARY_DAY_SEED` and `TRIBUTARY_DAY_MINUTES` set the seed and the length, and
//! `TRIBUTARY_DAY_FAULTS` limits the faults (`CutOff,Storm`).

use crate::context::{Case, TestContext};
use anyhow::Context as _;
use std::{str::FromStr, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

mod faults;
mod followers;
mod harm;
mod kind;
mod load;
mod measure;
mod scene;

use faults::Deck;
use followers::Followers;
use load::Load;
use measure::Sample;
use scene::Scene;

/// Default number of minutes.
const MINUTES: usize = 30;

/// Duration of the load in each minute. After the load, the test waits until no request is in flight and all clients
/// have the clusters' objects. This takes seconds, or up to two minutes after some faults.
const LOUD: Duration = Duration::from_secs(55);

/// Number of minutes at the beginning that the checks ignore, because memory and connections still grow to their usual
/// level.
const WARM_UP: usize = 2;

/// Longest duration of the start, and of one minute.
const PATIENCE: Duration = Duration::from_secs(420);

pub(crate) fn cases() -> Vec<Case> {
    let minutes = env_or("TRIBUTARY_DAY_MINUTES", MINUTES);
    let patience = PATIENCE * u32::try_from(minutes + 1).unwrap_or(u32::MAX);
    vec![
        Case::new("day::proof_mixed_load_survives_a_fault_each_minute", move |context| run(context, minutes))
            .patience(patience),
    ]
}

fn env_or<T: FromStr>(variable: &str, otherwise: T) -> T {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

async fn run(context: TestContext, minutes: usize) -> anyhow::Result<()> {
    let seed = env_or("TRIBUTARY_DAY_SEED", u64::from(rand::random::<u32>()));
    println!("day: seed {seed}, {minutes} minutes");
    let scene = Arc::new(Scene::start(&context, seed).await?);
    let outcome = live(&context, &scene, seed, minutes).await;
    outcome.map_err(|error| {
        let kept = scene.keep_log(seed);
        error.context(format!("seed {seed}, Tributary's log in {kept}"))
    })
}

async fn live(context: &TestContext, scene: &Arc<Scene>, seed: u64, minutes: usize) -> anyhow::Result<()> {
    let begun = Instant::now();
    let operator = scene.operator().await?;
    let load = Load::prepare(scene, seed).await.context("prepare the load")?;
    let mut followers = Followers::start(scene, context.fixture.tools().await?, seed).await?;
    let mut deck = Deck::of(seed, &env_or("TRIBUTARY_DAY_FAULTS", String::new()))?;
    println!("day: everybody is there after {:.0} s", begun.elapsed().as_secs_f64());
    let mut samples = Vec::new();
    for minute in 1..=minutes {
        let (fault, lasts) = deck.draw();
        let began = Instant::now();
        followers.go_on();
        load.go_on();
        let what = format!("minute {minute}: {fault} for {} s", lasts.as_secs());
        fault.play(scene, &load.results, lasts).await.with_context(|| what.clone())?;
        sleep_until(began + LOUD).await;
        let sample = quiet(scene, &operator, &load, &mut followers, &what).await.with_context(|| what.clone())?;
        println!("day: {what}; over after {:.0} s", began.elapsed().as_secs_f64());
        if minute > WARM_UP.min(minutes / 2) {
            samples.push(sample);
        }
    }
    println!("day: {}", measure::is_flat(&samples)?);
    Ok(())
}

/// Ends a minute: stops the load, and checks the clients' objects, the flow-control permits and the memory.
async fn quiet(
    scene: &Scene,
    operator: &tributary_e2e::HttpClient,
    load: &Load,
    followers: &mut Followers,
    what: &str,
) -> anyhow::Result<Sample> {
    let written = followers.pause().await?;
    load.pause().await?;
    let settled = followers.settle(scene).await?;
    let sample = measure::look(scene.tributary.pid(), operator, &scene.tributary.log()).await?;
    let results = load.results.take()?;
    println!("day:   {what}: {results}; {written} writes, followed after {:.1} s; {sample}", settled.as_secs_f64());
    Ok(sample)
}
