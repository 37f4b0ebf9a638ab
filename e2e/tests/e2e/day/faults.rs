//! Faults of the day. Each minute has one fault, which a seed selects. Every kind of fault occurs once before any kind
//! occurs again.

use super::harm::Reach::{self, Cluster, Front, Merged, Writes};
use super::load::LoadResults;
use super::scene::{CLUSTERS, Limit, SOON, Scene, VISITOR, compact, revoke_token};
use crate::context::eventually;
use anyhow::{Context as _, ensure};
use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use std::{fmt, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use tributary_simulator::RelayMode;

/// Duration of a fault that does not end by itself, in seconds. Tributary notices a silent cluster after 9 s.
const FAULT_SECONDS: std::ops::Range<u64> = 4..16;

/// Number of concurrent requests of the single user in the fault `Storm`.
const STORM: usize = 24;

/// Number of clients that do not read their responses.
const SLOW_READERS: usize = 10;

/// Number of concurrent requests that a client sends and then cancels.
const GIVEN_UP: usize = 40;

/// Longest time for which a kube-apiserver accepts a revoked token, because it caches authentication results
/// (`TokenSuccessCacheTTL`).
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// Longest time until Tributary has read a changed configuration file.
const READ_WITHIN: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// One of the first cluster's two kube-apiservers is killed, and started again.
    EndpointKilled,
    /// One of the first cluster's kube-apiservers is suspended (SIGSTOP), with its connections open.
    EndpointFrozen,
    /// Both kube-apiservers of the first cluster restart in turn, as in an upgrade.
    RollingRestart,
    /// The only kube-apiserver of the second cluster is suspended (SIGSTOP).
    ClusterFrozen,
    /// The second cluster's kube-apiserver and etcd are killed.
    ClusterKilled,
    /// The second cluster's etcd is suspended (SIGSTOP).
    EtcdFrozen,
    /// No byte passes between Tributary and the second cluster.
    CutOff,
    /// Connections to the second cluster break repeatedly.
    ConnectionsBreak,
    /// The bandwidth to the second cluster is low.
    SlowWire,
    /// The third cluster is removed from Tributary's configuration, and added again.
    LeavesAndJoins,
    /// The limit of requests to the merged view changes, is removed, and returns.
    LimitChanged,
    /// A policy denies every request of one user to the merged view. Later the policy is removed.
    PolicyChanged,
    /// Tributary gets a new token for a cluster. Afterwards the old token is revoked.
    CredentialsRotated,
    /// By mistake, Tributary's token is revoked before Tributary has a new token.
    CredentialsRevoked,
    /// One user sends requests at the highest possible rate.
    Storm,
    /// Clients request large responses, and do not read them.
    SlowReaders,
    /// The connections of clients are cut.
    ClientsCut,
    /// Clients cancel many concurrent requests, repeatedly.
    GivenUp,
    /// The etcd of a cluster compacts its whole history.
    Compaction,
    /// Tributary reloads an unchanged configuration.
    Reload,
    Nothing,
}

const ALL: [Fault; 21] = [
    Fault::EndpointKilled,
    Fault::EndpointFrozen,
    Fault::RollingRestart,
    Fault::ClusterFrozen,
    Fault::ClusterKilled,
    Fault::EtcdFrozen,
    Fault::CutOff,
    Fault::ConnectionsBreak,
    Fault::SlowWire,
    Fault::LeavesAndJoins,
    Fault::LimitChanged,
    Fault::PolicyChanged,
    Fault::CredentialsRotated,
    Fault::CredentialsRevoked,
    Fault::Storm,
    Fault::SlowReaders,
    Fault::ClientsCut,
    Fault::GivenUp,
    Fault::Compaction,
    Fault::Reload,
    Fault::Nothing,
];

/// An endless sequence of faults in an order that a seed determines.
pub(super) struct Deck {
    random: StdRng,
    left: Vec<Fault>,
    /// Kinds of faults to select from. Empty for all kinds.
    only: Vec<Fault>,
}

impl Deck {
    /// Creates a deck. `only` has the names of the allowed faults, separated by commas. Empty for all faults.
    pub(super) fn of(seed: u64, only: &str) -> anyhow::Result<Self> {
        let named = only.split(',').filter(|name| !name.is_empty());
        let only =
            named.map(|name| ALL.iter().copied().find(|fault| format!("{fault:?}") == name).context(name.to_owned()));
        let only = only.collect::<anyhow::Result<_>>().context("there is no such fault")?;
        Ok(Self { random: StdRng::seed_from_u64(seed), left: Vec::new(), only })
    }

