//! Store of the clusters' answers, with a size limit.

use std::collections::{BTreeMap, HashMap};

use tributary_apimachinery::ClusterName;

use super::review::AccessReview;
use super::review_answer::ReviewAnswer;

/// Maximum size of one generation of answers in bytes; the store has two generations. 32 MiB are 65,536 answers: 500
/// users with ten namespaces each of a dozen resources. A name in a request may have 8 KiB, so a client with long names
/// has fewer stored answers.
const GENERATION_BYTES_MAX: usize = 32 << 20;

/// Minimum size of an answer for the limit, in bytes. 512: most answers have 300, and a map allocates spare capacity.
const ANSWER_BYTES_MIN: usize = 512;

/// Stored answers by cluster, in two generations. Above the size limit, the cluster with the largest young generation
/// drops its least recently used answers. So many reviews of one cluster do not remove the answers of other clusters,
/// which Tributary could not get again from an unreachable cluster.
#[derive(Default)]
pub(super) struct AnswerCache {
    by_cluster: BTreeMap<ClusterName, ClusterAnswerCache>,
    /// Total size of the clusters' young generations: [`GENERATION_BYTES_MAX`] at most.
    young: usize,
    old: usize,
}

#[derive(Default)]
struct ClusterAnswerCache {
    young: Answers,
    old: Answers,
}

#[derive(Default)]
struct Answers {
    review_answer: HashMap<AccessReview, ReviewAnswer>,
    weight: usize,
}

impl AnswerCache {
    /// Returns the stored answer. An answer in the old generation moves to the young generation.
    pub(super) fn get(&mut self, review: &AccessReview) -> Option<ReviewAnswer> {
        let of_cluster = self.by_cluster.get_mut(&review.cluster)?;
        if let Some(review_answer) = of_cluster.young.review_answer.get(review) {
            return Some(*review_answer);
        }
        let (review, review_answer) = of_cluster.old.review_answer.remove_entry(review)?;
        let weight = weight_of(&review);
        of_cluster.old.weight -= weight;
        self.old -= weight;
        self.put(review, review_answer);
        Some(review_answer)
    }

    /// Removes the answers of a cluster whose name now belongs to a different cluster.
    pub(super) fn forget(&mut self, cluster: &ClusterName) {
        if let Some(removed) = self.by_cluster.remove(cluster) {
            self.young -= removed.young.weight;
            self.old -= removed.old.weight;
        }
    }

    pub(super) fn put(&mut self, review: AccessReview, review_answer: ReviewAnswer) {
        let of_cluster = self.by_cluster.get_mut(&review.cluster);
        if let Some(known) = of_cluster.and_then(|own| own.young.review_answer.get_mut(&review)) {
            *known = review_answer;
            return;
        }
        let weight = weight_of(&review);
        if self.young + weight > GENERATION_BYTES_MAX {
            self.age();
        }
        let of_cluster = self.by_cluster.entry(review.cluster.clone()).or_default();
        of_cluster.young.review_answer.insert(review, review_answer);
        of_cluster.young.weight += weight;
        self.young += weight;
    }

    /// Ages the cluster with the largest young generation: its young generation becomes its old one, and its previous
    /// old generation is dropped. Visits each cluster.
    fn age(&mut self) {
        if let Some(largest) = self.by_cluster.values_mut().max_by_key(|own| own.young.weight) {
            self.young -= largest.young.weight;
            self.old = self.old - largest.old.weight + largest.young.weight;
            largest.old = std::mem::take(&mut largest.young);
        }
        while self.old > GENERATION_BYTES_MAX {
            let Some(largest) = self.by_cluster.values_mut().max_by_key(|own| own.old.weight) else { break };
            self.old -= largest.old.weight;
            largest.old = Answers::default();
        }
        self.by_cluster.retain(|_, own| own.young.weight + own.old.weight > 0);
    }
}

fn weight_of(review: &AccessReview) -> usize {
    review.bytes().max(ANSWER_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::super::review::testing::review;
    use super::*;

    fn cached_reviews(answer_cache: &AnswerCache) -> Vec<&AccessReview> {
        answer_cache
            .by_cluster
            .values()
            .flat_map(|own| own.young.review_answer.keys().chain(own.old.review_answer.keys()))
            .collect()
    }

    #[test]
    fn access_review_cache_keeps_fewer_answers_with_long_object_names() {
        let long = "x".repeat(8 << 10);
        let mut answer_cache = AnswerCache::default();
        for number in 0..10_000 {
            answer_cache.put(review("a", &format!("{number}{long}")), ReviewAnswer::default());
            if number % 500 > 0 {
                continue;
            }
            let bytes: usize = cached_reviews(&answer_cache).into_iter().map(AccessReview::bytes).sum();
            assert!(bytes <= 2 * GENERATION_BYTES_MAX, "{bytes}");
        }
        assert!(cached_reviews(&answer_cache).len() > 4_000);
    }

    /// One user may cause many reviews for one cluster while a second cluster is unreachable.
    #[test]
    fn reviews_of_one_cluster_evict_no_answers_of_a_second_cluster() {
        let review_answer = ReviewAnswer { silent_until: Some(Instant::now()), ..ReviewAnswer::default() };
        let mut answer_cache = AnswerCache::default();
        // The answers take less than half of the size limit, with long names.
        let of_b: Vec<_> = (0..1_000).map(|number| review("b", &format!("{number}{}", "x".repeat(4 << 10)))).collect();
        of_b.iter().for_each(|own| answer_cache.put(own.clone(), review_answer));
        for number in 0..4 * GENERATION_BYTES_MAX / ANSWER_BYTES_MIN {
            answer_cache.put(review("c", &number.to_string()), ReviewAnswer::default());
        }
        let weight: usize = cached_reviews(&answer_cache).into_iter().map(weight_of).sum();
        assert!(weight <= 2 * GENERATION_BYTES_MAX, "{weight}");
        assert_eq!(weight, answer_cache.young + answer_cache.old);
        assert!(of_b.iter().all(|own| answer_cache.get(own).is_some_and(|known| known.silent_until.is_some())));
        // The latest answers of the cluster `c` are still stored.
        let last = 4 * GENERATION_BYTES_MAX / ANSWER_BYTES_MIN - 1;
        assert!((0..10_000).all(|back| answer_cache.get(&review("c", &(last - back).to_string())).is_some()));
    }
}
