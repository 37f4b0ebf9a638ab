//! The mixed load. Some users read, list, page, watch, request Tables, write and follow logs. Other users only read.
//! All users send requests at a steady rate over long, short and idle connections. The test checks that every answer is
//! for the right user and from the right cluster.

mod bystander;
mod merged_maps;
mod person;
mod streams;

use super::harm::{Harms, Needs};
use super::kind::Kind;
use super::scene::{CLUSTERS, Scene};
use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use rand::{SeedableRng, rngs::StdRng};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep},
};
use tributary_e2e::HttpResponse;

use bystander::Bystander;
use person::Person;

/// Number of users with a direct connection to Tributary, and number of users that connect through the front relay.
const READERS: usize = 8;
const READERS_AT_FRONT: usize = 2;

/// Interval between two requests of a user.
const PACE: Duration = Duration::from_millis(125);

/// Number of users that never write, and the interval between their requests. The last of these users connects through
/// the front relay.
const BYSTANDERS: usize = 3;
const BYSTANDER_PACE: Duration = Duration::from_millis(250);

/// Distance between the seeds of users that never write and the seeds of all other users, so that no two users have the
/// same seed.
const BYSTANDER_SEED: u64 = 1 << 16;

/// Interval between two clients that each connect for a single request.
const BRIEF_PACE: Duration = Duration::from_millis(250);

/// Number of clients with watches of unchanged objects, and number of watches per client.
const IDLE: usize = 10;
const IDLE_WATCHES: usize = 3;

/// Longest time until all requests in flight have ended. It exceeds the client's timeout.
const ENDED_WITHIN: Duration = Duration::from_secs(100);

/// Largest number of violations that a run prints.
const PRINTED_MAX: usize = 12;

#[derive(Debug)]
pub(super) enum Trouble {
    /// The request failed. A fault may excuse the failure.
    Lost(anyhow::Error),
    /// The answer was wrong. No fault excuses a wrong answer.
    Wrong(anyhow::Error),
}

pub(super) type Outcome<T = ()> = Result<T, Trouble>;

#[derive(Default)]
pub(super) struct LoadResults {
    counts: Mutex<BTreeMap<Kind, Count>>,
    problems: Mutex<Vec<String>>,
    pub(super) harms: Harms,
    busy: AtomicUsize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    answered: u64,
    excused: u64,
    /// Duration of the slowest request.
    slowest: Duration,
}

pub(super) struct Load {
    pub(super) results: Arc<LoadResults>,
    running: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

/// The state that all clients share.
#[derive(Clone)]
pub(super) struct LoadContext {
    pub(super) scene: Arc<Scene>,
    pub(super) results: Arc<LoadResults>,
    running: watch::Receiver<bool>,
}

struct Pace {
    pace: Interval,
    part: LoadContext,
}

/// Counts a request as in flight. Dropping it decreases the count.
struct Busy(Arc<LoadResults>);

impl Load {
    /// Creates the users, and waits until each user's RBAC rights are in effect. Does not start the load.
    pub(super) async fn prepare(scene: &Arc<Scene>, seed: u64) -> anyhow::Result<Self> {
        let results = Arc::<LoadResults>::default();
        let running = watch::Sender::new(false);
        let part =
            LoadContext { scene: Arc::clone(scene), results: Arc::clone(&results), running: running.subscribe() };
        let mut tasks = JoinSet::new();
        let mut people = Vec::new();
        for number in 0..READERS + READERS_AT_FRONT {
            people.push(Person::make(&part, number, number >= READERS).await?);
        }
        for person in &people {
            person.may_begin().await.with_context(|| format!("wait for what {} may", person.name))?;
        }
        for (number, person) in people.into_iter().enumerate() {
            let random = StdRng::seed_from_u64(seed ^ number as u64);
            tasks.spawn(person.live(random));
        }
        for number in 0..BYSTANDERS {
            let bystander = Bystander::make(&part, number, number + 1 == BYSTANDERS).await?;
            bystander.may_begin().await.with_context(|| format!("wait for what {} may", bystander.name))?;
            let random = StdRng::seed_from_u64(seed ^ (BYSTANDER_SEED + number as u64));
            tasks.spawn(bystander.live(random));
        }
        streams::begin(&part, &mut tasks).await?;
        Ok(Self { results, running, _tasks: tasks })
    }

    /// Starts or resumes the requests of all clients.
    pub(super) fn go_on(&self) {
        self.running.send_replace(true);
    }

