//! Tests the bookmarks that a watch without other events receives each minute. A client resumes from a bookmark's
//! version, so the version must be recent.

use crate::context::{Case, TestContext, cases};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout_at};
use tributary_e2e::{HttpClient, TestCluster};

/// Duration of the watches. Three bookmarks are due in this time.
const LENGTH: Duration = Duration::from_secs(200);

/// Longest interval between bookmarks: one minute, plus two seconds of kube-apiserver's timer, plus the delay of a busy
/// machine.
const LONGEST: Duration = Duration::from_secs(68);

/// Interval between changes of objects that the watches do not select.
const CHANGED_EVERY: Duration = Duration::from_secs(5);

/// Number of changes by which a bookmark's version may lag behind the watched collection.
const BEHIND: usize = 1;

pub(crate) fn cases() -> Vec<Case> {
    let mut all = cases!["bookmarks"; kube_apiserver_sends_no_bookmark_for_the_last_replayed_watch_event];
    all.push(
        Case::new("bookmarks::proof_quiet_watch_gets_a_bookmark_each_minute", quiet_watch_gets_a_bookmark_each_minute)
            .patience(2 * LENGTH),
    );
    all
}

const COMPARED: Duration = Duration::from_secs(6);

/// The resourceVersion of an event, or of its object.
fn number(event: &Value) -> anyhow::Result<u64> {
    let text = event["object"]["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?;
    Ok(text.parse()?)
}

/// A kube-apiserver sends no bookmark for the version of the last replayed event (`processInterval` and `process` in
/// `storage/cacher/cache_watcher.go`). It sends this bookmark only to watches that were open at the event. Without it,
/// a client cannot know whether more events of the same revision follow a replayed deletion.
async fn kube_apiserver_sends_no_bookmark_for_the_last_replayed_watch_event(
    context: TestContext,
) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    // Writes of other tests would change the member's revision, so this test starts a separate member.
    let member = TestCluster::builder("idle").start(context.fixture.tools().await?).await?;
    let (http, path) = (member.http(), "/api/v1/namespaces/default/podtemplates");
    let watch = |from: &str| {
        let seconds = COMPARED.as_secs();
        format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={from}")
    };
    let list = http.get(path).send().await?.expect(200)?.json()?;
    let mut live = http.watch(&watch(list["metadata"]["resourceVersion"].as_str().context("no version")?)).await?;
    let labels = json!({"app": "x"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}});
    let object = json!({"kind": "PodTemplate", "apiVersion": "v1", "metadata": {"name": "x"}, "template": template});
    http.post(path, &object).send().await?.expect(201)?;
    http.delete(&format!("{path}/x")).send().await?.expect(200)?;
    let made = live.expect(COMPARED).await?;
    let deleted = live.expect(COMPARED).await?;
    ensure!(made["type"] == "ADDED" && deleted["type"] == "DELETED", "{made} {deleted}");
    let mut replayed = http.watch(&watch(&number(&made)?.to_string())).await?;
    let again = replayed.expect(COMPARED).await?;
    ensure!(again["type"] == "DELETED" && number(&again)? == number(&deleted)?, "{again}");
    let mut versions = Vec::new();
    for stream in [&mut live, &mut replayed] {
        let (events, ended) = stream.drain(2 * COMPARED).await?;
        ensure!(ended && events.iter().all(|event| event["type"] == "BOOKMARK"), "{events:?}");
        versions.push(events.iter().map(number).collect::<anyhow::Result<Vec<_>>>()?);
    }
    let (of_live, of_replayed, deletion) = (&versions[0], &versions[1], number(&deleted)?);
    ensure!(of_live.iter().any(|version| *version >= deletion), "{deletion}: {versions:?}");
    ensure!(!of_replayed.contains(&deletion), "{deletion}: {versions:?}");
    tracing::info!(deletion, ?of_live, ?of_replayed, "bookmarks");
    Ok(())
}

/// Arrival time and version of a bookmark, and the number of changes that the test had made at this time.
struct Bookmark {
    at: Instant,
    version: String,
    changes: usize,
}

/// Collects the bookmarks of a watch that receives no other events.
async fn bookmarks(http: &HttpClient, path: &str, changes: &AtomicUsize) -> anyhow::Result<Vec<Bookmark>> {
    let mut stream = http.watch(path).await?;
    let (end, mut bookmarks) = (Instant::now() + LENGTH, Vec::new());
    while let Ok(event) = timeout_at(end, stream.next(2 * LENGTH)).await {
        let event = event?.context("the stream ended")?;
        ensure!(event["type"] == "BOOKMARK", "{event}");
        let version = event["object"]["metadata"]["resourceVersion"].as_str().context("no version")?.to_owned();
        bookmarks.push(Bookmark { at: Instant::now(), version, changes: changes.load(Ordering::SeqCst) });
    }
    Ok(bookmarks)
}

