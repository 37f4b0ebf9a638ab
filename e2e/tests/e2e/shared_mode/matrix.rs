//! Eight users with rights by chance in two real members. For every verb, resource, namespace and name the endpoint's
//! answer is what the members answer that same user, joined.

use super::{SOON, Shared, authorizers::behind_webhooks};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use tributary_e2e::{HttpClient, HttpResponse, TestCluster, namespace};

/// How many people there are.
const PEOPLE: usize = 8;

/// How many roles are given in each member, before and in each round.
const ROLES: usize = 24;
const CHANGES: usize = 8;

/// How often rights change, in continuous integration.
const ROUNDS: usize = 3;

/// How many questions are asked at once.
const AT_ONCE: usize = 6;

/// What people read and write. Nothing makes objects of these by itself in a namespace of an unknown name but
/// `kube-root-ca.crt` and `default`, which each member has.
const RESOURCES: [&str; 3] = ["configmaps", "endpoints", "serviceaccounts"];

pub(super) fn cases() -> Vec<Case> {
    let cases = cases!["shared_mode::matrix";
        what_is_answered_is_what_members_answer, what_is_answered_where_webhooks_deny,
    ];
    cases.into_iter().map(|case| case.patience(Duration::from_secs(600))).collect()
}

/// An object: its cluster, namespace and name.
type Seen = BTreeSet<(String, String, String)>;

/// The people and places of one run.
struct Matrix {
    shared: Shared,
    namespaces: Vec<String>,
    people: Vec<Person>,
    prefix: String,
    given: Vec<(usize, String)>,
    random: StdRng,
}

struct Person {
    name: String,
    group: String,
    http: HttpClient,
}

/// One question about one resource.
#[derive(Clone, Debug)]
struct Question {
    person: usize,
    resource: &'static str,
    /// Empty for all.
    namespace: String,
}

async fn what_is_answered_is_what_members_answer(context: TestContext) -> anyhow::Result<()> {
    let seed = rand::random();
    let shared = Shared::start(&context).await?;
    run(context, shared, seed).await.with_context(|| format!("seed {seed}"))
}

/// The same where each member has a webhook that denies some users some resources of some namespaces, whatever roles
/// say.
async fn what_is_answered_where_webhooks_deny(context: TestContext) -> anyhow::Result<()> {
    let seed = rand::random();
    let (shared, _webhooks) = behind_webhooks(&context, |member| move |asked: &Value| denies(member, asked)).await?;
    let tributary = Arc::clone(&shared.tributary);
    run(context, shared, seed).await.with_context(|| format!("seed {seed}"))?;
    let asked = tributary.log().matches("is not decided by its roles and bindings alone").count();
    ensure!(asked >= 2, "{asked} members are asked: {}", tributary.log());
    Ok(())
}

/// A quarter of what is asked of namespaces, by user and resource.
pub(super) fn denies(member: &str, asked: &Value) -> bool {
    let attributes = &asked["resourceAttributes"];
    let namespace = attributes["namespace"].as_str().unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (member, asked["user"].as_str(), attributes["resource"].as_str(), namespace).hash(&mut hasher);
    !namespace.is_empty() && hasher.finish().is_multiple_of(4)
}

async fn run(context: TestContext, shared: Shared, seed: u64) -> anyhow::Result<()> {
    let mut matrix = Matrix::start(&context, shared, seed).await?;
    for round in 0..=ROUNDS {
        let count = if round == 0 { ROLES } else { CHANGES };
        for member in 0..2 {
            for _ in 0..count {
                matrix.give(member).await?;
            }
        }
        if round > 0 {
            matrix.take(CHANGES).await?;
        }
        let (same, shown) = matrix.compare().await?;
        // A run in which everybody sees everything, or nothing, would show nothing.
        ensure!(same > 50 && shown > 20, "{same} answers, {shown} with objects");
    }
    Ok(())
}

