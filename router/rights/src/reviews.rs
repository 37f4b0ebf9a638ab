//! Access reviews that Tributary sends to clusters with its own credentials, each about a single right of a user. Users
//! share the reviews fairly.

mod answer_cache;
mod answers;
mod review;
mod review_answer;

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
use tributary_sharing::flow::fair_queue::{FairQueue, Priority};
use tributary_sharing::flow::fair_semaphore::{Exceeded, FairPermit, FairSemaphore, ShareMetrics};
use tributary_sharing::flow::share_key::ShareKey;

use self::answers::ClusterAnswers;
pub(super) use self::review::AccessReview;
pub(super) use self::review_answer::{APPROVAL_TTL, KnownAnswer};
use super::SharedMode;

/// Maximum number of concurrent reviews for a cluster. The permits are shared fairly among users. 50: an authorization
/// webhook answers some thousand reviews in a second.
const CLUSTER_REVIEWS_MAX: usize = 50;

/// Maximum number of concurrent reviews of one request in a cluster. 32 is less than the fair share that a single user
/// gets of the cluster's 50 permits.
pub(super) const PARALLEL_REVIEWS_MAX: usize = 32;

/// Maximum number of concurrent reviews of one stream in a cluster. 8, because only the number of streams limits these
/// reviews. Most streams need one review or two.
const PARALLEL_STREAM_REVIEWS_MAX: usize = 8;

/// Maximum number of waiting reviews for a cluster, of all users. 8,192 take 12 MiB, and a webhook answers them in
/// seconds. One user may have 3,072. Even if other users have used up the maximum, a user may have as many as one
/// request sends.
const WAITING_MAX: usize = 256 * PARALLEL_REVIEWS_MAX;

/// Name of the limit [`WAITING_MAX`] in a message to the client.
const WAITING: &str = "access reviews that wait for one cluster";

/// Time limit of a decision that needs reviews. A list waits equally long for clusters that do not answer.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// A waiting review. The future completes when the answer is stored. If all receivers of the future are dropped, a
/// review for a request is not sent. A review for a stream is always sent.
type PendingReview = Shared<BoxFuture<'static, ()>>;

