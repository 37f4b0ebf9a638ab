//! User with one private object in one cluster. The user may also read the objects that all users may read.

use super::{LoadContext, Outcome, PACE, Trouble, due, json_of, merged_maps::MergedMaps, must};
use crate::context::eventually;
use crate::day::harm::Needs;
use crate::day::kind::Kind;
use crate::day::scene::{CLUSTERS, SOON, VISITOR};
use anyhow::ensure;
use rand::{Rng, rngs::StdRng};
use serde_json::{Value, json};
use tributary_e2e::HttpClient;

pub(super) struct Person {
    part: LoadContext,
    pub(super) name: String,
    /// Name of the object of a different user in the same cluster. Requests for this object must be refused.
    neighbour: String,
    home: usize,
    through_front: bool,
    http: HttpClient,
    maps: MergedMaps,
    round: u64,
}

impl Person {
    /// Creates the user and the user's object in the first or the second cluster.
    pub(super) async fn make(part: &LoadContext, number: usize, through_front: bool) -> anyhow::Result<Self> {
        let (scene, home) = (&part.scene, number % VISITOR);
        let (name, private) = (format!("person-{number}"), &scene.namespaces.private);
        scene.make_map(&scene.members[home], private, &name, "mine").await?;
        let verbs = json!(["get", "list", "watch", "patch"]);
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs, "resourceNames": [name]}]);
        scene.grant(home, private, &name, rules).await?;
        let http = scene.http(&name, through_front).await?;
        // The neighbor is the user whose object is in the same cluster.
        let neighbour = format!("person-{}", if number < VISITOR { number + VISITOR } else { number - VISITOR });
        let maps = MergedMaps::new(http.clone(), &scene.namespaces.common);
        Ok(Self { part: part.clone(), name, neighbour, home, through_front, http, maps, round: 0 })
    }

    /// Waits until the user's RBAC rights are in effect.
    pub(super) async fn may_begin(&self) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let all = async {
                self.gets("").await?;
                self.lists().await?;
                self.maps.lists().await
            };
            all.await.map_err(|trouble| match trouble {
                Trouble::Lost(error) | Trouble::Wrong(error) => error,
            })
        })
        .await
    }

    pub(super) async fn live(mut self, mut random: StdRng) {
        let mut pace = self.part.pace(PACE);
        while let Some(_busy) = pace.turn().await {
            let what = random.random_range(0..20);
            self.act(what).await;
        }
    }

    async fn act(&mut self, what: u32) {
        let Self { home, through_front, .. } = *self;
        // A list of the common objects waits for this user's earlier writes, and so needs the cluster of the user's
        // object.
        let own = Needs { cluster: Some(home), is_merged: true, is_write: false, through_front };
        let direct = Needs { is_merged: false, ..own };
        // Tributary answers these requests without help of a cluster.
        let itself = Needs { cluster: None, ..direct };
        let part = self.part.clone();
        match what {
            0..=3 => part.ask(Kind::Get, own, self.gets("")).await,
            4..=5 => part.ask(Kind::GetAtCluster, direct, self.gets(&format!("/clusters/{}", CLUSTERS[home]))).await,
            6 => part.ask(Kind::GetOfAnothers, own, self.is_refused()).await,
            7..=8 => part.ask(Kind::List, own, self.lists()).await,
            9..=10 => part.ask(Kind::ListOfAll, own, self.maps.lists()).await,
            11 => part.ask(Kind::Pages, own, self.maps.pages()).await,
            12 => part.ask(Kind::Table, own, self.maps.table()).await,
            13 => part.ask(Kind::Review, itself, self.says()).await,
            14..=15 => part.ask(Kind::Watch, own, self.maps.watches()).await,
            _ => {
                self.round += 1;
                part.ask(Kind::Write, Needs { is_write: true, ..own }, self.writes()).await;
            }
        }
    }

    fn path(&self, of: &str) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{of}", self.part.scene.namespaces.private)
    }

    /// Checks that the object is the user's private object and comes from its cluster.
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

    /// Checks the user name and groups that Tributary recognizes for the user.
    async fn says(&self) -> Outcome {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let said = json_of(due(self.http.post(path, &review).send().await, 201)?).map_err(Trouble::Wrong)?;
        let name = &said["status"]["userInfo"]["username"];
        must(if *name == json!(self.name) { Ok(()) } else { Err(anyhow::anyhow!("{name} instead of {}", self.name)) })
    }

    /// Changes the user's object and reads the change. If Tributary's copy of the cluster is stale, the answer must
    /// have a Warning.
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
