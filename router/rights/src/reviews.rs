//! Access reviews: questions to clusters about single rights, in Tributary's own name, with fair turns.

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
use tributary_sharing::flow::fair_semaphore::{Exceeded, FairSemaphore, Portion, ShareMetrics};
use tributary_sharing::flow::holder::Holder;

use self::answers::ClusterAnswers;
pub(super) use self::question::Question;
pub(super) use self::said::{ALLOWED_FOR, KnownAnswer};
use super::SharedMode;

/// Concurrent questions to a cluster; users take turns. 50: a webhook answers some thousand in a second.
const AT_ONCE: usize = 50;

/// Concurrent questions of one request to a cluster. 32: one user has half of the cluster's permits at most.
pub(super) const ASKED_TOGETHER: usize = 32;

/// Concurrent questions of one stream. 8: only the number of streams bounds them, and most streams need one or two.
const CONFIRMED_TOGETHER: usize = 8;

/// Waiting questions to a cluster, of all requests. 8,192: some KiB each are 12 MiB, and a webhook answers them in
/// seconds. One user may have 3,072, and as many as one request needs if others have taken the rest.
const WAITING_MAX: usize = 256 * ASKED_TOGETHER;

/// Name of this limit in a client's message.
const WAITING: &str = "questions to one cluster what its users may do";

/// Time for which a decision waits for answers: as long as lists wait for clusters that do not answer.
pub(super) const WAITED_MAX: Duration = Duration::from_secs(30);

/// A waiting question. It ends when the answer is stored. Without a receiver it is dropped before it is sent, unless it
/// has precedence.
type OpenQuestion = Shared<BoxFuture<'static, ()>>;

/// Waiting questions by precedence, each with a number that tells it from a later one with the same words.
type Flights = HashMap<(Turn, Question), (u64, WeakShared<BoxFuture<'static, ()>>)>;

/// Questions to clusters, and their answers.
pub(super) struct Reviews {
    answers: ClusterAnswers,
    flights: Mutex<Flights>,
    /// Number of questions so far.
    begun: AtomicU64,
    lines: Mutex<BTreeMap<ClusterName, Line>>,
}

/// The questions to a cluster.
#[derive(Clone)]
struct Line {
    /// Permits of questions that have been sent.
    places: Arc<FairLine>,
    /// Shares of waiting questions.
    waiting: Arc<FairSemaphore>,
}

impl Line {
    fn new() -> Self {
        let waiting = FairSemaphore::new(WAITING, WAITING_MAX, ShareMetrics::default());
        Self { places: FairLine::new(AT_ONCE), waiting }
    }
}

impl Reviews {
    /// To these clusters; none yet.
    pub(super) fn new(fleet: Arc<Fleet>, mode: SharedMode) -> Arc<Self> {
        let (answers, begun) = (ClusterAnswers::new(fleet, mode), AtomicU64::default());
        Arc::new(Self { answers, flights: Mutex::default(), begun, lines: Mutex::default() })
    }

    /// Answers of clusters.
    pub(super) fn answers(&self) -> &ClusterAnswers {
        &self.answers
    }

    /// Sends the questions that are not sent already, and waits for all answers, until this moment at most.
    /// Cancellation is safe: sent questions go on for later requests, and waiting ones are dropped. Each question has
    /// the generation of the user's rights before it is sent.
    ///
    /// The fair share is `asker`'s: the authenticated user, whoever the questions are about. So impersonation gives
    /// nobody more turns.
    ///
    /// # Errors
    /// [`Exceeded`] if the asker may have no further questions.
    pub(super) async fn ask_clusters(
        self: &Arc<Self>,
        asker: Holder,
        questions: HashSet<(Question, u64)>,
        until: Instant,
    ) -> Result<(), Exceeded> {
        self.ask_in(Turn::Usual, asker, questions, until).await
    }

    /// Sends the questions of a stream, for half a minute at most: before all questions of requests, which may be
    /// thousands for the same user. A question without a receiver keeps its turn for the next one.
    pub(super) async fn confirm(self: &Arc<Self>, asker: Holder, questions: HashSet<(Question, u64)>) {
        // Only the number of streams bounds these questions.
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
        // One task for each cluster: a slow cluster delays only its own questions.
        let asked: Vec<_> =
            by_cluster.into_values().map(|questions| self.ask_one_cluster(turn, asker, questions).boxed()).collect();
        // Later answers are unknown.
        match tokio::time::timeout_at(until, try_join_all(asked)).await {
            Ok(asked) => asked.map(drop),
            Err(_) => Ok(()),
        }
    }

    /// Asks one cluster, with a few questions at the same time.
    ///
    /// # Errors
    /// [`Exceeded`] if the asker may have no question.
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
                    // An answer makes room for the next question.
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

/// Entry of a waiting question, removed on drop.
struct Listed {
    reviews: Arc<Reviews>,
    listed_as: (Turn, Question),
    number: u64,
    /// Share of the waiting questions, if they are bounded.
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
        // Fails at the end of the runtime.
        let _ = put.await;
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut flights = self.reviews.flights.lock();
        // A later question may have taken the entry.
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
    async fn user_with_too_many_questions_is_refused_more() {
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
        // Further questions of the same user.
        let mut of_ann = ask("ann", 0);
        assert!(of_ann.as_mut().now_or_never().is_none());
        drop((requests, of_ann));
        assert_eq!((reviews.flights.lock().len(), line.waiting.used()), (0, 0));
        drop(taken);
    }

    /// A request with more questions than its user may have beside those of other users.
    #[tokio::test(start_paused = true)]
    async fn request_asks_its_excess_questions_once_the_rest_is_answered() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let reviews = Reviews::new(fleet, SharedMode::default());
        let eve = Holder::user("test", "eve");
        let line = reviews.line_of(&ClusterName::new("a").unwrap());
        // All but ten of the user's share.
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

    /// Only the order of permits is tested here.
    #[tokio::test(start_paused = true)]
    async fn confirmations_of_watches_precede_questions_of_requests() {
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
        // The question of the stream keeps its turn, although a request asks the same words.
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
