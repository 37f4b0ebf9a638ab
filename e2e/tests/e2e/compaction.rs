//! Lists and watches at versions that etcd has compacted. The member no longer serves these versions, but Tributary
//! serves them from its change log.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tributary_e2e::{EventStream, HttpClient, HttpResponse, TestCluster, Tributary, kubeconfig};

const SOON: Duration = Duration::from_secs(60);

/// Longest time until kube-apiserver drops its snapshots of compacted revisions. It checks for compacted revisions
/// every 15 s.
const COMPACTED: Duration = Duration::from_secs(120);

/// Number of writes between the first and the second page of a list.
const WRITES: usize = 40;

pub(crate) fn cases() -> Vec<Case> {
    cases!["compaction"; lists_and_watches_work_at_versions_that_etcd_compacted]
}

/// Client of one server, with the version, continue token and names of a list from before the compaction.
struct Client {
    http: HttpClient,
    maps: String,
    /// Names of all objects in the order of the list.
    names: Vec<String>,
    version: String,
    token: String,
}

/// Number of objects on the first page.
const PAGE: usize = 3;

impl Client {
    async fn new(http: &HttpClient, maps: &str, count: usize) -> anyhow::Result<Self> {
        eventually(SOON, async || {
            let names = names_of(&http.get(maps).send().await?.expect(200)?.json()?);
            ensure!(names.len() == count, "{names:?}");
            Ok(())
        })
        .await?;
        let list = http.get(maps).send().await?.expect(200)?.json()?;
        let version = version_of(&list);
        let first = format!("{maps}?limit={PAGE}&resourceVersion={version}&resourceVersionMatch=Exact");
        let page = http.get(&first).send().await?.expect(200)?.json()?;
        ensure!(version_of(&page) == version && names_of(&page) == names_of(&list)[..PAGE], "{page}");
        let token = page["metadata"]["continue"].as_str().context("no continue token")?.to_owned();
        Ok(Self { http: http.clone(), maps: maps.to_owned(), names: names_of(&list), version, token })
    }

    /// Returns a client of a different server that continues the same list.
    fn at(&self, http: &HttpClient) -> Self {
        let Self { maps, names, version, token, .. } = self;
        Self {
            http: http.clone(),
            maps: maps.clone(),
            names: names.clone(),
            version: version.clone(),
            token: token.clone(),
        }
    }

    async fn next_page(&self) -> anyhow::Result<HttpResponse> {
        self.http.get(&format!("{}?limit=50&continue={}", self.maps, escape(&self.token))).send().await
    }

    async fn exact(&self) -> anyhow::Result<HttpResponse> {
        let query = format!("?resourceVersion={}&resourceVersionMatch=Exact", self.version);
        self.http.get(&format!("{}{query}", self.maps)).send().await
    }

    async fn watch(&self) -> anyhow::Result<EventStream> {
        self.http.watch(&format!("{}?watch=true&resourceVersion={}", self.maps, self.version)).await
    }

    /// Checks that the server refuses the continue token with 410, and sends a new token. The new token continues after
    /// the same object, but in the current state.
    async fn goes_on_in_the_present(&self) -> anyhow::Result<()> {
        let answer = self.next_page().await?;
        let status = expired(&answer)?;
        let said = status["message"].as_str().unwrap_or_default();
        ensure!(said.contains("use the continue token in this response"), "{status}");
        let token = status["metadata"]["continue"].as_str().context("no token to go on from")?;
        let mut rest = Vec::new();
        let mut next = format!("{}?limit={PAGE}&continue={}", self.maps, escape(token));
        loop {
            let page = self.http.get(&next).send().await?.expect(200)?.json()?;
            ensure!(version_of(&page) != self.version, "a page of the past: {page}");
            rest.extend(names_of(&page));
            let Some(token) = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) else { break };
            next = format!("{}?limit={PAGE}&continue={}", self.maps, escape(token));
        }
        let mut expected: Vec<&str> =
            self.names[PAGE..].iter().map(String::as_str).filter(|name| *name != GONE).collect();
        let at = expected.iter().position(|name| !name.starts_with("map-")).unwrap_or(expected.len());
        expected.insert(at, NEW);
        ensure!(rest == expected, "{rest:?} instead of {expected:?}");
        Ok(())
    }

    /// Checks that the server refuses the resourceVersion of the list from before the compaction. A list gets 410, and
    /// a watch gets an ERROR event.
    async fn is_expired(&self) -> anyhow::Result<()> {
        expired(&self.exact().await?)?;
        let mut stream = self.watch().await?;
        let event = stream.expect(SOON).await?;
        ensure!(event["type"] == "ERROR" && event["object"]["code"] == 410, "{event}");
        ensure!(event["object"]["reason"] == "Expired", "{event}");
        ensure!(stream.next(SOON).await?.is_none(), "the stream goes on");
        Ok(())
    }
}

/// Object that [`write`] deletes after the first page, and object that it creates.
const GONE: &str = "map-06";
const NEW: &str = "map-07";

fn names_of(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn version_of(list: &Value) -> String {
    list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

fn escape(token: &str) -> String {
    token.replace('+', "%2B").replace('=', "%3D").replace('/', "%2F")
}

fn expired(answer: &HttpResponse) -> anyhow::Result<Value> {
    let status = answer.json()?;
    ensure!(answer.status == 410 && status["reason"] == "Expired", "{}: {}: {status}", answer.request, answer.status);
    Ok(status)
}

fn map(name: &str, step: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"step": step.to_string()}})
}

