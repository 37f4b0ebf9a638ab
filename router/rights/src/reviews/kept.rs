//! Store of the clusters' answers, with a size limit.

use std::collections::{BTreeMap, HashMap};

use tributary_apimachinery::ClusterName;

use super::question::Question;
use super::said::ReviewAnswer;

/// Maximum size of one generation of answers in bytes; the store has two generations. 32 MiB are 65,536 answers: 500
/// users with ten namespaces each of a dozen resources. A name in a request may have 8 KiB, so a client with long names
/// has fewer stored answers.
const KEPT_BYTES: usize = 32 << 20;

/// Minimum counted size of an answer in bytes. 512: most answers have 300, and a map allocates spare capacity.
const ANSWER_BYTES_MIN: usize = 512;

/// Stored answers by cluster, in two generations. Above the size limit, the cluster with the largest young generation
/// drops its least recently used answers. So the reviews of one cluster displace no answers of a cluster with fewer.
/// Answers of an unreachable cluster could not be restored.
#[derive(Default)]
pub(super) struct KeptAnswers {
    by_cluster: BTreeMap<ClusterName, KeptOfCluster>,
    /// Total size of the clusters' young generations: [`KEPT_BYTES`] at most.
    young: usize,
    old: usize,
}

#[derive(Default)]
struct KeptOfCluster {
    young: Answers,
    old: Answers,
}

#[derive(Default)]
struct Answers {
    said: HashMap<Question, ReviewAnswer>,
    weight: usize,
}

impl KeptAnswers {
    /// Returns the stored answer. An answer in the old generation moves to the young generation.
    pub(super) fn get(&mut self, question: &Question) -> Option<ReviewAnswer> {
        let of_cluster = self.by_cluster.get_mut(&question.cluster)?;
        if let Some(said) = of_cluster.young.said.get(question) {
            return Some(*said);
        }
        let (question, said) = of_cluster.old.said.remove_entry(question)?;
        let weight = weight_of(&question);
        of_cluster.old.weight -= weight;
        self.old -= weight;
        self.put(question, said);
        Some(said)
    }

    /// Removes the answers of a cluster, after its name has been given to a different cluster.
    pub(super) fn forget(&mut self, cluster: &ClusterName) {
        if let Some(gone) = self.by_cluster.remove(cluster) {
            self.young -= gone.young.weight;
            self.old -= gone.old.weight;
        }
    }

    pub(super) fn put(&mut self, question: Question, said: ReviewAnswer) {
        let of_cluster = self.by_cluster.get_mut(&question.cluster);
        if let Some(known) = of_cluster.and_then(|own| own.young.said.get_mut(&question)) {
            *known = said;
            return;
        }
        let weight = weight_of(&question);
        if self.young + weight > KEPT_BYTES {
            self.age();
        }
        let of_cluster = self.by_cluster.entry(question.cluster.clone()).or_default();
        of_cluster.young.said.insert(question, said);
        of_cluster.young.weight += weight;
        self.young += weight;
    }

    /// Ages the cluster with the largest young generation: this generation becomes the cluster's old one, and the
    /// previous old generation is dropped. Visits each cluster.
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

fn weight_of(question: &Question) -> usize {
    question.bytes().max(ANSWER_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::super::question::testing::question;
    use super::*;

    fn kept_questions(kept: &KeptAnswers) -> Vec<&Question> {
        kept.by_cluster.values().flat_map(|own| own.young.said.keys().chain(own.old.said.keys())).collect()
    }

    #[test]
    fn access_review_cache_keeps_fewer_answers_with_long_object_names() {
        let long = "x".repeat(8 << 10);
        let mut kept = KeptAnswers::default();
        for number in 0..10_000 {
            kept.put(question("a", &format!("{number}{long}")), ReviewAnswer::default());
            if number % 500 > 0 {
                continue;
            }
            let bytes: usize = kept_questions(&kept).into_iter().map(Question::bytes).sum();
            assert!(bytes <= 2 * KEPT_BYTES, "{bytes}");
        }
        assert!(kept_questions(&kept).len() > 4_000);
    }

    /// One user may cause many reviews for one cluster while a second cluster is unreachable.
    #[test]
    fn reviews_of_one_cluster_evict_no_answers_of_a_second_cluster() {
        let said = ReviewAnswer { silent_until: Some(Instant::now()), ..ReviewAnswer::default() };
        let mut kept = KeptAnswers::default();
        // The answers take less than half of the size limit, with long names.
        let of_b: Vec<_> =
            (0..1_000).map(|number| question("b", &format!("{number}{}", "x".repeat(4 << 10)))).collect();
        of_b.iter().for_each(|own| kept.put(own.clone(), said));
        for number in 0..4 * KEPT_BYTES / ANSWER_BYTES_MIN {
            kept.put(question("c", &number.to_string()), ReviewAnswer::default());
        }
        let weight: usize = kept_questions(&kept).into_iter().map(weight_of).sum();
        assert!(weight <= 2 * KEPT_BYTES, "{weight}");
        assert_eq!(weight, kept.young + kept.old);
        assert!(of_b.iter().all(|own| kept.get(own).is_some_and(|known| known.silent_until.is_some())));
        // The latest answers of the cluster `c` are still stored.
        let last = 4 * KEPT_BYTES / ANSWER_BYTES_MIN - 1;
        assert!((0..10_000).all(|back| kept.get(&question("c", &(last - back).to_string())).is_some()));
    }
}
