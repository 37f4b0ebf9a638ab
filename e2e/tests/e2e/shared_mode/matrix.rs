//! Tests eight users with random rights in two real members. For every verb, resource, namespace and name, the
//! endpoint's response must be the combination of the members' responses to the same user.
//!
//! A seed determines roles and requests. `TRIBUTARY_MATRIX=SEED` sets the seed, and a failure prints it. Continuous
//! integration sends some of the requests, and the proof test sends all.

mod answer;
mod changes;
mod comparison;
mod kinds;
mod oracle;
mod roles;
mod searched;
mod user_request;
mod world;

use self::{
    comparison::{Outcome, compare},
    kinds::KINDS,
    oracle::{Oracle, ROLES_ALONE},
    roles::Bindings,
    searched::leak_search_ignores_cluster_names_in_objects_of_other_tests,
    user_request::UserRequest,
    world::World,
};
use super::{SOON, Shared, authorizers::behind_webhooks};
use crate::context::{Case, TestContext, cases};
use anyhow::{Context, bail, ensure};
use futures::{StreamExt, stream};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, sleep};

#[derive(Clone, Copy)]
struct Pace {
    /// Number of rounds. Each round changes rights.
    rounds: usize,
    /// Number of requests in each round. `None` distributes all requests over the rounds.
    user_requests: Option<usize>,
    /// Number of users per round whose writes are executed, and not only tested as dry runs.
    writers: usize,
}

const SHORT: Pace = Pace { rounds: 2, user_requests: Some(400), writers: 5 };

/// Parameters of the proof test, which sends all requests in about twenty minutes on two cores.
const LONG: Pace = Pace { rounds: 4, user_requests: None, writers: 30 };

/// Number of bound roles in each member in the first round. Each later round adds the same number.
const ROLES: usize = 40;
const CHANGES: usize = 12;

/// Number of bindings that are deleted per round, in both members together.
const TAKEN: usize = 16;

const AT_ONCE: usize = 6;

const PRINTED_MAX: usize = 12;

pub(super) fn cases() -> Vec<Case> {
    let cases = cases!["shared_mode::matrix";
        answers_under_random_rights_equal_the_merged_member_answers,
        answers_under_denying_webhooks_equal_the_merged_member_answers,
        proof_answers_under_random_rights_equal_the_merged_member_answers,
        proof_answers_under_denying_webhooks_equal_the_merged_member_answers,
        leak_search_ignores_cluster_names_in_objects_of_other_tests,
    ];
    cases.into_iter().map(|case| case.patience(Duration::from_secs(3600))).collect()
}

async fn answers_under_random_rights_equal_the_merged_member_answers(context: TestContext) -> anyhow::Result<()> {
    by_roles(context, SHORT).await
}

async fn proof_answers_under_random_rights_equal_the_merged_member_answers(context: TestContext) -> anyhow::Result<()> {
    by_roles(context, LONG).await
}

async fn answers_under_denying_webhooks_equal_the_merged_member_answers(context: TestContext) -> anyhow::Result<()> {
    where_webhooks_deny(context, SHORT).await
}

async fn proof_answers_under_denying_webhooks_equal_the_merged_member_answers(
    context: TestContext,
) -> anyhow::Result<()> {
    where_webhooks_deny(context, LONG).await
}

async fn by_roles(context: TestContext, pace: Pace) -> anyhow::Result<()> {
    let seed = seed()?;
    let shared = Shared::start(&context).await?;
    run(shared, seed, pace).await.with_context(|| format!("TRIBUTARY_MATRIX={seed}"))
}

/// Like [`by_roles`], but each member also has a webhook. Independent of roles, the webhook denies some users some
/// verbs on some resources, in some namespaces or in all.
async fn where_webhooks_deny(context: TestContext, pace: Pace) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let seed = seed()?;
    let (shared, _webhooks) =
        behind_webhooks(&context, |member| move |asked: &Value| denies_by(seed, member, asked)).await?;
    let tributary = Arc::clone(&shared.tributary);
    run(shared, seed, pace).await.with_context(|| format!("TRIBUTARY_MATRIX={seed}"))?;
    let asked = tributary.log().matches("roles and bindings alone do not decide the rights").count();
    ensure!(asked >= 2, "{asked} members are asked: {}", tributary.log());
    Ok(())
}

fn seed() -> anyhow::Result<u64> {
    match std::env::var("TRIBUTARY_MATRIX") {
        Ok(seed) => seed.parse().context("TRIBUTARY_MATRIX is a seed"),
        Err(_) => Ok(rand::random()),
    }
}

/// Denies a quarter of the requests for namespaced resources, by user and resource.
pub(super) fn denies(member: &str, asked: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (user, attributes) = (text(&asked["user"]), &asked["resourceAttributes"]);
    let namespace = text(&attributes["namespace"]);
    !namespace.is_empty() && is_in_quarter((member, user, namespace, text(&attributes["resource"])))
}