    pub(super) fn draw(&mut self) -> (Fault, Duration) {
        if self.left.is_empty() {
            self.left = if self.only.is_empty() { ALL.to_vec() } else { self.only.clone() };
            self.left.shuffle(&mut self.random);
        }
        let lasts = Duration::from_secs(self.random.random_range(FAULT_SECONDS));
        (self.left.pop().unwrap_or(Fault::Nothing), lasts)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:?}")
    }
}

impl Fault {
    /// Returns the requests that may fail because of this fault.
    fn reaches(self) -> &'static [Reach] {
        match self {
            // Tributary sends reads to the healthy kube-apiserver again, so only writes may fail. Reads in flight to a
            // suspended server may also fail.
            Self::EndpointKilled | Self::RollingRestart => &[Writes(0)],
            Self::EndpointFrozen | Self::CredentialsRevoked => &[Cluster(0)],
            Self::ClusterFrozen
            | Self::ClusterKilled
            | Self::EtcdFrozen
            | Self::CutOff
            | Self::ConnectionsBreak
            | Self::SlowWire => &[Cluster(1)],
            Self::LeavesAndJoins => &[Merged],
            Self::ClientsCut => &[Front],
            Self::LimitChanged
            | Self::PolicyChanged
            | Self::CredentialsRotated
            | Self::Storm
            | Self::SlowReaders
            | Self::GivenUp
            | Self::Compaction
            | Self::Reload
            | Self::Nothing => &[],
        }
    }

    /// Causes the fault for this duration. When the function returns, all servers and relays of the scene work normally
    /// again.
    pub(super) async fn play(self, scene: &Scene, results: &LoadResults, lasts: Duration) -> anyhow::Result<()> {
        let _harm = results.harms.begin(self.reaches());
        let (first, second) = (&scene.members[0], &scene.members[1]);
        match self {
            Self::EndpointKilled => {
                first.kill_apiserver().await?;
                sleep(lasts).await;
                first.start_again().await
            }
            Self::EndpointFrozen => {
                first.freeze().await?;
                sleep(lasts).await;
                first.thaw().await
            }
            Self::RollingRestart => {
                for port in scene.ports {
                    first.restart_apiserver(port).await?;
                    // As in a real upgrade, clients need time to reconnect to the new server before the next server
                    // restarts.
                    sleep(Duration::from_secs(5)).await;
                }
                Ok(())
            }
            Self::ClusterFrozen => {
                second.freeze().await?;
                sleep(lasts).await;
                second.thaw().await
            }
            Self::ClusterKilled => {
                second.kill9().await?;
                sleep(lasts).await;
                second.start_again().await
            }
            Self::EtcdFrozen => {
                second.freeze_etcd().await?;
                sleep(lasts).await;
                second.thaw_etcd().await
            }
            Self::CutOff => relay_mode(scene, RelayMode::Silent, lasts).await,
            Self::ConnectionsBreak => relay_mode(scene, RelayMode::Cut { within: 1 << 16 }, lasts).await,
            Self::SlowWire => relay_mode(scene, RelayMode::Slow { bytes_per_second: 20_000 }, lasts).await,
            Self::LeavesAndJoins => leaves_and_joins(scene, lasts).await,
            Self::LimitChanged => limit_changes(scene, lasts).await,
            Self::PolicyChanged => policy_changes(scene).await,
            Self::CredentialsRotated => {
                let before = scene.configuration.lock().await.exchange_token(0, first).await?;
                sleep(READ_WITHIN).await;
                revoke_token(first, &before).await
            }
            Self::CredentialsRevoked => {
                let mut configuration = scene.configuration.lock().await;
                revoke_token(first, configuration.token_of(0)).await?;
                sleep(KNOWN_FOR + lasts).await;
                configuration.exchange_token(0, first).await?;
                sleep(READ_WITHIN).await;
                Ok(())
            }
            Self::Storm => storm(scene, lasts).await,
            Self::SlowReaders => slow_readers(scene, lasts).await,
            Self::ClientsCut => {
                let over = Instant::now() + lasts;
                while Instant::now() < over {
                    scene.front.cut();
                    sleep(Duration::from_millis(500)).await;
                }
                Ok(())
            }
            Self::GivenUp => given_up(scene, lasts).await,
            Self::Compaction => {
                for member in &scene.members {
                    compact(member).await.with_context(|| member.name().to_owned())?;
                }
                Ok(())
            }
            Self::Reload => {
                for _ in 0..5 {
                    scene.tributary.reload()?;
                    sleep(Duration::from_millis(200)).await;
                }
                Ok(())
            }
            Self::Nothing => Ok(()),
        }
    }
}

