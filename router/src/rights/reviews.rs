//! What clusters have said to single questions of rights: asked in our own name, and believed for a while.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::{BoxFuture, Shared, WeakShared, try_join_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_authorization::{Attributes, ResourceAttributes};

use super::SharedMode;
use super::access_review;
use super::mirror_state::BEHIND_MAX;
use super::subject::Subject;
use crate::flow::fair_line::{FairLine, Turn};
use crate::flow::fair_share::{Exceeded, FairShare, Portion, ShareMetrics};
use crate::flow::holder::Holder;
use crate::topology::Fleet;

/// How long a yes is believed. A minute: who loses a right by a webhook alone has lost it here within that.
pub(super) const ALLOWED_FOR: Duration = Duration::from_secs(60);

/// How long a no is believed. 10 s: whoever is given a right looks whether it works.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// After what time a cluster that did not answer is asked again, at least.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// As much longer as this many times what it took not to answer. Five: what a decision needs is asked one after the
/// other, and what was held of the first is to count still when the last was not answered either. So six in a row, each
/// of which takes the 5 s that an answer may take, are known together, as long as [`WAITED_MAX`].
const ASKED_SLOWER: u32 = 5;

/// How many questions are with a cluster at once, users in turn: whoever asks for ten thousand names waits for their
/// own answers. 50: a webhook behind each answers some thousand in a second.
const AT_ONCE: usize = 50;

/// How many questions of one request are waited for at once of a cluster; the others follow as these are answered. 32:
/// a user alone has half of the places there, so more would wait in line only.
pub(super) const ASKED_TOGETHER: usize = 32;

/// The same of one thing that lasts. 8: these are bounded by nothing but how much may last, and most need one or two.
const CONFIRMED_TOGETHER: usize = 8;

/// How many questions are waited for of a cluster, by all requests together. 8,192: some KiB each with what waits for
/// it are 12 MiB, and a webhook that answers some thousand in a second is done with them in seconds. A user alone may
/// have 3,072, and where others have taken all of what is shared as many as one request asks at once.
const WAITING_MAX: usize = 256 * ASKED_TOGETHER;

/// What there is of these, as a user is told who asks for more.
const WAITING: &str = "questions to one cluster what its users may do";

/// How long a decision waits for the answers that it needs, as long as lists wait for clusters that have not answered.
pub(super) const WAITED_MAX: Duration = Duration::from_secs(30);

/// How much of the answers that were used last is kept at least, of all clusters together, in bytes of texts, and half
/// of how much is kept at most. 32 MiB are 65,536 answers, of 500 users with ten namespaces each of a dozen resources.
/// A name may have 8 KiB, and whoever asks for many such has fewer kept, not more memory taken.
const KEPT_BYTES: usize = 32 << 20;

/// As how much each answer counts at least, in bytes. 512: most have 300, and a map has room for more than it holds.
const ANSWER_BYTES_MIN: usize = 512;

/// Whether somebody may do something in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Question {
    pub(super) cluster: ClusterName,
    who: Arc<Subject>,
    asked: Asked,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Asked {
    /// Verb, group, version, resource, subresource, namespace and name.
    Resource([Box<str>; 7]),
    /// Verb and path.
    Path([Box<str>; 2]),
}

impl Question {
    pub(super) fn new(cluster: &ClusterName, who: &Arc<Subject>, asked: &Attributes<'_>) -> Self {
        let asked = match asked {
            Attributes::Resource(asked) => {
                let ResourceAttributes { verb, group, version, resource, subresource, namespace, name } = *asked;
                Asked::Resource([verb, group, version, resource, subresource, namespace, name].map(Box::from))
            }
            Attributes::NonResource { verb, path } => Asked::Path([Box::from(*verb), Box::from(&**path)]),
        };
        Self { cluster: cluster.clone(), who: Arc::clone(who), asked }
    }

    /// How many bytes of texts it has; who asks is shared among the questions of a moment, and counted with each.
    fn bytes(&self) -> usize {
        let asked: usize = match &self.asked {
            Asked::Resource(texts) => texts.iter().map(|text| text.len()).sum(),
            Asked::Path(texts) => texts.iter().map(|text| text.len()).sum(),
        };
        asked + self.who.bytes()
    }

    /// As how many bytes its answer counts among those that are kept.
    fn weight(&self) -> usize {
        self.bytes().max(ANSWER_BYTES_MIN)
    }

