//! Runs one seed: its members, routers, schedule and clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};

use crate::client::Client;
use crate::follower::Follower;
use crate::schedule::{self, Profile};
use crate::truth::{Lie, Selection, State};
use crate::world::{REPLICAS, RESOURCE, World};
use crate::{rights, writer, writes};

const CLIENTS: u64 = 5;

/// The maximum time until all clients are up to date after the last fault: twice the longest delay between a cacher's
/// attempts, and one discovery request to the members.
const REST_WITHIN: Duration = Duration::from_secs(240);

/// The kind of a run, which decides what the run tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// The run tests versions and writes, with clients of one user.
    Versions,
    Rights,
}

impl RunKind {
    pub(crate) const ALL: [Self; 2] = [Self::Versions, Self::Rights];

    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Versions => "seed",
            Self::Rights => "rights",
        }
    }
}

struct Outcome {
    failure: Option<String>,
    trace: Vec<String>,
}

struct Watched {
    name: String,
    selection: Selection,
    follower: Arc<Mutex<Option<Follower>>>,
}

/// Runs a seed in a separate thread, on a runtime with a paused clock: time advances only while every task waits.
fn run(kind: RunKind, seed: u64) -> Outcome {
    // Hash maps, timer jitter and tokio's choice among tasks use random numbers of the system, so the seed must
    // determine these numbers.
    seed_the_system(seed);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.map(|runtime| runtime.block_on(in_runtime(kind, seed)))
    });
    match thread.join() {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome { failure: Some(format!("no runtime: {error}")), trace: Vec::new() },
        Err(_) => Outcome { failure: Some("it panicked".to_owned()), trace: Vec::new() },
    }
}

fn seed_the_system(seed: u64) {
    use std::sync::Once;
    static FIRST: Once = Once::new();
    let generator = || <rand_system::rngs::StdRng as rand_system::SeedableRng>::seed_from_u64(seed);
    FIRST.call_once(|| mad_turmoil::rand::set_rng(generator()));
    *mad_turmoil::rand::get_rng() = generator();
}

async fn in_runtime(kind: RunKind, seed: u64) -> Outcome {
    if kind == RunKind::Rights {
        let (failure, trace) = rights::run(seed).await;
        return Outcome { failure, trace };
    }
    let profile = Profile::of(seed);
    let world = match World::start(profile).await {
        Ok(world) => world,
        Err(error) => return Outcome { failure: Some(format!("it did not start: {error:#}")), trace: Vec::new() },
    };
    world.trace(|| format!("{profile:?}"));
    let mut clients = JoinSet::new();
    let mut watched = Vec::new();
    for number in 0..CLIENTS {
        let client = Client::new(&world, number);
        let (name, selection) = client.describe();
        watched.push(Watched { name, selection, follower: client.follower() });
        clients.spawn(client.run());
    }
    clients.spawn(writer::run(Arc::clone(&world)));
    clients.spawn(writes::run(Arc::clone(&world)));
    if profile.replaces {
        clients.spawn(schedule::run_replacements(Arc::clone(&world)));
    }
    schedule::run(&world).await;
    if world.failure().is_none()
        && let Err(error) = rest(&world, &watched).await
    {
        world.fail("in the end", &format!("{error:#}"));
    }
    while let Some(ended) = clients.try_join_next() {
        if ended.is_err() {
            world.fail("a client", &"it panicked");
        }
    }
    clients.shutdown().await;
    Outcome { failure: world.failure(), trace: world.traced() }
}

/// Waits until every client has all objects. The error names a client that lacks objects.
async fn rest(world: &Arc<World>, watched: &[Watched]) -> anyhow::Result<()> {
    schedule::end_of_trouble(world).await?;
    let step = Duration::from_secs(5);
    let mut missing = String::new();
    for _ in 0..REST_WITHIN.as_secs() / step.as_secs() {
        sleep(step).await;
        if let Some(failure) = world.failure() {
            anyhow::bail!("{failure}");
        }
        match all_have_everything(world, watched).await? {
            Some(who) => missing = who,
            None => return Ok(()),
        }
    }
    anyhow::bail!("it does not come to rest: {missing}")
}

