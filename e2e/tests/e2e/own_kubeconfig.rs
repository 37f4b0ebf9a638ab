//! `serve --merge-into-kubeconfig`: the user's own kubeconfig, which the real kubectl changes too.

use crate::context::{Case, TestContext, cases};
use anyhow::{Context, ensure};
use kube::config::Kubeconfig;
use std::path::Path;
use tributary_e2e::{Kubectl, Tributary, guard, kubeconfig, tributary};

pub(crate) fn cases() -> Vec<Case> {
    cases!["own_kubeconfig"; is_joined_and_left_also_after_kubectl_changed_it]
}

fn text_of(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a temporary path is not UTF-8")
}

async fn is_joined_and_left_also_after_kubectl_changed_it(context: TestContext) -> anyhow::Result<()> {
    let [one, two] = context.fixture.pair().await?;
    let folder = guard::temporary_folder("own-kubeconfig")?;
    let own = folder.path().join("config");
    kubeconfig::write(&own, &[&one.access(), &two.access()])?;
    let before = Kubeconfig::read_from(&own)?;
    let merge = format!("--merge-into-kubeconfig={}", own.display());
    let serve = || Tributary::builder(&own, ["member1", "member2"]).argument(&merge).start();
    let running = context.fixture.watch_log(serve().await?).await;
    let kubectl = Kubectl::new(context.fixture.tools().await?, &own)?;

    let ours = ["tributary-all", "tributary-member1", "tributary-member2"];
    let contexts = kubectl.ok(&["config", "get-contexts", "-o", "name"]).await?;
    ensure!(contexts.lines().collect::<Vec<_>>() == [&["member1", "member2"], &ours[..]].concat(), "{contexts}");
    ensure!(kubectl.ok(&["config", "current-context"]).await? == "member1\n");
    let nodes = kubectl.ok(&["--context", "tributary-all", "get", "nodes"]).await?;
    ensure!(nodes.contains("member1-node-0") && nodes.contains("member2-node-0"), "{nodes}");
    let nodes = kubectl.ok(&["--context", "tributary-member2", "get", "nodes", "-o", "name"]).await?;
    ensure!(nodes == "node/member2-node-0\n", "{nodes}");

    // kubectl writes the whole file anew; it keeps the marks, and we keep what it was told.
    kubectl.ok(&["config", "set-context", "tributary-all", "--namespace=kube-system"]).await?;
    kubectl.ok(&["config", "use-context", "tributary-all"]).await?;
    drop(running);
    let _running = context.fixture.watch_log(serve().await?).await;
    let namespace = ["config", "view", "--minify", "-o", "jsonpath={.contexts[0].context.namespace}"];
    ensure!(kubectl.ok(&namespace).await? == "kube-system");
    ensure!(kubectl.ok(&["get", "namespaces", "-o", "name"]).await?.contains("namespace/kube-system"));

    let removed = tributary::run(&["kubeconfig", "remove", text_of(&own)?]).await?.success()?;
    for part in [&ours.join(", "), "current-context is still tributary-all"] {
        ensure!(removed.contains(part), "{part} in {removed}");
    }
    let after = Kubeconfig::read_from(&own)?;
    let said = |config: &Kubeconfig| serde_json::to_value((&config.contexts, &config.clusters, &config.auth_infos));
    ensure!(said(&after)? == said(&before)?, "{after:?}");
    let again = tributary::run(&["kubeconfig", "remove", text_of(&own)?]).await?.success()?;
    ensure!(again.contains("has nothing that tributary put in"), "{again}");
    Ok(())
}
