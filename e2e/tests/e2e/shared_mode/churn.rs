//! Tests users whose rights change all the time, in two real members. Each response of the endpoint must equal a
//! response that the members gave this user within a short time before. The requests are lists of all namespaces, lists
//! of one namespace, gets of single objects, and watches.

use super::{
    Shared,
    authorizers::{DenyingWebhook, behind_webhooks},
    grant, make_config_map, matrix, reads_config_maps,
};
use crate::context::{Case, TestContext, cases};
use anyhow::{Context, bail, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use tributary_e2e::{EventStream, HttpClient, namespace};

const PEOPLE: usize = 3;
const MEMBERS: usize = 2;
const NAMESPACES: usize = 2;

/// Number of tasks per user that send reads, in addition to a task that watches.
const READERS: usize = 2;

/// Names of the objects that each namespace has at the beginning.
const OBJECTS: [&str; 2] = ["a", "b"];

/// Longest time until a member itself applies a change of rights.
const MEMBER_SAYS: Duration = Duration::from_secs(20);

#[derive(Clone, Copy)]
struct Pace {
    lasts: Duration,
    pause: Duration,
    /// Largest age of the rights that a response may reflect.
    bound: Duration,
}

/// Parameters in continuous integration. Tributary promises to apply a change of rights within 2 s, but a busy machine
/// may need longer.
const SHORT: Pace =
    Pace { lasts: Duration::from_secs(20), pause: Duration::from_millis(400), bound: Duration::from_secs(5) };

/// Parameters of the proof test, which requires that Tributary applies a change of rights within the promised 2 s.
const LONG: Pace =
    Pace { lasts: Duration::from_secs(180), pause: Duration::from_millis(400), bound: Duration::from_secs(2) };

/// Parameters for webhooks that change their decisions. Tributary caches a member's decision for a minute, and needs up
/// to 5 s for a new decision.
const MINDS: Pace =
    Pace { lasts: Duration::from_secs(360), pause: Duration::from_secs(8), bound: Duration::from_secs(66) };

pub(super) fn cases() -> Vec<Case> {
    let cases = cases!["shared_mode::churn";
        answers_match_the_members_answers_while_rights_change,
        answers_match_the_members_answers_behind_denying_webhooks,
        proof_answers_match_the_members_answers_while_rights_change,
        proof_answers_match_the_members_answers_behind_denying_webhooks,
        proof_answers_follow_webhooks_with_changing_decisions,
    ];
    cases.into_iter().map(|case| case.patience(Duration::from_secs(900))).collect()
}

async fn answers_match_the_members_answers_while_rights_change(context: TestContext) -> anyhow::Result<()> {
    by_bindings(context, SHORT).await
}

async fn proof_answers_match_the_members_answers_while_rights_change(context: TestContext) -> anyhow::Result<()> {
    by_bindings(context, LONG).await
}

async fn answers_match_the_members_answers_behind_denying_webhooks(context: TestContext) -> anyhow::Result<()> {
    behind_denying_webhooks(context, SHORT).await
}

async fn proof_answers_match_the_members_answers_behind_denying_webhooks(context: TestContext) -> anyhow::Result<()> {
    behind_denying_webhooks(context, LONG).await
}

async fn by_bindings(context: TestContext, pace: Pace) -> anyhow::Result<()> {
    let shared = Shared::start(&context).await?;
    run(&context, shared, Means::Bindings { denied: |_, _| false }, pace).await
}

/// Like [`by_bindings`], but each member also has a webhook. The webhook denies some users some namespaces, independent
/// of roles.
async fn behind_denying_webhooks(context: TestContext, pace: Pace) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let (shared, _webhooks) =
        behind_webhooks(&context, |member| move |asked: &Value| matrix::denies(member, asked)).await?;
    run(&context, shared, Means::Bindings { denied: matrix::denies }, pace).await
}