/// Waiting reviews by priority and content. The number distinguishes a review from a later equal review.
type PendingReviews = HashMap<(Priority, AccessReview), (u64, WeakShared<BoxFuture<'static, ()>>)>;

pub(super) struct Reviews {
    answers: ClusterAnswers,
    pending_reviews: Mutex<PendingReviews>,
    begun: AtomicU64,
    limits_by_cluster: Mutex<BTreeMap<ClusterName, ClusterReviewLimits>>,
}

/// Permits for the concurrent reviews of one cluster, and the limit on its waiting reviews.
#[derive(Clone)]
struct ClusterReviewLimits {
    permits: Arc<FairQueue>,
    waiting: Arc<FairSemaphore>,
}

impl ClusterReviewLimits {
    fn new() -> Self {
        let waiting = FairSemaphore::new(WAITING, WAITING_MAX, ShareMetrics::default());
        Self { permits: FairQueue::new(CLUSTER_REVIEWS_MAX), waiting }
    }
}

impl Reviews {
    pub(super) fn new(fleet: Arc<Fleet>, mode: SharedMode) -> Arc<Self> {
        let (answers, begun) = (ClusterAnswers::new(fleet, mode), AtomicU64::default());
        Arc::new(Self { answers, pending_reviews: Mutex::default(), begun, limits_by_cluster: Mutex::default() })
    }

    pub(super) fn answers(&self) -> &ClusterAnswers {
        &self.answers
    }

    /// Sends the reviews that are not sent already, and waits for all answers, until `until` at most. The number next
    /// to a review is the generation of the user's rights. Cancellation is safe: sent reviews complete for later
    /// requests, and waiting reviews are dropped.
    ///
    /// The reviews use the fair share of `share_key`, the authenticated user, even if they are about a different user.
    /// So impersonation gives no user a larger share.
    ///
    /// # Errors
    /// [`Exceeded`] if `share_key` has too many open reviews.
    pub(super) async fn send_reviews(
        self: &Arc<Self>,
        share_key: ShareKey,
        missing_reviews: HashSet<(AccessReview, u64)>,
        until: Instant,
    ) -> Result<(), Exceeded> {
        self.send_reviews_with_priority(Priority::Normal, share_key, missing_reviews, until).await
    }

    /// Sends the reviews of a stream, and waits for half a minute at most. Reviews of streams precede reviews of
    /// requests, because thousands of requests of the same user could delay them. A review of a stream stays in the
    /// queue even if the stream stops waiting, for the next check of the stream.
    pub(super) async fn confirm(self: &Arc<Self>, share_key: ShareKey, missing_reviews: HashSet<(AccessReview, u64)>) {
        // Reviews with [`Priority::High`] have no limit, so the call cannot fail.
        let _never_exceeded = self
            .send_reviews_with_priority(Priority::High, share_key, missing_reviews, Instant::now() + REVIEW_TIMEOUT)
            .await;
    }

    async fn send_reviews_with_priority(
        self: &Arc<Self>,
        priority: Priority,
        share_key: ShareKey,
        missing_reviews: HashSet<(AccessReview, u64)>,
        until: Instant,
    ) -> Result<(), Exceeded> {
        let mut by_cluster: BTreeMap<ClusterName, Vec<(AccessReview, u64)>> = BTreeMap::new();
        for review in missing_reviews {
            by_cluster.entry(review.0.cluster.clone()).or_default().push(review);
        }
        // One future for each cluster, so that a slow cluster delays only its own reviews.
        let sends: Vec<_> = by_cluster
            .into_values()
            .map(|missing_reviews| self.send_reviews_to_cluster(priority, share_key, missing_reviews).boxed())
            .collect();
        // A review that is answered after `until` has no result for this decision.
        match tokio::time::timeout_at(until, try_join_all(sends)).await {
            Ok(results) => results.map(drop),
            Err(_) => Ok(()),
        }
    }

    /// Sends the reviews of one cluster, a few at a time.
    ///
    /// # Errors
    /// [`Exceeded`] if the limit does not allow `share_key` a single review.
    async fn send_reviews_to_cluster(
        self: &Arc<Self>,
        priority: Priority,
        share_key: ShareKey,
        mut remaining: Vec<(AccessReview, u64)>,
    ) -> Result<(), Exceeded> {
        let together = match priority {
            Priority::High => PARALLEL_STREAM_REVIEWS_MAX,
            Priority::Normal => PARALLEL_REVIEWS_MAX,
        };
        let mut pending_reviews = FuturesUnordered::new();
        loop {
            while pending_reviews.len() < together
                && let Some((review, generation)) = remaining.last()
            {
                match self.pending_review(priority, share_key, review, *generation) {
                    Ok(pending_review) => pending_reviews.push(pending_review),
                    // The limit is reached. The loop continues when a review has completed, which makes room for one
                    // more.
                    Err(_) if !pending_reviews.is_empty() => break,
                    Err(exceeded) => return Err(exceeded),
                }
                remaining.pop();
            }
            if pending_reviews.next().await.is_none() {
                return Ok(());
            }
        }
    }

    fn pending_review(
        self: &Arc<Self>,
        priority: Priority,
        share_key: ShareKey,
        review: &AccessReview,
        generation: u64,
    ) -> Result<PendingReview, Exceeded> {
        let mut pending_reviews = self.pending_reviews.lock();
        let review_key = (priority, review.clone());
        if let Some(pending_review) =
            pending_reviews.get(&review_key).and_then(|(_, pending_review)| pending_review.upgrade())
        {
            return Ok(pending_review);
        }
        let limits = self.limits_of(&review_key.1.cluster);
        let room = match priority {
            Priority::High => None,
            Priority::Normal => Some(limits.waiting.acquire(share_key, 1)?),
        };
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let queued = QueuedReview { reviews: Arc::clone(self), review_key: review_key.clone(), number, _room: room };
        let pending_review: PendingReview = queued.run(limits.permits, share_key, generation).boxed().shared();
        if let Some(weak) = pending_review.downgrade() {
            pending_reviews.insert(review_key, (number, weak));
        }
        if priority == Priority::High {
            tokio::spawn(pending_review.clone());
        }
        Ok(pending_review)
    }

    fn limits_of(&self, cluster: &ClusterName) -> ClusterReviewLimits {
        self.limits_by_cluster.lock().entry(cluster.clone()).or_insert_with(ClusterReviewLimits::new).clone()
    }
}

struct QueuedReview {
    reviews: Arc<Reviews>,
    review_key: (Priority, AccessReview),
    number: u64,
    /// Permit in the limit `WAITING_MAX`. `None` for reviews of streams, which have no limit.
    _room: Option<FairPermit>,
}

impl QueuedReview {
    /// Waits for a permit, sends the review, and stores the answer.
    async fn run(self, permits: Arc<FairQueue>, share_key: ShareKey, generation: u64) {
        let permit = permits.acquire_with_priority(self.review_key.0, share_key).await;
        let put = tokio::spawn(async move {
            self.reviews.answers.put(&self.review_key.1, generation).await;
            drop((self, permit));
        });
        // The task fails only when the runtime ends.
        let _ = put.await;
    }
}

impl Drop for QueuedReview {
    fn drop(&mut self) {
        let mut pending_reviews = self.reviews.pending_reviews.lock();
        // If a later equal review has replaced the entry, the new entry stays.
        if pending_reviews.get(&self.review_key).is_some_and(|(number, _)| *number == self.number) {
            pending_reviews.remove(&self.review_key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::review::testing::review;
    use super::*;
    use tributary_fleet::topology::MemberShareMetrics;

    /// One user sends many requests while all permits are taken and no review completes.
    #[tokio::test(start_paused = true)]
    async fn user_with_too_many_waiting_reviews_is_refused() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let reviews = Reviews::new(fleet, SharedMode::default());
        let user = |name: &str| ShareKey::user("test", name);
        let limits = reviews.limits_of(&ClusterName::new("a").unwrap());
        let mut permits = Vec::new();
        for number in 0..CLUSTER_REVIEWS_MAX {
            permits.push(limits.permits.acquire(user(&number.to_string())).await);
        }
        let ask = |name: &'static str, request: usize| {
            let queued = (0..100).map(|number| (review("a", &format!("{name}-{request}-{number}")), 0));
            let (reviews, queued) = (Arc::clone(&reviews), queued.collect::<HashSet<_>>());
            Box::pin(async move {
                reviews.send_reviews(ShareKey::user("test", name), queued, Instant::now() + REVIEW_TIMEOUT).await
            })
        };
        let mut requests: Vec<_> = (0..200).map(|request| ask("eve", request)).collect();
        let answers: Vec<_> = requests.iter_mut().map(|request| request.as_mut().now_or_never()).collect();
        let refused = answers.iter().filter(|answer| matches!(answer, Some(Err(_)))).count();
        let waiting = answers.iter().filter(|answer| answer.is_none()).count();
        // The user may have three eighths of the maximum number of waiting reviews, and each waiting request has
        // [`PARALLEL_REVIEWS_MAX`] reviews.
        let most = WAITING_MAX * 3 / 8;
        assert_eq!((waiting, refused), (most / PARALLEL_REVIEWS_MAX, 200 - most / PARALLEL_REVIEWS_MAX));
        assert_eq!((reviews.pending_reviews.lock().len(), limits.waiting.used()), (most, most));
        // A second user may still send a review.
        let mut of_ann = ask("ann", 0);
        assert!(of_ann.as_mut().now_or_never().is_none());
        drop((requests, of_ann));
        assert_eq!((reviews.pending_reviews.lock().len(), limits.waiting.used()), (0, 0));
        drop(permits);
    }

    /// The request needs more reviews than its user's free share.
    #[tokio::test(start_paused = true)]
    async fn request_sends_excess_reviews_after_earlier_reviews_complete() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let reviews = Reviews::new(fleet, SharedMode::default());
        let eve = ShareKey::user("test", "eve");
        let limits = reviews.limits_of(&ClusterName::new("a").unwrap());
        // Leaves capacity for ten reviews of this user.
        let others = limits.waiting.acquire(eve, WAITING_MAX * 3 / 8 - 10).unwrap();
        let requested: Vec<_> = (0..100).map(|number| review("a", &number.to_string())).collect();
        let until = Instant::now() + REVIEW_TIMEOUT;
        let all = requested.iter().map(|own| (own.clone(), 0)).collect();
        reviews.send_reviews(eve, all, until).await.expect("some are asked at once");
        // The cluster does not exist, so each sent review fails.
        assert!(requested.iter().all(|own| reviews.answers.last_answer(own).silent_until.is_some()), "all are put");
        let full = limits.waiting.acquire(eve, 10).unwrap();
        let refused = reviews.send_reviews(eve, HashSet::from([(review("a", "another"), 0)]), until).await;
        assert!(refused.is_err(), "none may be asked");
        drop((others, full));
    }

    /// The test checks only the order of permits. Each review fails, because the cluster does not exist.
    #[tokio::test(start_paused = true)]
    async fn reviews_of_watches_precede_reviews_of_requests() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let reviews = Reviews::new(fleet, SharedMode::default());
        let eve = ShareKey::user("test", "eve");
        let limits = reviews.limits_of(&ClusterName::new("a").unwrap());
        let mut permits = Vec::new();
        for number in 0..CLUSTER_REVIEWS_MAX {
            permits.push(limits.permits.acquire(ShareKey::user("test", &number.to_string())).await);
        }
        let mut requests: Vec<_> = (0..2_000)
            .map(|number| {
                let (reviews, queued) = (Arc::clone(&reviews), (review("a", &number.to_string()), 0));
                let until = Instant::now() + REVIEW_TIMEOUT;
                Box::pin(async move { reviews.send_reviews(eve, HashSet::from([queued]), until).await })
            })
            .collect();
        assert!(requests.iter_mut().all(|request| request.as_mut().now_or_never().is_none()));
        // A request already waits for this review. The stream must still send its review before other requests.
        let lasting = review("a", "1999");
        let confirmed = Box::pin(reviews.confirm(eve, HashSet::from([(lasting.clone(), 0)]))).now_or_never();
        assert!(confirmed.is_none());
        drop(permits.pop());
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The cluster does not exist, so each sent review fails.
        assert!(reviews.answers.last_answer(&lasting).silent_until.is_some(), "it was put");
        let of_requests = |number: usize| reviews.answers.last_answer(&review("a", &number.to_string()));
        assert!((0..1_999).all(|number| of_requests(number).silent_until.is_none()));
        assert_eq!(reviews.pending_reviews.lock().len(), 2_000, "those of requests wait");
        drop((requests, permits));
    }
}
