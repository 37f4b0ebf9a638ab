//! Users and objects of one run of the matrix test.

use super::{
    answer,
    kinds::{KINDS, Kind},
};
use crate::{
    context::eventually,
    shared_mode::{SOON, Shared},
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};
use tributary_e2e::{HttpClient, TestCluster, namespace};

/// Number of users, and number of groups of the users.
pub(super) const PEOPLE: usize = 8;
const GROUPS: usize = 3;

/// Names of objects, each with the members that have the object.
const NAMES: [(&str, &[usize]); 4] = [("of-one", &[0]), ("of-two", &[1]), ("both", &[0, 1]), ("nowhere", &[])];

/// Name of the object that exists in both members.
pub(super) const SHARED_NAME: &str = "both";

/// Longest time until all servers serve a new CustomResourceDefinition.
const DEFINED: Duration = Duration::from_secs(60);

pub(super) struct World {
    pub(super) shared: Shared,
    pub(super) people: Vec<Person>,
    /// Namespaces: two exist in both members, and one only in the first member.
    pub(super) places: [String; 3],
    /// Verbs and subresources of each kind in the members' discovery, in the order of [`KINDS`].
    pub(super) served: Vec<Served>,
    pub(super) prefix: String,
}

pub(super) struct Person {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) http: HttpClient,
}

pub(super) struct Served {
    pub(super) kind: &'static Kind,
    pub(super) verbs: Vec<String>,
    /// Subresources of the kind, each with its verbs.
    pub(super) below: Vec<(String, Vec<String>)>,
}

impl World {
    pub(super) async fn start(shared: Shared) -> anyhow::Result<Self> {
        let prefix = namespace::unique_name("p");
        let places = ["both", "more", "of-one"].map(|place| format!("{prefix}-{place}"));
        let mut people = Vec::new();
        for at in 0..PEOPLE {
            let (name, group) = (format!("{prefix}-{at}"), format!("{prefix}-group{}", at % GROUPS));
            people.push(Person { http: shared.http(&name, &[&group]).await?, name, group });
        }
        for member in &shared.members {
            define(member).await?;
        }
        let served = served(&shared.members[0]).await?;
        let world = Self { shared, people, places, served, prefix };
        for member in 0..2 {
            world.make_all(member).await?;
        }
        Ok(world)
    }

    async fn make_all(&self, member: usize) -> anyhow::Result<()> {
        let namespaces = KINDS.iter().find(|kind| kind.resource == "namespaces").context("namespaces")?;
        self.make(member, namespaces, "", &self.places[1], &json!({})).await?;
        for kind in KINDS.iter().rev() {
            for (name, owners) in NAMES.iter().filter(|(_, owners)| owners.contains(&member)) {
                let labels = json!({"of": name, "owners": owners.len().to_string()});
                let name = self.name(kind, name);
                match kind.namespaced {
                    false => self.make(member, kind, "", &name, &labels).await?,
                    true => {
                        for place in self.places_in(member) {
                            self.make(member, kind, place, &name, &labels).await?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) async fn make(
        &self,
        member: usize,
        kind: &Kind,
        place: &str,
        name: &str,
        labels: &Value,
    ) -> anyhow::Result<()> {
        let (http, path, object) = (self.shared.members[member].http(), kind.path(place), kind.object(name, labels));
        if kind.resource != "pods" {
            return http.post(&path, &object).send().await?.expect(201).map(drop);
        }
        // A new namespace refuses pods until a controller has created its ServiceAccount, so the create is repeated.
        eventually(SOON, async || http.post(&path, &object).send().await?.expect(201).map(drop)).await
    }

    /// Waits until the endpoint serves the custom resources of both members to a user that has all rights.
    pub(super) async fn custom_resources_are_found(&self, person: usize) -> anyhow::Result<()> {
        let http = &self.people[person].http;
        for kind in KINDS.iter().filter(|kind| kind.definition().is_some()) {
            eventually(DEFINED, async || {
                let list = http.get(&kind.path("")).send().await?.expect(200)?.json()?;
                let shown = answer::objects(self, &list["items"], None)?;
                let clusters: BTreeSet<_> = shown.keys().map(|(cluster, ..)| cluster).collect();
                ensure!(clusters.len() == 2, "{} of {clusters:?} alone", kind.resource);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Returns the namespaces of the run that a member has.
    pub(super) fn places_in(&self, member: usize) -> &[String] {
        if member == 0 { &self.places } else { &self.places[..2] }
    }

    /// Returns names of objects of a kind that exist in the first member, in the second, in both, and in none.
    pub(super) fn names(&self, kind: &Kind) -> [String; 4] {
        NAMES.map(|(name, _)| self.name(kind, name))
    }

    /// Returns the name of an object of this kind. Cluster-scoped objects have the run's prefix.
    pub(super) fn name(&self, kind: &Kind, name: &str) -> String {
        if kind.namespaced { name.to_owned() } else { format!("{}-{name}", self.prefix) }
    }

    pub(super) fn member(&self, at: usize) -> &TestCluster {
        &self.shared.members[at]
    }

    pub(super) fn member_names(&self) -> [&str; 2] {
        [self.member(0).name(), self.member(1).name()]
    }

    /// Returns whether an object belongs to this run. Objects that controllers create are ignored, because the time of
    /// their creation varies.
    pub(super) fn is_own(&self, namespace: &str, name: &str) -> bool {
        self.is_here(namespace, name) && name != "default" && name != "kube-root-ca.crt"
    }

    /// Returns whether an object belongs to another test. Returns false for an empty name, which no object has.
    pub(super) fn is_foreign(&self, namespace: &str, name: &str) -> bool {
        !name.is_empty() && !self.is_here(namespace, name)
    }

    fn is_here(&self, namespace: &str, name: &str) -> bool {
        if namespace.is_empty() {
            name.starts_with(&self.prefix)
        } else {
            self.places.iter().any(|place| place == namespace)
        }
    }
}

/// Creates the CustomResourceDefinitions in a member. They are not deleted, because a concurrent run may need them.
async fn define(member: &TestCluster) -> anyhow::Result<()> {
    let http = member.http();
    for kind in &KINDS {
        let Some(definition) = kind.definition() else { continue };
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let answer = http.post(path, &definition).send().await?;
        ensure!(answer.status == 201 || answer.status == 409, "{}: {}", answer.status, answer.text());
        eventually(DEFINED, async || {
            http.get(&kind.root()).send().await?.expect(200)?;
            http.get(&kind.path("")).send().await?.expect(200).map(drop)
        })
        .await?;
    }
    Ok(())
}

async fn served(member: &TestCluster) -> anyhow::Result<Vec<Served>> {
    let mut all = Vec::new();
    for kind in &KINDS {
        let document = member.http().get(&kind.root()).send().await?.expect(200)?.json()?;
        let resources = document["resources"].as_array().context("no resources")?;
        let verbs = |resource: &Value| -> Vec<String> {
            let verbs = resource["verbs"].as_array().into_iter().flatten();
            verbs.filter_map(|verb| verb.as_str().map(str::to_owned)).collect()
        };
        let own = resources.iter().find(|resource| resource["name"] == kind.resource).context("not served")?;
        let below = resources.iter().filter_map(|resource| {
            let (of, below) = resource["name"].as_str()?.split_once('/')?;
            (of == kind.resource).then(|| (below.to_owned(), verbs(resource)))
        });
        all.push(Served { kind, verbs: verbs(own), below: below.collect() });
    }
    Ok(all)
}
