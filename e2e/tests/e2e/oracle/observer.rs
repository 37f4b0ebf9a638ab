//! Clients of the informer test: programs in Go and Python, and kube-rs in this process.

use super::ledger::{Ledger, State, States};
use crate::clients::follower::Follower;
use anyhow::{Context, bail, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, Resource,
    api::ObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt::Debug,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;

pub(crate) const RESOURCES: [&str; 2] = ["configmaps", "pods"];

/// States of the objects of all members by resource, namespace and name. A name that several members have has one state
/// for each member.
pub(crate) type MemberObjects = BTreeMap<&'static str, BTreeMap<String, Vec<State>>>;

pub(crate) enum Observer {
    Program { name: String, follower: Box<Follower> },
    KubeRs(KubeRs),
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Objects of the client by resource and store, for example with the key `configmaps/store`.
    pub(crate) stores: BTreeMap<String, States>,
    pub(crate) violations: Vec<String>,
    /// Number of states that the client did not receive.
    pub(crate) gaps: u64,
    /// Descriptions of the last states that the client did not receive.
    pub(crate) skipped: Vec<String>,
    pub(crate) calls: Calls,
    /// The client's summary of its events, for the report.
    pub(crate) summary: String,
}

impl Observer {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Program { name, .. } => name,
            Self::KubeRs(client) => &client.name,
        }
    }

    /// Starts a program that answers the command `dump` with its objects.
    pub(crate) fn program(
        name: &str,
        program: &Path,
        kubeconfig: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let follower = Follower::start(program, kubeconfig, arguments, environment)?;
        Ok(Self::Program { name: name.to_owned(), follower: Box::new(follower) })
    }

    /// Waits until the client has completed its first list.
    pub(crate) async fn synced(&mut self, patience: Duration) -> anyhow::Result<()> {
        match self {
            Self::Program { follower, .. } => follower.wait_for("synced", patience).await.map(drop),
            Self::KubeRs(_) => Ok(()),
        }
    }

    /// Stops the writes of a client that also writes.
    pub(crate) fn pause(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Program { follower, .. } => follower.tell("pause\n"),
            Self::KubeRs(_) => Ok(()),
        }
    }

    /// Returns the last lines of the client's log, for the report of a failed run.
    pub(crate) fn log_tail(&self) -> String {
        match self {
            Self::Program { follower, .. } => follower.log_tail(12),
            Self::KubeRs(_) => String::new(),
        }
    }

    /// Reads the client's objects and gaps.
    ///
    /// # Errors
    /// If the program has ended, for example by a panic of the inconsistency detector.
    pub(crate) async fn look(&mut self) -> anyhow::Result<Seen> {
        match self {
            Self::Program { name, follower } => {
                let dump = follower.dump().await.with_context(|| format!("ask {name}"))?;
                seen(&dump).with_context(|| format!("understand {name}"))
            }
            Self::KubeRs(client) => client.look(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) writes: u64,
    pub(crate) failed: u64,
}

/// Parses the answer to `dump`.
fn seen(dump: &Value) -> anyhow::Result<Seen> {
    let mut seen = Seen { summary: format!("unchecked {}", dump["unchecked"]), ..Seen::default() };
    for (name, store) in dump["stores"].as_object().context("no stores")? {
        let objects = store["objects"].as_object().context("no objects")?.iter().map(|(key, object)| {
            let uid = object["uid"].as_str().context("no uid")?.to_owned();
            Ok((key.clone(), (uid, object["sequence"].as_u64().context("no sequence")?)))
        });
        seen.stores.insert(name.clone(), objects.collect::<anyhow::Result<States>>()?);
        let violations = store["violations"].as_array().into_iter().flatten();
        seen.violations.extend(violations.map(|text| text.as_str().unwrap_or_default().to_owned()));
        if name.ends_with("/stream") {
            seen.gaps += store["counts"]["Gaps"].as_u64().context("no gaps")?;
            let skipped = store["gaps"].as_array().into_iter().flatten();
            seen.skipped.extend(skipped.filter_map(|text| text.as_str().map(str::to_owned)));
            seen.summary.push_str(&format!(", {name} {}", store["counts"]));
        }
    }
    if let Some(writes) = dump["writes"].as_u64() {
        let (stale, failed) = (&dump["stale"], dump["failed"].as_u64().context("no failed calls")?);
        seen.calls = Calls { writes, failed };
        seen.summary.push_str(&format!(", {writes} writes read back, {stale} of them stale, {failed} calls failed"));
        seen.violations.extend(dump["wrong"].as_array().into_iter().flatten().map(Value::to_string));
    }
    Ok(seen)
}

impl Seen {
    /// Checks that every store of the client has the objects of all members.
    pub(crate) fn is(&self, member_objects: &MemberObjects) -> anyhow::Result<()> {
        for (name, store) in &self.stores {
            let resource = name.split('/').next().unwrap_or_default();
            let Some(members) = member_objects.get(resource) else { bail!("a store of {resource}") };
            for (key, states) in members {
                let held = store.get(key).with_context(|| format!("{name}: {key} is missing: {states:?}"))?;
                ensure!(states.contains(held), "{name}: {key} is {held:?} instead of {states:?}");
            }
            for (key, held) in store {
                ensure!(members.contains_key(key), "{name}: {key} is gone and still held: {held:?}");
            }
        }
        Ok(())
    }
}

pub(crate) struct KubeRs {
    name: String,
    ledgers: Vec<(&'static str, Arc<Mutex<Ledger>>)>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for KubeRs {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl KubeRs {
    pub(crate) async fn start(
        name: &str,
        kubeconfig: &Path,
        namespace: &str,
        config: &watcher::Config,
    ) -> anyhow::Result<Self> {
        let client =
            Client::try_from(tributary_e2e::kubeconfig::config(kubeconfig, None).await?).context("make a client")?;
        let mut started = Self { name: name.to_owned(), ledgers: Vec::new(), tasks: Vec::new() };
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        started.follow("configmaps", maps, config.clone());
        started.follow("pods", pods, config.clone());
        Ok(started)
    }

    fn follow<K>(&mut self, resource: &'static str, objects: Api<K>, config: watcher::Config)
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        self.ledgers.push((resource, Arc::clone(&ledger)));
        let name = self.name.clone();
        self.tasks.push(tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(objects, config).default_backoff());
            while let Some(event) = events.next().await {
                let Ok(mut ledger) = ledger.lock() else { return };
                enter(&mut ledger, event.map(|event| event.modify(|_| {})), &name);
            }
        }));
    }

    /// Returns whether the client has received a list of every resource.
    pub(crate) fn has_listed(&self) -> bool {
        let has_listed = |ledger: &Arc<Mutex<Ledger>>| ledger.lock().is_ok_and(|ledger| ledger.lists > 0);
        self.ledgers.iter().all(|(_, ledger)| has_listed(ledger))
    }

    pub(crate) fn look(&self) -> anyhow::Result<Seen> {
        let mut seen = Seen::default();
        ensure!(self.tasks.iter().all(|task| !task.is_finished()), "{}: a watcher ended", self.name);
        for (resource, ledger) in &self.ledgers {
            let Ok(mut ledger) = ledger.lock() else { bail!("{}: a watcher panicked", self.name) };
            seen.stores.insert(format!("{resource}/stream"), ledger.look().clone());
            seen.violations.extend(ledger.violations.iter().take(20).map(|text| format!("{resource}: {text}")));
            let (applied, lists, gaps) = (ledger.applied, ledger.lists, ledger.gaps.len());
            seen.gaps += gaps as u64;
            seen.skipped.extend(ledger.gaps.iter().rev().take(20).rev().cloned());
            seen.summary.push_str(&format!("{resource}: {applied} events, {lists} lists, {gaps} gaps; "));
        }
        Ok(seen)
    }
}

fn enter<K: Resource>(ledger: &mut Ledger, event: Result<watcher::Event<K>, watcher::Error>, name: &str) {
    let meta = |object: &K| -> ObjectMeta { object.meta().clone() };
    match event {
        Ok(watcher::Event::Init) => ledger.begin(),
        Ok(watcher::Event::InitApply(object)) => ledger.listed(&meta(&object)),
        Ok(watcher::Event::InitDone) => ledger.end(),
        Ok(watcher::Event::Apply(object)) => ledger.apply(&meta(&object)),
        Ok(watcher::Event::Delete(object)) => ledger.delete(&meta(&object)),
        Err(error) => tracing::debug!(target: "e2e", %error, name, "a watcher met an error"),
    }
}
