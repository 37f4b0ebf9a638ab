//! Tests flow control in front of real clusters, with kubectl as the client. The flow-control schema changes while the
//! server runs.

use crate::context::{Case, TestContext, cases, eventually};
use crate::policies;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};
use tributary_e2e::{HttpClient, Kubectl, Tributary, guard};

/// Longest time until a changed file and kubectl's next attempt take effect.
const SOON: Duration = Duration::from_secs(60);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) fn cases() -> Vec<Case> {
    cases!["flow_control"; kubectl_retries_a_429_and_prints_the_flow_control_schema]
}

/// Writes a configuration with this flow-control schema for requests for resources. The discovery requests that kubectl
/// sends first have no schema, and so no limit.
pub(crate) fn write(folder: &Path, schema: &Value) -> anyhow::Result<()> {
    let of_resources = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let object = json!({
        "apiVersion": "tributary.dev/v1alpha1", "kind": "MergedEndpoint", "metadata": {"name": "all"},
        "spec": {
            "dispatchPolicies": [
                {"rules": [of_resources], "flowControlSchemaName": "people"},
                {"rules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]},
            ],
            "flowControl": {"flowControlSchemas": [schema]},
        },
    });
    // Renames the file, because a rename is atomic. Otherwise the server could read a half-written file and would
    // refuse it.
    let (new, path) = (folder.join("new"), folder.join("all.yaml"));
    fs::write(&new, object.to_string())?;
    fs::rename(new, path).context("put the file in its place")
}

fn in_flight(max: u32) -> Value {
    json!({"name": "people", "maxRequestsInflight": {"max": max, "countLongRunning": true}})
}

/// Returns the number of requests that the schema with limit 0 has refused.
async fn refused(http: &HttpClient) -> anyhow::Result<u64> {
    let line = "tributary_flow_control_requests_total{cluster=\"\",schema=\"people\",decision=\"closed\"} ";
    let metrics = http.get("/metrics").send().await?.expect(200)?.text();
    let count = metrics.lines().find_map(|own| own.strip_prefix(line)).with_context(|| metrics.clone())?;
    Ok(count.trim().parse()?)
}

async fn kubectl_retries_a_429_and_prints_the_flow_control_schema(context: TestContext) -> anyhow::Result<()> {
    let tools = context.fixture.tools().await?;
    let members = context.fixture.pair().await?;
    let folder = guard::temporary_folder("flow")?;
    policies::write(folder.path(), members, &json!({}))?;
    write(folder.path(), &in_flight(0))?;
    let tributary = context.fixture.watch_log(Tributary::configured(folder.path()).start().await?).await;
    let kubectl = Kubectl::new(tools, tributary.kubeconfig())?;
    let http = tributary.http().await?;
    let message = "flow control schema \"people\" admits no requests";

    // kubectl retries a limited number of times, and then prints the server's message.
    let said = kubectl.run(&["get", "configmaps", "-n", "default"]).await?.failure()?;
    ensure!(said.contains(message), "{said}");
    let answer = http.get(CONFIG_MAPS).send().await?.expect(429)?;
    let status = answer.json()?;
    ensure!(status["reason"] == "TooManyRequests" && status["message"] == message, "{status}");
    let headers = ["retry-after", "x-tributary-flow-control-schema"].map(|name| answer.header(name));
    ensure!(headers == ["1", "people"], "{headers:?}");

    // The limit changes while kubectl waits for its next attempt.
    let before = refused(&http).await?;
    let mut waits = kubectl.spawn(&["get", "namespaces", "-o", "name"])?;
    eventually(SOON, async || {
        ensure!(refused(&http).await? > before, "it has not asked yet");
        Ok(())
    })
    .await?;
    write(folder.path(), &in_flight(1))?;
    let ended = waits.wait(SOON).await?;
    ensure!(ended.success() && waits.output().contains("namespace/default"), "{} {}", waits.output(), waits.errors());

    // A watch holds its flow-control permit until it ends, also after a change of the limit.
    let mut watch = kubectl.spawn(&["get", "configmaps", "-n", "default", "-o", "name", "--watch-only"])?;
    eventually(SOON, async || http.get(CONFIG_MAPS).send().await?.expect(429).map(drop)).await?;
    write(folder.path(), &in_flight(2))?;
    eventually(SOON, async || http.get(CONFIG_MAPS).send().await?.expect(200).map(drop)).await?;
    write(folder.path(), &in_flight(1))?;
    eventually(SOON, async || http.get(CONFIG_MAPS).send().await?.expect(429).map(drop)).await?;
    watch.terminate(SOON).await?;
    eventually(SOON, async || http.get(CONFIG_MAPS).send().await?.expect(200).map(drop)).await?;
    Ok(())
}
