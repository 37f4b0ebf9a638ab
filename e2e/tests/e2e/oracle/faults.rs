//! Faults of the informer test, on a schedule that a seed determines.

use anyhow::Context;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, sleep_until},
};
use tributary_e2e::{TestCluster, Tributary};
use tributary_simulator::{Relay, RelayMode};

pub(super) struct World {
    pub(super) members: Vec<Arc<TestCluster>>,
    /// Relays between Tributary and the members, one for each member.
    pub(super) wires: Vec<Relay>,
    /// Relay between the clients and Tributary.
    pub(super) front: Relay,
    pub(super) server: Mutex<Server>,
}

/// Tributary process that can restart at the same port with the same data.
pub(super) struct Server {
    pub(super) kubeconfig: PathBuf,
    pub(super) contexts: Vec<String>,
    pub(super) arguments: Vec<String>,
    pub(super) folder: PathBuf,
    pub(super) port: u16,
    pub(super) running: Option<Tributary>,
}

impl Server {
    pub(super) async fn start(&mut self) -> anyhow::Result<()> {
        if self.running.is_none() {
            let contexts = self.contexts.iter().map(String::as_str);
            let tributary = Tributary::builder(&self.kubeconfig, contexts)
                .arguments(self.arguments.iter().map(String::as_str))
                .folder(&self.folder)
                .listen(format!("127.0.0.1:{}", self.port))
                .start()
                .await?;
            self.running = Some(tributary);
        }
        Ok(())
    }

    /// Returns Tributary's log since the first start.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(log_of(&self.folder)).unwrap_or_default()
    }
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("tributary.log")
}

/// Part of the system that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Member(usize),
    Wire(usize),
    Front,
    Server,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillMember,
    KillApiserver,
    FreezeApiserver,
    FreezeEtcd,
    /// The relay closes all open connections once.
    CutOnce,
    RelayMode(RelayMode),
    Drain,
    Kill,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at: Duration,
    lasts: Duration,
    target: Target,
    fault: Fault,
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, lasts, target, fault } = self;
        write!(formatter, "{:6.2} s: {target:?} {fault:?} for {:.2} s", at.as_secs_f64(), lasts.as_secs_f64())
    }
}

#[derive(Clone, Debug)]
pub(super) struct Schedule(Vec<Event>);

impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|event| writeln!(formatter, "  {event}"))
    }
}

impl Schedule {
    /// Makes the schedule for a seed. Each target has separate faults, so that faults of several targets overlap.
    pub(super) fn of(seed: u64, length: Duration, members: usize) -> Self {
        let targets = (0..members)
            .flat_map(|index| [Target::Member(index), Target::Wire(index)])
            .chain([Target::Front, Target::Server]);
        let mut events: Vec<Event> = targets
            .enumerate()
            .flat_map(|(index, target)| {
                let mut random = StdRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(index as u64));
                events_of(target, length, &mut random)
            })
            .collect();
        events.sort_by_key(|event| event.at);
        Self(events)
    }

    /// Executes the faults of the schedule. Afterwards all targets are healthy again.
    pub(super) async fn play(&self, world: &World) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut targets: Vec<Target> = Vec::new();
        for event in &self.0 {
            if !targets.contains(&event.target) {
                targets.push(event.target);
            }
        }
        let played = targets.into_iter().map(|target| async move {
            for event in self.0.iter().filter(|event| event.target == target) {
                sleep_until(start + event.at).await;
                play(world, event).await.with_context(|| format!("play {event}"))?;
            }
            anyhow::Ok(())
        });
        futures::future::try_join_all(played).await?;
        Ok(())
    }
}

fn events_of(target: Target, length: Duration, random: &mut StdRng) -> Vec<Event> {
    // Servers fail less often than connections, because a restart takes seconds. Tributary notices a silent member
    // after 9 s. About half of the faults that silence a member last longer than 9 s.
    let (pause, longest) = match target {
        Target::Member(_) => (6.0..18.0, 16.0),
        Target::Wire(_) => (2.0..8.0, 16.0),
        Target::Front => (1.0..6.0, 4.0),
        Target::Server => (10.0..25.0, 2.0),
    };
    let mut events = Vec::new();
    let mut at = random.random_range(0.5..pause.end);
    while at < length.as_secs_f64() {
        let lasts = random.random_range(0.0..longest);
        let fault = fault_of(target, random);
        events.push(Event { at: Duration::from_secs_f64(at), lasts: Duration::from_secs_f64(lasts), target, fault });
        at += lasts + random.random_range(pause.clone());
    }
    events
}

fn fault_of(target: Target, random: &mut StdRng) -> Fault {
    let number = random.random_range(0..10);
    let relay_mode = |random: &mut StdRng| match random.random_range(0..10) {
        0..=1 => Fault::CutOnce,
        2..=5 => Fault::RelayMode(RelayMode::Cut { within: 1 << random.random_range(9..19) }),
        6..=7 => Fault::RelayMode(RelayMode::Slow { bytes_per_second: 1 << random.random_range(8..16) }),
        _ => Fault::RelayMode(RelayMode::Silent),
    };
    match (target, number) {
        (Target::Member(_), 0..=2) => Fault::KillMember,
        (Target::Member(_), 3..=5) => Fault::KillApiserver,
        (Target::Member(_), 6..=7) => Fault::FreezeApiserver,
        (Target::Member(_), _) => Fault::FreezeEtcd,
        (Target::Wire(_) | Target::Front, _) => relay_mode(random),
        (Target::Server, 0..=4) => Fault::Drain,
        (Target::Server, _) => Fault::Kill,
    }
}

async fn play(world: &World, event: &Event) -> anyhow::Result<()> {
    tracing::info!(target: "e2e", "{event}");
    match event.target {
        Target::Member(index) => {
            let member = world.members.get(index).context("no such member")?;
            play_member(member, event).await
        }
        Target::Wire(index) => {
            play_relay(world.wires.get(index).context("no such relay")?, event).await;
            Ok(())
        }
        Target::Front => {
            play_relay(&world.front, event).await;
            Ok(())
        }
        Target::Server => {
            let mut server = world.server.lock().await;
            match (server.running.take(), event.fault) {
                (Some(running), Fault::Drain) => drop(running.stop().await?),
                (running, _) => drop(running),
            }
            sleep(event.lasts).await;
            server.start().await
        }
    }
}

async fn play_member(member: &TestCluster, event: &Event) -> anyhow::Result<()> {
    match event.fault {
        Fault::FreezeApiserver => {
            member.freeze().await?;
            sleep(event.lasts).await;
            member.thaw().await
        }
        Fault::FreezeEtcd => {
            member.freeze_etcd().await?;
            sleep(event.lasts).await;
            member.thaw_etcd().await
        }
        Fault::KillApiserver => {
            member.kill_apiserver().await?;
            sleep(event.lasts).await;
            member.start_again().await
        }
        _ => {
            member.kill9().await?;
            sleep(event.lasts).await;
            member.start_again().await
        }
    }
}

async fn play_relay(relay: &Relay, event: &Event) {
    match event.fault {
        Fault::RelayMode(relay_mode) => {
            relay.set(relay_mode);
            sleep(event.lasts).await;
            relay.set(RelayMode::Clear);
        }
        _ => relay.cut(),
    }
}
