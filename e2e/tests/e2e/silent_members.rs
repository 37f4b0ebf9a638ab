//! Measures how long Tributary needs to report a silent member, and to have all its collections current after the
//! member's recovery. The measurement needs an idle machine, so it is a proof test.

use crate::context::{Case, TestContext, eventually};
use crate::kubectl::pod;
use anyhow::ensure;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tributary_e2e::{HttpClient, TestCluster, Tributary, kubeconfig};

const SOON: Duration = Duration::from_secs(60);

/// Interval between two checks for a Warning.
const TICK: Duration = Duration::from_millis(50);

/// Longest time from the moment when a member is frozen, or killed, until a Warning appears.
const FROZEN_WARNING_TIMEOUT: Duration = Duration::from_secs(10);
const KILLED_WARNING_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time from the moment when a member's `/readyz` answers 200 until all its collections are current.
const FRESH: Duration = Duration::from_secs(5);

/// Longest time until Tributary refuses a write whose cluster it cannot determine.
const REFUSED: Duration = Duration::from_millis(50);

/// Longest time from the moment when a cluster is killed until `kubectl logs -f` ends.
const LOG_ENDS: Duration = Duration::from_secs(2);

/// Twenty collections that every kube-apiserver has. None is deprecated, because the response for a deprecated kind
/// always has a Warning.
const COLLECTIONS: [&str; 20] = [
    "/api/v1/configmaps",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/api/v1/events",
    "/api/v1/limitranges",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/api/v1/pods",
    "/api/v1/resourcequotas",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/api/v1/services",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/batch/v1/jobs",
    "/apis/networking.k8s.io/v1/ingresses",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/storage.k8s.io/v1/storageclasses",
];

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new(
        "silent_members::proof_silent_member_is_reported_and_recovers_in_time",
        silent_member_is_reported_stale_and_served_again_after_recovery,
    )]
}

/// Lists all [`COLLECTIONS`], and returns the Warnings.
async fn stale(http: &HttpClient) -> anyhow::Result<Vec<String>> {
    let mut stale = Vec::new();
    for collection in COLLECTIONS {
        let answer = http.get(&format!("{collection}?limit=1")).send().await?.expect(200)?;
        let warning = answer.header("warning");
        if !warning.is_empty() {
            stale.push(format!("{collection}: {warning}"));
        }
    }
    Ok(stale)
}

/// Measures the time until the lists of exactly `expected` collections have a Warning.
async fn until(http: &HttpClient, expected: usize) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    loop {
        let stale = stale(http).await?;
        if stale.len() == expected {
            return Ok(begun.elapsed());
        }
        ensure!(begun.elapsed() < SOON, "{} collections have a Warning, {expected} are to: {stale:#?}", stale.len());
        sleep(TICK).await;
    }
}

/// Waits until the member's `/readyz` answers 200.
async fn ready(member: &TestCluster) -> anyhow::Result<()> {
    eventually(SOON, async || {
        timeout(Duration::from_secs(1), member.http().get("/readyz").send()).await??.expect(200)?;
        Ok(())
    })
    .await
}

fn within(what: &str, took: Duration, allowed: Duration) -> anyhow::Result<()> {
    println!("silence: {what}: {:.2} s, {} s allowed", took.as_secs_f64(), allowed.as_secs_f64());
    ensure!(took <= allowed, "{what} took {took:?}, {allowed:?} are allowed");
    Ok(())
}

async fn silent_member_is_reported_stale_and_served_again_after_recovery(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    let victim = Arc::new(TestCluster::builder("victim").kwok(true).nodes(1).start(tools).await?);
    let other = Arc::clone(&context.fixture.pair().await?[1]);
    let path = victim.folder().join("both.kubeconfig");
    kubeconfig::write(&path, &[&victim.access(), &other.access()])?;
    let tributary = Tributary::builder(&path, ["victim", "member2"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let http = tributary.http().await?;
    let namespace = context.namespace("silence", &[Arc::clone(&victim), Arc::clone(&other)]).await?;
    until(&http, 0).await?;
    refused_at_once(&http, &namespace).await?;

    victim.freeze().await?;
    let said = until(&http, COLLECTIONS.len()).await;
    // After a pause of this length, Tributary's next regular attempt to read a collection may be half a minute away.
    // The recovery of the member must cause an earlier attempt.
    sleep(Duration::from_secs(60)).await;
    victim.thaw().await?;
    within("frozen, all have a Warning", said?, FROZEN_WARNING_TIMEOUT)?;
    ready(&victim).await?;
    within("thawed, all are fresh", until(&http, 0).await?, FRESH)?;

    let kubectl = tributary.kubectl(tools)?;
    victim
        .http()
        .post(&format!("/api/v1/namespaces/{namespace}/pods"), &pod("one", "victim-node-0"))
        .send()
        .await?
        .expect(201)?;
    eventually(SOON, async || {
        let shown = kubectl.ok(&["-n", &namespace, "get", "pod", "one", "-o", "jsonpath={.status.phase}"]).await?;
        ensure!(shown == "Running", "pod one is {shown}");
        Ok(())
    })
    .await?;
    let mut following = kubectl.spawn(&["-n", &namespace, "logs", "-f", "one"])?;
    following.wait_for_output(SOON, |text| text.contains("hello from victim")).await?;
    victim.kill9().await?;
    let killed = Instant::now();
    within("killed, all have a Warning", until(&http, COLLECTIONS.len()).await?, KILLED_WARNING_TIMEOUT)?;
    while following.exit_status().is_none() {
        ensure!(killed.elapsed() < SOON, "the log that is followed does not end");
        sleep(TICK).await;
    }
    within("killed, a log that is followed ends", killed.elapsed(), LOG_ENDS)?;
    sleep(Duration::from_secs(60)).await;
    victim.start_again().await?;
    ready(&victim).await?;
    within("started again, all are fresh", until(&http, 0).await?, FRESH)
}

/// Checks that Tributary refuses a write without a cluster within [`REFUSED`].
async fn refused_at_once(http: &HttpClient, namespace: &str) -> anyhow::Result<()> {
    let object: Value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nowhere"}});
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let begun = Instant::now();
    http.post(&path, &object).send().await?.expect(400)?;
    within("a new object without a cluster is refused", begun.elapsed(), REFUSED)?;
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let begun = Instant::now();
    http.patch("/api/v1/namespaces/default", "merge-patch+json", &patch).send().await?.expect(409)?;
    within("a write of a repeated name is refused", begun.elapsed(), REFUSED)
}