impl Matrix {
    async fn start(context: &TestContext, shared: Shared, seed: u64) -> anyhow::Result<Self> {
        let mut namespaces = Vec::new();
        for _ in 0..3 {
            namespaces.push(context.namespace("matrix", &shared.members).await?);
        }
        for member in &shared.members {
            for namespace in &namespaces {
                for resource in RESOURCES {
                    for name in ["a", "b"] {
                        make(member, namespace, resource, &format!("{name}-{}", member.name())).await?;
                    }
                    make(member, namespace, resource, "both").await?;
                }
            }
        }
        let prefix = namespace::unique_name("p");
        let mut people = Vec::new();
        for at in 0..PEOPLE {
            let (name, group) = (format!("{prefix}-{at}"), format!("{prefix}-group-{}", at % 3));
            people.push(Person { http: shared.http(&name, &[&group]).await?, name, group });
        }
        Ok(Self { shared, namespaces, people, prefix, given: Vec::new(), random: StdRng::seed_from_u64(seed) })
    }

    /// Gives somebody, or a group, something in a member.
    async fn give(&mut self, member: usize) -> anyhow::Result<()> {
        const VERBS: [&[&str]; 5] = [
            &["get"],
            &["list", "watch"],
            &["get", "list", "watch"],
            &["get", "list", "watch", "patch", "delete"],
            &["patch"],
        ];
        let api = "rbac.authorization.k8s.io";
        let name = namespace::unique_name(&self.prefix);
        let everywhere = self.random.random_ratio(1, 6);
        let namespace = &self.namespaces[self.random.random_range(0..self.namespaces.len())];
        let person = &self.people[self.random.random_range(0..PEOPLE)];
        let mut rule = json!({
            "apiGroups": [""],
            "resources": [RESOURCES[self.random.random_range(0..RESOURCES.len())]],
            "verbs": VERBS[self.random.random_range(0..VERBS.len())],
        });
        if self.random.random_ratio(1, 5) {
            rule["resourceNames"] = json!(["both", "a-member1"]);
        }
        let subject = match self.random.random_ratio(1, 3) {
            true => json!({"apiGroup": api, "kind": "Group", "name": person.group}),
            false => json!({"apiGroup": api, "kind": "User", "name": person.name}),
        };
        let (kind, place) = match everywhere {
            true => ("ClusterRole", String::new()),
            false => ("Role", format!("/namespaces/{namespace}")),
        };
        let path = format!("/apis/{api}/v1{place}/{}", kind.to_lowercase());
        let http = self.shared.members[member].http();
        let role =
            json!({"apiVersion": format!("{api}/v1"), "kind": kind, "metadata": {"name": name}, "rules": [rule]});
        http.post(&format!("{path}s"), &role).send().await?.expect(201)?;
        let binding = json!({
            "apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"), "metadata": {"name": name},
            "subjects": [subject], "roleRef": {"apiGroup": api, "kind": kind, "name": name},
        });
        http.post(&format!("{path}bindings"), &binding).send().await?.expect(201)?;
        self.given.push((member, format!("{path}bindings/{name}")));
        Ok(())
    }

    /// Takes some of it away.
    async fn take(&mut self, count: usize) -> anyhow::Result<()> {
        for _ in 0..count {
            let at = self.random.random_range(0..self.given.len());
            let (member, path) = self.given.swap_remove(at);
            self.shared.members[member].http().delete(&path).send().await?.expect(200)?;
        }
        Ok(())
    }

    /// Compares all answers; how many there were, and how many of them had objects.
    async fn compare(&self) -> anyhow::Result<(usize, usize)> {
        let mut questions = Vec::new();
        for person in 0..PEOPLE {
            for resource in RESOURCES {
                for namespace in self.namespaces.iter().chain([&String::new()]) {
                    questions.push(Question { person, resource, namespace: namespace.clone() });
                }
            }
        }
        let asked: Vec<_> = questions.iter().map(|question| self.same_soon(question)).collect();
        let shown: Vec<usize> = stream::iter(asked).buffer_unordered(AT_ONCE).try_collect().await?;
        Ok((shown.len(), shown.iter().filter(|&&shown| shown > 0).count()))
    }

    /// Rights are followed, so they may be a moment behind; what is compared is where they end.
    async fn same_soon(&self, question: &Question) -> anyhow::Result<usize> {
        eventually(SOON, async || self.same(question).await.map(drop)).await?;
        self.same(question).await
    }

    /// Whether a question is answered as the members answer it; how many objects are shown.
    async fn same(&self, question: &Question) -> anyhow::Result<usize> {
        let listed = self.lists(question).await.with_context(|| format!("list {question:?}"))?;
        if !question.namespace.is_empty() {
            for name in ["a-member1", "b-member2", "nowhere"] {
                self.gets(question, name).await.with_context(|| format!("get {name} {question:?}"))?;
                self.patches(question, name).await.with_context(|| format!("patch {name} {question:?}"))?;
            }
        }
        Ok(listed)
    }

    /// Lists, as a whole, in pages, as a table and by a watch.
    async fn lists(&self, question: &Question) -> anyhow::Result<usize> {
        let there = self.listed_there(question).await?;
        let here = &self.people[question.person].http;
        let path = question.path();
        let list = here.get(&path).send().await?;
        let Some(there) = there else {
            let refused = list.expect(403)?.text();
            ensure!(!refused.contains("member1") && !refused.contains("member2"), "{refused}");
            return Ok(0);
        };
        let list = list.expect(200)?;
        ensure!(self.of_the_run(&list.json()?["items"])? == there, "{} instead of {there:?}", list.text());
        let mut paged = Seen::new();
        let mut next = String::new();
        loop {
            let page = here.get(&format!("{path}?limit=3&continue={next}")).send().await?.expect(200)?.json()?;
            paged.extend(self.of_the_run(&page["items"])?);
            next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                break;
            }
        }
        ensure!(paged == there, "pages: {paged:?} instead of {there:?}");
        let table = here.get(&path).accept("application/json;as=Table;v=v1;g=meta.k8s.io").send().await?.expect(200)?;
        let rows =
            table.json()?["rows"].as_array().context("no rows")?.iter().map(|row| row["object"].clone()).collect();
        ensure!(self.of_the_run(&Value::Array(rows))? == there, "a table: {}", table.text());
        let watched = self.watched(question).await?;
        ensure!(watched == there, "a watch: {watched:?} instead of {there:?}");
        Ok(there.len())
    }

    /// The initial events of a watch.
    async fn watched(&self, question: &Question) -> anyhow::Result<Seen> {
        let options = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let here = &self.people[question.person].http;
        let mut events = here.watch(&format!("{}?{options}&timeoutSeconds=20", question.path())).await?;
        let mut items = Vec::new();
        loop {
            let event = events.next(SOON).await?.context("the watch ended before its bookmark")?;
            match event["type"].as_str() {
                Some("ADDED") => items.push(event["object"].clone()),
                Some("BOOKMARK") => return self.of_the_run(&Value::Array(items)),
                _ => anyhow::bail!("{event}"),
            }
        }
    }

    /// What the members list for somebody, each as they answer that user; `None` where none does.
    async fn listed_there(&self, question: &Question) -> anyhow::Result<Option<Seen>> {
        let mut all: Option<Seen> = None;
        for member in &self.shared.members {
            let whole = self.there(member, question.person, &question.path()).await?;
            let answers = match whole.status.as_u16() {
                200 => vec![whole],
                403 if question.namespace.is_empty() => {
                    let mut some = Vec::new();
                    for namespace in &self.namespaces {
                        let within = Question { namespace: namespace.clone(), ..question.clone() };
                        some.push(self.there(member, question.person, &within.path()).await?);
                    }
                    some.retain(|answer| answer.status == 200);
                    some
                }
                _ => Vec::new(),
            };
            for answer in answers {
                let items = answer.json()?["items"].clone();
                all.get_or_insert_default().extend(self.named(&items, Some(member.name()))?);
            }
        }
        Ok(all)
    }

    /// An object by its name: whoever may get it gets it; else it is nowhere, or nobody may look.
    async fn gets(&self, question: &Question, name: &str) -> anyhow::Result<()> {
        let path = format!("{}/{name}", question.path());
        let mut statuses = Vec::new();
        for member in &self.shared.members {
            statuses.push(self.there(member, question.person, &path).await?.status.as_u16());
        }
        let expected = [200, 404, 403].into_iter().find(|status| statuses.contains(status)).context("no answer")?;
        let answer = self.people[question.person].http.get(&path).send().await?.expect(expected)?;
        let owner = answer.json()?["metadata"]["annotations"]["tributary.dev/cluster"].clone();
        if expected == 200 {
            ensure!(name.ends_with(owner.as_str().context("no owner")?), "{}", answer.text());
        } else {
            ensure!(!answer.text().contains("in cluster") && !hidden(&answer), "{}", answer.text());
        }
        Ok(())
    }

    /// A write of one object: the owner's answer where the user may get it or do this there; else it is nowhere for
    /// them.
    async fn patches(&self, question: &Question, name: &str) -> anyhow::Result<()> {
        let path = format!("{}/{name}", question.path());
        let body = json!({"metadata": {"labels": {"touched": "yes"}}});
        let (mut statuses, mut is_there) = (Vec::new(), Vec::new());
        for member in &self.shared.members {
            let patch = member.http().patch(&format!("{path}?dryRun=All"), "merge-patch+json", &body);
            let status = self.by(patch, question.person).send().await?.status.as_u16();
            let seen = self.there(member, question.person, &path).await?.status.as_u16();
            statuses.push(status);
            // It is a candidate where either is allowed.
            is_there.push((status != 403 || seen != 403, name.ends_with(member.name())));
        }
        let owner = is_there.iter().position(|(candidate, owns)| *candidate && *owns);
        let expected = match owner {
            Some(owner) => statuses[owner],
            // Nobody has it, as far as the user may know: whoever may write there is told that, else it is forbidden.
            None => [404, 403].into_iter().find(|status| statuses.contains(status)).unwrap_or(403),
        };
        let here = &self.people[question.person].http;
        let patch = here.patch(&format!("{path}?dryRun=All"), "merge-patch+json", &body).send().await?;
        patch.expect(expected).map(drop)
    }

    /// What a member answers somebody.
    async fn there(&self, member: &TestCluster, person: usize, path: &str) -> anyhow::Result<HttpResponse> {
        self.by(member.http().get(path), person).send().await
    }

    fn by(&self, request: tributary_e2e::http::RequestBuilder, person: usize) -> tributary_e2e::http::RequestBuilder {
        let Person { name, group, .. } = &self.people[person];
        request.header("impersonate-user", name).header("impersonate-group", group)
    }

    fn of_the_run(&self, items: &Value) -> anyhow::Result<Seen> {
        self.named(items, None)
    }

    /// The objects of this run's namespaces, by the cluster that they say, or this one.
    fn named(&self, items: &Value, cluster: Option<&str>) -> anyhow::Result<Seen> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |item: &Value| {
            let metadata = &item["metadata"];
            let own = text(&metadata["annotations"]["tributary.dev/cluster"]);
            (cluster.map_or(own, str::to_owned), text(&metadata["namespace"]), text(&metadata["name"]))
        };
        let items = items.as_array().context("no items")?;
        let seen = items.iter().map(of).filter(|(_, namespace, _)| self.namespaces.contains(namespace));
        // What controllers make comes when it comes.
        Ok(seen.filter(|(.., name)| name != "default" && name != "kube-root-ca.crt").collect())
    }
}

impl Question {
    fn path(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("/api/v1/{}", self.resource),
            namespace => format!("/api/v1/namespaces/{namespace}/{}", self.resource),
        }
    }
}

/// Whether an answer names a cluster.
fn hidden(answer: &HttpResponse) -> bool {
    let warning = answer.header("warning");
    warning.contains("member1") || warning.contains("member2")
}

async fn make(member: &TestCluster, namespace: &str, resource: &str, name: &str) -> anyhow::Result<()> {
    let kind = match resource {
        "configmaps" => "ConfigMap",
        "endpoints" => "Endpoints",
        _ => "ServiceAccount",
    };
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    member.http().post(&format!("/api/v1/namespaces/{namespace}/{resource}"), &object).send().await?.expect(201)?;
    Ok(())
}
