//! Kubernetes Events of a real member: Events that expire together, and watches of Events without bookmarks.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::time::timeout;
use tributary_e2e::{TestCluster, Tributary, guard};

use crate::context::{Case, TestContext, cases, eventually};

const SOON: Duration = Duration::from_secs(30);

/// Lifetime of Events in this test. Events that are created within a twentieth of the lifetime (3 s) share one etcd
/// lease and so expire together.
const TIME_TO_LIVE: Duration = Duration::from_secs(60);

/// Longest delay between the end of the lifetime and the deletion. etcd looks for expired leases every half second, and
/// extends leases after a restart.
const SLACK: Duration = Duration::from_secs(60);

/// Number of Events that share a lease.
const COUNT: usize = 20;

pub(crate) fn cases() -> Vec<Case> {
    cases!["events";
        kubernetes_events_that_expire_together_are_all_deleted, watch_of_kubernetes_events_ends_without_a_bookmark,
        quorum_list_of_kubernetes_events_contains_the_newest_event,
    ]
}

fn event(namespace: &str, name: &str) -> Value {
    json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": name}, "reason": "Test", "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "p"}})
}

fn names_of(list: &Value) -> Vec<&str> {
    list["items"].as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

/// Twenty Events expire together, in one etcd transaction. The member sends a DELETED event for each Event, and all
/// DELETED events have one version. Tributary must do the same.
async fn kubernetes_events_that_expire_together_are_all_deleted(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let lives = format!("--event-ttl={}s", TIME_TO_LIVE.as_secs());
    let member = TestCluster::builder("brief").apiserver_argument(&lives).start(context.fixture.tools().await?).await?;
    let member = Arc::new(member);
    let namespace = context.namespace("events", &[Arc::clone(&member)]).await?;
    let tributary = Tributary::builder(&member.kubeconfig(), ["brief"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let path = format!("/api/v1/namespaces/{namespace}/events");
    for index in 0..COUNT {
        member.http().post(&path, &event(&namespace, &format!("e{index:02}"))).send().await?.expect(201)?;
    }
    let http = tributary.http().await?;
    eventually(SOON, async || {
        let list = http.get(&path).send().await?.expect(200)?.json()?;
        ensure!(names_of(&list).len() == COUNT, "{list}");
        Ok(())
    })
    .await?;
    let list = http.get(&path).send().await?.expect(200)?.json()?;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let mut merged = http.watch(&format!("{path}?watch=true&resourceVersion={version}")).await?;
    let list = member.http().get(&path).send().await?.expect(200)?.json()?;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let mut bare = member.http().watch(&format!("{path}?watch=true&resourceVersion={version}")).await?;
    let (mut own, mut told, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..COUNT {
        let [of_member, merged] = [bare.expect(TIME_TO_LIVE + SLACK).await?, merged.expect(SOON).await?];
        for event in [&of_member, &merged] {
            ensure!(event["type"] == "DELETED", "{event}");
        }
        shared.push(of_member["object"]["metadata"]["resourceVersion"].clone());
        own.push(of_member["object"]["metadata"]["name"].clone());
        told.push(merged["object"]["metadata"]["name"].clone());
    }
    ensure!(own == told, "{own:?} of the member, and {told:?}");
    // The test only proves something if several DELETED events of the member have the same version.
    shared.sort_by_key(Value::to_string);
    shared.dedup();
    ensure!(shared.len() < COUNT, "each had a version of its own: {shared:?}");
    for http in [member.http(), &http] {
        let list = http.get(&path).send().await?.expect(200)?.json()?;
        ensure!(names_of(&list).is_empty(), "{list}");
    }
    Ok(())
}

/// A watch of Events ends without a bookmark, even if the client requests bookmarks. If the client requests initial
/// events, a bookmark with the current revision ends them. Tributary learns the version of the collection from this
/// bookmark.
async fn watch_of_kubernetes_events_ends_without_a_bookmark(context: TestContext) -> anyhow::Result<()> {
    let pair = context.fixture.pair().await?;
    let member = &pair[0];
    let namespace = context.namespace("unmarked", std::slice::from_ref(member)).await?;
    let (path, maps) =
        (format!("/api/v1/namespaces/{namespace}/events"), format!("/api/v1/namespaces/{namespace}/configmaps"));
    let ends = |resource: &str, version: &str| {
        format!("{resource}?watch=true&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion={version}")
    };
    let seen = async |resource: &str| {
        let list = member.http().get(resource).send().await?.expect(200)?.json()?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let mut stream = member.http().watch(&ends(resource, &version)).await?;
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"generateName": "x-"}});
        member.http().post(&format!("/api/v1/namespaces/{namespace}/configmaps"), &map).send().await?.expect(201)?;
        let mut types = Vec::new();
        while let Some(event) = stream.next(SOON).await? {
            types.push(event["type"].as_str().unwrap_or_default().to_owned());
        }
        anyhow::Ok(types)
    };
    ensure!(seen(&path).await?.is_empty(), "events have bookmarks");
    ensure!(seen(&maps).await?.iter().any(|kind| kind == "BOOKMARK"), "a collection that is cached has none");
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut stream = member.http().watch(&format!("{path}?{query}")).await?;
    let end = stream.expect(SOON).await?;
    ensure!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true", "{end}");
    Ok(())
}

/// With `Quorum` consistency, Tributary confirms with the members that a list of Events is current, although watches of
/// Events have no bookmarks. The list must have an Event that was just written to the member. The list must also
/// succeed if later changes affect only other kinds, so that no later Event arrives.
async fn quorum_list_of_kubernetes_events_contains_the_newest_event(context: TestContext) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?;
    let namespace = context.namespace("newest", members).await?;
    let (path, maps) =
        (format!("/api/v1/namespaces/{namespace}/events"), format!("/api/v1/namespaces/{namespace}/configmaps"));
    let folder = guard::temporary_folder("newest")?;
    let config = folder.path().join("registry.yaml");
    let registry = json!({
        "apiVersion": "tributary.dev/v1alpha1", "kind": "ResourceRegistry", "metadata": {"name": "newest"},
        // If Tributary cannot confirm a list within 3 s, it refuses the list with 504.
        "spec": {"resources": ["events"], "consistency": "Quorum", "partial": "Deny"},
    });
    std::fs::write(&config, registry.to_string())?;
    let tributary = Tributary::builder(&context.fixture.pair_kubeconfig().await?, ["member1", "member2"])
        .argument("--config")
        .argument(config.to_string_lossy())
        .start()
        .await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let http = tributary.http().await?;
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"generateName": "x-"}});
    let mut written = Vec::new();
    for round in 0..4 {
        let member = &members[round % 2];
        // The last rounds create no Event.
        let name = format!("e{round}");
        if round < 2 {
            member.http().post(&path, &event(&namespace, &name)).send().await?.expect(201)?;
            written.push(name);
        } else {
            member.http().post(&maps, &map).send().await?.expect(201)?;
        }
        // On a busy machine, Tributary may refuse a list that it cannot confirm within 3 s. A successful list must be
        // complete.
        let asked = async {
            loop {
                let answer = http.get(&path).send().await?;
                if answer.status != 504 {
                    break answer.expect(200)?.json();
                }
            }
        };
        let list = timeout(SOON, asked).await.context("no answer")??;
        ensure!(names_of(&list) == written, "round {round}: {written:?} were written: {list}");
    }
    Ok(())
}
