//! An informer: it lists, watches from the list's version, resumes after the end of a stream, and lists again only if a
//! response requires a new list. Each request may reach another replica.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::harness::{Client, Events, cluster, name, version};

pub(crate) struct Informer {
    clients: Vec<Client>,
    path: String,
    /// The maximum number of objects in a page; 0 for lists without pages.
    limit: usize,
    random: StdRng,
    pub(crate) objects: BTreeMap<(String, String), Value>,
    /// The cluster of the last received object of each name, for clients that identify objects only by name.
    pub(crate) names: BTreeMap<String, String>,
    pub(crate) from: Option<String>,
    pub(crate) lists: usize,
    /// Number of watches, shared by several informers.
    pub(crate) watches: Rc<Cell<usize>>,
    /// The number of additional pages of all lists.
    pub(crate) pages: usize,
    /// Whether an older value of an object is an error, because the values are numbers that only increase.
    pub(crate) forward: bool,
}

impl Informer {
    pub(crate) fn new(clients: Vec<Client>, path: &str, seed: u64) -> Self {
        Self {
            clients,
            path: path.to_owned(),
            limit: 0,
            random: StdRng::seed_from_u64(seed),
            objects: BTreeMap::new(),
            names: BTreeMap::new(),
            from: None,
            lists: 0,
            watches: Rc::default(),
            pages: 0,
            forward: false,
        }
    }

    pub(crate) fn paged(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    fn client(&mut self) -> Client {
        self.clients[self.random.random_range(0..self.clients.len())].clone()
    }

    fn add(&mut self, object: &Value) {
        let key = (cluster(object), name(object));
        if self.forward
            && let Some(before) = self.objects.get(&key)
        {
            assert!(number(&object["data"]) >= number(before), "{object} went back from {before}");
        }
        self.names.insert(name(object), cluster(object));
        self.objects.insert(key, object["data"].clone());
    }

    /// Reads all pages of a list. Returns the items and the version, or `None` if the informer must retry.
    async fn pages(&mut self) -> Option<(Vec<Value>, String)> {
        let (mut items, mut of) = (Vec::new(), None);
        let mut path = self.path.clone();
        if self.limit > 0 {
            path += &format!("?limit={}", self.limit);
        }
        loop {
            let answer = self.client().send("GET", &path, &[], "").await;
            if answer.code != 200 || !answer.warnings().is_empty() {
                // After these errors the informer keeps its objects. A list whose continue token has expired is
                // discarded, because it is incomplete.
                assert!(matches!(answer.code, 200 | 410 | 429 | 504), "{answer:?}");
                return None;
            }
            let page = answer.ok();
            let of = of.get_or_insert_with(|| version(&page)).clone();
            assert_eq!(version(&page), of, "all pages are of one snapshot");
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            let Some(token) = page["metadata"]["continue"].as_str() else { return Some((items, of)) };
            self.pages += 1;
            path = format!("{}?limit={}&continue={token}", self.path, self.limit);
        }
    }

    async fn list(&mut self) {
        let Some((items, of)) = self.pages().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            return;
        };
        let keys: BTreeSet<_> = items.iter().map(|item| (cluster(item), name(item))).collect();
        assert_eq!(keys.len(), items.len(), "an object is listed twice");
        // A new list may be older than events from another replica. So the list replaces all objects, without a
        // comparison.
        (self.objects, self.names) = Default::default();
        items.iter().for_each(|item| self.add(item));
        self.from = Some(of);
        self.lists += 1;
    }

    /// Opens a watch from the version at the end of the previous watch.
    async fn watch(&mut self) -> Option<Events> {
        while self.from.is_none() {
            self.list().await;
        }
        let path = format!("{}?watch=1&allowWatchBookmarks=true&resourceVersion={}", self.path, self.from.as_ref()?);
        let response = self.client().call("GET", &path, &[], "").await;
        self.watches.update(|watches| watches + 1);
        (response.status() == 200).then(|| Events::of(response))
    }

    fn event(&mut self, event: &Value) {
        let object = &event["object"];
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => self.add(object),
            Some("DELETED") => {
                self.objects.remove(&(cluster(object), name(object)));
                self.names.remove(&name(object));
            }
            Some("BOOKMARK") => {}
            _ => {
                assert_eq!(object["code"], 410, "{event}");
                self.from = None;
                return;
            }
        }
        self.from = Some(version(object));
    }

    /// Lists and watches until `done` is true. Closes each stream after some time, like a client that loses its
    /// connection.
    pub(crate) async fn follow(&mut self, done: impl Fn(&Self) -> bool) {
        loop {
            let Some(mut events) = self.watch().await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let patience = Duration::from_millis(self.random.random_range(5..200));
            let _ = tokio::time::timeout(patience, async {
                while let Some(event) = events.next().await {
                    self.event(&event);
                }
            })
            .await;
            if done(self) {
                return;
            }
        }
    }

    /// Returns whether the informer has exactly these objects, and one object of each name.
    pub(crate) fn holds(&self, expected: &BTreeMap<(String, String), Value>) -> bool {
        let names: BTreeSet<_> = expected.keys().map(|(_, name)| name).collect();
        self.objects == *expected
            && self.names.keys().collect::<BTreeSet<_>>() == names
            && self.names.iter().all(|(name, cluster)| expected.contains_key(&(cluster.clone(), name.clone())))
    }
}

fn number(data: &Value) -> u64 {
    data["v"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}
