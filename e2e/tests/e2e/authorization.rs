//! Compares the crate `authorization` with a real kube-apiserver. The test generates roles, bindings, users and
//! requests. For each request, the server's SubjectAccessReview and the crate must agree on decision and reason.
//!
//! The same seed repeats the same test. `TRIBUTARY_AUTHORIZATION=SEED:COUNT` sets the seed and the number of requests
//! of the long test that continuous integration skips (proof test).

mod generated;

use crate::context::{Case, TestContext, eventually};
use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use generated::{NAMESPACES, Object, Person, ReviewRequest};
use rand::{SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::time::Duration;
use tributary_apimachinery::ClusterName;
use tributary_authorization::{Fleet, RbacKind, RbacObject, ReviewMismatch, RulesReview};
use tributary_e2e::{HttpClient, TestCluster};

/// Number of requests in continuous integration (takes seconds), and in the proof test (takes some minutes).
const COUNT: usize = 400;
const PROOF_COUNT: usize = 40_000;

/// Number of requests in a round. Each round begins with changes of RBAC objects.
const ROUND: usize = 200;

/// Number of RBAC objects that change at the beginning of a round.
const CHANGES: usize = 60;

const AT_ONCE: usize = 8;

/// Longest time until the server's authorizer has seen a change of RBAC objects.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("authorization::generated_rights_are_decided_like_kube_apiserver", |context| async move {
            run(context, 1, COUNT).await
        }),
        Case::new("authorization::proof_generated_rights_are_decided_like_kube_apiserver", |context| async move {
            let (seed, count) = chosen()?;
            run(context, seed, count).await
        })
        .patience(Duration::from_secs(3600)),
    ]
}

fn chosen() -> anyhow::Result<(u64, usize)> {
    let Ok(text) = std::env::var("TRIBUTARY_AUTHORIZATION") else { return Ok((rand::random(), PROOF_COUNT)) };
    let (seed, count) = text.split_once(':').context("TRIBUTARY_AUTHORIZATION is SEED:COUNT")?;
    Ok((seed.parse().context("the seed")?, count.parse().context("the count")?))
}

async fn run(context: TestContext, seed: u64, count: usize) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let member = TestCluster::builder("rbac").start(context.fixture.tools().await?).await?;
    let mut side = BySide { http: member.http().clone(), name: ClusterName::new("rbac")?, fleet: Fleet::default() };
    for namespace in NAMESPACES {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        side.http.post("/api/v1/namespaces", &object).send().await?.expect(201)?;
    }
    side.read_all().await?;
    let mut random = StdRng::seed_from_u64(seed);
    let mut allowed = 0;
    for _ in 0..count.div_ceil(ROUND) {
        for _ in 0..CHANGES {
            side.change(&Object::generate(&mut random)).await.with_context(|| format!("seed {seed}"))?;
        }
        let questions: Vec<_> =
            (0..ROUND).map(|_| (Person::generate(&mut random), ReviewRequest::generate(&mut random))).collect();
        let asked: Vec<_> =
            questions.iter().map(|(person, review_request)| side.compare(person, review_request)).collect();
        let answers: Vec<bool> = stream::iter(asked)
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
            .with_context(|| format!("seed {seed}"))?;
        allowed += answers.iter().filter(|allowed| **allowed).count();
    }
    // The test proves nothing if the server refuses nearly all requests, or allows nearly all requests.
    ensure!((count / 20..count * 19 / 20).contains(&allowed), "{allowed} of {count} were allowed");
    // Reading all RBAC objects again must not change the rights that result from the watched changes.
    ensure!(!side.read_all().await?, "a list of all objects changed what the watched changes had made");
    side.review(&member).await
}

/// Kube-apiserver, and the rights that the crate `authorization` compiles from its RBAC objects.
struct BySide {
    http: HttpClient,
    name: ClusterName,
    fleet: Fleet,
}

impl BySide {
    /// Reads all RBAC objects of the server. Returns whether they changed the compiled rights.
    async fn read_all(&mut self) -> anyhow::Result<bool> {
        let mut objects = Vec::new();
        for kind in RbacKind::ALL {
            let path = format!("/apis/rbac.authorization.k8s.io/v1/{}", kind.resource());
            let list = self.http.get(&path).send().await?.expect(200)?.json()?;
            for item in list["items"].as_array().context("no items")? {
                objects.push(RbacObject::parse(kind, item.to_string().as_bytes())?);
            }
        }
        Ok(self.fleet.replace(&self.name, objects))
    }

