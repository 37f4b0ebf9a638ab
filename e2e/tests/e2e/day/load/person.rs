//! Somebody with one object of their own in one cluster, who may read what all may, and nothing else.

use super::{Outcome, PACE, Part, Trouble, cluster, due, must};
use crate::context::eventually;
use crate::day::harm::Needs;
use crate::day::scene::{CLUSTERS, MAPS, Places, SOON, VISITOR, homes};
use anyhow::{Context as _, ensure};
use rand::{Rng, rngs::StdRng};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tributary_e2e::HttpClient;

/// How many objects are on a page.
const PAGE: usize = 9;

/// How long a watch is looked at.
const LOOK: Duration = Duration::from_millis(300);

pub(super) struct Person {
    part: Part,
    pub(super) name: String,
    /// Who is at home in the same cluster, whose object is not to be seen.
    neighbour: String,
    home: usize,
    through_front: bool,
    http: HttpClient,
    /// How often they have written.
    round: u64,
}

impl Person {
    /// Makes them, and their object. They are at home in the first cluster or in the second.
    pub(super) async fn make(part: &Part, number: usize, through_front: bool) -> anyhow::Result<Self> {
        let (scene, home) = (&part.scene, number % VISITOR);
        let (name, private) = (format!("person-{number}"), &scene.places.private);
        scene.make_map(&scene.members[home], private, &name, "mine").await?;
        let verbs = json!(["get", "list", "watch", "patch"]);
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs, "resourceNames": [name]}]);
        scene.grant(home, private, &name, rules).await?;
        let http = scene.http(&name, through_front).await?;
        // There is one of each number but this one.
        let neighbour = format!("person-{}", if number < VISITOR { number + VISITOR } else { number - VISITOR });
        Ok(Self { part: part.clone(), name, neighbour, home, through_front, http, round: 0 })
    }

    /// Waits until they may do what they will.
    pub(super) async fn may_begin(&self) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let all = async {
                self.gets("").await?;
                self.lists().await?;
                self.lists_all().await
            };
            all.await.map_err(|trouble| match trouble {
                Trouble::Lost(error) | Trouble::Wrong(error) => error,
            })
        })
        .await
    }

    /// Asks, one thing after the other.
    pub(super) async fn live(mut self, mut random: StdRng) {
        let mut pace = self.part.pace(PACE);
        while let Some(_busy) = pace.turn().await {
            let what = random.random_range(0..20);
            self.act(what).await;
        }
    }

    async fn act(&mut self, what: u32) {
        let Self { home, through_front, .. } = *self;
        let own = Needs { cluster: Some(home), is_merged: true, is_write: false, through_front };
        let direct = Needs { is_merged: false, ..own };
        let all = Needs { cluster: None, ..own };
        let part = self.part.clone();
        match what {
            0..=3 => part.ask("get", own, self.gets("")).await,
            4..=5 => part.ask("get at the cluster", direct, self.gets(&format!("/clusters/{}", CLUSTERS[home]))).await,
            6 => part.ask("get of another's", own, self.is_refused()).await,
            7..=8 => part.ask("list", own, self.lists()).await,
            9..=10 => part.ask("list of all", all, self.lists_all()).await,
            11 => part.ask("pages", all, self.pages()).await,
            12 => part.ask("table", all, self.table()).await,
            13 => part.ask("review", all, self.says()).await,
            14..=15 => part.ask("watch", all, self.watches()).await,
            _ => {
                self.round += 1;
                part.ask("write", Needs { is_write: true, ..own }, self.writes()).await;
            }
        }
    }

    fn places(&self) -> &Places {
        &self.part.scene.places
    }

    fn path(&self, of: &str) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{of}", self.places().private)
    }

    fn common(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.places().common)
    }

    /// Whether it is the one object that is theirs, of the cluster where they are at home.
    fn is_own(&self, object: &Value) -> anyhow::Result<()> {
        let (data, home) = (&object["data"], CLUSTERS[self.home]);
        ensure!(
            data["owner"] == json!(self.name) && data["home"] == json!(home),
            "{object} instead of {}'s",
            self.name
        );
        let annotated = &object["metadata"]["annotations"]["tributary.dev/cluster"];
        ensure!(annotated.is_null() || *annotated == json!(home), "{object} is told as {annotated}'s");
        Ok(())
    }

    async fn gets(&self, root: &str) -> Outcome {
        let answer = self.http.get(&format!("{root}{}", self.path(&self.name))).send().await;
        must(json_of(due(answer, 200)?).and_then(|object| self.is_own(&object)))
    }

    async fn is_refused(&self) -> Outcome {
        due(self.http.get(&self.path(&self.neighbour)).send().await, 403).map(drop)
    }

    /// Their own object, in a list of one.
    async fn lists(&self) -> Outcome {
        let path = format!("{}?fieldSelector=metadata.name%3D{}", self.path("").trim_end_matches('/'), self.name);
        let list = json_of(due(self.http.get(&path).send().await, 200)?).map_err(Trouble::Wrong)?;
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        match items {
            [item] => must(self.is_own(item)),
            [] => Err(Trouble::Lost(anyhow::anyhow!("nothing is listed: {list}"))),
            _ => Err(Trouble::Wrong(anyhow::anyhow!("{list}"))),
        }
    }

    async fn lists_all(&self) -> Outcome {
        let list = json_of(due(self.http.get(&self.common()).send().await, 200)?);
        all_there(&list.and_then(|list| homes(&list)).map_err(Trouble::Wrong)?)
    }

    /// The same, page by page. A token that is too old is one: what is remembered is short.
    async fn pages(&self) -> Outcome {
        let (mut told, mut next) = (BTreeMap::new(), String::new());
        loop {
            let path = format!("{}?limit={PAGE}{next}", self.common());
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

    async fn table(&self) -> Outcome {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let table = json_of(due(self.http.get(&self.common()).accept(accept).send().await, 200)?);
        let table = table.map_err(Trouble::Wrong)?;
        let rows = table["rows"].as_array().map_or(0, Vec::len);
        must(match table["kind"] == "Table" && rows.is_multiple_of(MAPS) && rows <= CLUSTERS.len() * MAPS {
            true => Ok(()),
            false => Err(anyhow::anyhow!("{} of {rows} rows", table["kind"])),
        })
    }

    /// Whom the endpoint sees.
    async fn says(&self) -> Outcome {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let said = json_of(due(self.http.post(path, &review).send().await, 201)?).map_err(Trouble::Wrong)?;
        let name = &said["status"]["userInfo"]["username"];
        must(if *name == json!(self.name) { Ok(()) } else { Err(anyhow::anyhow!("{name} instead of {}", self.name)) })
    }

    /// A watch from a list on, for a moment: only the cluster that comes and goes has news.
    async fn watches(&self) -> Outcome {
        let list = json_of(due(self.http.get(&format!("{}?limit=1", self.common())).send().await, 200)?);
        let list = list.map_err(Trouble::Wrong)?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let path = format!("{}?watch=1&allowWatchBookmarks=true&resourceVersion={version}", self.common());
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
            // One that is too old, or whose rights have changed, is told so.
            let is_end = matches!(event["type"].as_str(), Some("BOOKMARK" | "ERROR"));
            must(if is_news || is_end { Ok(()) } else { Err(anyhow::anyhow!("{event}")) })?;
        }
        Ok(())
    }

    /// Changes their object, and reads what they wrote; of a cluster that is stale a Warning says so.
    async fn writes(&self) -> Outcome {
        let change = json!({"data": {"round": self.round.to_string()}});
        let answer = self.http.patch(&self.path(&self.name), "merge-patch+json", &change).send().await;
        let is_round = |object: &Value| {
            let round = &object["data"]["round"];
            ensure!(*round == json!(self.round.to_string()), "round {round} instead of {}", self.round);
            self.is_own(object)
        };
        must(json_of(due(answer, 200)?).and_then(|object| is_round(&object)))?;
        let read = due(self.http.get(&self.path(&self.name)).send().await, 200)?;
        let is_stale = read.header("warning").contains(CLUSTERS[self.home]);
        let told = json_of(read).and_then(|object| is_round(&object));
        told.map_err(if is_stale { Trouble::Lost } else { Trouble::Wrong })
    }
}

fn json_of(answer: tributary_e2e::HttpResponse) -> anyhow::Result<Value> {
    answer.json()
}

/// Whether all objects are there that all may read: those of the clusters that stay, and all of the one that comes and
/// goes, or none of it.
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
