//! Runs the real kubectl against Tributary over two members. The module `compared` compares kubectl's output at
//! Tributary over one member with its output at this member.

mod can_i;
mod cluster_choice;
mod compared;
pub(crate) mod pods;
mod rancher_path;
mod reading;
mod several;
pub(crate) mod upgrades;
mod without_annotation;
mod write_targets;
mod writing;

use crate::context::{Case, TestContext, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tributary_e2e::{Kubectl, TestCluster, Tributary, kubectl::KubectlOutput};

const SOON: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    let choosing = [can_i::cases(), cluster_choice::cases(), write_targets::cases(), without_annotation::cases()]
        .into_iter()
        .flatten();
    let rest = [
        pods::cases(),
        upgrades::cases(),
        rancher_path::cases(),
        reading::cases(),
        writing::cases(),
        several::cases(),
        compared::cases(),
    ];
    choosing.chain(rest.into_iter().flatten()).collect()
}

pub(crate) struct Setup {
    pub(crate) kubectl: Kubectl,
    pub(crate) namespace: String,
    pub(crate) members: [Arc<TestCluster>; 2],
    pub(crate) _tributary: Option<Arc<Tributary>>,
}

impl Setup {
    async fn new(context: &TestContext) -> anyhow::Result<Self> {
        let tributary = context.fixture.over_two().await?;
        let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
        let members = context.fixture.pair().await?.clone();
        let namespace = context.namespace("kubectl", &members).await?;
        Ok(Self { kubectl, namespace, members, _tributary: Some(tributary) })
    }

    /// Makes a setup without Tributary, in which kubectl uses the first member directly.
    async fn of_a_member(context: &TestContext) -> anyhow::Result<Self> {
        let members = context.fixture.pair().await?.clone();
        let kubectl = Kubectl::new(context.fixture.tools().await?, &members[0].kubeconfig())?;
        let namespace = context.namespace("kubectl", &members).await?;
        Ok(Self { kubectl, namespace, members, _tributary: None })
    }

    pub(crate) fn arguments<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        [&["-n", self.namespace.as_str()], arguments].concat()
    }

    /// Runs kubectl in the namespace of the setup, and returns its standard output.
    pub(crate) async fn ok(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.kubectl.ok(&self.arguments(arguments)).await
    }

    async fn run(&self, arguments: &[&str]) -> anyhow::Result<KubectlOutput> {
        self.kubectl.run(&self.arguments(arguments)).await
    }

    async fn put(&self, member: usize, path: &str, object: &Value) -> anyhow::Result<()> {
        self.members[member].http().post(path, object).send().await?.expect(201)?;
        Ok(())
    }

    fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    /// Creates a pod on a member's node, and waits until kubectl shows it as running.
    pub(crate) async fn running_pod(&self, member: usize, name: &str) -> anyhow::Result<()> {
        let node = format!("{}-node-0", self.members[member].name());
        self.put(member, &self.path("pods"), &pod(name, &node)).await?;
        self.phase_is(name, "Running").await
    }

    async fn phase_is(&self, name: &str, phase: &str) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let shown = self.ok(&["get", "pod", name, "-o", "jsonpath={.status.phase}"]).await?;
            ensure!(shown == phase, "pod {name} is {shown}");
            Ok(())
        })
        .await
    }

    /// Creates a ConfigMap in a member, and waits until kubectl shows it.
    async fn map(&self, member: usize, name: &str) -> anyhow::Result<()> {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"step": "0"}});
        self.put(member, &self.path("configmaps"), &object).await?;
        eventually(SOON, async || {
            let shown = self.ok(&["get", "configmaps", "-o", "name"]).await?;
            ensure!(shown.contains(&format!("configmap/{name}\n")), "{shown}");
            Ok(())
        })
        .await
    }

    /// Reads an object from a member directly.
    async fn stored(&self, member: usize, resource: &str, name: &str) -> anyhow::Result<Value> {
        let path = self.path(&format!("{resource}/{name}"));
        self.members[member].http().get(&path).send().await?.expect(200)?.json()
    }
}

pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example.test/main:1"}]},
    })
}

/// Returns the cells of the line whose first cells are these words.
fn line<'a>(table: &'a str, words: &[&str]) -> anyhow::Result<Vec<&'a str>> {
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|cells| cells.starts_with(words))
        .with_context(|| format!("no line {words:?} in\n{table}"))
}

fn deployment(name: &str) -> String {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"nodeName": "member1-node-0", "containers": [{"name": "main", "image": "example.test/main:1"}]},
            },
        },
    })
    .to_string()
}
