//! Reads of the objects that all users may read, in all clusters. Tributary caches these objects.

use super::{Outcome, Trouble, cluster, due, json_of, must};
use crate::day::scene::{CLUSTERS, MAPS, VISITOR, homes};
use anyhow::Context as _;
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};
use tributary_e2e::HttpClient;

const PAGE: usize = 9;

const LOOK: Duration = Duration::from_millis(300);

pub(super) struct MergedMaps {
    http: HttpClient,
    path: String,
}

impl MergedMaps {
    pub(super) fn new(http: HttpClient, namespace: &str) -> Self {
        Self { http, path: format!("/api/v1/namespaces/{namespace}/configmaps") }
    }

    /// Gets one object, which is in the cluster `home`.
    pub(super) async fn gets(&self, home: &str, number: usize) -> Outcome {
        let name = format!("{home}-{number:02}");
        let answer = self.http.get(&format!("{}/{name}", self.path)).send().await;
        let object = json_of(due(answer, 200)?).map_err(Trouble::Wrong)?;
        let data = &object["data"];
        must(match data["owner"] == json!(name) && data["home"] == json!(home) {
            true => Ok(()),
            false => Err(anyhow::anyhow!("{object} instead of {name}")),
        })
    }

    pub(super) async fn lists(&self) -> Outcome {
        let list = json_of(due(self.http.get(&self.path).send().await, 200)?);
        all_there(&list.and_then(|list| homes(&list)).map_err(Trouble::Wrong)?)
    }

    /// Lists all objects in pages. A 410 for a continue token is also correct, because Tributary keeps only a short
    /// history in this test.
    pub(super) async fn pages(&self) -> Outcome {
        let (mut told, mut next) = (BTreeMap::new(), String::new());
        loop {
            let path = format!("{}?limit={PAGE}{next}", self.path);
            let answer = self.http.get(&path).send().await.map_err(Trouble::Lost)?;
            if answer.status == 410 && !next.is_empty() {
                return Ok(());
            }
            let page = json_of(due(Ok(answer), 200)?).map_err(Trouble::Wrong)?;
            let homes = homes(&page).map_err(Trouble::Wrong)?;
            for (name, home) in homes {
                must(match told.insert(name.clone(), home) {
                    None => Ok(()),
                    Some(_) => Err(anyhow::anyhow!("{name} is on two pages")),
                })?;
            }
            match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                Some(token) => next = format!("&continue={}", token.replace('+', "%2B").replace('=', "%3D")),
                None => return all_there(&told),
            }
        }
    }

    pub(super) async fn table(&self) -> Outcome {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let table = json_of(due(self.http.get(&self.path).accept(accept).send().await, 200)?);
        let table = table.map_err(Trouble::Wrong)?;
        let rows = table["rows"].as_array().map_or(0, Vec::len);
        must(match table["kind"] == "Table" && rows.is_multiple_of(MAPS) && rows <= CLUSTERS.len() * MAPS {
            true => Ok(()),
            false => Err(anyhow::anyhow!("{} of {rows} rows", table["kind"])),
        })?;
        match rows >= VISITOR * MAPS {
            true => Ok(()),
            false => Err(Trouble::Lost(anyhow::anyhow!("{rows} rows are there"))),
        }
    }

    /// Watches for a short time from the version of a list. Only the cluster that leaves and joins may cause events.
    pub(super) async fn watches(&self) -> Outcome {
        let list = json_of(due(self.http.get(&format!("{}?limit=1", self.path)).send().await, 200)?);
        let list = list.map_err(Trouble::Wrong)?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let path = format!("{}?watch=1&allowWatchBookmarks=true&resourceVersion={version}", self.path);
        let answer = self.http.get(&path).stream().await.map_err(Trouble::Lost)?;
        let status = answer.status;
        let mut events = answer.events().map_err(|error| match status.as_u16() {
            429 | 500 | 502 | 503 | 504 => Trouble::Lost(error),
            _ => Trouble::Wrong(error),
        })?;
        let (told, _) = events.drain(LOOK).await.map_err(Trouble::Lost)?;
        for event in told {
            let home = event["object"]["data"]["home"].as_str().unwrap_or_default();
            let is_news = matches!(event["type"].as_str(), Some("ADDED" | "DELETED")) && home == CLUSTERS[VISITOR];
            // An ERROR event ends a watch from a version that is too old, and a watch of a user whose rights have
            // changed.
            let is_end = matches!(event["type"].as_str(), Some("BOOKMARK" | "ERROR"));
            must(if is_news || is_end { Ok(()) } else { Err(anyhow::anyhow!("{event}")) })?;
        }
        Ok(())
    }
}

/// Checks that a list contains all objects of the clusters that stay. Of the cluster that leaves and joins, the list
/// must contain all objects or none.
fn all_there(told: &BTreeMap<String, String>) -> Outcome {
    let mut counts = [0; CLUSTERS.len()];
    for home in told.values() {
        let number = cluster(home).with_context(|| format!("{home} is no cluster")).map_err(Trouble::Wrong)?;
        counts[number] += 1;
    }
    let [one, two, visitor] = counts;
    must(if visitor == 0 || visitor == MAPS { Ok(()) } else { Err(anyhow::anyhow!("{visitor} of {MAPS} are there")) })?;
    match (one, two) {
        (MAPS, MAPS) => Ok(()),
        _ => Err(Trouble::Lost(anyhow::anyhow!("{one} and {two} of {MAPS} each are there"))),
    }
}