    /// Creates an RBAC object at the kube-apiserver and adds it to the compiled rights, or deletes an existing object
    /// from both.
    async fn change(&mut self, object: &Object) -> anyhow::Result<()> {
        let answer = self.http.post(&object.collection(), &object.value).send().await?;
        if answer.status == 409 {
            self.http.delete(&object.path()).send().await?.expect(200)?;
            self.fleet.remove(&self.name, object.kind, object.namespace(), object.name());
            return Ok(());
        }
        let stored = answer.expect(201)?;
        self.fleet.upsert(&self.name, RbacObject::parse(object.kind, &stored.body)?);
        Ok(())
    }

    /// Compares the decisions of the kube-apiserver and of the crate. The comparison is repeated until the decisions
    /// agree, because the server's authorizer lags behind its storage. Returns whether the request is allowed.
    async fn compare(&self, person: &Person, review_request: &ReviewRequest) -> anyhow::Result<bool> {
        let attributes = review_request.attributes();
        let expected = self.fleet.allows(&self.name, &person.as_user(), &attributes);
        let allowed_by = self.fleet.allowed_by(&self.name, &person.as_user(), &attributes);
        let reasons: Vec<String> = allowed_by.iter().map(|it| format!("RBAC: allowed by {it}")).collect();
        let spec = review_request.review_spec(person);
        eventually(PATIENCE, async || {
            let status = self.review_of("subjectaccessreviews", &spec).await?["status"].take();
            let reason = status["reason"].as_str().unwrap_or_default();
            ensure!(status["allowed"] == expected, "{spec}: expected {expected} for {reasons:?}, is {status}");
            ensure!(
                !expected || person.is_master() || reasons.iter().any(|own| own == reason),
                "{spec}: {reason}, not {reasons:?}"
            );
            Ok(())
        })
        .await?;
        Ok(expected)
    }

    async fn review_of(&self, resource: &str, spec: &Value) -> anyhow::Result<Value> {
        let body = json!({"apiVersion": "authorization.k8s.io/v1", "spec": spec});
        let path = format!("/apis/authorization.k8s.io/v1/{resource}");
        self.http.post(&path, &body).send().await?.expect(201)?.json()
    }

    /// Compares the server's list of a user's rules (SelfSubjectRulesReview) with the crate's list. The lists must
    /// agree for a user with a binding, and must differ after only the crate gets an additional rule.
    async fn review(&mut self, member: &TestCluster) -> anyhow::Result<()> {
        let person = Person::of_nobody_else();
        for object in generated::of_one_user(&person) {
            self.change(&object).await?;
        }
        let [namespace, ..] = NAMESPACES;
        let spec = json!({"namespace": namespace});
        let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": spec});
        let ask = || {
            let request = member.http().post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &body);
            let request = request.header("impersonate-user", &person.name);
            person.groups.iter().fold(request, |request, group| request.header("impersonate-group", group))
        };
        // The kube-apiserver adds `system:authenticated` to each impersonated user, and lists the rules of that group.
        let user = &person.as_user().authenticated();
        eventually(PATIENCE, async || {
            let review = RulesReview::parse(&ask().send().await?.expect(201)?.body)?;
            let mirrored = self.fleet.rules(&self.name, user, namespace);
            ensure!(mirrored.len() >= 3, "{mirrored:?}");
            review.confirms_rules(mirrored).map_err(Into::into)
        })
        .await?;
        let review = RulesReview::parse(&ask().send().await?.expect(201)?.body)?;
        for object in generated::more_of_one_user(&person) {
            self.fleet.upsert(&self.name, RbacObject::parse(object.kind, object.value.to_string().as_bytes())?);
        }
        let mirrored = self.fleet.rules(&self.name, user, namespace);
        ensure!(
            review.confirms_rules(mirrored) == Err(ReviewMismatch::Missing),
            "a rule that the server lacks went unseen"
        );
        Ok(())
    }
}