async fn all_have_everything(world: &World, watched: &[Watched]) -> anyhow::Result<Option<String>> {
    let everything = Selection::default();
    for replica in 0..REPLICAS {
        let list = world.get(replica, &format!("/api/v1/{RESOURCE}")).await?;
        let Some(items) = list.json["items"].as_array().filter(|_| list.code == 200) else {
            return Ok(Some(format!("the list of router {replica} is {} {}", list.code, list.json)));
        };
        let listed: Result<Objects, Lie> = items
            .iter()
            .map(|item| world.shown(item).map(|(cluster, key, state, _)| ((cluster, key), state)))
            .collect();
        if let Some(difference) = difference(&listed?, &union(world, &everything)) {
            return Ok(Some(format!("the list of router {replica}: {difference}")));
        }
    }
    for Watched { name, selection, follower } in watched {
        let follower = follower.lock().clone().unwrap_or_default();
        if let Some(difference) = difference(&follower.objects, &union(world, selection)) {
            return Ok(Some(format!("{name}: {difference}")));
        }
        let by_name: Vec<_> = follower.objects.keys().map(|(_, key)| key).collect();
        if follower.is_complete() && by_name.iter().any(|key| !follower.names.contains_key(*key)) {
            return Ok(Some(format!("{name} lost a name: {:?} of {by_name:?}", follower.names)));
        }
        if !follower.is_complete() {
            return Ok(Some(format!("{name} is not told everything yet")));
        }
    }
    Ok(None)
}

type Objects = BTreeMap<(String, String), State>;

/// Returns the selected objects of all configured members.
fn union(world: &World, selection: &Selection) -> Objects {
    let configured = world.configured().1;
    world.with_truth(|truth| {
        let wanted = configured.keys().filter(|name| selection.wants(name));
        let clusters = wanted.filter_map(|name| Some((name, truth.clusters.get(name)?)));
        let objects = clusters.flat_map(|(name, history)| {
            history.now(selection).into_iter().map(|(key, state)| ((name.clone(), key), state))
        });
        objects.collect()
    })
}

fn difference(has: &Objects, there_is: &Objects) -> Option<String> {
    let lacks = there_is.iter().find(|(place, state)| has.get(place) != Some(state));
    let ghost = has.iter().find(|(place, _)| !there_is.contains_key(place));
    match (lacks, ghost) {
        (Some((place, state)), _) => Some(format!("{place:?} is {state:?}, but {:?} is shown", has.get(place))),
        (_, Some((place, state))) => Some(format!("{place:?} is gone, but {state:?} is shown")),
        (None, None) => None,
    }
}

/// Runs a seed and returns whether the run passed. Failures are written to stderr.
pub(crate) fn run_one(kind: RunKind, seed: u64) -> bool {
    let outcome = run(kind, seed);
    let traced = std::env::var_os("TRIBUTARY_TRACE").is_some();
    let shown = match outcome.failure {
        _ if traced => usize::MAX,
        Some(_) => TRACE_LINES,
        None => 0,
    };
    for line in outcome.trace.iter().skip(outcome.trace.len().saturating_sub(shown)) {
        eprintln!("{line}");
    }
    if let Some(failure) = &outcome.failure {
        eprintln!("seed {seed} failed: {failure}");
        eprintln!("alone, with everything that happened:");
        eprintln!("TRIBUTARY_TRACE=1 cargo test -p tributary-router --test model -- {}={seed}", kind.word());
    }
    outcome.failure.is_none()
}

/// The number of trace lines that a failed run shows. With `TRIBUTARY_TRACE=1` the whole trace is shown.
const TRACE_LINES: usize = 60;

/// Parses a seed (`7`) or a range of seeds (`0..200`).
pub(crate) fn seeds(text: &str) -> anyhow::Result<std::ops::Range<u64>> {
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (from.parse()?, to.parse()?),
        None => (text.parse()?, text.parse::<u64>()?.checked_add(1).context("there is no such seed")?),
    };
    Ok(from..to)
}