async fn proof_answers_follow_webhooks_with_changing_decisions(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let denied = Denied::default();
    let (shared, _webhooks): (_, Vec<(DenyingWebhook, _)>) = behind_webhooks(&context, |member| {
        let denied = denied.clone();
        move |asked: &Value| {
            let namespace = asked["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
            let place =
                (member.to_owned(), namespace.to_owned(), asked["user"].as_str().unwrap_or_default().to_owned());
            denied.lock().is_ok_and(|denied| denied.contains(&place))
        }
    })
    .await?;
    run(&context, shared, Means::Webhooks(denied), MINDS).await
}

/// Combinations of member, namespace and user that the webhooks deny.
type Denied = Arc<Mutex<BTreeSet<(String, String, String)>>>;

/// Ways in which the test changes rights.
enum Means {
    /// The test creates and deletes bindings. `denied` is the constant decision of the members' webhooks about a
    /// member's name and the `spec` of the review.
    Bindings { denied: fn(&str, &Value) -> bool },
    /// The test changes the decisions of the webhooks.
    Webhooks(Denied),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UserNamespace {
    person: usize,
    member: usize,
    namespace: usize,
}

/// Decision of a member about a user's reads in a namespace, and the period in which it was in effect.
#[derive(Clone, Copy, Debug)]
struct State {
    may: bool,
    /// Earliest time at which the decision may have been in effect.
    from: Instant,
    /// Latest time at which the decision was in effect. `None` for the current decision.
    to: Option<Instant>,
}

/// Decisions of the members over time, by user, member and namespace.
#[derive(Debug, Default)]
struct Timeline(BTreeMap<UserNamespace, Vec<State>>);

impl Timeline {
    /// Returns whether a member's decision about a namespace was `may` at some time between `from - bound` and `to`.
    fn said(&self, place: UserNamespace, may: bool, (from, to): (Instant, Instant), bound: Duration) -> bool {
        let since = from.checked_sub(bound).unwrap_or(from);
        let counts = |state: &&State| state.from <= to && state.to.is_none_or(|end| end >= since);
        self.0[&place].iter().filter(counts).any(|state| state.may == may)
    }

    /// Returns the first time after `moment` at which a member revoked the right.
    fn lost_after(&self, place: UserNamespace, moment: Instant) -> Option<Instant> {
        self.0[&place].iter().filter(|state| state.may).filter_map(|state| state.to).find(|lost| *lost > moment)
    }

    /// Formats the decisions about a namespace over time, for an error message.
    fn of(&self, place: UserNamespace) -> String {
        format!("{place:?}: {:?}", self.0[&place])
    }

    fn turns(&self) -> usize {
        self.0.values().map(|states| states.len() - 1).sum()
    }
}

#[derive(Clone, Copy, Debug)]
enum ReadRequest {
    All,
    Of { namespace: usize },
    Named { member: usize, namespace: usize },
}

#[derive(Clone, Debug)]
enum AnswerContent {
    /// Member, namespace and name of each object in the response.
    Shown(BTreeSet<(usize, usize, String)>),
    Nowhere,
    Forbidden,
}

#[derive(Debug)]
struct Answer {
    person: usize,
    question: ReadRequest,
    during: (Instant, Instant),
    said: AnswerContent,
}

/// List of all namespaces, and the watch from its version.
#[derive(Debug)]
struct Watch {
    person: usize,
    listed: BTreeSet<UserNamespace>,
    /// Period from the start of the list to the end of the watch.
    during: (Instant, Instant),
    /// Time at which the list was complete.
    from: Instant,
    /// Namespace, name and arrival time of each event of the watch.
    told: Vec<(UserNamespace, String, Instant)>,
}

#[derive(Debug)]
struct Made {
    member: usize,
    namespace: usize,
    name: String,
    /// Period from the request to its response.
    during: (Instant, Instant),
}

struct Churn {
    shared: Shared,
    means: Means,
    pace: Pace,
    namespaces: Vec<String>,
    people: Vec<(String, HttpClient)>,
    is_over: AtomicBool,
}

async fn run(context: &TestContext, shared: Shared, means: Means, pace: Pace) -> anyhow::Result<()> {
    let seed: u64 = rand::random();
    let churn = Churn::start(context, shared, means, pace).await?;
    churn.run(seed).await.with_context(|| format!("seed {seed}\n{}", churn.shared.tributary.log_tail(20)))
}

impl Churn {
    async fn start(context: &TestContext, shared: Shared, means: Means, pace: Pace) -> anyhow::Result<Self> {
        let (mut namespaces, mut people) = (Vec::new(), Vec::new());
        for _ in 0..NAMESPACES {
            namespaces.push(context.namespace("churn", &shared.members).await?);
        }
        for member in &shared.members {
            for namespace in &namespaces {
                for name in OBJECTS {
                    make_config_map(member, namespace, &format!("{name}-{}", member.name()), 10).await?;
                }
            }
        }
        for _ in 0..PEOPLE {
            let name = namespace::unique_name("ann");
            for member in &shared.members {
                for namespace in &namespaces {
                    grant(member, namespace, &name, &name, reads_config_maps()).await?;
                }
            }
            people.push((name.clone(), shared.http(&name, &[]).await?));
        }
        Ok(Self { shared, means, pace, namespaces, people, is_over: AtomicBool::new(false) })
    }

    async fn run(&self, seed: u64) -> anyhow::Result<()> {
        let seeds = (0..PEOPLE * READERS).zip(1_u64..);
        let readers = seeds.map(|(at, own)| self.reads(at % PEOPLE, StdRng::seed_from_u64(seed ^ own)));
        let watchers = (0..PEOPLE).map(|person| self.watches(person));
        let timeline = async {
            let timeline = self.changes(StdRng::seed_from_u64(seed)).await;
            self.is_over.store(true, Ordering::Relaxed);
            timeline
        };
        let readers = futures::future::try_join_all(readers);
        let watchers = futures::future::try_join_all(watchers);
        let (timeline, made, answers, watches) = tokio::try_join!(timeline, self.makes(), readers, watchers)?;
        let (answers, watches): (Vec<_>, Vec<_>) =
            (answers.into_iter().flatten().collect(), watches.into_iter().flatten().collect());
        for answer in &answers {
            self.is_of_the_moment(&timeline, answer).with_context(|| format!("{answer:?}"))?;
        }
        for watch in &watches {
            self.tells_what_it_may(&timeline, watch)?;
            self.tells_all_that_it_may(&timeline, watch, &made)?;
        }
        // A run only proves something if rights change, and if not all users have all rights.
        let count = |is: fn(&AnswerContent) -> bool| answers.iter().filter(|answer| is(&answer.said)).count();
        let counts = [
            timeline.turns(),
            count(|said| matches!(said, AnswerContent::Shown(_))),
            count(|said| matches!(said, AnswerContent::Forbidden | AnswerContent::Nowhere)),
            watches.len(),
            watches.iter().map(|watch| watch.told.len()).sum(),
        ];
        ensure!(counts.iter().all(|count| *count >= 5), "turns, shown, refused, watches, events: {counts:?}");
        Ok(())
    }

    /// Grants and revokes rights one after the other. Returns the members' decisions over time.
    async fn changes(&self, mut random: StdRng) -> anyhow::Result<Timeline> {
        let mut timeline = Timeline::default();
        for person in 0..PEOPLE {
            for member in 0..MEMBERS {
                for namespace in 0..NAMESPACES {
                    let place = UserNamespace { person, member, namespace };
                    // A binding from before the start may take effect late, so the first decision begins earlier by the
                    // longest time that a member needs.
                    let from = Instant::now().checked_sub(MEMBER_SAYS).context("the clock has just begun")?;
                    timeline.0.insert(place, vec![State { may: self.lets(place).await?, from, to: None }]);
                }
            }
        }
        let places: Vec<_> = timeline.0.keys().copied().collect();
        let end = Instant::now() + self.pace.lasts;
        let mut has_right: BTreeSet<UserNamespace> = places.iter().copied().collect();
        while Instant::now() < end {
            let place = places[random.random_range(0..places.len())];
            let began = Instant::now();
            let is_given = !has_right.remove(&place);
            if is_given {
                has_right.insert(place);
            }
            self.turn(place, is_given).await?;
            let may = self.says(place, is_given).await?;
            let states = timeline.0.get_mut(&place).context("a place")?;
            let last = states.last_mut().context("a state")?;
            if last.may != may {
                last.to = Some(Instant::now());
                states.push(State { may, from: began, to: None });
            }
            sleep(self.pace.pause).await;
        }
        Ok(timeline)
    }

    async fn turn(
        &self,
        UserNamespace { person, member, namespace }: UserNamespace,
        is_given: bool,
    ) -> anyhow::Result<()> {
        let (member, namespace) = (&self.shared.members[member], &self.namespaces[namespace]);
        let (name, _) = &self.people[person];
        let api = "rbac.authorization.k8s.io";
        let path = format!("/apis/{api}/v1/namespaces/{namespace}/rolebindings");
        match &self.means {
            Means::Bindings { .. } if is_given => {
                let binding = json!({
                    "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": {"name": name},
                    "subjects": [{"apiGroup": api, "kind": "User", "name": name}],
                    "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
                });
                member.http().post(&path, &binding).send().await?.expect(201)?;
            }
            Means::Bindings { .. } => drop(member.http().delete(&format!("{path}/{name}")).send().await?.expect(200)?),
            Means::Webhooks(denied) => {
                let place = (member.name().to_owned(), namespace.clone(), name.clone());
                let mut denied = denied.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
                if is_given {
                    denied.remove(&place)
                } else {
                    denied.insert(place)
                };
            }
        }
        Ok(())
    }

    /// Returns whether the member itself allows a user to read the namespace.
    async fn lets(&self, UserNamespace { person, member, namespace }: UserNamespace) -> anyhow::Result<bool> {
        let (member, namespace) = (&self.shared.members[member], &self.namespaces[namespace]);
        let list = member.http().get(&format!("/api/v1/namespaces/{namespace}/configmaps?limit=1"));
        let answer = list.header("impersonate-user", &self.people[person].0).send().await?;
        match answer.status.as_u16() {
            200 => Ok(true),
            403 => Ok(false),
            _ => bail!("{}: {}", answer.status, answer.text()),
        }
    }

    /// Waits until the member itself applies the change of the binding. Returns the member's decision.
    async fn says(&self, place: UserNamespace, is_given: bool) -> anyhow::Result<bool> {
        let (namespace, (name, _)) = (&self.namespaces[place.namespace], &self.people[place.person]);
        let asked = json!({"user": name, "resourceAttributes": {"resource": "configmaps", "namespace": namespace}});
        let may = match &self.means {
            Means::Bindings { denied } => is_given && !denied(self.shared.members[place.member].name(), &asked),
            Means::Webhooks(_) => is_given,
        };
        let end = Instant::now() + MEMBER_SAYS;
        while self.lets(place).await? != may {
            ensure!(Instant::now() < end, "the member does not go by what was changed: {place:?}");
            sleep(Duration::from_millis(10)).await;
        }
        Ok(may)
    }

    /// Creates an object from time to time, so that the watches have events.
    async fn makes(&self) -> anyhow::Result<Vec<Made>> {
        let mut made = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let (member, namespace) = (made.len() % MEMBERS, made.len() / MEMBERS % NAMESPACES);
            let name = format!("new-{}-{member}", made.len());
            let began = Instant::now();
            make_config_map(&self.shared.members[member], &self.namespaces[namespace], &name, 10).await?;
            made.push(Made { member, namespace, name, during: (began, Instant::now()) });
            sleep(Duration::from_millis(250)).await;
        }
        Ok(made)
    }

    async fn reads(&self, person: usize, mut random: StdRng) -> anyhow::Result<Vec<Answer>> {
        let mut answers = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let (member, namespace) = (random.random_range(0..MEMBERS), random.random_range(0..NAMESPACES));
            let question = match random.random_range(0..3) {
                0 => ReadRequest::All,
                1 => ReadRequest::Of { namespace },
                _ => ReadRequest::Named { member, namespace },
            };
            answers.push(self.asks(person, question).await?.0);
            sleep(Duration::from_millis(30)).await;
        }
        Ok(answers)
    }

    /// Sends one request. Returns the parts of the response that the test compares, and its JSON.
    async fn asks(&self, person: usize, question: ReadRequest) -> anyhow::Result<(Answer, Value)> {
        let path = match question {
            ReadRequest::All => "/api/v1/configmaps".to_owned(),
            ReadRequest::Of { namespace } => format!("/api/v1/namespaces/{}/configmaps", self.namespaces[namespace]),
            ReadRequest::Named { member, namespace } => {
                let (namespace, member) = (&self.namespaces[namespace], self.shared.members[member].name());
                format!("/api/v1/namespaces/{namespace}/configmaps/a-{member}")
            }
        };
        let began = Instant::now();
        let answer = self.people[person].1.get(&path).send().await?;
        let during = (began, Instant::now());
        let (status, json) = (answer.status.as_u16(), answer.json()?);
        let said = match (status, question) {
            (200, ReadRequest::Named { .. }) => AnswerContent::Shown(self.seen(&json)?.into_iter().collect()),
            (200, _) => {
                let items = json["items"].as_array().context("no items")?;
                let seen: Vec<_> = items.iter().map(|item| self.seen(item)).collect::<anyhow::Result<_>>()?;
                AnswerContent::Shown(
                    seen.into_iter().flatten().filter(|(.., name)| !name.starts_with("new-")).collect(),
                )
            }
            (403, _) => AnswerContent::Forbidden,
            (404, ReadRequest::Named { .. }) => AnswerContent::Nowhere,
            _ => bail!("{path}: {status}: {json}"),
        };
        Ok((Answer { person, question, during, said }, json))
    }

    /// Returns the member, namespace and name of an object of this run. `None` for objects of other tests, and for
    /// objects that every namespace has.
    fn seen(&self, object: &Value) -> anyhow::Result<Option<(usize, usize, String)>> {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (cluster, name) = (text(&metadata["annotations"]["tributary.dev/cluster"]), text(&metadata["name"]));
        let member = self.shared.members.iter().position(|member| member.name() == cluster);
        let member = member.with_context(|| format!("of no cluster: {object}"))?;
        let namespace = self.namespaces.iter().position(|own| *own == text(&metadata["namespace"]));
        let namespace = namespace.with_context(|| format!("nobody may look there: {object}"))?;
        Ok((name != "kube-root-ca.crt").then_some((member, namespace, name)))
    }

    /// Lists and then watches, repeatedly, as an informer does.
    async fn watches(&self, person: usize) -> anyhow::Result<Vec<Watch>> {
        let mut watches = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let (answer, list) = self.asks(person, ReadRequest::All).await?;
            let AnswerContent::Shown(shown) = &answer.said else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let place = |member: usize, namespace: usize| UserNamespace { person, member, namespace };
            let listed = shown.iter().map(|(member, namespace, _)| place(*member, *namespace)).collect();
            let version = list["metadata"]["resourceVersion"].as_str().context("no version")?;
            let path = format!("/api/v1/configmaps?watch=1&resourceVersion={version}");
            let response = self.people[person].1.get(&path).stream().await?;
            // The user may have lost the right between the list and the watch.
            if response.status != 200 {
                ensure!(response.status == 403, "{path}: {}", response.status);
                continue;
            }
            let told = self.follow(person, response.events()?).await?;
            let during = (answer.during.0, Instant::now());
            watches.push(Watch { person, listed, during, from: answer.during.1, told });
        }
        Ok(watches)
    }

    /// Collects the events of a watch until its end.
    async fn follow(
        &self,
        person: usize,
        mut events: EventStream,
    ) -> anyhow::Result<Vec<(UserNamespace, String, Instant)>> {
        let mut told = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let Ok(event) = timeout(Duration::from_millis(100), events.next(MEMBER_SAYS)).await else { continue };
            let Some(event) = event? else { break };
            if event["type"] == "ERROR" {
                ensure!(event["object"]["code"] == 410, "{event}");
                break;
            }
            if let Some((member, namespace, name)) = self.seen(&event["object"])? {
                told.push((UserNamespace { person, member, namespace }, name, Instant::now()));
            }
        }
        Ok(told)
    }

    /// Checks a response against the members' decisions: it must have all objects of a namespace or none of them,
    /// according to a decision of the last moments.
    fn is_of_the_moment(&self, timeline: &Timeline, answer: &Answer) -> anyhow::Result<()> {
        let said = |member, namespace, may| {
            let place = UserNamespace { person: answer.person, member, namespace };
            timeline.said(place, may, answer.during, self.pace.bound)
        };
        let places: Vec<(usize, usize)> = match answer.question {
            ReadRequest::All => (0..MEMBERS).flat_map(|member| (0..NAMESPACES).map(move |of| (member, of))).collect(),
            ReadRequest::Of { namespace } | ReadRequest::Named { namespace, .. } => {
                (0..MEMBERS).map(|member| (member, namespace)).collect()
            }
        };
        let is_nothing = |&(member, namespace): &(usize, usize)| said(member, namespace, false);
        match (&answer.said, answer.question) {
            (AnswerContent::Forbidden, _) => ensure!(places.iter().all(is_nothing), "it is allowed"),
            (AnswerContent::Nowhere, ReadRequest::Named { member, namespace }) => {
                ensure!(is_nothing(&(member, namespace)), "it is there");
                ensure!((0..MEMBERS).any(|member| said(member, namespace, true)), "it is forbidden");
            }
            (AnswerContent::Shown(shown), ReadRequest::Named { member, namespace }) => {
                let own = (member, namespace, format!("a-{}", self.shared.members[member].name()));
                ensure!(*shown == BTreeSet::from([own]) && said(member, namespace, true), "it is not to be seen");
            }
            (AnswerContent::Shown(shown), _) => {
                ensure!(!shown.is_empty(), "an empty list instead of a refusal");
                for (member, namespace) in places {
                    let here = shown.iter().filter(|(of, within, _)| (*of, *within) == (member, namespace)).count();
                    match here {
                        0 => ensure!(said(member, namespace, false), "{member} {namespace} is missing"),
                        all if all == OBJECTS.len() => {
                            ensure!(said(member, namespace, true), "{member} {namespace} is not to be seen");
                        }
                        _ => bail!("a part of {member} {namespace}"),
                    }
                }
            }
            (AnswerContent::Nowhere, _) => bail!("a collection is nowhere"),
        }
        Ok(())
    }

    /// Checks that a watch reported only objects that its user was allowed to read, and that the watch ended when the
    /// user lost the right to a listed object.
    fn tells_what_it_may(&self, timeline: &Timeline, watch: &Watch) -> anyhow::Result<()> {
        for (place, name, at) in &watch.told {
            let is_to_be_seen = timeline.said(*place, true, (*at, *at), self.pace.bound);
            ensure!(is_to_be_seen, "a watch of {:?} told of {name} at {at:?} of {}", watch.during, timeline.of(*place));
        }
        let lost = watch.listed.iter().filter_map(|place| Some((place, timeline.lost_after(*place, watch.from)?)));
        // Tributary may not notice if a right is revoked and granted again at once.
        let after = |lost: Instant| (lost + Duration::from_millis(1), lost + self.pace.bound);
        let lost = lost.filter(|(place, lost)| !timeline.said(**place, true, after(*lost), Duration::ZERO));
        for (place, lost) in lost {
            let went_on = watch.during.1.saturating_duration_since(lost);
            let what = || format!("a watch of {:?} went on for {went_on:?} after {lost:?}", watch.during);
            ensure!(went_on <= self.pace.bound, "{}, of {}", what(), timeline.of(*place));
        }
        Ok(())
    }

    /// Checks that a watch reported every object that was created while its user had the right all the time.
    fn tells_all_that_it_may(&self, timeline: &Timeline, watch: &Watch, made: &[Made]) -> anyhow::Result<()> {
        for Made { member, namespace, name, during: (sent, there) } in made {
            let place = UserNamespace { person: watch.person, member: *member, namespace: *namespace };
            // An object that was created before the list was complete may be in the list and so not in the watch.
            let is_during = *sent > watch.from && *there + self.pace.bound < watch.during.1;
            let is_lost = timeline.said(place, false, (watch.during.0, watch.during.1), Duration::ZERO);
            if is_during && watch.listed.contains(&place) && !is_lost {
                let is_told = watch.told.iter().any(|(_, told, _)| told == name);
                ensure!(is_told, "a watch of {:?} did not tell of {name} of {}", watch.during, timeline.of(place));
            }
        }
        Ok(())
    }
}