fn check_times(name: &str, started: Instant, bookmarks: &[Bookmark]) -> anyhow::Result<()> {
    let mut last = started;
    for at in bookmarks.iter().map(|bookmark| bookmark.at).chain([started + LENGTH]) {
        let quiet = at - last;
        ensure!(quiet <= LONGEST, "{name}: nothing for {quiet:?}");
        last = at;
    }
    ensure!(bookmarks.len() >= 2, "{name}: {} bookmarks", bookmarks.len());
    Ok(())
}

/// Watches all objects from this version, and returns the numbers of the changes that the watch reports.
async fn changes_from(http: &HttpClient, maps: &str, version: &str, changes: usize) -> anyhow::Result<Vec<usize>> {
    let mut stream = http.watch(&format!("{maps}?watch=true&resourceVersion={version}")).await?;
    let mut told: Vec<usize> = Vec::new();
    while told.last() != Some(&changes) {
        let event = stream.expect(Duration::from_secs(20)).await?;
        let step = event["object"]["data"]["step"].as_str().context("no step")?;
        told.push(step.parse().context("a step")?);
    }
    Ok(told)
}

async fn quiet_watch_gets_a_bookmark_each_minute(context: TestContext) -> anyhow::Result<()> {
    let fixture = &context.fixture;
    let (bare, pair) = (fixture.bare().await?, fixture.pair().await?.to_vec());
    let targets: [(&str, HttpClient, Vec<std::sync::Arc<TestCluster>>); 4] = [
        ("bare", bare.http().clone(), vec![bare.clone()]),
        ("over one", fixture.over_one().await?.http().await?, vec![bare]),
        ("over two", fixture.over_two().await?.http().await?, pair.clone()),
        ("over two, integers", fixture.over_two_integers().await?.http().await?, pair),
    ];
    let runs = targets.iter().map(|(name, http, members)| async {
        let outcome = one(&context, name, http, members).await;
        outcome.with_context(|| (*name).to_owned())
    });
    futures::future::try_join_all(runs).await.map(drop)
}

/// Checks three watches: of a namespace without changes, with a selector that matches no change, and of a resource
/// without any change. The bookmarks of the last watch repeat the same version each minute.
async fn one(
    context: &TestContext,
    name: &str,
    http: &HttpClient,
    members: &[std::sync::Arc<TestCluster>],
) -> anyhow::Result<()> {
    let namespace = context.namespace("quiet", members).await?;
    let busy = context.namespace("busy", members).await?;
    let maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    let busy = maps(&busy);
    for (index, member) in members.iter().enumerate() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{index}")}, "data": {"step": "0"}});
        member.http().post(&busy, &map).send().await?.expect(201)?;
    }
    sleep(Duration::from_secs(2)).await;
    let version = |list: Value| list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let from = version(http.get(&busy).send().await?.expect(200)?.json()?);
    let query = format!("?watch=true&allowWatchBookmarks=true&resourceVersion={from}");
    let (quiet, selected) =
        (format!("{}{query}", maps(&namespace)), format!("{busy}{query}&labelSelector=there-is%3Dnone"));
    let idle = format!("/api/v1/namespaces/{namespace}/limitranges");
    let idle_from = version(http.get(&idle).send().await?.expect(200)?.json()?);
    let idle = format!("{idle}?watch=true&allowWatchBookmarks=true&resourceVersion={idle_from}");
    let changes = AtomicUsize::new(0);
    let write = async {
        for step in 1.. {
            let path = format!("{busy}/map-{}", step % members.len());
            let patch = json!({"data": {"step": step.to_string()}});
            members[step % members.len()].http().patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?;
            changes.store(step, Ordering::SeqCst);
            sleep(CHANGED_EVERY).await;
        }
        anyhow::Ok(())
    };
    let started = Instant::now();
    let read = async {
        tokio::try_join!(
            bookmarks(http, &quiet, &changes),
            bookmarks(http, &selected, &changes),
            bookmarks(http, &idle, &changes),
        )
    };
    let (of_quiet, of_selected, of_idle) = tokio::select! {
        read = read => read?,
        written = write => anyhow::bail!("the writes ended: {written:?}"),
    };
    check_times("quiet", started, &of_quiet)?;
    check_times("selected", started, &of_selected)?;
    check_times("idle", started, &of_idle)?;
    // The test makes a last change. A watch that resumes from any bookmark then receives at least one event.
    let last = changes.load(Ordering::SeqCst) + 1;
    let patch = json!({"data": {"step": last.to_string()}});
    let path = format!("{busy}/map-{}", last % members.len());
    members[last % members.len()].http().patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?;
    for bookmark in of_quiet.iter().chain(&of_selected) {
        let told = changes_from(http, &busy, &bookmark.version, last).await?;
        let expected: Vec<usize> = (told.first().copied().unwrap_or(last)..=last).collect();
        ensure!(told == expected, "from {}: {told:?}", bookmark.version);
        let first = expected.first().copied().unwrap_or(last);
        ensure!(
            first <= bookmark.changes + 2,
            "from {}: after {} changes {told:?}",
            bookmark.version,
            bookmark.changes
        );
        ensure!(
            first + BEHIND > bookmark.changes,
            "{name}: a bookmark is behind: {} changes, {told:?}",
            bookmark.changes
        );
    }
    Ok(())
}