/// Applies this relay mode to the relays of the second cluster for a time, and then restores normal connections.
async fn relay_mode(scene: &Scene, relay_mode: RelayMode, lasts: Duration) -> anyhow::Result<()> {
    for wire in &scene.wires[1] {
        wire.set(relay_mode);
    }
    sleep(lasts).await;
    for wire in &scene.wires[1] {
        wire.set(RelayMode::Clear);
    }
    Ok(())
}

async fn leaves_and_joins(scene: &Scene, lasts: Duration) -> anyhow::Result<()> {
    let http = scene.http("onlooker", false).await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", scene.namespaces.common);
    let is_there = async |wanted: bool| {
        let list = http.get(&path).send().await?.expect(200)?.text();
        ensure!(list.contains(CLUSTERS[VISITOR]) == wanted, "{} is there: {}", CLUSTERS[VISITOR], !wanted);
        anyhow::Ok(())
    };
    let visitor = &scene.members[VISITOR];
    scene.configuration.lock().await.remove_cluster(visitor)?;
    eventually(SOON, || is_there(false)).await?;
    sleep(lasts).await;
    scene.configuration.lock().await.put_cluster(VISITOR, visitor)?;
    eventually(SOON, || is_there(true)).await
}

async fn limit_changes(scene: &Scene, lasts: Duration) -> anyhow::Result<()> {
    for limit in [Limit::AtOnce, Limit::None, Limit::AtOnce, Limit::Usual] {
        scene.configuration.lock().await.put_limit(limit, None)?;
        sleep(lasts / 3).await;
    }
    Ok(())
}

async fn policy_changes(scene: &Scene) -> anyhow::Result<()> {
    const DENIED: &str = "denied";
    let http = scene.http(DENIED, false).await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", scene.namespaces.common);
    let is = async |status: u16| http.get(&path).send().await?.expect(status).map(drop);
    eventually(SOON, || is(200)).await?;
    scene.configuration.lock().await.put_limit(Limit::Usual, Some(DENIED))?;
    eventually(SOON, || is(403)).await?;
    scene.configuration.lock().await.put_limit(Limit::Usual, None)?;
    eventually(SOON, || is(200)).await
}

async fn storm(scene: &Scene, lasts: Duration) -> anyhow::Result<()> {
    let http = scene.http("eve", false).await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", scene.namespaces.common);
    let over = Instant::now() + lasts;
    let one = async || {
        let mut refused = 0;
        while Instant::now() < over {
            match http.get(&path).send().await?.status.as_u16() {
                200 => {}
                429 => refused += 1,
                other => anyhow::bail!("the storm is answered {other}"),
            }
        }
        anyhow::Ok(refused)
    };
    let refused = futures::future::try_join_all((0..STORM).map(|_| one())).await?;
    ensure!(refused.iter().sum::<u64>() > 0, "no request of the storm was refused");
    Ok(())
}

/// Each reader has a separate connection, and closes the connection while much of the data is unread.
async fn slow_readers(scene: &Scene, lasts: Duration) -> anyhow::Result<()> {
    let large = format!("/api/v1/namespaces/{}/configmaps", scene.namespaces.large);
    let mut open = Vec::new();
    for number in 0..SLOW_READERS {
        let http = scene.http(&format!("slow-{number}"), false).await?;
        for path in [large.clone(), format!("{large}?watch=1")] {
            // The fault needs only open connections, so the test ignores the status and contents of the responses.
            open.push(http.get(&path).stream().await?);
        }
    }
    sleep(lasts).await;
    drop(open);
    Ok(())
}

/// A client sends requests of all kinds, and cancels them before their responses.
async fn given_up(scene: &Scene, lasts: Duration) -> anyhow::Result<()> {
    let http = scene.http("fickle", false).await?;
    let maps = format!("/api/v1/namespaces/{}/configmaps", scene.namespaces.common);
    let [at_first, at_second] = [0, 1].map(|number| format!("/clusters/{}{maps}", CLUSTERS[number]));
    let paths = [maps.clone(), at_first.clone(), at_second, format!("{maps}?watch=1"), format!("{at_first}?watch=1")];
    let over = Instant::now() + lasts;
    let mut round = 0_u64;
    while Instant::now() < over {
        let asked = (0..GIVEN_UP).map(|number| {
            let request = http.get(&paths[number % paths.len()]);
            let patience = Duration::from_millis((round + number as u64) % 12);
            timeout(patience, request.send())
        });
        drop(join_all(asked).await);
        round += 1;
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
