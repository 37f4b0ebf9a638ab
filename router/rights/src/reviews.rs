//! Access reviews that Tributary sends to clusters with its own credentials, each about a single right of a user. Users
//! share the reviews fairly.

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

/// Maximum number of concurrent reviews for a cluster. The permits are shared fairly among users. 50: an authorization
/// webhook answers some thousand reviews in a second.
const AT_ONCE: usize = 50;

/// Maximum number of concurrent reviews of one request in a cluster. 32 is less than the fair share that a single user
/// gets of the cluster's 50 permits.
pub(super) const ASKED_TOGETHER: usize = 32;

/// Maximum number of concurrent reviews of one stream in a cluster. 8, because only the number of streams limits these
/// reviews. Most streams need one review or two.
const CONFIRMED_TOGETHER: usize = 8;

/// Maximum number of waiting reviews for a cluster, of all users. 8,192 take 12 MiB, and a webhook answers them in
/// seconds. One user may have 3,072. If other users take the remaining number, a user may still have as many as one
/// request sends.
const WAITING_MAX: usize = 256 * ASKED_TOGETHER;

/// Name of the limit [`WAITING_MAX`] in a message to the client.
const WAITING: &str = "questions to one cluster what its users may do";

/// Time limit of a decision that needs reviews. A list waits equally long for clusters that do not answer.
pub(super) const WAITED_MAX: Duration = Duration::from_secs(30);

/// A waiting review. The future completes when the answer is stored. If all its receivers are dropped, a review for a
/// request is not sent; a review for a stream is sent all the same.
type OpenQuestion = Shared<BoxFuture<'static, ()>>;