/// Returns whether a webhook denies a request. A seed selects a quarter of the requests of a run's users: for a
/// namespace, for all namespaces, and for cluster-scoped resources. The decision ignores the prefix of users and
/// namespaces, which is unique to a run.
///
/// Three kinds of requests are never denied. First, lists of all namespaces by an object's name, because roles also
/// decide which namespaces Tributary lists. Second, the first user's requests for all namespaces, which show when the
/// endpoint has found all resources. Third, requests marked with [`ROLES_ALONE`], which ask for the decision of roles
/// only.
fn denies_by(seed: u64, member: &str, asked: &Value) -> bool {
    let own = |name: &str| name.splitn(3, '-').last().unwrap_or_default().to_owned();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (user, attributes) = (text(&asked["user"]), &asked["resourceAttributes"]);
    let [verb, namespace, resource] = ["verb", "namespace", "resource"].map(|field| text(&attributes[field]));
    if !user.starts_with("p-") || asked["extra"].get(ROLES_ALONE).is_some() {
        return false;
    }
    let user = own(&user);
    if namespace.is_empty() {
        let is_named = !text(&attributes["name"]).is_empty();
        let is_denied = KINDS.iter().any(|kind| kind.resource == resource && !(kind.namespaced && is_named));
        if user == "0" || !is_denied {
            return false;
        }
    }
    is_in_quarter((seed, member, user, own(&namespace), verb, resource))
}

fn is_in_quarter(of: impl Hash) -> bool {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish().is_multiple_of(4)
}

async fn run(shared: Shared, seed: u64, pace: Pace) -> anyhow::Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let world = World::start(shared).await?;
    let mut bindings = Bindings::default();
    Bindings::give_all(&world, 0).await?;
    world.custom_resources_are_found(0).await?;
    let mut all = UserRequest::all(&world)?;
    all.shuffle(&mut random);
    if pace.user_requests.is_some() {
        all = mixed(all);
    }
    let mut parts = all.chunks(pace.user_requests.unwrap_or(all.len().div_ceil(pace.rounds + 1)));
    let mut told = Outcomes::default();
    for round in 0..=pace.rounds {
        for member in 0..2 {
            for _ in 0..if round == 0 { ROLES } else { CHANGES } {
                bindings.give(&world, member, &mut random).await?;
            }
        }
        if round > 0 {
            bindings.take(&world, TAKEN, &mut random).await?;
        }
        told.add(ask(&world, parts.next().unwrap_or_default()).await?);
        for _ in 0..pace.writers {
            changes::change(&world, &mut random).await?;
        }
    }
    told.are_enough(pace)
}

/// Orders the requests so that their kinds alternate. Otherwise most of the requests that are sent would be lists.
fn mixed(all: Vec<UserRequest>) -> Vec<UserRequest> {
    let mut by_what = BTreeMap::<&str, Vec<UserRequest>>::new();
    for user_request in all {
        by_what.entry(user_request.ask.what()).or_default().push(user_request);
    }
    let mut mixed = Vec::new();
    while by_what.values().any(|left| !left.is_empty()) {
        mixed.extend(by_what.values_mut().filter_map(Vec::pop));
    }
    mixed
}

/// Sends the requests. Returns the outcome of each request with the kind of the request.
async fn ask(world: &World, user_requests: &[UserRequest]) -> anyhow::Result<Vec<(&'static str, Outcome)>> {
    let oracle = Oracle::new(world);
    let asked = user_requests.iter().map(|user_request| asked(&oracle, user_request));
    let answers: Vec<_> = stream::iter(asked.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
    let (mut outcomes, mut differences) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => differences.push(format!("{error:#}")),
        }
    }
    if differences.is_empty() {
        return Ok(outcomes);
    }
    let count = differences.len();
    differences.truncate(PRINTED_MAX);
    bail!("{count} of {} differ:\n{}", user_requests.len(), differences.join("\n"))
}

/// Compares the responses to a request. The comparison is repeated with new requests until the responses agree, because
/// Tributary applies rights with a delay.
async fn asked(oracle: &Oracle<'_>, user_request: &UserRequest) -> anyhow::Result<(&'static str, Outcome)> {
    let mut outcome = compare(oracle, user_request).await;
    let end = Instant::now() + SOON;
    while outcome.is_err() && Instant::now() < end {
        sleep(Duration::from_millis(100)).await;
        outcome = compare(&Oracle::new(oracle.world), user_request).await;
    }
    Ok((user_request.ask.what(), outcome?))
}

/// Number of responses for each kind of request and each status.
#[derive(Default)]
struct Outcomes(BTreeMap<(&'static str, u16), usize>);

impl Outcomes {
    fn add(&mut self, outcomes: Vec<(&'static str, Outcome)>) {
        for (what, outcome) in outcomes {
            *self.0.entry((what, outcome.status)).or_default() += 1;
            if matches!(what, "list" | "watch") && outcome.objects > 0 {
                *self.0.entry((what, 0)).or_default() += 1;
            }
        }
    }

    /// Checks that allowed and refused requests were both frequent. Otherwise the run proves nothing. Rare statuses are
    /// only required if all requests were sent.
    fn are_enough(&self, pace: Pace) -> anyhow::Result<()> {
        let common = [
            ("list", &[0, 200, 403][..]),
            ("watch", &[0, 200, 403]),
            ("get", &[200, 403, 404]),
            ("below", &[200, 403, 404]),
            ("patch", &[200, 403, 404]),
            ("update", &[200, 403, 404]),
            ("delete", &[200, 403, 404]),
            ("create", &[201, 403]),
            ("deletecollection", &[200, 403]),
            ("may", &[201]),
        ];
        let rare = [
            ("get", &[409][..]),
            ("below", &[201, 409]),
            ("patch", &[201, 400, 409]),
            ("update", &[201, 409]),
            ("delete", &[409]),
            ("create", &[400, 404, 409]),
        ];
        let rare = rare.iter().filter(|_| pace.user_requests.is_none());
        for (what, statuses) in common.iter().chain(rare) {
            for status in *statuses {
                ensure!(self.0.contains_key(&(*what, *status)), "no {what} was answered {status}: {:?}", self.0);
            }
        }
        Ok(())
    }
}
