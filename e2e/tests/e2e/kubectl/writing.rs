//! Tests kubectl commands that write, over two members. Each write must go to the cluster that has the object.

use super::{SOON, Setup, deployment};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl";
        kubectl_scale_changes_the_cluster_of_the_deployment, kubectl_edit_stores_no_cluster_annotation,
        kubectl_apply_creates_and_changes_a_deployment, server_side_apply_changes_a_deployment,
        kubectl_delete_removes_a_pod_of_the_second_member, delete_by_selector_deletes_in_both_members,
        kubectl_annotate_and_label_change_only_their_keys, kubectl_patch_supports_all_patch_types,
        kubectl_rollout_history_lists_both_revisions, kubectl_diff_prints_the_change,
    ]
}

async fn kubectl_scale_changes_the_cluster_of_the_deployment(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let object: Value = serde_json::from_str(&deployment("app")).context("read the deployment")?;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", setup.namespace);
    setup.put(1, &path, &object).await?;
    eventually(SOON, async || setup.ok(&["get", "deployment", "app"]).await.map(|_| ())).await?;
    setup.ok(&["scale", "deployment", "app", "--replicas=3"]).await?;
    let stored = setup.members[1].http().get(&format!("{path}/app")).send().await?.expect(200)?.json()?;
    ensure!(stored["spec"]["replicas"] == 3, "{stored}");
    let wrong = setup.run(&["scale", "deployment", "app", "--replicas=1", "--current-replicas=7"]).await?;
    wrong.failure()?;
    Ok(())
}

async fn kubectl_edit_stores_no_cluster_annotation(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(1, "two").await?;
    let mut command = setup.kubectl.command(&setup.arguments(&["edit", "configmap", "two"]));
    command.env("EDITOR", "sed -i 's/step: \"0\"/step: edited/'");
    setup.kubectl.run_with(command, None).await?.success()?;
    let stored = setup.stored(1, "configmaps", "two").await?;
    ensure!(stored["data"]["step"] == "edited", "{stored}");
    ensure!(stored["metadata"]["annotations"]["tributary.dev/cluster"].is_null(), "{stored}");
    Ok(())
}

async fn kubectl_apply_creates_and_changes_a_deployment(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let file = setup.kubectl.file("app.json", &deployment("app"))?;
    let created = setup.ok(&["apply", "-f", &file]).await?;
    ensure!(created.contains("deployment.apps/app created"), "{created}");
    let unchanged = setup.ok(&["apply", "-f", &file]).await?;
    ensure!(unchanged.contains("unchanged"), "{unchanged}");
    setup.kubectl.file("app.json", &deployment("app").replace("main:1", "main:2"))?;
    let changed = setup.ok(&["apply", "-f", &file]).await?;
    ensure!(changed.contains("configured"), "{changed}");
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/app", setup.namespace);
    let stored = setup.members[0].http().get(&path).send().await?.expect(200)?.json()?;
    ensure!(stored.to_string().contains("main:2"), "{stored}");
    // The member's controllers react to the Deployment, and kubectl must see the result through Tributary.
    eventually(SOON, async || {
        let ready = setup.ok(&["get", "deployment", "app", "-o", "jsonpath={.status.readyReplicas}"]).await?;
        ensure!(ready == "1", "{ready:?} ready");
        Ok(())
    })
    .await
}

async fn server_side_apply_changes_a_deployment(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let file = setup.kubectl.file("app.json", &deployment("app"))?;
    setup.ok(&["apply", "--server-side", "-f", &file]).await?;
    setup.kubectl.file("app.json", &deployment("app").replace("main:1", "main:3"))?;
    setup.ok(&["apply", "--server-side", "-f", &file]).await?;
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    let shown = setup.ok(&["get", "deployment", "app", "-o", image]).await?;
    ensure!(shown == "example.test/main:3", "{shown}");
    Ok(())
}

async fn kubectl_delete_removes_a_pod_of_the_second_member(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    let text = setup.ok(&["delete", "pod", "two", "--timeout=60s"]).await?;
    ensure!(text.contains("pod \"two\" deleted"), "{text}");
    setup.run(&["get", "pod", "two"]).await?.failure()?;
    let missing = setup.run(&["delete", "pod", "two"]).await?.failure()?;
    ensure!(missing.contains("(NotFound)"), "{missing}");
    setup.ok(&["delete", "pod", "two", "--ignore-not-found"]).await?;
    Ok(())
}

async fn delete_by_selector_deletes_in_both_members(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "one").await?;
    setup.map(1, "two").await?;
    for name in ["one", "two"] {
        setup.ok(&["label", "configmap", name, "doomed=yes"]).await?;
    }
    setup.ok(&["delete", "configmaps", "-l", "doomed=yes", "--timeout=60s"]).await?;
    eventually(SOON, async || {
        let left = setup.ok(&["get", "configmaps", "-o", "name"]).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await
}

async fn kubectl_annotate_and_label_change_only_their_keys(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(1, "two").await?;
    setup.ok(&["annotate", "configmap", "two", "color=blue"]).await?;
    setup.ok(&["label", "configmap", "two", "size=large"]).await?;
    let metadata = setup.stored(1, "configmaps", "two").await?["metadata"].clone();
    ensure!(metadata["annotations"] == json!({"color": "blue"}), "{metadata}");
    ensure!(metadata["labels"] == json!({"size": "large"}), "{metadata}");
    setup.ok(&["annotate", "configmap", "two", "color-"]).await?;
    let metadata = setup.stored(1, "configmaps", "two").await?["metadata"].clone();
    ensure!(metadata["annotations"].is_null(), "{metadata}");
    Ok(())
}

async fn kubectl_patch_supports_all_patch_types(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(1, "two").await?;
    for (kind, body, step) in [
        ("merge", r#"{"data":{"step":"1"}}"#, "1"),
        ("strategic", r#"{"data":{"step":"2"}}"#, "2"),
        ("json", r#"[{"op":"replace","path":"/data/step","value":"3"}]"#, "3"),
    ] {
        setup.ok(&["patch", "configmap", "two", &format!("--type={kind}"), "-p", body]).await?;
        let stored = setup.stored(1, "configmaps", "two").await?;
        ensure!(stored["data"]["step"] == step, "{stored}");
    }
    Ok(())
}

async fn kubectl_rollout_history_lists_both_revisions(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let file = setup.kubectl.file("app.json", &deployment("app"))?;
    setup.ok(&["apply", "-f", &file]).await?;
    setup.ok(&["rollout", "status", "deployment", "app", "--timeout=60s"]).await?;
    setup.ok(&["set", "image", "deployment/app", "main=example.test/main:9"]).await?;
    setup.ok(&["rollout", "status", "deployment", "app", "--timeout=60s"]).await?;
    let history = setup.ok(&["rollout", "history", "deployment", "app"]).await?;
    ensure!(history.lines().filter(|line| line.starts_with(['1', '2'])).count() == 2, "{history}");
    Ok(())
}

async fn kubectl_diff_prints_the_change(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let file = setup.kubectl.file("app.json", &deployment("app"))?;
    setup.ok(&["apply", "-f", &file]).await?;
    setup.kubectl.file("app.json", &deployment("app").replace("main:1", "main:2"))?;
    let output = setup.run(&["diff", "-f", &file]).await?;
    ensure!(output.code == Some(1) && output.stdout.contains("+      - image: example.test/main:2"), "{output:?}");
    Ok(())
}