/// Waiting reviews by precedence and content. The number distinguishes a review from a later equal review.
type Flights = HashMap<(Turn, Question), (u64, WeakShared<BoxFuture<'static, ()>>)>;

pub(super) struct Reviews {
    answers: ClusterAnswers,
    flights: Mutex<Flights>,
    begun: AtomicU64,
    lines: Mutex<BTreeMap<ClusterName, Line>>,
}

/// Permits and fair shares for the reviews of one cluster.
#[derive(Clone)]
struct Line {
    places: Arc<FairLine>,
    waiting: Arc<FairSemaphore>,
}

impl Line {
    fn new() -> Self {
        let waiting = FairSemaphore::new(WAITING, WAITING_MAX, ShareMetrics::default());
        Self { places: FairLine::new(AT_ONCE), waiting }
    }
}

impl Reviews {
    pub(super) fn new(fleet: Arc<Fleet>, mode: SharedMode) -> Arc<Self> {
        let (answers, begun) = (ClusterAnswers::new(fleet, mode), AtomicU64::default());
        Arc::new(Self { answers, flights: Mutex::default(), begun, lines: Mutex::default() })
    }

    pub(super) fn answers(&self) -> &ClusterAnswers {
        &self.answers
    }

    /// Sends the reviews that are not sent already, and waits for all answers, until `until` at most. The number next
    /// to a review is the generation of the user's rights. Cancellation is safe: sent reviews complete for later
    /// requests, and waiting reviews are dropped.
    ///
    /// The reviews count for the fair share of `asker`, the authenticated user, whatever their subject. So
    /// impersonation gives no user a larger share.
    ///
    /// # Errors
    /// [`Exceeded`] if `asker` has too many open reviews.
    pub(super) async fn ask_clusters(
        self: &Arc<Self>,
        asker: Holder,
        questions: HashSet<(Question, u64)>,
        until: Instant,
    ) -> Result<(), Exceeded> {
        self.ask_in(Turn::Usual, asker, questions, until).await
    }

    /// Sends the reviews of a stream, for half a minute at most. They precede the reviews of requests, of which the
    /// same user may have thousands. A review whose receiver is dropped stays in the queue for the next check of the
    /// stream.
    pub(super) async fn confirm(self: &Arc<Self>, asker: Holder, questions: HashSet<(Question, u64)>) {
        // Reviews with the precedence `First` have no limit.
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
        // One future for each cluster, so that a slow cluster delays only its own reviews.
        let asked: Vec<_> =
            by_cluster.into_values().map(|questions| self.ask_one_cluster(turn, asker, questions).boxed()).collect();
        // An answer after `until` stays unknown to this decision.
        match tokio::time::timeout_at(until, try_join_all(asked)).await {
            Ok(asked) => asked.map(drop),
            Err(_) => Ok(()),
        }
    }

    /// Sends the reviews of one cluster, a few at a time.
    ///
    /// # Errors
    /// [`Exceeded`] if the limit allows `asker` not even one review.
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
                    // Each completed review frees the share for one more review.
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

struct Listed {
    reviews: Arc<Reviews>,
    listed_as: (Turn, Question),
    number: u64,
    /// Part of the limit on waiting reviews. `None` for reviews that have no limit.
    _room: Option<Portion>,
}

impl Listed {
    /// Waits for a permit, sends the review, and stores the answer.
    async fn fly(self, places: Arc<FairLine>, asker: Holder, generation: u64) {
        let place = places.take_in(self.listed_as.0, asker).await;
        let put = tokio::spawn(async move {
            self.reviews.answers.put(&self.listed_as.1, generation).await;
            drop((self, place));
        });
        // The task fails only when the runtime ends.
        let _ = put.await;
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut flights = self.reviews.flights.lock();
        // A later review may have replaced the entry of this review.
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

    /// One user sends many requests while all permits are taken and no review completes.
    #[tokio::test(start_paused = true)]
    async fn user_with_too_many_waiting_reviews_is_refused() {
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
        // The user may have three eighths of the limit, and each waiting request has [`ASKED_TOGETHER`] reviews.
        let most = WAITING_MAX * 3 / 8;
        assert_eq!((waiting, refused), (most / ASKED_TOGETHER, 200 - most / ASKED_TOGETHER));
        assert_eq!((reviews.flights.lock().len(), line.waiting.used()), (most, most));
        // A second user may still send a review.
        let mut of_ann = ask("ann", 0);
        assert!(of_ann.as_mut().now_or_never().is_none());
        drop((requests, of_ann));
        assert_eq!((reviews.flights.lock().len(), line.waiting.used()), (0, 0));
        drop(taken);
    }

    /// The request needs more reviews than its user's free share.
    #[tokio::test(start_paused = true)]
    async fn request_sends_excess_reviews_after_earlier_reviews_complete() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let reviews = Reviews::new(fleet, SharedMode::default());
        let eve = Holder::user("test", "eve");
        let line = reviews.line_of(&ClusterName::new("a").unwrap());
        // Leaves capacity for ten reviews of this user.
        let others = line.waiting.acquire(eve, WAITING_MAX * 3 / 8 - 10).unwrap();
        let asked: Vec<_> = (0..100).map(|number| question("a", &number.to_string())).collect();
        let until = Instant::now() + WAITED_MAX;
        let all = asked.iter().map(|own| (own.clone(), 0)).collect();
        reviews.ask_clusters(eve, all, until).await.expect("some are asked at once");
        // The cluster does not exist, so each sent review fails.
        assert!(asked.iter().all(|own| reviews.answers.last_answer(own).silent_until.is_some()), "all are put");
        let full = line.waiting.acquire(eve, 10).unwrap();
        let refused = reviews.ask_clusters(eve, HashSet::from([(question("a", "another"), 0)]), until).await;
        assert!(refused.is_err(), "none may be asked");
        drop((others, full));
    }

    /// The test checks only the order of permits: the cluster does not exist.
    #[tokio::test(start_paused = true)]
    async fn reviews_of_watches_precede_reviews_of_requests() {
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
        // A request waits for the same review, and the review of the stream is still sent first.
        let lasting = question("a", "1999");
        let confirmed = Box::pin(reviews.confirm(eve, HashSet::from([(lasting.clone(), 0)]))).now_or_never();
        assert!(confirmed.is_none());
        drop(taken.pop());
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The cluster does not exist, so each sent review fails.
        assert!(reviews.answers.last_answer(&lasting).silent_until.is_some(), "it was put");
        let of_requests = |number: usize| reviews.answers.last_answer(&question("a", &number.to_string()));
        assert!((0..1_999).all(|number| of_requests(number).silent_until.is_none()));
        assert_eq!(reviews.flights.lock().len(), 2_000, "those of requests wait");
        drop((requests, taken));
    }
}
