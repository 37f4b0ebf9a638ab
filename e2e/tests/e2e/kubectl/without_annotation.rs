//! Tests commands that do not send the cluster annotation of a file, or cannot set it. The tests check results and
//! first messages, for a name that several clusters have and for a unique name.

use super::{SOON, Setup, deployment};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::sync::Arc;
use tributary_e2e::{Kubectl, Tributary};

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl";
        kubectl_delete_by_file_ignores_the_cluster_annotation_in_the_file, kubectl_debug_refuses_a_repeated_pod_name,
        kubectl_debug_creates_a_copy_of_a_pod, kubectl_autoscale_without_a_cluster_for_the_autoscaler_is_refused,
    ]
}

/// First words of the message that refuses a name that both clusters have.
const EITHER: &str = "kubectl --context member1 … or kubectl --context member2 …: ";

fn first_line(refused: &str) -> &str {
    refused.lines().next().unwrap_or_default()
}

/// Returns a kubectl for a Tributary without a default cluster for new objects.
async fn unplaced(context: &TestContext) -> anyhow::Result<(Arc<Tributary>, Kubectl)> {
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let tributary = Tributary::builder(&kubeconfig, ["member1", "member2"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
    Ok((tributary, kubectl))
}

/// Returns a Pod that is never scheduled, because its scheduler does not exist.
fn waiting_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
    })
}

/// Waits until kubectl lists `count` objects with this name.
async fn listed(setup: &Setup, kubectl: &Kubectl, resource: &str, name: &str, count: usize) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let names = kubectl.ok(&["-n", &setup.namespace, "get", resource, "-o", "name"]).await?;
        let found = names.lines().filter(|line| line.ends_with(&format!("/{name}"))).count();
        ensure!(found == count, "{found} of {name}: {names}");
        Ok(())
    })
    .await
}

async fn kubectl_delete_by_file_ignores_the_cluster_annotation_in_the_file(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let file = |name: &str| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "annotations": {"tributary.dev/cluster": "member2"}},
        });
        setup.kubectl.file(&format!("{name}.json"), &object.to_string())
    };
    for (member, name) in [(0, "twin"), (1, "twin"), (0, "only")] {
        setup.map(member, name).await?;
    }
    listed(&setup, &setup.kubectl, "configmaps", "twin", 2).await?;
    let twin = file("twin")?;
    let refused = setup.run(&["delete", "-f", &twin]).await?.failure()?;
    let expected = format!(
        "Error from server (BadRequest): error when deleting \"{twin}\": {EITHER}configmaps \"twin\" exists in more than \
         one cluster: member1, member2; "
    );
    ensure!(first_line(&refused).starts_with(&expected), "{refused}");
    for member in [0, 1] {
        setup.stored(member, "configmaps", "twin").await?;
    }
    setup.ok(&["--context", "member2", "delete", "-f", &twin]).await?;
    setup.stored(0, "configmaps", "twin").await?;
    setup.members[1].http().get(&setup.path("configmaps/twin")).send().await?.expect(404)?;
    // kubectl sends only the name of the object and not the annotation. The name is unique, so the delete succeeds.
    setup.ok(&["delete", "-f", &file("only")?]).await?;
    setup.members[0].http().get(&setup.path("configmaps/only")).send().await?.expect(404)?;
    Ok(())
}

async fn kubectl_debug_refuses_a_repeated_pod_name(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    for (member, name) in [(0, "twin"), (1, "twin"), (1, "only")] {
        setup.put(member, &setup.path("pods"), &waiting_pod(name)).await?;
    }
    listed(&setup, &setup.kubectl, "pods", "twin", 2).await?;
    listed(&setup, &setup.kubectl, "pods", "only", 1).await?;
    let arguments = |name| ["debug", name, "--image=i", "--container=debugger", "--attach=false"];
    let refused = setup.run(&arguments("twin")).await?.failure()?;
    ensure!(first_line(&refused).starts_with(&format!("Error from server (BadRequest): {EITHER}")), "{refused}");
    setup.ok(&[&["--context", "member1"][..], &arguments("twin")].concat()).await?;
    setup.ok(&arguments("only")).await?;
    for (member, name, has_one) in [(0, "twin", true), (1, "twin", false), (1, "only", true)] {
        let stored = setup.stored(member, "pods", name).await?;
        let containers = &stored["spec"]["ephemeralContainers"];
        ensure!((containers[0]["name"] == "debugger") == has_one, "{name} of {member}: {stored}");
    }
    Ok(())
}