/// Changes an object of the first page often, deletes an object of a later page and creates another object.
async fn write(member: &TestCluster, maps: &str) -> anyhow::Result<()> {
    for step in 1..=WRITES {
        let patch = json!({"data": {"step": step.to_string()}});
        let path = format!("{maps}/map-00");
        member.http().patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?;
    }
    member.http().delete(&format!("{maps}/{GONE}")).send().await?.expect(200)?;
    member.http().post(maps, &map(NEW, 0)).send().await?.expect(201)?;
    Ok(())
}

/// Checks that a watch from before the writes reports each write once and in order.
async fn check_every_write(stream: &mut EventStream) -> anyhow::Result<()> {
    for step in 1..=WRITES {
        let event = stream.expect(SOON).await?;
        let (kind, told) = (&event["type"], &event["object"]["data"]["step"]);
        ensure!(kind == "MODIFIED" && told.as_str() == Some(&*step.to_string()), "{event} instead of step {step}");
    }
    for (kind, name) in [("DELETED", GONE), ("ADDED", NEW)] {
        let event = stream.expect(SOON).await?;
        ensure!(event["type"] == kind && event["object"]["metadata"]["name"] == name, "{event}");
    }
    Ok(())
}

async fn lists_and_watches_work_at_versions_that_etcd_compacted(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    let member =
        TestCluster::builder("forgetful").apiserver_argument("--etcd-compaction-interval=2s").start(tools).await?;
    let member = Arc::new(member);
    let other = Arc::clone(&context.fixture.pair().await?[1]);
    let namespace = context.namespace("compaction", &[Arc::clone(&member), Arc::clone(&other)]).await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    for index in 0..7 {
        member.http().post(&maps, &map(&format!("map-{index:02}"), 0)).send().await?.expect(201)?;
    }
    for name in ["of-other-0", "of-other-1"] {
        other.http().post(&maps, &map(name, 0)).send().await?.expect(201)?;
    }
    let path = member.folder().join("both.kubeconfig");
    kubeconfig::write(&path, &[&member.access(), &other.access()])?;
    let start = async || {
        let tributary = Tributary::builder(&path, ["forgetful", "member2"]).start().await?;
        anyhow::Ok(context.fixture.watch_log(tributary).await)
    };
    let tributary = start().await?;
    let bare = Client::new(member.http(), &maps, 7).await?;
    let merged = Client::new(&tributary.http().await?, &maps, 9).await?;
    let before = merged.exact().await?.expect(200)?.json()?;
    write(&member, &maps).await?;

    // etcd has compacted the version, so the member answers 410 with a new continue token.
    eventually(COMPACTED, async || {
        // The member accepts the old continue token until its watch cache has also dropped the revision.
        let answer = bare.next_page().await?;
        ensure!(answer.status == 410, "{}: {}", answer.status, answer.text());
        Ok(())
    })
    .await?;
    bare.goes_on_in_the_present().await?;
    expired(&bare.exact().await?)?;

    // Tributary still has the compacted version. The old list continues unchanged, and a watch from this version misses
    // no event.
    let the_past_is_there = async || {
        let rest = merged.next_page().await?.expect(200)?.json()?;
        ensure!(names_of(&rest) == merged.names[PAGE..] && version_of(&rest) == merged.version, "{rest}");
        let again = merged.exact().await?.expect(200)?.json()?;
        ensure!(again == before, "{again}\ninstead of\n{before}");
        let mut stream = merged.watch().await?;
        check_every_write(&mut stream).await?;
        anyhow::Ok(stream)
    };
    let mut stream = the_past_is_there().await?;

    // A restarted kube-apiserver has no version from before the compaction. Clients of Tributary must not notice the
    // restart.
    member.kill_apiserver().await?;
    member.start_again().await?;
    bare.is_expired().await?;
    bare.goes_on_in_the_present().await?;
    member.http().post(&maps, &map("map-08", 0)).send().await?.expect(201)?;
    for stream in [&mut stream, &mut the_past_is_there().await?] {
        let event = stream.expect(SOON).await?;
        ensure!(event["type"] == "ADDED" && event["object"]["metadata"]["name"] == "map-08", "{event}");
    }
    member.http().delete(&format!("{maps}/map-08")).send().await?.expect(200)?;

    // A new Tributary process does not have the compacted version in its change log, so it must answer like the member.
    let late = start().await?;
    let late = merged.at(&late.http().await?);
    eventually(SOON, async || late.http.get(&maps).send().await?.expect(200).map(drop)).await?;
    late.is_expired().await?;
    late.goes_on_in_the_present().await?;
    // A list with only the parameter `resourceVersion` accepts any state that is not older, so the list succeeds.
    let list = late.http.get(&format!("{maps}?resourceVersion={}", late.version)).send().await?.expect(200)?.json()?;
    ensure!(names_of(&list).len() == 9, "{list}");
    late.http.get(&format!("{maps}/map-00?resourceVersion={}", late.version)).send().await?.expect(200)?;
    Ok(())
}