    /// Stops the requests of all clients, and waits until no request is in flight.
    pub(super) async fn pause(&self) -> anyhow::Result<()> {
        self.running.send_replace(false);
        let deadline = Instant::now() + ENDED_WITHIN;
        // A client may have decided to send a request, but may not have counted it as in flight yet. This pause
        // prevents that the count is read as 0 too early.
        sleep(Duration::from_millis(50)).await;
        while self.results.busy.load(Ordering::SeqCst) > 0 {
            ensure!(Instant::now() < deadline, "requests do not end");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl LoadContext {
    fn pace(&self, period: Duration) -> Pace {
        let mut pace = interval(period);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Pace { pace, part: self.clone() }
    }

    /// Waits until the load is paused.
    async fn paused(&self) {
        let mut running = self.running.clone();
        let _gone = running.wait_for(|running| !*running).await;
    }

    async fn ask(&self, kind: Kind, needs: Needs, asked: impl Future<Output = Outcome>) {
        let sent = Instant::now();
        let outcome = asked.await;
        self.results.note(kind, needs, sent, outcome);
    }
}

impl LoadResults {
    pub(super) fn note(&self, kind: Kind, needs: Needs, sent: Instant, outcome: Outcome) {
        let mut counts = self.counts.lock();
        let (count, kind) = (counts.entry(kind).or_default(), kind.name());
        match outcome {
            Ok(()) => {
                count.answered += 1;
                count.slowest = count.slowest.max(sent.elapsed());
            }
            Err(Trouble::Lost(_)) if self.harms.excuse(needs, sent) => count.excused += 1,
            Err(Trouble::Lost(error)) => {
                let took = sent.elapsed().as_secs_f64();
                self.problem(format!("{kind} was lost after {took:.2} s ({needs:?}): {error:#}"));
            }
            Err(Trouble::Wrong(error)) => self.problem(format!("{kind} was answered wrongly ({needs:?}): {error:#}")),
        }
    }

    /// Prints and records a violation of the test's requirements.
    pub(super) fn problem(&self, text: String) {
        println!("day:   PROBLEM {text}");
        self.problems.lock().push(text);
    }

    /// Summarizes the results since the last call in one line.
    ///
    /// # Errors
    /// If there was a violation. Also if a kind has too many failed or too few successful requests, even if a fault
    /// excuses each failure.
    pub(super) fn take(&self) -> anyhow::Result<String> {
        let counts = std::mem::take(&mut *self.counts.lock());
        let problems = std::mem::take(&mut *self.problems.lock());
        let told = &problems[..problems.len().min(PRINTED_MAX)];
        ensure!(problems.is_empty(), "{} problems:\n  {}", problems.len(), told.join("\n  "));
        for kind in Kind::all() {
            counts.get(&kind).copied().unwrap_or_default().fits(kind)?;
        }
        let (answered, excused) = counts
            .values()
            .fold((0, 0), |(answered, excused), count| (answered + count.answered, excused + count.excused));
        let slowest = counts.iter().max_by_key(|(_, count)| count.slowest);
        let slowest = slowest.map_or_else(String::new, |(kind, count)| {
            format!(", slowest {} {:.1} s", kind.name(), count.slowest.as_secs_f64())
        });
        let of: Vec<_> = counts
            .iter()
            .filter(|(_, count)| count.excused > 0)
            .map(|(kind, count)| format!("{} {}", kind.name(), count.excused))
            .collect();
        let of = if of.is_empty() { String::new() } else { format!(" ({})", of.join(", ")) };
        Ok(format!("{answered} answered, {excused} lost to the fault{of}{slowest}"))
    }
}

impl Count {
    /// Checks that a kind of requests had enough successes and not too many failures in a minute.
    fn fits(self, kind: Kind) -> anyhow::Result<()> {
        let Self { answered, excused, .. } = self;
        let lost = excused as f64 / (answered + excused).max(1) as f64;
        let is_fine = lost <= kind.lost_max() && answered >= kind.answered_min();
        ensure!(
            is_fine,
            "of each {}, {answered} were answered in the minute and {excused} lost to its fault",
            kind.name()
        );
        Ok(())
    }
}

impl Pace {
    /// Waits until the next request is due and the load is not paused. The returned value counts the request as in
    /// flight. Returns `None` after the load is dropped.
    async fn turn(&mut self) -> Option<Busy> {
        self.pace.tick().await;
        self.part.running.wait_for(|running| *running).await.ok()?;
        self.part.results.busy.fetch_add(1, Ordering::SeqCst);
        Some(Busy(Arc::clone(&self.part.results)))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Checks the status of an answer. A status of overload or unavailability is a failure that a fault may excuse. Every
/// other wrong status is a violation.
pub(super) fn due(answer: anyhow::Result<HttpResponse>, status: u16) -> Outcome<HttpResponse> {
    let answer = answer.map_err(Trouble::Lost)?;
    let got = answer.status.as_u16();
    match answer.expect(status) {
        Ok(answer) => Ok(answer),
        // The server is overloaded or cannot reach the cluster.
        Err(error) if matches!(got, 429 | 500 | 502 | 503 | 504) => Err(Trouble::Lost(error)),
        Err(error) => Err(Trouble::Wrong(error)),
    }
}

/// Turns a failed check of an answer's contents into a violation.
pub(super) fn must(outcome: anyhow::Result<()>) -> Outcome {
    outcome.map_err(Trouble::Wrong)
}

fn json_of(answer: HttpResponse) -> anyhow::Result<Value> {
    answer.json()
}

fn cluster(name: &str) -> Option<usize> {
    CLUSTERS.iter().position(|own| *own == name)
}
