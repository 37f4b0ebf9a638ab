//! Tests kubectl with a server URL in Rancher's form, `/k8s/clusters/NAME`.

use super::{Setup, pods, upgrades};
use crate::context::{Case, TestContext, cases};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::fs;
use tributary_e2e::{Kubectl, guard};

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl::rancher_path"; kubectl_uses_a_member_by_the_path_of_rancher]
}

async fn kubectl_uses_a_member_by_the_path_of_rancher(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let tributary = setup._tributary.as_ref().context("no Tributary")?;
    let mut kubeconfig: Value = serde_json::from_str(&fs::read_to_string(tributary.kubeconfig())?)?;
    kubeconfig["current-context"] = "member1".into();
    for cluster in kubeconfig["clusters"].as_array_mut().into_iter().flatten() {
        let server = cluster["cluster"]["server"].as_str().unwrap_or_default();
        cluster["cluster"]["server"] = server.replace("/clusters/", "/k8s/clusters/").into();
    }
    let folder = guard::temporary_folder("rancher")?;
    let path = folder.path().join("kubeconfig");
    fs::write(&path, kubeconfig.to_string())?;
    let kubectl = Kubectl::new(context.fixture.tools().await?, &path)?;
    let shown = kubectl.ok(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]).await?;
    ensure!(shown.ends_with("/k8s/clusters/member1"), "{shown}");
    let setup = Setup { kubectl, ..setup };
    let nodes = setup.kubectl.ok(&["get", "nodes", "-o", "name"]).await?;
    ensure!(nodes.contains("node/member1-node-0") && !nodes.contains("member2"), "{nodes}");
    setup.running_pod(0, "web").await?;
    pods::check_logs(&setup, "web", 0).await?;
    pods::check_exec(&setup, "web", 0).await?;
    pods::check_port_forward(&setup, "web").await?;
    upgrades::check_copies(&setup, "web").await?;
    setup.ok(&["create", "configmap", "made", "--from-literal=step=1"]).await?;
    ensure!(setup.stored(0, "configmaps", "made").await?["data"]["step"] == "1", "the map is elsewhere");
    setup.ok(&["delete", "configmap", "made"]).await.map(drop)
}
