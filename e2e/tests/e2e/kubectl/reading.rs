//! Tests kubectl commands that read, over two members.

use super::{SOON, Setup, line};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl";
        kubectl_get_of_all_namespaces_prints_a_cluster_column, kubectl_get_in_each_output_format_prints_objects_of_both_members,
        get_watch_prints_objects_of_both_members, kubectl_get_selects_objects_by_name_label_and_field,
        describe_shows_a_pod_and_a_node_of_the_second_member, kubectl_api_resources_lists_the_members_resources,
        kubectl_explain_describes_a_deployment_field, kubectl_version_shows_the_server_version,
        get_sorts_and_prints_custom_columns, kubectl_wait_ends_at_a_change_and_a_deletion,
        kubectl_auth_can_i_delete_pods_is_yes_for_the_administrator, kubectl_events_prints_events_of_both_members,
        kubectl_cluster_info_prints_the_server_and_readyz_lists_the_members,
    ]
}

async fn kubectl_get_of_all_namespaces_prints_a_cluster_column(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(0, "one").await?;
    setup.running_pod(1, "two").await?;
    let table = setup.kubectl.ok(&["get", "pods", "-A"]).await?;
    let header = line(&table, &["NAMESPACE"])?;
    ensure!(header == ["NAMESPACE", "NAME", "CLUSTER", "READY", "STATUS", "RESTARTS", "AGE"], "{header:?}");
    for (name, cluster) in [("one", "member1"), ("two", "member2")] {
        let cells = line(&table, &[&setup.namespace, name])?;
        ensure!(cells[2..6] == [cluster, "1/1", "Running", "0"], "{cells:?}");
    }
    Ok(())
}

async fn kubectl_get_in_each_output_format_prints_objects_of_both_members(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(0, "one").await?;
    setup.running_pod(1, "two").await?;
    let names = setup.ok(&["get", "pods", "-o", "name"]).await?;
    ensure!(names == "pod/one\npod/two\n", "{names}");
    let json: Value = serde_json::from_str(&setup.ok(&["get", "pods", "-o", "json"]).await?).context("read -o json")?;
    let clusters: Vec<&Value> = json["items"]
        .as_array()
        .context("no items")?
        .iter()
        .map(|item| &item["metadata"]["annotations"]["tributary.dev/cluster"])
        .collect();
    ensure!(clusters == [&json!("member1"), &json!("member2")], "{clusters:?}");
    let yaml = setup.ok(&["get", "pod", "two", "-o", "yaml"]).await?;
    ensure!(yaml.contains("kind: Pod") && yaml.contains("tributary.dev/cluster: member2"), "{yaml}");
    let wide = setup.ok(&["get", "pods", "-o", "wide"]).await?;
    ensure!(line(&wide, &["NAME"])?.contains(&"NODE"), "{wide}");
    ensure!(line(&wide, &["two", "member2"])?.contains(&"member2-node-0"), "{wide}");
    Ok(())
}

async fn get_watch_prints_objects_of_both_members(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "before").await?;
    let arguments = setup.arguments(&["get", "configmaps", "-w"]);
    let mut watching = setup.kubectl.spawn(&arguments)?;
    watching.wait_for_output(SOON, |text| text.contains("before")).await?;
    setup.map(0, "in-one").await?;
    setup.map(1, "in-two").await?;
    let text = watching.wait_for_output(SOON, |text| text.contains("in-one") && text.contains("in-two")).await?;
    ensure!(line(&text, &["in-two"])?[1] == "member2", "{text}");
    // For a single name, kubectl opens a watch with a field selector. The watch must report the objects of both
    // clusters.
    let arguments = setup.arguments(&["get", "configmap", "in-two", "-w", "-o", "jsonpath={.data.step};"]);
    let mut watching = setup.kubectl.spawn(&arguments)?;
    watching.wait_for_output(SOON, |text| text.contains("0;")).await?;
    setup.ok(&["patch", "configmap", "in-two", "--type=merge", "-p", r#"{"data":{"step":"1"}}"#]).await?;
    watching.wait_for_output(SOON, |text| text.contains("1;")).await?;
    Ok(())
}

async fn kubectl_get_selects_objects_by_name_label_and_field(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(0, "one").await?;
    setup.running_pod(1, "two").await?;
    let one = setup.ok(&["get", "pod", "two"]).await?;
    ensure!(line(&one, &["two", "member2"]).is_ok() && one.lines().count() == 2, "{one}");
    let selected = setup.ok(&["get", "pods", "-l", "app=two", "-o", "name"]).await?;
    ensure!(selected == "pod/two\n", "{selected}");
    let on_node = setup.ok(&["get", "pods", "--field-selector=spec.nodeName=member1-node-0", "-o", "name"]).await?;
    ensure!(on_node == "pod/one\n", "{on_node}");
    let missing = setup.run(&["get", "pod", "three"]).await?.failure()?;
    ensure!(missing.contains("(NotFound)") && missing.contains("pods \"three\" not found"), "{missing}");
    Ok(())
}

async fn describe_shows_a_pod_and_a_node_of_the_second_member(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    let text = setup.ok(&["describe", "pod", "two"]).await?;
    ensure!(text.contains("member2-node-0") && text.contains("example.test/main:1"), "{text}");
    let text = setup.kubectl.ok(&["describe", "node", "member2-node-0"]).await?;
    ensure!(text.contains("Ready") && text.contains("member2-node-0"), "{text}");
    Ok(())
}

async fn kubectl_api_resources_lists_the_members_resources(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let shown = setup.kubectl.ok(&["api-resources", "--no-headers"]).await?;
    let own = setup.kubectl.ok(&["--context", "member1", "api-resources", "--no-headers"]).await?;
    // The comparison ignores custom resources of other tests, which appear and disappear between the two commands, and
    // Tributary's API group.
    let is_compared = |line: &&str| !line.contains(".example.com/") && !line.contains("aggregation.tributary.dev/");
    let sorted = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(is_compared);
        // The widths of the columns depend on the longest names, so the comparison ignores the number of spaces.
        let mut lines: Vec<String> = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        lines.sort();
        lines
    };
    ensure!(sorted(&shown) == sorted(&own), "{shown}\ninstead of\n{own}");
    Ok(())
}

