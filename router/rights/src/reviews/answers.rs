//! Cached answers of clusters to access reviews, and reviews for new answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_fleet::topology::Fleet;

use super::answer_cache::AnswerCache;
use super::review::AccessReview;
use super::review_answer::{KnownAnswer, ReviewAnswer, next_review_at};
use crate::SharedMode;
use crate::access_review;
use crate::mirror_state::BEHIND_MAX;

pub(crate) struct ClusterAnswers {
    fleet: Arc<Fleet>,
    mode: SharedMode,
    answer_cache: Mutex<AnswerCache>,
    /// Clusters that get no reviews (`dispatch: DenyAll`).
    frozen: ArcSwap<BTreeSet<ClusterName>>,
}

impl ClusterAnswers {
    pub(super) fn new(fleet: Arc<Fleet>, mode: SharedMode) -> Self {
        Self { fleet, mode, answer_cache: Mutex::default(), frozen: ArcSwap::default() }
    }

    /// Sets the clusters that get no reviews, and returns the previous set.
    pub(crate) fn freeze(&self, clusters: BTreeSet<ClusterName>) -> Arc<BTreeSet<ClusterName>> {
        self.frozen.swap(Arc::new(clusters))
    }

    /// Returns whether a cluster gets no reviews. Its last answers stay valid as long as the answers of an unreachable
    /// cluster.
    pub(crate) fn is_frozen(&self, cluster: &ClusterName) -> bool {
        self.frozen.load().contains(cluster)
    }

    /// Looks up a cluster's valid answer to a review. Ignores an answer for a different generation of the user's rights
    /// (a number that changes with roles and bindings).
    pub(crate) fn known_answer(&self, review: &AccessReview, generation: u64) -> KnownAnswer {
        self.last_answer(review).known_answer(Instant::now(), generation, self.silent_answer_ttl(&review.cluster))
    }

    /// Looks up a cluster's last answer to a review, even if the answer is expired or belongs to a different generation
    /// of the user's rights.
    pub(crate) fn known_last(&self, review: &AccessReview, generation: u64) -> KnownAnswer {
        self.last_answer(review).known_last(Instant::now(), generation, self.silent_answer_ttl(&review.cluster))
    }

    /// Looks up a cluster's valid answer to a review. Ignores an expired answer even while the cluster does not answer.
    pub(crate) fn known_now(&self, review: &AccessReview, generation: u64) -> KnownAnswer {
        self.last_answer(review).known_answer(Instant::now(), generation, Duration::ZERO)
    }

    /// Looks up a cluster's answer to a review that was sent at `moment` or later.
    pub(crate) fn known_since(&self, review: &AccessReview, generation: u64, moment: Instant) -> KnownAnswer {
        self.last_answer(review).sent_since(moment).known_answer(Instant::now(), generation, Duration::ZERO)
    }

    /// Returns the time for which the last answer of a cluster that does not answer stays valid after its expiry.
    fn silent_answer_ttl(&self, cluster: &ClusterName) -> Duration {
        let is_cut_off = self.fleet.cluster(cluster).is_none_or(|cluster| cluster.is_out_of_reach());
        if is_cut_off { self.mode.stale_rights } else { BEHIND_MAX }
    }

    pub(super) fn last_answer(&self, review: &AccessReview) -> ReviewAnswer {
        self.answer_cache.lock().get(review).unwrap_or_default()
    }

    /// Removes the answers of a cluster whose name now belongs to a different cluster.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.answer_cache.lock().forget(cluster);
    }

    pub(super) async fn put(&self, review: &AccessReview, generation: u64) {
        let sent_at = Instant::now();
        let cluster = self.fleet.cluster(&review.cluster);
        let answer = self.wait_for_answer(review).await;
        if cluster.is_some_and(|cluster| cluster.incarnation().has_ended()) {
            return;
        }
        let mut answer_cache = self.answer_cache.lock();
        let before = answer_cache.get(review).unwrap_or_default();
        let review_answer = match answer {
            // An equal review with the other priority was sent later but answered earlier. Its answer stays.
            Some(_) if before.answer.is_some_and(|(_, own, _)| own > sent_at) => before,
            Some(allowed) => ReviewAnswer { answer: Some((allowed, sent_at, generation)), silent_until: None },
            None => ReviewAnswer { silent_until: Some(next_review_at(sent_at, Instant::now())), ..before },
        };
        answer_cache.put(review.clone(), review_answer);
    }

    async fn wait_for_answer(&self, review: &AccessReview) -> Option<bool> {
        if self.is_frozen(&review.cluster) {
            return None;
        }
        let cluster = self.fleet.cluster(&review.cluster).filter(|cluster| !cluster.is_out_of_reach())?;
        let transport = cluster.transport().ok()?;
        access_review::access(transport, &review.user, &review.attributes()).await.ok()
    }
}
