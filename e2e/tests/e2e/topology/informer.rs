//! Informer of one collection over plain HTTP requests. Each request may go to a different server.

use anyhow::{Context, ensure};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use tributary_e2e::HttpClient;

/// Uid and label `generation` of each object in the informer, by cluster and name.
pub(crate) type State = BTreeMap<(String, String), (String, String)>;

/// Informer that lists, watches from the list's version, and resumes after the end of a watch. It lists again only
/// after a 410.
pub(crate) struct Informer {
    servers: Vec<HttpClient>,
    path: String,
    limit: usize,
    /// Number of requests. It also determines the server of the next request.
    pub(crate) requests: usize,
    from: Option<String>,
    pub(crate) held: State,
    /// Objects by name only, as most clients store them. The value is the cluster of the last object with this name.
    pub(crate) names: BTreeMap<String, String>,
    pub(crate) lists: usize,
    /// All events in the form `TYPE cluster/name`.
    pub(crate) told: Vec<String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn key(object: &Value) -> (String, String) {
    let metadata = &object["metadata"];
    (text(&metadata["annotations"]["tributary.dev/cluster"]), text(&metadata["name"]))
}

impl Informer {
    /// Makes an informer that has not listed yet. `limit` is the number of objects on a page.
    pub(crate) fn new(servers: Vec<HttpClient>, path: &str, limit: usize) -> Self {
        Self {
            servers,
            path: path.to_owned(),
            limit,
            requests: 0,
            from: None,
            held: State::new(),
            names: BTreeMap::new(),
            lists: 0,
            told: Vec::new(),
        }
    }

    /// Replaces the servers, as if a load balancer sent requests to new servers.
    pub(crate) fn lead_to(&mut self, servers: Vec<HttpClient>) {
        self.servers = servers;
    }

    fn server(&mut self) -> HttpClient {
        self.requests += 1;
        // This sum sometimes selects the same server for consecutive requests, and sometimes a different one.
        self.servers[(self.requests / 2 + self.requests / 3) % self.servers.len()].clone()
    }

    fn add(&mut self, object: &Value) -> anyhow::Result<()> {
        let metadata = &object["metadata"];
        let generation = text(&metadata["labels"]["generation"]);
        let state = (text(&metadata["uid"]), generation.clone());
        if let Some((uid, before)) = self.held.get(&key(object)).filter(|(uid, _)| *uid == state.0) {
            let number = |text: &str| text.parse::<u64>().unwrap_or_default();
            ensure!(number(&generation) >= number(before), "{uid} went back from {before}: {object}");
        }
        self.names.insert(key(object).1, key(object).0);
        self.held.insert(key(object), state);
        Ok(())
    }

    async fn list(&mut self) -> anyhow::Result<()> {
        let (mut items, mut version) = (Vec::new(), None);
        let mut path = format!("{}?limit={}", self.path, self.limit);
        loop {
            let answer = self.server().get(&path).send().await?;
            if [410, 429, 504].contains(&answer.status.as_u16()) || answer.headers.contains_key("warning") {
                tokio::time::sleep(Duration::from_millis(200)).await;
                return Ok(());
            }
            let page = answer.expect(200)?.json()?;
            let own = text(&page["metadata"]["resourceVersion"]);
            ensure!(*version.get_or_insert_with(|| own.clone()) == own, "pages of two snapshots");
            items.extend(page["items"].as_array().cloned().unwrap_or_default());
            match page["metadata"]["continue"].as_str() {
                Some(token) => path = format!("{}?limit={}&continue={token}", self.path, self.limit),
                None => break,
            }
        }
        self.held.clear();
        self.names.clear();
        for item in &items {
            ensure!(!self.held.contains_key(&key(item)), "listed twice: {item}");
            self.add(item)?;
        }
        self.from = version;
        self.lists += 1;
        Ok(())
    }

    /// Follows the collection until `end`. Each watch lasts at most `patience`.
    pub(crate) async fn follow(&mut self, end: tokio::time::Instant, patience: Duration) -> anyhow::Result<()> {
        while tokio::time::Instant::now() < end {
            let Some(from) = self.from.clone() else {
                self.list().await?;
                continue;
            };
            let path = format!("{}?watch=true&allowWatchBookmarks=true&resourceVersion={from}", self.path);
            let Ok(mut stream) = self.server().watch(&path).await else {
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            };
            let cut = (tokio::time::Instant::now() + patience).min(end);
            while let Ok(next) = tokio::time::timeout_at(cut, stream.next(Duration::from_secs(600))).await {
                // The informer resumes after a broken stream in the same way as after a regular end.
                let Ok(Some(event)) = next else { break };
                self.event(&event)?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Value) -> anyhow::Result<()> {
        let object = &event["object"];
        let kind = text(&event["type"]);
        if kind != "BOOKMARK" {
            let (cluster, name) = key(object);
            self.told.push(format!("{kind} {cluster}/{name}"));
        }
        match kind.as_str() {
            "ADDED" | "MODIFIED" => self.add(object)?,
            "DELETED" => {
                self.held.remove(&key(object));
                self.names.remove(&key(object).1);
            }
            "BOOKMARK" => {}
            _ => {
                ensure!(object["code"] == 410, "{event}");
                self.from = None;
                return Ok(());
            }
        }
        self.from = Some(text(&object["metadata"]["resourceVersion"]));
        Ok(())
    }

    /// Checks that the informer has the objects of all members. By name, it must have the object of one of the members.
    pub(crate) async fn check(&self, members: &[&tributary_e2e::TestCluster]) -> anyhow::Result<()> {
        let mut expected = State::new();
        for member in members {
            let list = member.http().get(&self.path).send().await?.expect(200)?.json()?;
            for object in list["items"].as_array().context("no items")? {
                let metadata = &object["metadata"];
                let key = (member.name().to_owned(), text(&metadata["name"]));
                expected.insert(key, (text(&metadata["uid"]), text(&metadata["labels"]["generation"])));
            }
        }
        ensure!(self.held == expected, "held {:?}\nwhere there is {expected:?}", self.held);
        for (name, cluster) in &self.names {
            ensure!(expected.contains_key(&(cluster.clone(), name.clone())), "{cluster} has no {name}");
        }
        for (_, name) in expected.keys() {
            ensure!(self.names.contains_key(name), "{name} was lost");
        }
        Ok(())
    }
}