    fn attributes(&self) -> Attributes<'_> {
        match &self.asked {
            Asked::Resource([verb, group, version, resource, subresource, namespace, name]) => {
                Attributes::Resource(ResourceAttributes {
                    verb,
                    group,
                    version,
                    resource,
                    subresource,
                    namespace,
                    name,
                })
            }
            Asked::Path([verb, path]) => Attributes::NonResource { verb, path: (&**path).into() },
        }
    }
}

/// What was said last, and when.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// Whether it is allowed, when that was asked, and in which generation of the user's rights there.
    answer: Option<(bool, Instant, u64)>,
    /// Until when it is not asked again, where there was no answer after that.
    silent_until: Option<Instant>,
}

/// What is known of an answer at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It was said, and counts until then.
    Said(bool, Instant),
    /// The cluster does not say.
    Silent(Instant),
    /// It is to be asked.
    Open,
}

impl Said {
    /// Without an answer to what was asked before a moment.
    fn asked_since(self, moment: Instant) -> Self {
        Self { answer: self.answer.filter(|(_, asked, _)| *asked >= moment), ..self }
    }

    /// `generation` is that of the user's rights by roles and bindings: what changes them may change any answer.
    /// `hold` is how long an answer holds of a cluster that does not answer any more.
    fn known(self, now: Instant, generation: u64, hold: Duration) -> Known {
        let silent_until = self.silent_until.filter(|until| now < *until);
        match (self.answer.filter(|(.., own)| *own == generation), silent_until) {
            (Some((allowed, asked, _)), _) if now < asked + believed_for(allowed) => {
                Known::Said(allowed, asked + believed_for(allowed))
            }
            (Some((allowed, asked, _)), Some(until)) if now < asked + hold => {
                Known::Said(allowed, until.min(asked + hold))
            }
            (_, Some(until)) => Known::Silent(until),
            (_, None) => Known::Open,
        }
    }

    /// The same, where what is to be asked again counts as it was said last.
    fn known_last(self, now: Instant, generation: u64, hold: Duration) -> Known {
        match (self.known(now, generation, hold), self.answer) {
            (Known::Open, Some((allowed, asked, _))) => Known::Said(allowed, asked + believed_for(allowed)),
            (known, _) => known,
        }
    }
}

/// When a cluster is asked again that was asked at this moment, and has not answered by now.
fn asked_again_at(asked: Instant, now: Instant) -> Instant {
    now + ASKED_AGAIN_AFTER + (now - asked) * ASKED_SLOWER
}

fn believed_for(allowed: bool) -> Duration {
    if allowed { ALLOWED_FOR } else { REFUSED_FOR }
}

/// A question that is waited for; it ends when the answer is noted, and is given up once nobody waits for it before it
/// has been put, unless it comes first.
type Flight = Shared<BoxFuture<'static, ()>>;

