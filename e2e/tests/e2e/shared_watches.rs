//! Watches of many clients at the path of one cluster share a few connections to the cluster's kube-apiserver. A client
//! that does not read its events must not delay other clients on the same connection to the kube-apiserver.

use crate::context::{Case, TestContext, cases};
use anyhow::{Context, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::{collections::HashSet, fs, time::Duration};
use tributary_e2e::http::EventStream;
use tributary_e2e::{HttpClient, TestCluster, Tributary, namespace};

/// Longest time until an event, an answer or the end of a stream.
const SOON: Duration = Duration::from_secs(60);

/// Number of clients. Each has a separate connection and watch.
const CLIENTS: usize = 300;

/// Number of additional clients that read no events of their watches.
const SLOW: usize = 20;

/// Size of the watched object in bytes, and number of its changes. Together the events exceed the HTTP/2 flow-control
/// windows many times.
const LARGE_BYTES: usize = 200 << 10;
const CHANGES: usize = 10;

pub(crate) fn cases() -> Vec<Case> {
    let cases = cases!["shared_watches"; watches_of_hundreds_of_clients_share_a_few_connections];
    cases.into_iter().map(|case| case.patience(Duration::from_secs(600))).collect()
}

/// Returns the number of connections from a process to a port of 127.0.0.1.
fn connections(process: u32, port: u16) -> anyhow::Result<usize> {
    let far = format!("0100007F:{port:04X}");
    let table = fs::read_to_string(format!("/proc/{process}/net/tcp")).context("read /proc")?;
    // In `/proc/net/tcp`, a line begins with its number, both addresses and the state (01 is ESTABLISHED). The inode is
    // the seventh field after the state.
    let inodes: HashSet<String> = table
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() > 9 && fields[2] == far && fields[3] == "01")
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let open = fs::read_dir(format!("/proc/{process}/fd")).context("read /proc")?;
    let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Ok(links.filter(|link| link.to_str().is_some_and(|link| inodes.contains(link))).count())
}

/// Opens a watch with a new client, and so on a new connection.
async fn watch(tributary: &Tributary, path: &str) -> anyhow::Result<(HttpClient, EventStream)> {
    let client = tributary.http().await?;
    let watch = client.watch(path).await?;
    Ok((client, watch))
}

async fn watches_of_hundreds_of_clients_share_a_few_connections(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let member = TestCluster::builder("watched").start(context.fixture.tools().await?).await?;
    let tributary = Tributary::builder(&member.kubeconfig(), ["watched"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let namespace = namespace::unique_name("watches");
    namespace::create(&namespace, &[&member]).await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let here = format!("/clusters/watched{maps}");
    let version = |list: &Value| list["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let http = tributary.http().await?;
    let list = http.get(&here).send().await?.expect(200)?.json()?;
    let since = version(&list).context("a version")?;
    let before = connections(tributary.pid(), member.apiserver_port())?;

    let small = format!("{here}?watch=1&labelSelector=size=small&resourceVersion={since}");
    let large = format!("{here}?watch=1&labelSelector=size=large&resourceVersion={since}");
    // The first watch opens alone, and the other watches open in groups of 50.
    let mut watches = vec![watch(&tributary, &small).await?];
    for round in 1..=(CLIENTS - 1).div_ceil(50) {
        let more = 50.min(CLIENTS - watches.len());
        let opened = try_join_all((0..more).map(|_| watch(&tributary, &small))).await;
        watches.extend(opened.with_context(|| format!("round {round}"))?);
    }
    let slow = try_join_all((0..SLOW).map(|_| watch(&tributary, &large))).await?;
    let mut fast = watch(&tributary, &large).await?;
    let short = async || http.get(&here).send().await?.expect(200).map(drop);
    try_join_all((0..100).map(|_| short())).await?;
    let now = connections(tributary.pid(), member.apiserver_port())?;
    let most = (CLIENTS + SLOW + 1).div_ceil(100) + 1;
    // Requests that are not long-running may need one additional connection.
    ensure!(now <= before + most + 1, "{before} connections before, {now} with {CLIENTS} watches");

    // The slow clients do not read their events. Other clients on the same connections must still receive events.
    let object = |name: &str, size: &str, value: String| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"size": size}},
            "data": {"value": value}})
    };
    member.http().post(&maps, &object("large", "large", "x".repeat(LARGE_BYTES))).send().await?.expect(201)?;
    for change in 0..CHANGES {
        let change = json!(change.to_string());
        let patch = json!({"data": {"change": change}});
        let patched = member.http().patch(&format!("{maps}/large"), "merge-patch+json", &patch).send();
        patched.await?.expect(200)?;
        while fast.1.expect(SOON).await?["object"]["data"]["change"] != change {}
    }
    member.http().post(&maps, &object("small", "small", "x".to_owned())).send().await?.expect(201)?;
    let mut seen = String::new();
    for (_, watch) in &mut watches {
        let event = watch.expect(SOON).await?;
        ensure!(
            (&event["type"], &event["object"]["metadata"]["name"]) == (&json!("ADDED"), &json!("small")),
            "{event}"
        );
        seen = version(&event["object"]).context("a version")?;
    }
    // The slow clients must still receive the events that they have not read yet.
    for (_, mut watch) in slow {
        let event = watch.expect(SOON).await?;
        ensure!(event["object"]["metadata"]["name"] == "large", "{}", event["type"]);
    }

    // When the kube-apiserver is killed, all watches end. After its restart, clients must be able to watch again.
    member.kill_apiserver().await?;
    for (_, watch) in &mut watches {
        let ended = watch.next(SOON).await;
        ensure!(!matches!(ended, Ok(Some(_))), "a stream goes on: {ended:?}");
        ensure!(ended.as_ref().err().is_none_or(|error| !error.to_string().contains("no event")), "{ended:?}");
    }
    drop(watches);
    member.start_again().await?;
    member.http().post(&maps, &object("later", "small", "x".to_owned())).send().await?.expect(201)?;
    let small = format!("{here}?watch=1&labelSelector=size=small&resourceVersion={seen}");
    crate::context::eventually(SOON, async || {
        let (_client, mut again) = watch(&tributary, &small).await?;
        let event = again.expect(SOON).await?;
        ensure!(event["object"]["metadata"]["name"] == "later", "{event}");
        Ok(())
    })
    .await
}