/// A copied Pod has no node, and has the annotations of the Pod only if the user asks for them.
async fn kubectl_debug_creates_a_copy_of_a_pod(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let (_tributary, unplaced) = unplaced(&context).await?;
    setup.running_pod(1, "only").await?;
    for member in [0, 1] {
        setup.put(member, &setup.path("pods"), &waiting_pod("twin")).await?;
    }
    listed(&setup, &unplaced, "pods", "only", 1).await?;
    listed(&setup, &unplaced, "pods", "twin", 2).await?;
    let debug = async |name: &str, copy: &str, more: &[&str]| {
        let copy = format!("--copy-to={copy}");
        let own = ["-n", &setup.namespace, "debug", name, &copy, "--image=i", "--attach=false"];
        unplaced.run(&[&own, more].concat()).await
    };
    let refused = debug("twin", "copy", &[]).await?.failure()?;
    ensure!(first_line(&refused).starts_with(&format!("Error from server (BadRequest): {EITHER}")), "{refused}");
    let refused = debug("only", "copy", &[]).await?.failure()?;
    let expected = "Error from server (BadRequest): kubectl --context member1 … (or member2): no rule selects the \
                    cluster in which to create pods \"copy\"";
    ensure!(first_line(&refused).starts_with(expected), "{refused}");
    for member in [0, 1] {
        setup.members[member].http().get(&setup.path("pods/copy")).send().await?.expect(404)?;
    }
    for (copy, flags) in [
        ("with-node", &["--same-node"][..]),
        ("with-annotations", &["--keep-annotations"]),
        ("by-context", &["--context", "member2"]),
    ] {
        debug("only", copy, flags).await?.success().context(copy)?;
        setup.stored(1, "pods", copy).await?;
        setup.members[0].http().get(&setup.path(&format!("pods/{copy}"))).send().await?.expect(404)?;
    }
    Ok(())
}

/// Tributary refuses the new autoscaler without a cluster. kubectl does not show the reason of this refusal.
async fn kubectl_autoscale_without_a_cluster_for_the_autoscaler_is_refused(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let (_tributary, unplaced) = unplaced(&context).await?;
    let deployments = format!("/apis/apps/v1/namespaces/{}/deployments", setup.namespace);
    for (member, name) in [(0, "twin"), (1, "twin"), (1, "only")] {
        let object: Value = serde_json::from_str(&deployment(name)).context("read the deployment")?;
        setup.put(member, &deployments, &object).await?;
    }
    listed(&setup, &unplaced, "deployments", "twin", 2).await?;
    listed(&setup, &unplaced, "deployments", "only", 1).await?;
    let autoscale = async |name: &str, more: &[&str]| {
        let own = ["-n", &setup.namespace, "autoscale", "deployment", name, "--min=1", "--max=2"];
        unplaced.run(&[more, &own].concat()).await
    };
    let refused = autoscale("twin", &[]).await?.failure()?;
    ensure!(first_line(&refused).starts_with(&format!("Error from server (BadRequest): {EITHER}")), "{refused}");
    let refused = autoscale("only", &[]).await?.failure()?;
    ensure!(first_line(&refused).starts_with("error: failed to create autoscaling/v2 HPA"), "{refused}");
    autoscale("only", &["--context", "member2"]).await?.success()?;
    let path = format!("/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers/only", setup.namespace);
    setup.members[1].http().get(&path).send().await?.expect(200)?;
    setup.members[0].http().get(&path).send().await?.expect(404)?;
    Ok(())
}