async fn kubectl_explain_describes_a_deployment_field(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let text = setup.kubectl.ok(&["explain", "deployment.spec.replicas"]).await?;
    ensure!(text.contains("FIELD: replicas") && text.contains("integer"), "{text}");
    Ok(())
}

async fn kubectl_version_shows_the_server_version(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let text = setup.kubectl.ok(&["version"]).await?;
    ensure!(text.contains("Server Version: v1.36.3"), "{text}");
    Ok(())
}

async fn get_sorts_and_prints_custom_columns(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "b").await?;
    setup.map(1, "a").await?;
    let sorted = setup.ok(&["get", "configmaps", "--sort-by=.metadata.name"]).await?;
    let names: Vec<&str> = sorted.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(names == ["a", "b"], "{sorted}");
    let columns = "custom-columns=NAME:.metadata.name,CLUSTER:.metadata.annotations.tributary\\.dev/cluster";
    let custom = setup.ok(&["get", "configmaps", "-o", columns]).await?;
    ensure!(line(&custom, &["a", "member2"]).is_ok(), "{custom}");
    let labels = setup.ok(&["get", "configmaps", "--show-labels"]).await?;
    ensure!(line(&labels, &["NAME"])?.last() == Some(&"LABELS"), "{labels}");
    Ok(())
}

async fn kubectl_wait_ends_at_a_change_and_a_deletion(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(1, "two").await?;
    let arguments = setup.arguments(&["wait", "configmap/two", "--for=jsonpath={.data.step}=done", "--timeout=60s"]);
    let mut waiting = setup.kubectl.spawn(&arguments)?;
    setup.ok(&["patch", "configmap", "two", "--type=merge", "-p", r#"{"data":{"step":"done"}}"#]).await?;
    let status = waiting.wait(SOON).await?;
    ensure!(status.success(), "{}", waiting.errors());
    let gone = setup.arguments(&["wait", "configmap/two", "--for=delete", "--timeout=60s"]);
    let mut waiting = setup.kubectl.spawn(&gone)?;
    setup.ok(&["delete", "configmap", "two"]).await?;
    let status = waiting.wait(SOON).await?;
    ensure!(status.success(), "{}", waiting.errors());
    Ok(())
}

async fn kubectl_auth_can_i_delete_pods_is_yes_for_the_administrator(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let answer = setup.ok(&["auth", "can-i", "delete", "pods"]).await?;
    ensure!(answer.trim() == "yes", "{answer}");
    Ok(())
}

async fn kubectl_events_prints_events_of_both_members(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    for (member, reason) in [(0, "FromOne"), (1, "FromTwo")] {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": reason.to_lowercase(), "namespace": setup.namespace},
            "involvedObject": {"kind": "Pod", "name": "some", "namespace": setup.namespace},
            "reason": reason, "message": "seen", "type": "Normal", "lastTimestamp": "2026-01-01T00:00:00Z",
        });
        setup.put(member, &setup.path("events"), &event).await?;
    }
    eventually(SOON, async || {
        let text = setup.ok(&["events"]).await?;
        ensure!(text.contains("FromOne") && text.contains("FromTwo"), "{text}");
        Ok(())
    })
    .await
}

async fn kubectl_cluster_info_prints_the_server_and_readyz_lists_the_members(
    context: TestContext,
) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let text = setup.kubectl.ok(&["cluster-info"]).await?;
    ensure!(text.contains("is running at"), "{text}");
    let raw = setup.kubectl.ok(&["get", "--raw", "/readyz?verbose"]).await?;
    ensure!(raw.contains("member1") && raw.contains("member2"), "{raw}");
    Ok(())
}
