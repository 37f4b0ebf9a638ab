//! Tests `serve --merge-into-kubeconfig`. Tributary writes into the user's kubeconfig, which the real kubectl also
//! changes.

use crate::context::{Case, TestContext, cases};
use anyhow::{Context, ensure};
use kube::config::Kubeconfig;
use std::path::Path;
use tributary_e2e::{Kubectl, Tributary, guard, kubeconfig, tributary};

pub(crate) fn cases() -> Vec<Case> {
    cases!["own_kubeconfig";
        contexts_are_added_to_and_removed_from_the_users_kubeconfig,
        serve_refuses_contexts_that_would_hide_entries_of_another_kubeconfig,
    ]
}

fn text_of(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a temporary path is not UTF-8")
}

async fn contexts_are_added_to_and_removed_from_the_users_kubeconfig(context: TestContext) -> anyhow::Result<()> {
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

    // kubectl rewrites the file and must keep Tributary's marks. Tributary must keep kubectl's change.
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
    ensure!(again.contains("has no entries of tributary"), "{again}");
    Ok(())
}

/// With `KUBECONFIG=a:b`, Tributary writes the contexts into the first file that exists. Tributary must refuse to start
/// if an entry of one file would hide an entry of the other file.
async fn serve_refuses_contexts_that_would_hide_entries_of_another_kubeconfig(
    context: TestContext,
) -> anyhow::Result<()> {
    let [one, two] = context.fixture.pair().await?;
    let folder = guard::temporary_folder("own-kubeconfig")?;
    let [missing, first, second] = ["missing", "first", "second"].map(|name| folder.path().join(name));
    kubeconfig::write(&first, &[&one.access()])?;
    kubeconfig::write(&second, &[&two.access()])?;
    let before = [std::fs::read_to_string(&first)?, std::fs::read_to_string(&second)?];
    let files = std::env::join_paths([&missing, &first, &second])?;
    let members = context.fixture.pair_kubeconfig().await?;
    let serve = |merge: &str| {
        let builder = Tributary::builder(&members, ["member1", "member2"]).environment("KUBECONFIG", &files);
        builder.argument(merge).start()
    };
    let running = context.fixture.watch_log(serve("--merge-into-kubeconfig").await?).await;
    ensure!(!missing.exists() && std::fs::read_to_string(&second)? == before[1], "another file was changed");
    let kubectl = Kubectl::new(context.fixture.tools().await?, Path::new(&files))?;
    for (name, nodes) in [
        ("tributary-all", &["member1-node-0", "member2-node-0"][..]),
        ("tributary-member2", &["member2-node-0"]),
        ("member1", &["member1-node-0"]),
        ("member2", &["member2-node-0"]),
    ] {
        let shown = kubectl.ok(&["--context", name, "get", "nodes", "-o", "name"]).await?;
        let shown: Vec<_> = shown.lines().filter_map(|line| line.strip_prefix("node/")).collect();
        ensure!(nodes.iter().all(|node| shown.contains(node)), "{name}: {shown:?}");
    }
    let status = ["status", "--once", "--context", "tributary-all"];
    let screen = tributary::run_with(&status, &[("KUBECONFIG", &files)]).await?.success()?;
    ensure!(screen.contains("member1") && screen.contains("member2"), "{screen}");

    // The contexts go into the second file here. An entry with the same name in the first file would hide them.
    let merge = format!("--merge-into-kubeconfig={}", text_of(&second)?);
    let refused = serve(&merge).await.err().context("it hides the first file's contexts")?;
    let refused = format!("{refused:#}");
    for part in ["one entry would hide the other", "--kubeconfig-prefix", "tributary kubeconfig remove "] {
        ensure!(refused.contains(part), "{part} in {refused}");
    }
    drop(running);
    let removed = tributary::run_with(&["kubeconfig", "remove"], &[("KUBECONFIG", &files)]).await?.success()?;
    ensure!(removed.contains("tributary-all, tributary-member1, tributary-member2"), "{removed}");
    ensure!([std::fs::read_to_string(&first)?, std::fs::read_to_string(&second)?] == before, "{removed}");
    Ok(())
}
