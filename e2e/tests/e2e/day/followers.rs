//! Clients that run all day: real informers and watches. Each client records its events. Each minute the test compares
//! the clients' objects with the clusters' objects.

use super::scene::{CLUSTERS, MAPS, SOON, Scene, VISITOR};
use crate::clients::follower::Follower;
use crate::oracle::{
    member_objects,
    observer::{KubeRs, Observer},
    writer::{Writer, WriterNamespace, Writers, writers},
};
use anyhow::{Context as _, bail, ensure};
use kube::runtime::watcher;
use serde_json::json;
use std::{collections::BTreeSet, path::Path, time::Duration};
use tokio::time::{Instant, sleep};
use tributary_e2e::Tools;

/// Number of writes to each cluster per second.
const PACE: u32 = 25;

/// Longest time after a fault until a client has the clusters' objects. client-go and kube-rs wait up to 30 s between
/// attempts, and notice a silent connection after 30 s.
const SETTLE: Duration = Duration::from_secs(120);

/// The informers and watching clients, and the writers of the objects that these clients follow.
pub(super) struct Followers {
    observers: Vec<Observer>,
    /// Informers that follow objects that all users may read, in all clusters.
    informers: Vec<(&'static str, Follower)>,
    /// Running writers. `None` during a pause.
    writing: Option<Writers>,
    /// Writers that are paused and will continue.
    resting: Vec<Writer>,
}

impl Followers {
    pub(super) async fn start(scene: &Scene, tools: &Tools, seed: u64) -> anyhow::Result<Self> {
        let written = &scene.namespaces.written;
        let rules =
            json!([{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["get", "list", "watch"]}]);
        for cluster in 0..VISITOR {
            scene.grant(cluster, written, "observer", rules.clone()).await?;
        }
        let http = scene.http("observer", false).await?;
        for resource in ["configmaps", "pods"] {
            let path = format!("/api/v1/namespaces/{written}/{resource}");
            crate::context::eventually(SOON, async || http.get(&path).send().await?.expect(200).map(drop)).await?;
        }
        let straight = scene.kubeconfig("observer", false)?;
        let through_front = scene.kubeconfig("observer", true)?;
        let observers = observers(tools, &straight, &through_front, written).await?;
        let mut informers = Vec::new();
        for (name, watch_list) in [("informer of all with WatchList", true), ("informer of all", false)] {
            let arguments = ["informer", "--namespace", &scene.namespaces.common, "--resources", "configmaps"];
            let mut follower = Follower::start(&tools.clients(), &straight, &arguments, &client_go(watch_list))?;
            follower.wait_for("synced", SOON).await.with_context(|| format!("wait for {name}"))?;
            informers.push((name, follower));
        }
        let place = WriterNamespace { namespace: written.clone(), has_duplicates: false };
        let resting = writers(&scene.members[..VISITOR], &place, seed, PACE);
        Ok(Self { observers, informers, writing: None, resting })
    }

    pub(super) fn go_on(&mut self) {
        self.writing = Some(Writers::start(std::mem::take(&mut self.resting)));
    }

    /// Pauses the writers. Returns the number of writes since the last start.
    pub(super) async fn pause(&mut self) -> anyhow::Result<u64> {
        let Some(writing) = self.writing.take() else { return Ok(0) };
        let written = writing.written();
        self.resting = writing.stop().await?;
        Ok(written)
    }

    /// Waits until each client has exactly the clusters' objects. Returns the duration of the wait.
    ///
    /// # Errors
    /// If a client needs too long, or has received an impossible sequence of events.
    pub(super) async fn settle(&mut self, scene: &Scene) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let deadline = begun + SETTLE;
        for observer in &mut self.observers {
            loop {
                // The test reads the clusters again for each comparison, because a write to a frozen cluster may take
                // effect late.
                let member_objects = member_objects(&scene.members[..VISITOR], &scene.namespaces.written).await?;
                let seen = observer.look().await.with_context(|| observer.name().to_owned())?;
                if !seen.violations.is_empty() {
                    bail!("{}: {}", observer.name(), seen.violations.join("\n  "));
                }
                match seen.is(&member_objects) {
                    Ok(()) => break,
                    Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(200)).await,
                    Err(error) => {
                        let log = observer.log_tail();
                        return Err(error).with_context(|| format!("{} ({})\n{log}", observer.name(), seen.summary));
                    }
                }
            }
        }
        let all: BTreeSet<_> = CLUSTERS
            .iter()
            .flat_map(|home| (0..MAPS).map(move |number| format!("{home}-{number:02}")))
            .map(|name| format!("{}/{name}", scene.namespaces.common))
            .collect();
        for (name, informer) in &mut self.informers {
            loop {
                let dump = informer.dump().await.with_context(|| format!("ask the {name}"))?;
                let held = dump["objects"]["configmaps"].as_object().into_iter().flatten().map(|(key, _)| key.clone());
                let held: BTreeSet<_> = held.filter(|key| !key.ends_with("/kube-root-ca.crt")).collect();
                if held == all {
                    break;
                }
                let (missing, ghosts): (Vec<_>, Vec<_>) =
                    (all.difference(&held).take(5).collect(), held.difference(&all).take(5).collect());
                ensure!(
                    Instant::now() < deadline,
                    "the {name} misses {missing:?} and holds {ghosts:?}\n{}",
                    informer.log_tail(12)
                );
                sleep(Duration::from_millis(200)).await;
            }
        }
        Ok(begun.elapsed())
    }
}

async fn observers(
    tools: &Tools,
    straight: &Path,
    through_front: &Path,
    namespace: &str,
) -> anyhow::Result<Vec<Observer>> {
    let mut observers = Vec::new();
    for (name, kind, watch_list, kubeconfig) in [
        ("informer with WatchList", "informer", true, straight),
        ("informer with list and watch", "informer", false, through_front),
        ("controller-runtime", "controller-runtime", true, through_front),
        ("RetryWatcher", "retrywatch", false, straight),
    ] {
        let arguments = ["oracle", "--kind", kind, "--namespace", namespace];
        observers.push(Observer::program(name, &tools.clients(), kubeconfig, &arguments, &client_go(watch_list))?);
    }
    for (name, config, kubeconfig) in [
        ("kube-rs", watcher::Config::default(), straight),
        ("kube-rs, streaming", watcher::Config::default().streaming_lists(), through_front),
    ] {
        observers.push(Observer::KubeRs(KubeRs::start(name, kubeconfig, namespace, &config).await?));
    }
    for observer in &mut observers {
        observer.synced(SOON).await.with_context(|| format!("wait for {}", observer.name()))?;
    }
    Ok(observers)
}

/// Returns the environment of a client-go program, which selects whether the program gets its initial objects by a
/// watch.
fn client_go(watch_list: bool) -> [(&'static str, &'static str); 1] {
    [("KUBE_FEATURE_WatchListClient", if watch_list { "true" } else { "false" })]
}
