//! Tests to which cluster a write goes: for a new object, for a name that several clusters have, and for a command with
//! the context of one cluster.

use super::{SOON, Setup, line};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::json;
use tributary_e2e::{Tributary, kubeconfig};

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl";
        create_goes_to_the_cluster_in_the_annotation, create_without_a_cluster_lists_the_possible_clusters,
        flag_create_in_selects_the_default_cluster_of_creates, object_name_in_two_clusters_is_listed_twice_and_a_get_by_name_is_refused,
        file_with_a_repeated_name_is_refused_without_retries, context_of_a_cluster_shows_only_its_objects,
    ]
}

async fn create_goes_to_the_cluster_in_the_annotation(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "placed", "annotations": {"tributary.dev/cluster": "member2"}},
    });
    let file = setup.kubectl.file("placed.json", &object.to_string())?;
    setup.ok(&["create", "-f", &file]).await?;
    let stored = setup.stored(1, "configmaps", "placed").await?;
    ensure!(stored["metadata"]["annotations"]["tributary.dev/cluster"].is_null(), "{stored}");
    let table = setup.ok(&["get", "configmaps"]).await?;
    ensure!(line(&table, &["placed"])?[1] == "member2", "{table}");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "lost", "annotations": {"tributary.dev/cluster": "nowhere"}},
    });
    let file = setup.kubectl.file("lost.json", &object.to_string())?;
    let refused = setup.run(&["create", "-f", &file]).await?.failure()?;
    ensure!(refused.contains("nowhere") && refused.contains("member1"), "{refused}");
    Ok(())
}

async fn create_without_a_cluster_lists_the_possible_clusters(context: TestContext) -> anyhow::Result<()> {
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let tributary = Tributary::builder(&kubeconfig, ["member1", "member2"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let members = context.fixture.pair().await?.clone();
    let namespace = context.namespace("kubectl", &members).await?;
    let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
    let refused = kubectl.run(&["-n", &namespace, "create", "configmap", "lost"]).await?.failure()?;
    for word in ["tributary.dev/cluster", "member1", "member2"] {
        ensure!(refused.contains(word), "no {word} in {refused}");
    }
    for member in &members {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/lost");
        member.http().get(&path).send().await?.expect(404)?;
    }
    Ok(())
}

async fn flag_create_in_selects_the_default_cluster_of_creates(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.ok(&["create", "configmap", "made", "--from-literal=a=b"]).await?;
    ensure!(setup.stored(0, "configmaps", "made").await?["data"]["a"] == "b", "not in member1");
    let path = setup.path("configmaps/made");
    setup.members[1].http().get(&path).send().await?.expect(404)?;
    Ok(())
}

/// kubectl repeats some commands after a conflict, up to five times with pauses. It must not repeat a command that
/// Tributary refuses.
async fn file_with_a_repeated_name_is_refused_without_retries(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "twin").await?;
    setup.map(1, "twin").await?;
    setup.map(0, "only").await?;
    eventually(SOON, async || {
        let refused = setup.run(&["get", "configmap", "twin"]).await?.failure()?;
        let begin = "Error from server (BadRequest): kubectl --context member1 … or kubectl --context member2 …: ";
        ensure!(refused.starts_with(begin), "{refused}");
        Ok(())
    })
    .await?;
    for (name, commands) in [
        ("twin", &[&["apply"][..], &["diff"], &["diff", "--server-side"], &["delete"]][..]),
        // Only `member1` has this object. A write cannot move the object to `member2`.
        ("only", &[&["apply"], &["replace"]]),
    ] {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"step": "1"},
            "metadata": {"name": name, "annotations": {"tributary.dev/cluster": "member2"}},
        });
        let file = setup.kubectl.file(&format!("{name}.json"), &object.to_string())?;
        for command in commands {
            // At this log level, kubectl prints each request with the status code of the response.
            let refused = setup.run(&[command, &["-v=6", "-f", &file][..]].concat()).await?.failure()?;
            ensure!(refused.matches("status=\"409").count() == 1, "{command:?} is sent again: {refused}");
            // `kubectl replace` sends the resourceVersion of `member1`, which is never valid in `member2`.
            let reason = match (name, *command) {
                ("only", ["replace"]) => "the resourceVersion of the object is not of cluster member2",
                _ => "kubectl --context member2 …",
            };
            ensure!(refused.contains(reason), "{command:?}: {refused}");
        }
    }
    for member in [0, 1] {
        ensure!(setup.stored(member, "configmaps", "twin").await?["data"]["step"] == "0", "it was changed");
    }
    Ok(())
}

async fn object_name_in_two_clusters_is_listed_twice_and_a_get_by_name_is_refused(
    context: TestContext,
) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "twin").await?;
    setup.map(1, "twin").await?;
    eventually(SOON, async || {
        let table = setup.ok(&["get", "configmaps"]).await?;
        ensure!(table.lines().filter(|line| line.starts_with("twin")).count() == 2, "{table}");
        Ok(())
    })
    .await?;
    for arguments in
        [&["get", "configmap", "twin"][..], &["delete", "configmap", "twin"], &["label", "configmap", "twin", "a=b"]]
    {
        let refused = setup.run(arguments).await?.failure()?;
        for word in ["member1", "member2", "/clusters/"] {
            ensure!(refused.contains(word), "no {word} in {refused}");
        }
    }
    // With the context of one cluster, the name is unique.
    setup.ok(&["--context", "member2", "label", "configmap", "twin", "a=b"]).await?;
    ensure!(setup.stored(1, "configmaps", "twin").await?["metadata"]["labels"]["a"] == "b", "not in member2");
    ensure!(setup.stored(0, "configmaps", "twin").await?["metadata"]["labels"].is_null(), "in member1 too");
    Ok(())
}

async fn context_of_a_cluster_shows_only_its_objects(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let nodes = setup.kubectl.ok(&["--context", "member2", "get", "nodes"]).await?;
    ensure!(line(&nodes, &["member2-node-0"]).is_ok() && !nodes.contains("member1-node-0"), "{nodes}");
    ensure!(!nodes.contains("CLUSTER"), "{nodes}");
    let both = setup.kubectl.ok(&["get", "nodes"]).await?;
    ensure!(both.contains("member1-node-0") && both.contains("member2-node-0") && both.contains("CLUSTER"), "{both}");
    let (contexts, current) = kubeconfig::contexts(setup._tributary.as_ref().context("no tributary")?.kubeconfig())?;
    ensure!(current.as_deref() == Some("all"), "{current:?}");
    for name in ["all", "member1", "member2"] {
        ensure!(contexts.iter().any(|context| context == name), "{contexts:?}");
    }
    Ok(())
}
