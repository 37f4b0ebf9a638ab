//! The mixed load: people who read, list, page, watch, ask for Tables, write and follow logs, and people who never
//! write, at a steady pace, over connections that last, that are short, and that are idle. Whatever is answered is
//! looked at: whose it is, and of which cluster.

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

/// People who read, straight to Tributary, and as many through the wire that is cut.
const READERS: usize = 8;
const READERS_AT_FRONT: usize = 2;

/// From one question of a person's to the next.
const PACE: Duration = Duration::from_millis(125);

/// People who never write, the last of them through the wire that is cut, and from one question of theirs to the next.
const BYSTANDERS: usize = 3;
const BYSTANDER_PACE: Duration = Duration::from_millis(250);

/// What chance gives them begins so far from what it gives the others.
const BYSTANDER_SEED: u64 = 1 << 16;

/// Clients that come for one request, each second.
const BRIEF_PACE: Duration = Duration::from_millis(250);

/// Clients that have watches of what does not change, and how many each.
const IDLE: usize = 10;
const IDLE_WATCHES: usize = 3;

/// How long what is under way may take to end: as long as a client waits.
const ENDED_WITHIN: Duration = Duration::from_secs(100);

/// So many problems are told; more say nothing new.
const TOLD: usize = 12;

/// Why a request was not answered as it should be.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It failed, which a fault may excuse.
    Lost(anyhow::Error),
    /// It was answered what must never be.
    Wrong(anyhow::Error),
}

/// An answer's outcome.
pub(super) type Outcome<T = ()> = Result<T, Trouble>;

/// What clients met.
#[derive(Default)]
pub(super) struct Met {
    counts: Mutex<BTreeMap<Kind, Count>>,
    problems: Mutex<Vec<String>>,
    pub(super) harms: Harms,
    busy: AtomicUsize,
}

/// Of one kind of request.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    answered: u64,
    excused: u64,
    /// The longest that one took which was answered.
    slowest: Duration,
}

/// The load, until dropped.
pub(super) struct Load {
    pub(super) met: Arc<Met>,
    running: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

/// What each client has of it.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) scene: Arc<Scene>,
    pub(super) met: Arc<Met>,
    running: watch::Receiver<bool>,
}

/// When somebody asks.
struct Pace {
    pace: Interval,
    part: Part,
}

/// One request is under way.
struct Busy(Arc<Met>);

impl Load {
    /// Makes the people, and waits until each may do what they do. Nobody asks yet.
    pub(super) async fn prepare(scene: &Arc<Scene>, seed: u64) -> anyhow::Result<Self> {
        let met = Arc::<Met>::default();
        let running = watch::Sender::new(false);
        let part = Part { scene: Arc::clone(scene), met: Arc::clone(&met), running: running.subscribe() };
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
        Ok(Self { met, running, _tasks: tasks })
    }

    /// Has all ask.
    pub(super) fn go_on(&self) {
        self.running.send_replace(true);
    }

    /// Has nobody ask any more, and waits until what is under way has ended.
    pub(super) async fn pause(&self) -> anyhow::Result<()> {
        self.running.send_replace(false);
        let deadline = Instant::now() + ENDED_WITHIN;
        // Who has just seen that it runs has not begun yet.
        sleep(Duration::from_millis(50)).await;
        while self.met.busy.load(Ordering::SeqCst) > 0 {
            ensure!(Instant::now() < deadline, "requests do not end");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Part {
    /// A pace at which to ask.
    fn pace(&self, period: Duration) -> Pace {
        let mut pace = interval(period);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Pace { pace, part: self.clone() }
    }

    /// Ends once it is to pause.
    async fn paused(&self) {
        let mut running = self.running.clone();
        let _gone = running.wait_for(|running| !*running).await;
    }

    /// Asks once, and notes what came of it.
    async fn ask(&self, kind: Kind, needs: Needs, asked: impl Future<Output = Outcome>) {
        let sent = Instant::now();
        let outcome = asked.await;
        self.met.note(kind, needs, sent, outcome);
    }
}

impl Met {
    /// What came of a request.
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

    /// Something is not as it should be.
    pub(super) fn problem(&self, text: String) {
        println!("day:   PROBLEM {text}");
        self.problems.lock().push(text);
    }

    /// What was met since the last time: a line for people.
    ///
    /// # Errors
    /// The problems, if there were any; and a kind of which too many were lost, whatever excused each, or too few were
    /// answered to say anything.
    pub(super) fn take(&self) -> anyhow::Result<String> {
        let counts = std::mem::take(&mut *self.counts.lock());
        let problems = std::mem::take(&mut *self.problems.lock());
        let told = &problems[..problems.len().min(TOLD)];
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
    /// Whether a minute may have so many lost and so few answered of this kind.
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
    /// Waits until it is time to ask, and nobody pauses; `None` once the load is gone. Until what it gives is dropped,
    /// something is under way.
    async fn turn(&mut self) -> Option<Busy> {
        self.pace.tick().await;
        self.part.running.wait_for(|running| *running).await.ok()?;
        self.part.met.busy.fetch_add(1, Ordering::SeqCst);
        Some(Busy(Arc::clone(&self.part.met)))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An answer that is to have this status. Another one is what a fault may bring, or what must never be.
pub(super) fn due(answer: anyhow::Result<HttpResponse>, status: u16) -> Outcome<HttpResponse> {
    let answer = answer.map_err(Trouble::Lost)?;
    let got = answer.status.as_u16();
    match answer.expect(status) {
        Ok(answer) => Ok(answer),
        // Too busy, or out of reach.
        Err(error) if matches!(got, 429 | 500 | 502 | 503 | 504) => Err(Trouble::Lost(error)),
        Err(error) => Err(Trouble::Wrong(error)),
    }
}

/// Something that an answer must say.
pub(super) fn must(outcome: anyhow::Result<()>) -> Outcome {
    outcome.map_err(Trouble::Wrong)
}

/// An answer's body.
fn json_of(answer: HttpResponse) -> anyhow::Result<Value> {
    answer.json()
}

/// The number of a cluster.
fn cluster(name: &str) -> Option<usize> {
    CLUSTERS.iter().position(|own| *own == name)
}
