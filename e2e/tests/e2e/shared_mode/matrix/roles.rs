//! Binds random roles to users and groups, and deletes the bindings again.

use super::{
    kinds::{KINDS, Kind},
    world::World,
};
use crate::{context::eventually, shared_mode::SOON};
use anyhow::ensure;
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tributary_e2e::namespace;

const API: &str = "/apis/rbac.authorization.k8s.io";

/// Combinations of verbs in roles. Some roles allow a list but no watch, a watch but no list, or a write but no get.
const VERBS: [&[&str]; 16] = [
    &["get"],
    &["list"],
    &["watch"],
    &["list", "watch"],
    &["list", "watch"],
    &["get", "list", "watch"],
    &["get", "list", "watch"],
    &["get", "list", "watch", "patch", "delete"],
    &["patch"],
    &["update"],
    &["create"],
    &["delete"],
    &["deletecollection"],
    &["list", "deletecollection"],
    &["get", "create", "update", "patch", "delete"],
    &["*"],
];

#[derive(Clone, Copy)]
enum Means {
    Role,
    ClusterRole,
    /// ClusterRole that aggregates other ClusterRoles by a label selector. A controller sets its rules.
    Aggregated,
}

/// Bindings that exist. Each has the index of its member and its path.
#[derive(Default)]
pub(super) struct Bindings(Vec<(usize, String)>);

impl Bindings {
    /// Grants a user all rights in both members for the whole run.
    pub(super) async fn give_all(world: &World, person: usize) -> anyhow::Result<()> {
        let rule = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        for member in 0..2 {
            let mut own = Self::default();
            let subject = subject("User", &world.people[person].name);
            own.bind(world, member, "", (Means::ClusterRole, &rule, &subject)).await?;
        }
        Ok(())
    }

    /// Binds a random role to a user or a group in a member.
    pub(super) async fn give(&mut self, world: &World, member: usize, random: &mut StdRng) -> anyhow::Result<()> {
        let kind = &KINDS[random.random_range(0..KINDS.len())];
        let mut rule = rule(kind, random);
        if random.random_ratio(1, 4) {
            let names = world.names(kind);
            let count = random.random_range(1..=2);
            rule["resourceNames"] = json!(names.choose_multiple(random, count).collect::<Vec<_>>());
        }
        let person = &world.people[random.random_range(0..world.people.len())];
        let subject = match random.random_ratio(1, 3) {
            true => subject("Group", &person.group),
            false => subject("User", &person.name),
        };
        let is_everywhere = if kind.namespaced { random.random_ratio(1, 6) } else { random.random_ratio(5, 6) };
        let places = world.places_in(member);
        let place = if is_everywhere { "" } else { &places[random.random_range(0..places.len())] };
        let means = match random.random_range(0..4) {
            0 => Means::Aggregated,
            1 | 2 if !is_everywhere => Means::Role,
            _ => Means::ClusterRole,
        };
        self.bind(world, member, place, (means, &rule, &subject)).await
    }

    async fn bind(
        &mut self,
        world: &World,
        member: usize,
        place: &str,
        (means, rule, subject): (Means, &Value, &Value),
    ) -> anyhow::Result<()> {
        let http = world.member(member).http();
        let name = namespace::unique_name(&world.prefix);
        let api_version = "rbac.authorization.k8s.io/v1";
        let below = if place.is_empty() { String::new() } else { format!("namespaces/{place}/") };
        let cluster_roles = format!("{API}/v1/clusterroles");
        let role = |kind: &str, name: &str, labels: &Value| {
            let metadata = json!({"name": name, "labels": labels});
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": [rule]})
        };
        let kind = if let Means::Role = means { "Role" } else { "ClusterRole" };
        match means {
            Means::Role => {
                http.post(&format!("{API}/v1/{below}roles"), &role(kind, &name, &json!({})))
                    .send()
                    .await?
                    .expect(201)?;
            }
            Means::ClusterRole => {
                http.post(&cluster_roles, &role(kind, &name, &json!({}))).send().await?.expect(201)?;
            }
            Means::Aggregated => {
                let labels = json!({"aggregated": name});
                let part = role(kind, &format!("{name}-part"), &labels);
                http.post(&cluster_roles, &part).send().await?.expect(201)?;
                let whole = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "rules": [],
                    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]}});
                http.post(&cluster_roles, &whole).send().await?.expect(201)?;
                eventually(SOON, async || {
                    let filled = http.get(&format!("{cluster_roles}/{name}")).send().await?.expect(200)?.json()?;
                    ensure!(filled["rules"].as_array().is_some_and(|rules| rules.len() == 1), "{filled}");
                    Ok(())
                })
                .await?;
            }
        }
        let of_cluster = if place.is_empty() { "Cluster" } else { "" };
        let binding = json!({"apiVersion": api_version, "kind": format!("{of_cluster}RoleBinding"),
            "metadata": {"name": name}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}});
        let path = format!("{API}/v1/{below}{}rolebindings", of_cluster.to_lowercase());
        http.post(&path, &binding).send().await?.expect(201)?;
        self.0.push((member, format!("{path}/{name}")));
        Ok(())
    }

    pub(super) async fn take(&mut self, world: &World, count: usize, random: &mut StdRng) -> anyhow::Result<()> {
        for _ in 0..count {
            let at = random.random_range(0..self.0.len());
            let (member, path) = self.0.swap_remove(at);
            world.member(member).http().delete(&path).send().await?.expect(200)?;
        }
        Ok(())
    }
}

fn subject(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

/// Makes a random rule that includes the kind.
fn rule(kind: &Kind, random: &mut StdRng) -> Value {
    let own = kind.resource.to_owned();
    let below = |below: &str| format!("{}/{below}", kind.resource);
    let (groups, resources) = match (random.random_range(0..12), kind.resource) {
        (0, _) => (vec!["*"], vec!["*".to_owned()]),
        (1, _) => (vec![kind.group], vec!["*".to_owned()]),
        (2, _) => {
            (KINDS.iter().map(|kind| kind.group).collect(), KINDS.iter().map(|kind| kind.resource.to_owned()).collect())
        }
        (3, "deployments" | "gadgets") => (vec![kind.group], vec!["*/scale".to_owned(), own]),
        (4, "deployments" | "gadgets") => (vec![kind.group], vec![below("scale")]),
        (5, "deployments" | "gadgets") => (vec![kind.group], vec![below("scale"), below("status"), own]),
        (3, "pods") => (vec![""], vec![below("log"), below("exec"), own]),
        (4, "pods") => (vec![""], vec![below("eviction"), below("binding")]),
        (5, "pods") => (vec![""], vec![below("status"), below("resize"), below("ephemeralcontainers"), own]),
        (6, "pods") => (vec![""], vec![below("attach"), below("portforward"), below("proxy"), "*/log".to_owned()]),
        (3, "serviceaccounts") => (vec![""], vec![below("token")]),
        (3, "persistentvolumes" | "namespaces") => (vec![""], vec![below("status"), own]),
        _ => (vec![kind.group], vec![own]),
    };
    json!({"apiGroups": groups, "resources": resources, "verbs": VERBS[random.random_range(0..VERBS.len())]})
}
