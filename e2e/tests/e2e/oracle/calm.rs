//! Explains why a client of Tributary missed a state of an object although no fault was active. The cause may be the
//! member, a new list by Tributary, or an event that Tributary lost.
//!
//! A kube-apiserver sends every state of an object to its own clients as long as their watch lasts. Therefore this
//! module also follows each member directly. If the direct client missed the same state, the member never sent it, or
//! the writer counted a state that never existed.

use super::{
    SYNC,
    faults::World,
    member_objects,
    observer::{KubeRs, Seen},
};
use crate::context::eventually;
use anyhow::{Context, ensure};
use kube::runtime::watcher;
use std::sync::Arc;
use tributary_e2e::TestCluster;

/// Largest number of lines of Tributary's log in the explanation.
const LINES_MAX: usize = 40;

pub(super) struct Calm {
    members: Vec<OwnClient>,
    namespace: String,
    /// Size of Tributary's log in bytes at the beginning of the time without faults. Only later lines matter.
    log_before: usize,
}

struct OwnClient {
    member: Arc<TestCluster>,
    client: KubeRs,
    /// Objects and gaps of the client at the beginning of the time without faults.
    before: Seen,
}

impl Calm {
    /// Starts the direct clients at the beginning of the time without faults.
    ///
    /// # Errors
    /// If a client cannot follow a member.
    pub(super) async fn begin(world: &World, namespace: &str) -> anyhow::Result<Self> {
        let mut members = Vec::new();
        for member in &world.members {
            let config = watcher::Config::default();
            let client = KubeRs::start(member.name(), &member.kubeconfig(), namespace, &config).await?;
            let has_listed = async || {
                ensure!(client.has_listed(), "a client of {} itself has not listed", member.name());
                Ok(())
            };
            eventually(SYNC, has_listed).await?;
            let before = client.look()?;
            members.push(OwnClient { member: Arc::clone(member), client, before });
        }
        let log_before = world.server.lock().await.log().len();
        Ok(Self { members, namespace: namespace.to_owned(), log_before })
    }

    /// Collects facts that explain which states clients of Tributary have missed since [`Self::begin`].
    pub(super) async fn explain(&self, world: &World) -> Vec<String> {
        let mut lines = Vec::new();
        for own in &self.members {
            let name = own.member.name();
            lines.push(match own.missed(&self.namespace).await {
                Ok(missed) if missed.is_empty() => format!("a client of {name} itself missed none"),
                Ok(missed) => format!("a client of {name} itself missed states, too: {}", missed.join("; ")),
                Err(error) => format!("a client of {name} itself cannot say what it missed: {error:#}"),
            });
        }
        let log = world.server.lock().await.log();
        let since = log.get(self.log_before..).unwrap_or(&log);
        let of_cachers: Vec<_> = since.lines().filter(|line| line.contains("cacher{")).collect();
        lines.push(match of_cachers.len() {
            0 => "Tributary opened no list and no watch of a member meanwhile".to_owned(),
            _ => "what Tributary's log says of its collections meanwhile:".to_owned(),
        });
        lines.extend(of_cachers.into_iter().take(LINES_MAX).map(|line| format!("  {line}")));
        lines
    }
}

impl OwnClient {
    /// Waits until this client has the member's objects. Returns the states that the client has missed since
    /// [`Calm::begin`].
    async fn missed(&self, namespace: &str) -> anyhow::Result<Vec<String>> {
        let holds_all = async || {
            let member_objects = member_objects(std::slice::from_ref(&self.member), namespace).await?;
            self.client.look()?.is(&member_objects)
        };
        eventually(SYNC, holds_all).await.context("wait until it holds what the member holds")?;
        let now = self.client.look()?;
        Ok(now.skipped.into_iter().filter(|gap| !self.before.skipped.contains(gap)).collect())
    }
}