/// The questions that are waited for, by when it is their turn, each with what tells it from another one of the same
/// words: one that comes first waits for none that does not.
type Flights = HashMap<(Turn, Question), (u64, WeakShared<BoxFuture<'static, ()>>)>;

/// What clusters have said.
pub(super) struct Reviews {
    fleet: Arc<Fleet>,
    mode: SharedMode,
    kept: Mutex<Kept>,
    flights: Mutex<Flights>,
    /// How many questions there were to put.
    begun: AtomicU64,
    lines: Mutex<BTreeMap<ClusterName, Line>>,
    /// The clusters that are asked nothing: nothing is dispatched to them at all.
    frozen: ArcSwap<BTreeSet<ClusterName>>,
}

/// The questions to a cluster.
#[derive(Clone)]
struct Line {
    /// Those that are with it.
    places: Arc<FairLine>,
    /// Those that are waited for, shared among users.
    waiting: Arc<FairShare>,
}

impl Line {
    fn new() -> Self {
        let waiting = FairShare::new(WAITING, WAITING_MAX, ShareMetrics::default());
        Self { places: FairLine::new(AT_ONCE), waiting }
    }
}

/// What was said, for each cluster apart: where there is too much of it, the cluster that has the most loses what was
/// not used for longest. So each keeps as much as all would have if they shared equally, however much is asked of
/// another: what a cluster that is cut off said last is all that is known of it, and nobody can say it again.
#[derive(Default)]
struct Kept {
    by_cluster: BTreeMap<ClusterName, KeptOfCluster>,
    /// The weight of the young ones of all clusters: [`KEPT_BYTES`] at most.
    young: usize,
    /// The same of the old ones.
    old: usize,
}

#[derive(Default)]
struct KeptOfCluster {
    young: Answers,
    old: Answers,
}

#[derive(Default)]
struct Answers {
    said: HashMap<Question, Said>,
    weight: usize,
}

impl Kept {
    fn get(&mut self, question: &Question) -> Option<Said> {
        let of_cluster = self.by_cluster.get_mut(&question.cluster)?;
        if let Some(said) = of_cluster.young.said.get(question) {
            return Some(*said);
        }
        let (question, said) = of_cluster.old.said.remove_entry(question)?;
        let weight = question.weight();
        of_cluster.old.weight -= weight;
        self.old -= weight;
        self.put(question, said);
        Some(said)
    }

    fn put(&mut self, question: Question, said: Said) {
        let of_cluster = self.by_cluster.get_mut(&question.cluster);
        if let Some(known) = of_cluster.and_then(|own| own.young.said.get_mut(&question)) {
            *known = said;
            return;
        }
        let weight = question.weight();
        if self.young + weight > KEPT_BYTES {
            self.age();
        }
        let of_cluster = self.by_cluster.entry(question.cluster.clone()).or_default();
        of_cluster.young.said.insert(question, said);
        of_cluster.young.weight += weight;
        self.young += weight;
    }

    /// Makes the young answers of the cluster that has most of them old ones, in place of those that it has. Cost: a
    /// look at each cluster.
    fn age(&mut self) {
        if let Some(largest) = self.by_cluster.values_mut().max_by_key(|own| own.young.weight) {
            self.young -= largest.young.weight;
            self.old = self.old - largest.old.weight + largest.young.weight;
            largest.old = std::mem::take(&mut largest.young);
        }
        while self.old > KEPT_BYTES {
            let Some(largest) = self.by_cluster.values_mut().max_by_key(|own| own.old.weight) else { break };
            self.old -= largest.old.weight;
            largest.old = Answers::default();
        }
        self.by_cluster.retain(|_, own| own.young.weight + own.old.weight > 0);
    }
}

impl Reviews {
    pub(super) fn new(fleet: Arc<Fleet>, mode: SharedMode) -> Arc<Self> {
        let (kept, flights, lines) = (Mutex::default(), Mutex::default(), Mutex::default());
        let frozen = ArcSwap::default();
        Arc::new(Self { fleet, mode, kept, flights, begun: AtomicU64::default(), lines, frozen })
    }

    /// Has these clusters be asked nothing from now on, and all others what there is to ask. Gives those of before.
    pub(super) fn freeze(&self, clusters: BTreeSet<ClusterName>) -> Arc<BTreeSet<ClusterName>> {
        self.frozen.swap(Arc::new(clusters))
    }

    /// Whether a cluster is asked nothing: what it said last holds as of one that does not answer.
    pub(super) fn is_frozen(&self, cluster: &ClusterName) -> bool {
        self.frozen.load().contains(cluster)
    }

    /// What is known of an answer, where the user's rights there by roles and bindings are of this generation.
    pub(super) fn known(&self, question: &Question, generation: u64) -> Known {
        self.said(question).known(Instant::now(), generation, self.hold(&question.cluster))
    }

    /// How long an answer of a cluster holds that does not answer any more.
    fn hold(&self, cluster: &ClusterName) -> Duration {
        let is_cut_off = self.fleet.cluster(cluster).is_none_or(|cluster| cluster.is_out_of_reach());
        if is_cut_off { self.mode.stale_rights } else { BEHIND_MAX }
    }

    /// The same, where what is open counts as it was said last, in whatever generation.
    pub(super) fn known_last(&self, question: &Question, generation: u64) -> Known {
        self.said(question).known_last(Instant::now(), generation, self.hold(&question.cluster))
    }

    /// What is known, without what counts only because the cluster does not answer any more.
    pub(super) fn known_now(&self, question: &Question, generation: u64) -> Known {
        self.said(question).known(Instant::now(), generation, Duration::ZERO)
    }

    /// The same of what was asked since a moment, without what was said before.
    pub(super) fn known_since(&self, question: &Question, generation: u64, moment: Instant) -> Known {
        self.said(question).asked_since(moment).known(Instant::now(), generation, Duration::ZERO)
    }

    fn said(&self, question: &Question) -> Said {
        self.kept.lock().get(question).unwrap_or_default()
    }

    /// Asks what is not asked already, and waits for all answers, until this moment at most. Cancelling is safe: what
    /// has been put goes on, for whoever asks next, and what waits for its turn is not put any more. With each question
    /// goes the generation of the user's rights before it is asked.
    ///
    /// Turns are taken as `asker`: the one who authenticated, whoever the questions are about. A name that anybody may
    /// ask to be gives nobody a turn more.
    ///
    /// # Errors
    /// [`Exceeded`] where so many are waited for of a cluster that the asker may have no more.
    pub(super) async fn ask(
        self: &Arc<Self>,
        asker: Holder,
        questions: HashSet<(Question, u64)>,
        until: Instant,
    ) -> Result<(), Exceeded> {
        self.ask_in(Turn::Usual, asker, questions, until).await
    }

    /// The same, of what lasts and is to be confirmed, for half a minute at most: before all that requests ask, which
    /// may be thousands of things for the same user. A question that nobody waits for any more keeps its turn: whoever
    /// asks it again has that.
    pub(super) async fn confirm(self: &Arc<Self>, asker: Holder, questions: HashSet<(Question, u64)>) {
        // Nothing bounds these but how much may last.
        let _never_exceeded = self.ask_in(Turn::First, asker, questions, Instant::now() + WAITED_MAX).await;
    }

    async fn ask_in(
        self: &Arc<Self>,
        turn: Turn,
        asker: Holder,
        questions: HashSet<(Question, u64)>,
        until: Instant,
    ) -> Result<(), Exceeded> {
        let mut by_cluster: BTreeMap<ClusterName, Vec<(Question, u64)>> = BTreeMap::new();
        for question in questions {
            by_cluster.entry(question.0.cluster.clone()).or_default().push(question);
        }
        // Each by itself: one that is slow keeps nobody from asking the others.
        let asked: Vec<_> =
            by_cluster.into_values().map(|questions| self.ask_one_cluster(turn, asker, questions).boxed()).collect();
        // Those that are not answered by then are not known.
        match tokio::time::timeout_at(until, try_join_all(asked)).await {
            Ok(asked) => asked.map(drop),
            Err(_) => Ok(()),
        }
    }

    /// A few at the same time, and fewer while the asker may have no more.
    ///
    /// # Errors
    /// [`Exceeded`] where none may be asked.
    async fn ask_one_cluster(
        self: &Arc<Self>,
        turn: Turn,
        asker: Holder,
        mut left: Vec<(Question, u64)>,
    ) -> Result<(), Exceeded> {
        let together = match turn {
            Turn::First => CONFIRMED_TOGETHER,
            Turn::Usual => ASKED_TOGETHER,
        };
        let mut flights = FuturesUnordered::new();
        loop {
            while flights.len() < together
                && let Some((question, generation)) = left.last()
            {
                match self.flight(turn, asker, question, *generation) {
                    Ok(flight) => flights.push(flight),
                    // There is room again when one of these is answered.
                    Err(_) if !flights.is_empty() => break,
                    Err(exceeded) => return Err(exceeded),
                }
                left.pop();
            }
            if flights.next().await.is_none() {
                return Ok(());
            }
        }
    }

    fn flight(
        self: &Arc<Self>,
        turn: Turn,
        asker: Holder,
        question: &Question,
        generation: u64,
    ) -> Result<Flight, Exceeded> {
        let mut flights = self.flights.lock();
        let listed_as = (turn, question.clone());
        if let Some(flight) = flights.get(&listed_as).and_then(|(_, flight)| flight.upgrade()) {
            return Ok(flight);
        }
        let line = self.line_of(&listed_as.1.cluster);
        let room = match turn {
            Turn::First => None,
            Turn::Usual => Some(line.waiting.take(asker, 1)?),
        };
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let listed = Listed { reviews: Arc::clone(self), listed_as: listed_as.clone(), number, _room: room };
        let flight: Flight = listed.fly(line.places, asker, generation).boxed().shared();
        if let Some(weak) = flight.downgrade() {
            flights.insert(listed_as, (number, weak));
        }
        if turn == Turn::First {
            tokio::spawn(flight.clone());
        }
        Ok(flight)
    }

    fn line_of(&self, cluster: &ClusterName) -> Line {
        self.lines.lock().entry(cluster.clone()).or_insert_with(Line::new).clone()
    }

    /// Puts a question, and notes the answer.
    async fn put(&self, question: &Question, generation: u64) {
        let asked = Instant::now();
        let answer = self.answer(question).await;
        let mut kept = self.kept.lock();
        let before = kept.get(question).unwrap_or_default();
        let said = match answer {
            // It was asked in another turn as well, and later.
            Some(_) if before.answer.is_some_and(|(_, own, _)| own > asked) => before,
            Some(allowed) => Said { answer: Some((allowed, asked, generation)), silent_until: None },
            None => Said { silent_until: Some(asked_again_at(asked, Instant::now())), ..before },
        };
        kept.put(question.clone(), said);
    }

    async fn answer(&self, question: &Question) -> Option<bool> {
        if self.is_frozen(&question.cluster) {
            return None;
        }
        let cluster = self.fleet.cluster(&question.cluster).filter(|cluster| !cluster.is_out_of_reach())?;
        let transport = cluster.transport().ok()?;
        access_review::access(transport, &question.who, &question.attributes()).await.ok()
    }
}

/// A question among those that are waited for, until this is dropped.
struct Listed {
    reviews: Arc<Reviews>,
    listed_as: (Turn, Question),
    number: u64,
    /// Its part of what may be waited for, where that is bounded.
    _room: Option<Portion>,
}

impl Listed {
    /// Waits for a place, and puts it.
    async fn fly(self, places: Arc<FairLine>, asker: Holder, generation: u64) {
        let place = places.take_in(self.listed_as.0, asker).await;
        let put = tokio::spawn(async move {
            self.reviews.put(&self.listed_as.1, generation).await;
            drop((self, place));
        });
        // It fails where the runtime ends.
        let _ = put.await;
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut flights = self.reviews.flights.lock();
        // Another may have taken its place by now.
        if flights.get(&self.listed_as).is_some_and(|(number, _)| *number == self.number) {
            flights.remove(&self.listed_as);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::MemberShareMetrics;

    /// Whether somebody may get an object of this name in a cluster.
    fn question(cluster: &str, name: &str) -> Question {
        let who = Arc::new(Subject::from(tributary_authorization::User { name: "ann", groups: &[] }));
        let asked = ResourceAttributes { verb: "get", resource: "roles", name, ..ResourceAttributes::default() };
        Question::new(&ClusterName::new(cluster).unwrap(), &who, &Attributes::Resource(asked))
    }

    /// All questions that are kept.
    fn kept_questions(kept: &Kept) -> Vec<&Question> {
        kept.by_cluster.values().flat_map(|own| own.young.said.keys().chain(own.old.said.keys())).collect()
    }

    /// The flights of many requests of one user, while the cluster answers nothing.
    #[tokio::test(start_paused = true)]
    async fn who_has_too_much_asked_is_refused_more() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let reviews = Reviews::new(fleet, SharedMode::default());
        let user = |name: &str| Holder::user("test", name);
        let line = reviews.line_of(&ClusterName::new("a").unwrap());
        let mut taken = Vec::new();
        for number in 0..AT_ONCE {
            taken.push(line.places.take(user(&number.to_string())).await);
        }
        let ask = |name: &'static str, request: usize| {
            let asked = (0..100).map(|number| (question("a", &format!("{name}-{request}-{number}")), 0));
            let (reviews, asked) = (Arc::clone(&reviews), asked.collect::<HashSet<_>>());
            Box::pin(async move { reviews.ask(Holder::user("test", name), asked, Instant::now() + WAITED_MAX).await })
        };
        let mut requests: Vec<_> = (0..200).map(|request| ask("eve", request)).collect();
        let answers: Vec<_> = requests.iter_mut().map(|request| request.as_mut().now_or_never()).collect();
        let refused = answers.iter().filter(|answer| matches!(answer, Some(Err(_)))).count();
        let waiting = answers.iter().filter(|answer| answer.is_none()).count();
        // Half of three quarters, and each request a few of its hundred.
        let most = WAITING_MAX * 3 / 8;
        assert_eq!((waiting, refused), (most / ASKED_TOGETHER, 200 - most / ASKED_TOGETHER));
        assert_eq!((reviews.flights.lock().len(), line.waiting.held()), (most, most));
        // Others are asked for.
        let mut of_ann = ask("ann", 0);
        assert!(of_ann.as_mut().now_or_never().is_none());
        drop((requests, of_ann));
        assert_eq!((reviews.flights.lock().len(), line.waiting.held()), (0, 0));
        drop(taken);
    }

    /// One request has more to ask than its user may have asked beside what the others do.
    #[tokio::test(start_paused = true)]
    async fn what_a_request_may_not_ask_at_once_it_asks_once_the_rest_is_answered() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let reviews = Reviews::new(fleet, SharedMode::default());
        let eve = Holder::user("test", "eve");
        let line = reviews.line_of(&ClusterName::new("a").unwrap());
        // All but ten of what she may have.
        let others = line.waiting.take(eve, WAITING_MAX * 3 / 8 - 10).unwrap();
        let asked: Vec<_> = (0..100).map(|number| question("a", &number.to_string())).collect();
        let until = Instant::now() + WAITED_MAX;
        let all = asked.iter().map(|own| (own.clone(), 0)).collect();
        reviews.ask(eve, all, until).await.expect("some are asked at once");
        // The cluster has left, and so does not answer.
        assert!(asked.iter().all(|own| reviews.said(own).silent_until.is_some()), "all are put");
        let full = line.waiting.take(eve, 10).unwrap();
        let refused = reviews.ask(eve, HashSet::from([(question("a", "another"), 0)]), until).await;
        assert!(refused.is_err(), "none may be asked");
        drop((others, full));
    }

    /// The flights of one user's requests are not looked at here, so that whatever is given a place keeps it.
    #[tokio::test(start_paused = true)]
    async fn what_lasts_is_confirmed_before_all_that_requests_ask() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let reviews = Reviews::new(fleet, SharedMode::default());
        let eve = Holder::user("test", "eve");
        let line = reviews.line_of(&ClusterName::new("a").unwrap());
        let mut taken = Vec::new();
        for number in 0..AT_ONCE {
            taken.push(line.places.take(Holder::user("test", &number.to_string())).await);
        }
        let mut requests: Vec<_> = (0..2_000)
            .map(|number| {
                let (reviews, asked) = (Arc::clone(&reviews), (question("a", &number.to_string()), 0));
                let until = Instant::now() + WAITED_MAX;
                Box::pin(async move { reviews.ask(eve, HashSet::from([asked]), until).await })
            })
            .collect();
        assert!(requests.iter_mut().all(|request| request.as_mut().now_or_never().is_none()));
        // It keeps its turn, whoever waits for it, though another of the same words is asked by a request.
        let lasting = question("a", "1999");
        let confirmed = Box::pin(reviews.confirm(eve, HashSet::from([(lasting.clone(), 0)]))).now_or_never();
        assert!(confirmed.is_none());
        drop(taken.pop());
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The cluster has left, and so does not answer.
        assert!(reviews.said(&lasting).silent_until.is_some(), "it was put");
        let of_requests = |number: usize| reviews.said(&question("a", &number.to_string()));
        assert!((0..1_999).all(|number| of_requests(number).silent_until.is_none()));
        assert_eq!(reviews.flights.lock().len(), 2_000, "those of requests wait");
        drop((requests, taken));
    }

    #[test]
    fn long_questions_are_kept_in_smaller_numbers() {
        let long = "x".repeat(8 << 10);
        let mut kept = Kept::default();
        for number in 0..10_000 {
            kept.put(question("a", &format!("{number}{long}")), Said::default());
            if number % 500 > 0 {
                continue;
            }
            let bytes: usize = kept_questions(&kept).into_iter().map(Question::bytes).sum();
            assert!(bytes <= 2 * KEPT_BYTES, "{bytes}");
        }
        assert!(kept_questions(&kept).len() > 4_000);
    }

    /// One user may ask one cluster as much as they like, and another one be cut off meanwhile.
    #[test]
    fn what_one_cluster_is_asked_pushes_out_nothing_that_another_has_said() {
        let said = Said { silent_until: Some(Instant::now()), ..Said::default() };
        let mut kept = Kept::default();
        // Less than half of what is kept of all, in names that are longer than most.
        let of_b: Vec<_> =
            (0..1_000).map(|number| question("b", &format!("{number}{}", "x".repeat(4 << 10)))).collect();
        of_b.iter().for_each(|own| kept.put(own.clone(), said));
        for number in 0..4 * KEPT_BYTES / ANSWER_BYTES_MIN {
            kept.put(question("c", &number.to_string()), Said::default());
        }
        let weight: usize = kept_questions(&kept).into_iter().map(Question::weight).sum();
        assert!(weight <= 2 * KEPT_BYTES, "{weight}");
        assert_eq!(weight, kept.young + kept.old);
        assert!(of_b.iter().all(|own| kept.get(own).is_some_and(|known| known.silent_until.is_some())));
        // What c was asked last is kept as well.
        let last = 4 * KEPT_BYTES / ANSWER_BYTES_MIN - 1;
        assert!((0..10_000).all(|back| kept.get(&question("c", &(last - back).to_string())).is_some()));
    }

    #[test]
    fn an_answer_is_believed_for_a_while_and_longer_only_where_there_is_no_other() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        // A cluster that does not answer says so at once.
        let silent = |failed: u64| Some(asked_again_at(at(failed), at(failed)));
        let said = |allowed, failed: Option<u64>| {
            let silent_until = failed.and_then(silent);
            Said { answer: Some((allowed, at(0), 7)), silent_until }
        };
        let hold = Duration::from_secs(300);
        for (said, now, generation, expected) in [
            (Said::default(), 0, 7, Known::Open),
            (said(true, None), 59, 7, Known::Said(true, at(60))),
            (said(true, None), 60, 7, Known::Open),
            (said(false, None), 9, 7, Known::Said(false, at(10))),
            (said(false, None), 10, 7, Known::Open),
            // Roles and bindings that touch the user have changed.
            (said(true, None), 1, 8, Known::Open),
            (said(true, Some(1)), 2, 8, Known::Silent(at(6))),
            // It does not answer any more.
            (said(true, Some(61)), 62, 7, Known::Said(true, at(66))),
            (said(true, Some(61)), 66, 7, Known::Open),
            (said(true, Some(298)), 299, 7, Known::Said(true, at(300))),
            (said(true, Some(299)), 300, 7, Known::Silent(at(304))),
            (Said { silent_until: silent(3), answer: None }, 4, 7, Known::Silent(at(8))),
            (Said { silent_until: silent(3), answer: None }, 8, 7, Known::Open),
        ] {
            assert_eq!(said.known(at(now), generation, hold), expected, "{said:?} at {now}");
        }
        // Where nothing is held that is not said again.
        let held_no_longer = said(true, Some(61)).known(at(62), 7, Duration::ZERO);
        assert_eq!(held_no_longer, Known::Silent(at(66)));
        assert_eq!(said(true, Some(1)).known(at(59), 7, Duration::ZERO), Known::Said(true, at(60)));
        // Where what is to be asked again counts as it was said last.
        let last = |said: Said, seconds, generation| said.known_last(at(seconds), generation, hold);
        assert_eq!(last(said(false, None), 500, 7), Known::Said(false, at(10)));
        assert_eq!(last(said(true, None), 1, 8), Known::Said(true, at(60)));
        assert_eq!(last(said(true, Some(1)), 2, 8), Known::Silent(at(6)));
        assert_eq!(last(Said::default(), 0, 7), Known::Open);
        // Where only what is said now counts.
        let asked_since = |moment| said(true, None).asked_since(at(moment)).known(at(1), 7, Duration::ZERO);
        assert_eq!([asked_since(0), asked_since(1)], [Known::Said(true, at(60)), Known::Open]);
    }

    /// Each is asked once the one before has not been answered in time.
    #[test]
    fn what_was_said_last_counts_together_though_each_question_takes_as_long_as_it_may() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let last = at(WAITED_MAX.as_secs());
        for number in 0..WAITED_MAX.as_secs() / 5 {
            let silent_until = Some(asked_again_at(at(5 * number), at(5 * number + 5)));
            let said = Said { answer: Some((true, begin.checked_sub(ALLOWED_FOR).unwrap(), 7)), silent_until };
            let known = said.known(last, 7, BEHIND_MAX);
            assert!(matches!(known, Known::Said(true, until) if until > last), "{number}: {known:?}");
        }
    }
}
