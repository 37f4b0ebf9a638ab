//! Single questions of rights, which clusters are asked in our own name: who waits for which, and whose turn it is.

mod answers;
mod kept;
mod question;
mod said;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, Shared, WeakShared, try_join_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_fleet::topology::Fleet;
use tributary_sharing::flow::fair_line::{FairLine, Turn};
use tributary_sharing::flow::fair_share::{Exceeded, FairShare, Portion, ShareMetrics};
use tributary_sharing::flow::holder::Holder;

use self::answers::ClusterAnswers;
pub(super) use self::question::Question;
pub(super) use self::said::{ALLOWED_FOR, KnownAnswer};
use super::SharedMode;

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

/// A question that is waited for; it ends when the answer is noted, and is given up once nobody waits for it before it
/// has been put, unless it comes first.
type OpenQuestion = Shared<BoxFuture<'static, ()>>;

/// The questions that are waited for, by when it is their turn, each with what tells it from another one of the same
/// words: one that comes first waits for none that does not.
type Flights = HashMap<(Turn, Question), (u64, WeakShared<BoxFuture<'static, ()>>)>;

/// The questions to clusters, and what those have said.
pub(super) struct Reviews {
    answers: ClusterAnswers,
    flights: Mutex<Flights>,
    /// How many questions there were to put.
    begun: AtomicU64,
    lines: Mutex<BTreeMap<ClusterName, Line>>,
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

impl Reviews {
    /// To these clusters; none yet.
    pub(super) fn new(fleet: Arc<Fleet>, mode: SharedMode) -> Arc<Self> {
        let (answers, begun) = (ClusterAnswers::new(fleet, mode), AtomicU64::default());
        Arc::new(Self { answers, flights: Mutex::default(), begun, lines: Mutex::default() })
    }

    /// What clusters have said.
    pub(super) fn answers(&self) -> &ClusterAnswers {
        &self.answers
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
    pub(super) async fn ask_clusters(
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
    ) -> Result<OpenQuestion, Exceeded> {
        let mut flights = self.flights.lock();
        let listed_as = (turn, question.clone());
        if let Some(flight) = flights.get(&listed_as).and_then(|(_, flight)| flight.upgrade()) {
            return Ok(flight);
        }
        let line = self.line_of(&listed_as.1.cluster);
        let room = match turn {
            Turn::First => None,
            Turn::Usual => Some(line.waiting.acquire(asker, 1)?),
        };
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let listed = Listed { reviews: Arc::clone(self), listed_as: listed_as.clone(), number, _room: room };
        let flight: OpenQuestion = listed.fly(line.places, asker, generation).boxed().shared();
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
            self.reviews.answers.put(&self.listed_as.1, generation).await;
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
    use super::question::testing::question;
    use super::*;
    use tributary_fleet::topology::MemberShareMetrics;

    /// The flights of many requests of one user, while the cluster answers nothing.
    #[tokio::test(start_paused = true)]
    async fn who_has_too_much_asked_is_refused_more() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let reviews = Reviews::new(fleet, SharedMode::default());
        let user = |name: &str| Holder::user("test", name);
        let line = reviews.line_of(&ClusterName::new("a").unwrap());
        let mut taken = Vec::new();
        for number in 0..AT_ONCE {
            taken.push(line.places.acquire(user(&number.to_string())).await);
        }
        let ask = |name: &'static str, request: usize| {
            let asked = (0..100).map(|number| (question("a", &format!("{name}-{request}-{number}")), 0));
            let (reviews, asked) = (Arc::clone(&reviews), asked.collect::<HashSet<_>>());
            Box::pin(async move {
                reviews.ask_clusters(Holder::user("test", name), asked, Instant::now() + WAITED_MAX).await
            })
        };
        let mut requests: Vec<_> = (0..200).map(|request| ask("eve", request)).collect();
        let answers: Vec<_> = requests.iter_mut().map(|request| request.as_mut().now_or_never()).collect();
        let refused = answers.iter().filter(|answer| matches!(answer, Some(Err(_)))).count();
        let waiting = answers.iter().filter(|answer| answer.is_none()).count();
        // Half of three quarters, and each request a few of its hundred.
        let most = WAITING_MAX * 3 / 8;
        assert_eq!((waiting, refused), (most / ASKED_TOGETHER, 200 - most / ASKED_TOGETHER));
        assert_eq!((reviews.flights.lock().len(), line.waiting.used()), (most, most));
        // Others are asked for.
        let mut of_ann = ask("ann", 0);
        assert!(of_ann.as_mut().now_or_never().is_none());
        drop((requests, of_ann));
        assert_eq!((reviews.flights.lock().len(), line.waiting.used()), (0, 0));
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
        let others = line.waiting.acquire(eve, WAITING_MAX * 3 / 8 - 10).unwrap();
        let asked: Vec<_> = (0..100).map(|number| question("a", &number.to_string())).collect();
        let until = Instant::now() + WAITED_MAX;
        let all = asked.iter().map(|own| (own.clone(), 0)).collect();
        reviews.ask_clusters(eve, all, until).await.expect("some are asked at once");
        // The cluster has left, and so does not answer.
        assert!(asked.iter().all(|own| reviews.answers.last_answer(own).silent_until.is_some()), "all are put");
        let full = line.waiting.acquire(eve, 10).unwrap();
        let refused = reviews.ask_clusters(eve, HashSet::from([(question("a", "another"), 0)]), until).await;
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
            taken.push(line.places.acquire(Holder::user("test", &number.to_string())).await);
        }
        let mut requests: Vec<_> = (0..2_000)
            .map(|number| {
                let (reviews, asked) = (Arc::clone(&reviews), (question("a", &number.to_string()), 0));
                let until = Instant::now() + WAITED_MAX;
                Box::pin(async move { reviews.ask_clusters(eve, HashSet::from([asked]), until).await })
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
        assert!(reviews.answers.last_answer(&lasting).silent_until.is_some(), "it was put");
        let of_requests = |number: usize| reviews.answers.last_answer(&question("a", &number.to_string()));
        assert!((0..1_999).all(|number| of_requests(number).silent_until.is_none()));
        assert_eq!(reviews.flights.lock().len(), 2_000, "those of requests wait");
        drop((requests, taken));
    }
}
